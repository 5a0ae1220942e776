"""One fault after another on a cluster in use: jobs, accounting, alerts, and how long it took.

PLUMBLINE_FAULTS names those that run, separated by commas; without it all of them do. The table
is .cache/test/reliability.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import pytest

from tests.patience import until
from tests.reliability import load, table
from tests.reliability.cluster import COMPUTE, Cluster, live
from tests.reliability.faults import FAULTS, Fault, jobs_start

CHOSEN = [name for name in os.environ.get("PLUMBLINE_FAULTS", "").split(",") if name]
ALERT_SECONDS, QUIET_SECONDS = 240, 300
GONE_SECONDS = 420  # rules look back five minutes


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return live()


def told(cluster: Cluster, wanted: Mapping[str, str]) -> bool:
    """Whether Prometheus has an alert with these labels."""
    return any(wanted.items() <= alert.items() for alert in cluster.alerts())


@pytest.mark.parametrize("fault", [FAULTS[name] for name in CHOSEN or FAULTS], ids=lambda f: f.name)
def test_nothing_is_lost(cluster: Cluster, fault: Fault) -> None:
    until(cluster.is_quiet, QUIET_SECONDS)
    assert not fault.alert or not told(cluster, fault.alert)
    jobs = load.begin(cluster)

    row = table.Row(fault.name, fault.what)
    began = time.monotonic()
    with fault.put_in(cluster):
        load.submit_late(cluster, jobs)
        if fault.alert:
            until(lambda: told(cluster, fault.alert), ALERT_SECONDS)
            row.alert = f"{fault.alert['alertname']}, {time.monotonic() - began:.0f} s"
        cured = time.monotonic()
    jobs_start(cluster)
    row.recovered_s = time.monotonic() - cured

    outcome = load.end(cluster, jobs, bool(fault.requeues) or fault.forgets)
    row.jobs, row.again = outcome.jobs, outcome.again
    assert outcome.problems == []
    until(lambda: cluster.states() == dict.fromkeys(COMPUTE, "idle"), QUIET_SECONDS)
    if fault.alert:
        until(lambda: not told(cluster, fault.alert), GONE_SECONDS)
    table.write(row)


def test_every_name_is_known() -> None:
    assert set(CHOSEN) <= FAULTS.keys(), sorted(set(CHOSEN) - FAULTS.keys())
