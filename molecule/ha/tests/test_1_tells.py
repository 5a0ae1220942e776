"""Of two controllers the active one tells Prometheus of the cluster, and has the ledger of nodes.

A cluster that both told of would be counted twice; one of which nobody tells is not watched.
"""

from __future__ import annotations

import re

from tests.patience import until

FILE = "/var/lib/prometheus/node-exporter/slurm.prom"
# A round of the exporter is a minute, and the backup takes over after SlurmctldTimeout.
SECONDS = 420


def told(node, name: str) -> dict[str, float]:
    """The series without labels that a controller tells now."""
    with node(name).sudo():
        text = node(name).run(f"cat {FILE}").stdout
    return {key: float(value) for key, value in re.findall(r"^(\w+) (\S+)$", text, re.M)}


def tells_alone(node, name: str, other: str) -> bool:
    one, another = told(node, name), told(node, other)
    return (
        one.get("slurm_exporter_active") == 1
        and one.get("slurm_nodes") == 2
        # One whose slurmctld does not answer says so, and nothing else.
        and another.get("slurm_exporter_active") != 1
        and "slurm_nodes" not in another
    )


def ledger(node, name: str, command: str) -> str:
    with node(name).sudo():
        return node(name).check_output(f"node-history {command}")


def test_the_backup_tells_while_the_primary_is_away_and_goes_on_with_the_ledger(node) -> None:
    until(lambda: tells_alone(node, "ctl1", "ctl2"), SECONDS)
    ledger(node, "ctl1", "add gpu1 'before the primary went'")
    with node("ctl1").sudo():
        node("ctl1").check_output("systemctl stop slurmctld")
        try:
            until(lambda: tells_alone(node, "ctl2", "ctl1"), SECONDS)
            ledger(node, "ctl2", "add gpu1 'while it was away'")
            assert "before the primary went" in ledger(node, "ctl2", "show gpu1")
        finally:
            node("ctl1").check_output("systemctl start slurmctld")
    until(lambda: tells_alone(node, "ctl1", "ctl2"), SECONDS)
    assert "while it was away" in ledger(node, "ctl1", "show gpu1")
