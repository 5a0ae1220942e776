"""The exporter beside a real slurmctld: what it says, what it says no more, and what that costs."""

import re
import time

import pytest

from tests.role_play import refused

FILE = "/var/lib/prometheus/node-exporter/slurm.prom"
UNIT = "plumbline-slurm-exporter"
COLLECTORS = {"nodes", "partitions", "jobs", "fairshare", "scheduler", "rpcs"}
LAST_RUN = 'plumbline_exporter_last_run_timestamp_seconds{exporter="slurm"}'


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield


def series(host):
    """What the file has now; a file that is not there is empty."""
    samples = {}
    for line in host.run(f"cat {FILE}").stdout.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.rpartition(" ")
            samples[key] = float(value)
    return samples


def until(host, holds, seconds=60):
    """The first series for which it holds."""
    limit = time.monotonic() + seconds
    while not holds(samples := series(host)):
        assert time.monotonic() < limit, samples
        time.sleep(0.3)
    return samples


def success(samples):
    expression = re.compile(r'plumbline_exporter_collector_success\{collector="(\w+)"')
    return {m[1]: value for key, value in samples.items() if (m := expression.match(key))}


def well(samples):
    return success(samples) == dict.fromkeys(COLLECTORS, 1.0)


def state(samples, name):
    return samples.get(f'slurm_node_state{{node="node",state="{name}"}}')


def test_everything_is_told_of_a_cluster_that_is_well(host):
    samples = until(host, lambda samples: well(samples) and state(samples, "idle"))
    assert samples['slurm_node_gpus{node="node"}'] == 2
    assert samples['slurm_partition_gpus{partition="main"}'] == 2
    assert samples["slurm_nodes_idle"] == samples["slurm_nodes"] == 1
    assert 'slurm_account_fairshare{account="root",user="root"}' in samples
    assert samples['slurm_rpc_count{rpc="REQUEST_NODE_INFO"}'] > 0
    assert samples["slurm_schedule_cycle_cnt"] >= 0


def test_the_file_is_for_node_exporter_to_read_and_alone(host):
    until(host, well)
    assert host.file(FILE).mode == 0o644
    assert host.check_output(f"ls {FILE}*") == FILE


def test_a_drained_node_a_running_and_a_waiting_job_show(host):
    submit = "runuser -u ops -- sbatch --chdir=/tmp --parsable --output=/dev/null"  # root may not
    job = host.check_output(f"{submit} --gres=gpu:2 --wrap='sleep 600'")
    held = host.check_output(f"{submit} --hold --wrap=true")
    try:
        samples = until(
            host, lambda samples: samples.get(f'slurm_job_gpus{{hpc_job="{job}"}}') == 2
        )
        assert samples['slurm_node_gpus_alloc{node="node"}'] == 2
        assert samples['slurm_jobs_pending_reason{reason="JobHeldUser"}'] == 1
        labels = f'hpc_job="{job}",node="node",partition="main",user="ops"}}'
        assert [key for key in samples if key.startswith("slurm_job_gpu_info") and labels in key]
        reason = 'board "A" = loose'
        host.run_expect([0], f"scontrol update NodeName=node State=DRAIN Reason='{reason}'")
        samples = until(host, lambda samples: state(samples, "drain"))
        labels = 'node="node",reason="board \\"A\\" = loose",user="root"'
        assert samples[f"slurm_node_reason_info{{{labels}}}"] == 1
        assert samples["slurm_nodes_draining"] == 1
    finally:
        host.run(f"scancel {job} {held}")
        host.run("scontrol update NodeName=node State=RESUME")
    until(host, lambda samples: state(samples, "idle") and not state(samples, "drain"))


def test_a_controller_that_is_gone_takes_its_series_with_it_and_they_return(host):
    host.run_expect([0], "systemctl stop slurmctld")
    try:
        samples = until(host, lambda samples: success(samples) == dict.fromkeys(COLLECTORS, 0.0))
        assert not [key for key in samples if key.startswith("slurm_")]
    finally:
        host.run_expect([0], "systemctl start slurmctld")
    until(host, well)
    journal = host.check_output(f"journalctl --unit={UNIT} --output=cat")
    assert journal.count("nodes: well again") >= 1


def test_one_command_that_hangs_takes_its_own_collector_alone(host):
    host.run_expect([0], "printf '#!/bin/sh\nsleep 600\n' > /usr/local/bin/squeue")
    host.run_expect([0], "chmod +x /usr/local/bin/squeue")
    try:
        samples = until(host, lambda samples: success(samples).get("jobs") == 0)
        assert {name for name, value in success(samples).items() if not value} == {"jobs"}
        assert "slurm_nodes" in samples
    finally:
        host.run("rm /usr/local/bin/squeue")
    until(host, well)


def test_nothing_stays_of_an_exporter_that_ends_however_it_ends(host):
    until(host, well)
    host.run_expect([0], f"systemctl stop {UNIT}")
    assert not host.file(FILE).exists
    host.run_expect([0], f"systemctl start {UNIT}")
    until(host, well)
    host.run_expect([0], f"systemctl kill --signal=KILL {UNIT}")
    until(host, lambda samples: not samples, 10)
    until(host, well)  # systemd starts it again


def test_a_round_asks_each_thing_once_whoever_reads(host):
    def next_round():
        """Waits for its end. The next one begins seconds later."""
        before = series(host).get(LAST_RUN, 0)
        until(host, lambda samples: samples.get(LAST_RUN, 0) > before)

    def stats_requests():
        return int(re.findall(r"REQUEST_STATS_INFO .*count:(\d+)", host.check_output("sdiag"))[0])

    next_round()
    first = stats_requests()
    # In one call: on a slow machine fifty would take longer than a round.
    host.check_output(f"for reader in $(seq 50); do cat {FILE} >/dev/null; done")
    next_round()
    next_round()
    assert stats_requests() - first == 1 + 2  # one is ours


def test_a_slurm_without_the_endpoint_is_refused_and_the_exporter_goes_on(host, play):
    refused(play(None, slurm_exporter_openmetrics=True), "set slurm_exporter_openmetrics to false")
    until(host, well)


@pytest.mark.long
def test_a_host_that_is_not_the_one_any_more_keeps_nothing(host, play):
    role = {"name": "slurm_exporter"}
    leave = [{"ansible.builtin.include_role": {**role, "tasks_from": "leave"}}]
    assert play(leave).code == 0
    assert host.run(f"ls /etc/systemd/system/{UNIT}.service {FILE}").rc == 2
    assert play(leave).changed == 0
    assert play(None).code == 0
    until(host, well)
