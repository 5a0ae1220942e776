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

from playbooks.plugin_utils.documents import plain, to_yaml

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
    rules = speaking(job.get("speaks_of_nodes") or ())
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


def prometheus_yml(
    *,
    jobs: Sequence[ScrapeJob],
    scraping: Mapping[str, Any],
    serving: Mapping[str, Any],
    alertmanagers: Sequence[str],
    scrape_interval: str,
    external_labels: Mapping[str, Any],
    scrape_configs: Sequence[Mapping[str, Any]],
    remote_write: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The document prometheus.yml; a site's own scrape_configs come last, as they are."""
    told = {**serving, "static_configs": [{"targets": list(alertmanagers)}]}
    return {
        "global": {
            "scrape_interval": scrape_interval,
            "evaluation_interval": scrape_interval,
            "external_labels": {key: str(value) for key, value in external_labels.items()},
        },
        "rule_files": ["rules/*.yml"],
        **({"alerting": {"alertmanagers": [told]}} if alertmanagers else {}),
        "scrape_configs": [
            *(scrape_config(job, scraping, serving) for job in jobs),
            *scrape_configs,
        ],
        **({"remote_write": list(remote_write)} if remote_write else {}),
    }


def files(
    document: Mapping[str, Any],
    jobs: Sequence[ScrapeJob],
    hosts: Sequence[ScrapedHost],
    rules: Mapping[str, str],
) -> dict[str, str]:
    """Text of each file, by its path below /etc/prometheus."""
    return {
        "prometheus.yml": to_yaml(document),
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


def expected_gpus(nodes: Sequence[Mapping[str, Any]]) -> str:
    """A textfile of what is declared: who is down still has it, and GPUs that fell off the bus."""
    lines = [
        "# HELP plumbline_expected_gpus GPUs that the inventory declares.",
        "# TYPE plumbline_expected_gpus gauge",
    ]
    lines += [
        f'plumbline_expected_gpus{{node="{node["node"]}",model="{node["model"]}"}} {node["count"]}'
        for node in nodes
    ]
    lines += [
        "# HELP plumbline_expected_gpu_name Names that boards of the declared model may have.",
        "# TYPE plumbline_expected_gpu_name gauge",
    ]
    lines += [
        f'plumbline_expected_gpu_name{{node="{node["node"]}",modelName="{name}"}} 1'
        for node in nodes
        for name in node.get("names") or ()
    ]
    return "\n".join(lines) + "\n"
