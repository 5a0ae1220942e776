"""Every query of the dashboards and of the alerts, executed against the Prometheus of a cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import yaml

from tests.live_cluster import REPOSITORY, on
from tests.processes import run
from tests.web_listener import SECRETS

HOST = "ctl1"


def ask(
    cluster: str, inventory: Path, folder: Path, lacking: str, seconds: float = 150
) -> subprocess.CompletedProcess[str]:
    """What scripts/dashboards says, asked again until all is as it should be or the time is over.

    `lacking` are reasons of roles/grafana/page/without_data.yml that hold on this cluster.
    """
    document = yaml.safe_load((inventory / "nodes.yml").read_text(encoding="utf-8"))
    address = document["all"]["hosts"][HOST]["ansible_host"]
    authority = folder / "ca.crt"
    certificate = on(cluster, HOST, "cat /etc/plumbline/tls/ca.crt")
    authority.write_text(f"{certificate}\n", encoding="utf-8")
    end = time.monotonic() + seconds
    while True:
        done = run(
            *(sys.executable, "scripts/dashboards", "ask", "--ca", authority),
            *("--prometheus", f"https://{address}:9090", "--user", "grafana"),
            *("--password-file", SECRETS / "monitoring_grafana_password"),
            *("--lacking", lacking),
            cwd=REPOSITORY,
            timeout=300,
        )
        if done.returncode == 0 or time.monotonic() > end:
            return done
        time.sleep(5)
