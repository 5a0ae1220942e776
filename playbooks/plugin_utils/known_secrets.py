"""The secrets that Plumbline keeps: what each opens, and what replaces it."""

from __future__ import annotations

import os
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from playbooks.plugin_utils import kept

KEY_BYTES = 1024  # of MUNGE's key: what munged(8) reads at most
TOKEN_KEY_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Secret:
    """By the name of its file. `kind` is the word of rotate-secrets.yml, "" for none."""

    opens: str
    kind: str


SECRETS: Mapping[str, Secret] = {
    "munge.key": Secret("all of Slurm, as any user", "munge"),
    "slurm_database_password": Secret("Slurm's accounting database", "database"),
    "slurm_jwt_key": Secret("Slurm's REST API, as any user", "jwt"),
    "tls_authority.pem": Secret("certificates of all hosts", "tls"),
    "monitoring_prometheus_password": Secret("exporters of all hosts", "web"),
    "monitoring_server_password": Secret("Prometheus and Alertmanager, for each other", "web"),
    "monitoring_admin_password": Secret("Prometheus and Alertmanager, for people", "web"),
    "monitoring_grafana_password": Secret("Prometheus, for Grafana", "web"),
    "monitoring_job_report_password": Secret("all metrics, for job-report and the ledger", "web"),
    "grafana_admin_password": Secret("Grafana, as its administrator", "web"),
    "grafana_secret_key": Secret("what Grafana's database encrypts", ""),
}
KINDS = tuple(dict.fromkeys(secret.kind for secret in SECRETS.values() if secret.kind))
ALL = "all"


def _letters(length: int) -> bytes:
    alphabet = string.ascii_letters + string.digits  # they need no quotes anywhere
    return "".join(secrets.choice(alphabet) for _ in range(length)).encode()


# By kind, a new value; the authority's is made by the role that signs with it.
MAKERS: Mapping[str, Callable[[], bytes]] = {
    "munge": lambda: os.urandom(KEY_BYTES),
    "database": lambda: _letters(kept.LENGTH),
    "jwt": lambda: _letters(TOKEN_KEY_LENGTH),
    "web": lambda: _letters(kept.LENGTH) + b"\n",
}


def kinds(asked: str) -> list[str]:
    """The kinds that `-e rotate=...` names, in the order of the run. Raises NotKept."""
    words = [word for word in asked.replace(",", " ").split() if word]
    unknown = [word for word in words if word not in (*KINDS, ALL)]
    if unknown or not words:
        what = f"rotate is {asked!r}" if asked else "rotate is not set"
        raise kept.NotKept(
            f"{what}; say which secrets to replace, with -e rotate={'|'.join((*KINDS, ALL))}"
        )
    return [kind for kind in KINDS if kind in words or ALL in words]
