"""Nine faults at once on a real cluster: each alert reaches Alertmanager, and goes with the fault.

The faults are of different hosts or services, so that they need not wait for each other. How long
each took is written to .cache/test/alerts.md, from the fault to Alertmanager's page and from the
cure until it is gone; docs/operate/monitoring.md has the table.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests import live_cluster
from tests.live_cluster import REPOSITORY, operate, sources, under_test, virtual_cluster
from tests.patience import until
from tests.reliability.faults import SEES_MOUNTS
from tests.web_listener import Listener

CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
TABLE = REPOSITORY / ".cache/test/alerts.md"
TEXTFILES = "/var/lib/prometheus/node-exporter-validation"
SECONDS = 900  # the longest `for` is five minutes; the rest is room for a slow machine

Labels = Mapping[str, str]

on = partial(live_cluster.on, CLUSTER)


def validate(status: int) -> None:
    """Slurm's states alone: a second or two, and a node that is drained fails."""
    done = operate(
        *(sys.executable, "-m", "validation.run", *sources(INVENTORY)),
        *("--only", "slurm_state", "--metrics", TEXTFILES),
    )
    assert done.returncode == status, done.stdout + done.stderr


def fail_validation() -> None:
    on("ctl1", "sudo scontrol update nodename=gpu3 state=drain reason='a fault on purpose'")
    validate(1)


def pass_validation() -> None:
    on("ctl1", "sudo scontrol update nodename=gpu3 state=resume")
    until(lambda: not virtual_cluster(CLUSTER, "ssh", "ctl1", "sinfo -hR").stdout.strip())
    validate(0)


def certificate(**days: int) -> None:
    """As the play makes it, for login1 alone."""
    done = operate(
        *("ansible-playbook", *sources(INVENTORY), "playbooks/monitoring.yml", "--limit=login1"),
        *(f"--extra-vars=tls_certificate_{name}={value}" for name, value in days.items()),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def short_certificate() -> None:
    on("login1", "sudo rm /etc/plumbline/tls/host.crt")
    certificate(days=15, renew_days=10)


def power(verb: str, node: str) -> None:
    done = virtual_cluster(CLUSTER, verb, node)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Fault:
    what: str
    alert: str
    labels: Labels
    inject: Callable[[], None]
    cure: Callable[[], None]

    @property
    def alert_labels(self) -> Labels:
        return {"alertname": self.alert, **self.labels}


def unit(what: str, alert: str, node: str, name: str, *, kill: bool = False) -> Fault:
    down = f"systemctl kill --signal=KILL {name}" if kill else f"systemctl stop {name}"
    return Fault(
        what,
        alert,
        {"node": node},
        lambda: on(node, f"sudo {down}"),
        lambda: on(node, f"sudo systemctl start {name}"),
    )


DESCRIPTION = "/etc/plumbline-fake-nvml.conf"
# In the order in which they are done: the validator needs the controller that is stopped later.
FAULTS = (
    Fault(
        "a check of the validator fails",
        "ValidationFailed",
        {"node": "gpu3", "check": "slurm_state"},
        fail_validation,
        pass_validation,
    ),
    Fault(
        "certificate with 15 days left",
        "CertificateExpiring",
        {"node": "login1", "path": "/etc/plumbline/tls/host.crt"},
        short_certificate,
        certificate,
    ),
    unit("slurmd killed", "SlurmdDown", "gpu1", "slurmd", kill=True),
    Fault(
        "node powered off",
        "TargetDown",
        {"node": "gpu2"},
        lambda: power("stop", "gpu2"),
        lambda: power("start", "gpu2"),
    ),
    Fault(
        "one GPU fewer than declared",
        "GpuMissing",
        {"node": "gpu3"},
        lambda: on("gpu3", f"echo count = 1 | sudo tee -a {DESCRIPTION} > /dev/null"),
        lambda: on("gpu3", f"sudo sed -i '$d' {DESCRIPTION}"),
    ),
    Fault(
        "filesystem filled",
        "CriticalFilesystemLow",
        {"node": "login1", "mountpoint": "/mnt"},
        lambda: on(
            "login1",
            "sudo mount -t tmpfs -o size=16m tmpfs /mnt && sudo head -c 15M /dev/zero | "
            f"sudo tee /mnt/full > /dev/null && sudo {SEES_MOUNTS}",
        ),
        lambda: on("login1", "sudo rm /mnt/full"),
    ),
    unit("an exporter stopped", "ExporterDown", "ctl1", "plumbline-slurm-exporter"),
    unit("slurmctld stopped", "SlurmctldDown", "ctl1", "slurmctld"),
    unit("MariaDB stopped", "AccountingDatabaseDown", "ctl1", "mariadb"),
)


def firing(alertmanager: Listener) -> list[Labels]:
    return [alert["labels"] for alert in alertmanager.ask("/api/v2/alerts").document]


def there(fault: Fault, alerts: list[Labels]) -> bool:
    return any(fault.alert_labels.items() <= labels.items() for labels in alerts)


def times(
    alertmanager: Listener, begun: Mapping[str, float], *, until_there: bool
) -> dict[str, float]:
    """Seconds from each fault or cure until Alertmanager has the alert, or no longer has it."""
    took: dict[str, float] = {}
    end = time.monotonic() + SECONDS
    while len(took) < len(FAULTS):
        alerts = firing(alertmanager)
        for fault in FAULTS:
            if fault.what not in took and there(fault, alerts) == until_there:
                took[fault.what] = time.monotonic() - begun[fault.what]
        left = [fault.alert for fault in FAULTS if fault.what not in took]
        assert time.monotonic() < end, f"not {'firing' if until_there else 'cleared'}: {left}"
        time.sleep(2)
    return took


def test_each_fault_fires_reaches_alertmanager_and_clears(alertmanager: Listener) -> None:
    validate(0)
    before = firing(alertmanager)
    assert not [fault.alert for fault in FAULTS if there(fault, before)]
    assert any(labels["alertname"] == "Watchdog" for labels in before)

    begun = {}
    for fault in FAULTS:
        # What takes long itself, a run of the play or of the validator, counts from its end.
        fault.inject()
        begun[fault.what] = time.monotonic()
    fired = times(alertmanager, begun, until_there=True)

    for fault in reversed(FAULTS):
        fault.cure()
        begun[fault.what] = time.monotonic()
    cleared = times(alertmanager, begun, until_there=False)

    rows = []
    for fault in FAULTS:
        there_after, gone_after = fired[fault.what], cleared[fault.what]
        rows.append(f"| {fault.what} | {fault.alert} | {there_after:.0f} s | {gone_after:.0f} s |")
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    head = ("| fault | alert | to Alertmanager | gone after the cure |", "|---|---|---|---|")
    TABLE.write_text("\n".join((*head, *rows)) + "\n", encoding="utf-8")
