"""The role's filters; what they do is in plugin_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

from playbooks.plugin_utils.documents import to_yaml
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
        alertmanager_configs=settings["alertmanager_configs"],
        scrape_interval=settings["scrape_interval"],
        external_labels=settings["external_labels"],
        scrape_configs=settings["scrape_configs"],
        remote_write=config.written(
            settings["remote_write"], settings["replica_label"], settings["name"]
        ),
    )
    rules = _rules(rule_paths, settings)
    return {"prometheus.yml": to_yaml(document), **config.files(jobs, hosts, rules)}


def exported(
    jobs: Sequence[config.ScrapeJob],
    hosts: Sequence[config.ScrapedHost],
    settings: Mapping[str, Any],
    rule_paths: Sequence[str],
) -> dict[str, str]:
    """What another Prometheus needs to scrape the same exporters and evaluate the same rules.

    Servers are left out: they are the site's own there. Names of files are relative to the folder.
    """
    asked = [job for job in jobs if not job.get("server")]
    scraping = config.access(settings["scrape_user"], "scrape_password", "ca.crt")
    entries = [config.scrape_config(job, scraping, {}) for job in asked]
    document = {"scrape_configs": [*entries, *settings["scrape_configs"]]}
    rules = _rules(rule_paths, settings)
    return {"scrape_configs.yml": to_yaml(document), **config.files(asked, hosts, rules)}


def _rules(paths: Sequence[str], settings: Mapping[str, Any]) -> dict[str, str]:
    try:
        return config.rule_files(OWN_RULES, paths, settings["runbooks"])
    except OSError as error:
        raise AnsibleFilterError(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from None


def problems(jobs: Sequence[config.ScrapeJob], hosts: Sequence[config.ScrapedHost]) -> list[str]:
    return [*config.job_problems(jobs, hosts)]


def secret_problems(
    entries: Mapping[str, Any], folder: str, secrets: Mapping[str, str]
) -> list[str]:
    """`entries` are those of Prometheus' own form, by the name of the variable that has them."""
    return [
        *config.secret_name_problems(secrets),
        *(
            problem
            for variable, value in entries.items()
            for problem in config.store_problems(variable, value, folder, secrets)
        ),
    ]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "prometheus_files": files,
            "prometheus_exported_files": exported,
            "prometheus_job_problems": problems,
            "prometheus_secret_problems": secret_problems,
            "prometheus_expected_gpus": config.expected_gpus,
        }
