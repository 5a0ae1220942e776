"""Prometheus' files out of the role's variables: what is scraped, whom alerts go to, which rules.

Only keys that Prometheus 2.42 knows, the oldest that is met (Debian 12):
https://prometheus.io/docs/prometheus/2.42/configuration/configuration/. Names of files inside are
relative, so that the whole can be checked before it is put in place.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.text import label
from playbooks.plugin_utils.documents import plain

# What a rule of ours names its runbook by, below the root of the documentation.
RUNBOOK = re.compile(r"^( *)runbook: (docs/runbooks/\w+\.md)$", re.MULTILINE)

# In the URL of a target, a file's name and a label: a word.
JOB = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

ScrapeJob = Mapping[str, Any]
ScrapedHost = Mapping[str, Any]


def job_problems(jobs: Sequence[ScrapeJob], hosts: Sequence[ScrapedHost]) -> Iterator[str]:
    """Clauses with their subject: jobs that Prometheus would refuse, or that scrape nobody."""
    for name, times in Counter(str(job.get("name", "")) for job in jobs).items():
        if not JOB.fullmatch(name):
            yield f"{name!r} is no name of a job; give it letters, digits, - and _"
        if times > 1:
            yield f"{times} jobs have the name {name}"
    known = {host["name"] for host in hosts}
    for job in jobs:
        port = job.get("port")
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
            yield f"the job {job.get('name')} has the port {port!r}; give it a number up to 65535"
        for host in job.get("hosts") or ():
            if host not in known:
                yield f"the job {job.get('name')} scrapes {host}, which is not in prometheus_hosts"


def targets(job: ScrapeJob, hosts: Sequence[ScrapedHost]) -> list[dict[str, Any]]:
    """What file_sd reads: a target for each host, with its labels.

    A job without `hosts` scrapes all of them, one with an empty list nobody.
    """
    wanted = job.get("hosts")
    return [
        {
            "targets": [f"{host['name']}:{job['port']}"],
            "labels": {"node": str(host["name"]), **(host.get("labels") or {})},
        }
        for host in hosts
        if wanted is None or host["name"] in wanted
    ]


def speaking(speakers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rules by which the label `node` of some metrics is whom they are about, not who has them.

    All else that a host writes has its own name in `node`, and what it gave there is
    `exported_node`. A metric that is about several nodes has an empty `node`, which stays so.
    """
    rules: list[dict[str, Any]] = []
    for speaker in speakers:
        hosts = "|".join(re.escape(str(host)) for host in speaker["hosts"])
        if not hosts:
            continue
        series = {
            "source_labels": ["instance", "__name__", "exported_node"],
            "regex": f"(?:{hosts}):[0-9]+;(?:{speaker['metrics']});(?P<about>.*)",
        }
        # By name: a site's expression may have groups of its own.
        rules.append({**series, "target_label": "node", "replacement": "${about}"})
        rules.append({**series, "target_label": "exported_node", "replacement": ""})
    return rules


def scrape_config(
    job: ScrapeJob, scraping: Mapping[str, Any], serving: Mapping[str, Any]
) -> dict[str, Any]:
    """One entry of `scrape_configs`; both accesses have TLS and authentication."""
    more = {
        key: job[key]
        for key in ("scrape_interval", "scrape_timeout", "metrics_path", "honor_labels")
        if key in job
    }
    own = job.get("metric_relabel_configs") or ()
    rules = [*speaking(job.get("speaks_of_nodes") or ()), *own]
    return {
        "job_name": job["name"],
        **more,
        **(serving if job.get("server") else scraping),
        "file_sd_configs": [{"files": [f"targets/{job['name']}.json"]}],
        **({"metric_relabel_configs": rules} if rules else {}),
    }


def access(user: str, password_file: str, authority: str) -> dict[str, Any]:
    """How Prometheus talks to exporters, or to the servers: itself and Alertmanager."""
    return {
        "scheme": "https",
        "tls_config": {"ca_file": authority},
        "basic_auth": {"username": user, "password_file": password_file},
    }


# Keys of Prometheus' own whose value is a secret; each has a sister that names a file.
# https://prometheus.io/docs/prometheus/latest/configuration/configuration/#remote_write
INLINE_SECRETS = {
    "password": "password_file",
    "credentials": "credentials_file",
    "bearer_token": "bearer_token_file",
    "client_secret": "client_secret_file",
    "key": "key_file",
    "secret_key": "a profile",
}
SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def store_problems(
    variable: str, entries: Any, folder: str, secrets: Iterable[str]
) -> Iterator[str]:
    """Clauses with their subject: secrets in plain text, and files that nobody puts there.

    `secrets` are names of files in `folder`, the one of a site's own.
    """
    for path, key, value in _leaves(variable, entries):
        if key in INLINE_SECRETS:
            yield (
                f"{path} is a secret; put it into a file of prometheus_secret_files, "
                f"and say {INLINE_SECRETS[key]} instead"
            )
        elif isinstance(value, str) and value.startswith(f"{folder}/"):
            name = value.removeprefix(f"{folder}/")
            if name not in secrets:
                yield f"{path} is {value}, and prometheus_secret_files has no {name}"


def secret_name_problems(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if not SECRET_NAME.fullmatch(str(name)):
            yield (
                f"prometheus_secret_files has {name!r}, which is no name of a file; give it "
                "letters, digits, -, _ and ."
            )


def _leaves(path: str, value: Any, key: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every value that has no further ones, with the way to it and its own key."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}", inner, str(name))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _leaves(f"{path}[{number}]", inner, key)
    else:
        yield path, key, value


def written(entries: Sequence[Mapping[str, Any]], label: str, name: str) -> list[dict[str, Any]]:
    """Entries of `remote_write`; with a label, each sample says which Prometheus sent it.

    The label is added after all of the site's own rules. It is no external label: Alertmanager
    would take the same alert of two Prometheis for two alerts.
    """
    if not label:
        return [dict(entry) for entry in entries]
    rule = {"target_label": label, "replacement": name.replace("$", "$$")}
    return [
        {**entry, "write_relabel_configs": [*(entry.get("write_relabel_configs") or ()), rule]}
        for entry in entries
    ]


def prometheus_yml(
    *,
    jobs: Sequence[ScrapeJob],
    scraping: Mapping[str, Any],
    serving: Mapping[str, Any],
    alertmanagers: Sequence[str],
    alertmanager_configs: Sequence[Mapping[str, Any]] = (),
    scrape_interval: str,
    external_labels: Mapping[str, Any],
    scrape_configs: Sequence[Mapping[str, Any]],
    remote_write: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The document prometheus.yml; a site's own scrape_configs come last, as they are."""
    own = {**serving, "static_configs": [{"targets": list(alertmanagers)}]}
    told = [*([own] if alertmanagers else []), *alertmanager_configs]
    return {
        "global": {
            "scrape_interval": scrape_interval,
            "evaluation_interval": scrape_interval,
            "external_labels": {key: str(value) for key, value in external_labels.items()},
        },
        "rule_files": ["rules/*.yml"],
        **({"alerting": {"alertmanagers": told}} if told else {}),
        "scrape_configs": [
            *(scrape_config(job, scraping, serving) for job in jobs),
            *scrape_configs,
        ],
        **({"remote_write": list(remote_write)} if remote_write else {}),
    }


def files(
    jobs: Sequence[ScrapeJob], hosts: Sequence[ScrapedHost], rules: Mapping[str, str]
) -> dict[str, str]:
    """Text of each file of targets and of rules, by its path below /etc/prometheus."""
    return {
        **{
            f"targets/{job['name']}.json": json.dumps(plain(targets(job, hosts)), indent=1) + "\n"
            for job in jobs
        },
        **{f"rules/{name}": text for name, text in rules.items()},
    }


def rule_files(own: Path, paths: Iterable[str], runbooks: str = "") -> dict[str, str]:
    """Text of each file of rules, by its name: the role's own, then a site's.

    A site's file replaces the role's of the same name. `runbooks` is the address below which
    docs/runbooks is found; with it, each alert of ours has a `runbook_url` too. Raises ValueError
    for two of a site's.
    """
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(own.glob("*.yml"))}
    if runbooks:
        link = rf"\g<0>\n\1runbook_url: {runbooks.rstrip('/')}/\2"
        texts = {name: RUNBOOK.sub(link, text) for name, text in texts.items()}
    of_site = [Path(path) for path in paths]
    for name, times in Counter(path.name for path in of_site).items():
        if times > 1:
            raise ValueError(f"{times} files of prometheus_rule_files have the name {name}")
    return texts | {path.name: path.read_text(encoding="utf-8") for path in of_site}


def expected_gpus(nodes: Sequence[Mapping[str, Any]], validation_days: float) -> str:
    """A textfile of what is declared: who is down still has it, and GPUs that fell off the bus.

    A validation may be so many days old, and as old as it likes with 0.
    """
    lines = [
        "# HELP plumbline_expected_validation_max_age_seconds How old a validation may be.",
        "# TYPE plumbline_expected_validation_max_age_seconds gauge",
        f"plumbline_expected_validation_max_age_seconds {validation_days * 86400:.0f}",
        "# HELP plumbline_expected_gpus GPUs that the inventory declares.",
        "# TYPE plumbline_expected_gpus gauge",
    ]
    lines += [
        f'plumbline_expected_gpus{{node="{label(node["node"])}",model="{label(node["model"])}"}} '
        f"{node['count']}"
        for node in nodes
    ]
    lines += [
        "# HELP plumbline_expected_gpu_name Names that boards of the declared model may have.",
        "# TYPE plumbline_expected_gpu_name gauge",
    ]
    lines += [
        f'plumbline_expected_gpu_name{{node="{label(node["node"])}",modelName="{label(name)}"}} 1'
        for node in nodes
        for name in node.get("names") or ()
    ]
    return "\n".join(lines) + "\n"
