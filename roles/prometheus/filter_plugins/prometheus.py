"""The role's filters; what they do is in plugin_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

from roles.prometheus.plugin_utils import config

OWN_RULES = Path(__file__).resolve().parents[1] / "files" / "etc" / "prometheus" / "rules"


def files(
    jobs: Sequence[config.ScrapeJob],
    hosts: Sequence[config.ScrapedHost],
    settings: Mapping[str, Any],
    rule_paths: Sequence[str],
) -> dict[str, str]:
    """Every file below /etc/prometheus; `settings` are the rest of the role's variables."""
    authority = settings["authority"]
    scraping = settings["scrape_user"], settings["scrape_password_file"]
    document = config.prometheus_yml(
        jobs=jobs,
        scraping=config.access(*scraping, authority),
        serving=config.access(settings["user"], settings["password_file"], authority),
        alertmanagers=settings["alertmanagers"],
        scrape_interval=settings["scrape_interval"],
        external_labels=settings["external_labels"],
        scrape_configs=settings["scrape_configs"],
        remote_write=settings["remote_write"],
    )
    try:
        rules = config.rule_files(OWN_RULES, rule_paths, settings["runbooks"])
    except OSError as error:
        raise AnsibleFilterError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from None
    return config.files(document, jobs, hosts, rules)


def problems(jobs: Sequence[config.ScrapeJob], hosts: Sequence[config.ScrapedHost]) -> list[str]:
    return [*config.job_problems(jobs, hosts)]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "prometheus_files": files,
            "prometheus_job_problems": problems,
            "prometheus_expected_gpus": config.expected_gpus,
        }
