"""The exporter beside a real slurmctld: what it says, what it says no more, and what that costs."""

import json
import re
import time

import pytest

from tests.role_play import refused

FILE = "/var/lib/prometheus/node-exporter/slurm.prom"
UNIT = "plumbline-slurm-exporter"
OF_SLURM = {"nodes", "partitions", "jobs", "fairshare", "scheduler", "rpcs", "history"}
# What slurmdbd and the kernel tell, whoever else is gone.
OF_OTHERS = {"outcomes", "usage"}
COLLECTORS = OF_SLURM | OF_OTHERS
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
        # The job may begin between two commands of one round.
        samples = until(
            host,
            lambda samples: (
                samples.get(f'slurm_job_gpus{{hpc_job="{job}"}}') == 2
                and samples.get('slurm_node_gpus_alloc{node="node"}') == 2
            ),
        )
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


def test_a_running_job_shows_what_it_uses_and_one_that_ended_shows_nothing(host):
    submit = "runuser -u ops -- sbatch --chdir=/tmp --parsable --output=/dev/null"
    # 64 MiB stay in memory, 10 MB are read each time, and a CPU is busy.
    program = "x=b'x'*2**26; all(open('/dev/zero','rb').read(10**7) for _ in iter(int,1))"
    job = host.check_output(f'{submit} --mem=200M --wrap="exec python3 -c \\"{program}\\""')

    def of(samples, name):
        return samples.get(f'plumbline_job_{name}{{hpc_job="{job}"}}', -1)

    try:
        samples = until(
            host,
            lambda samples: (
                of(samples, "cpu_seconds_total") > 1
                and of(samples, "read_bytes_total") > 10**8
                # The last processes of the job before may take a moment to go.
                and samples["plumbline_jobs_running"] == 1
            ),
        )
        assert 2**26 < of(samples, "memory_bytes") < 2**30
        assert of(samples, "memory_limit_bytes") == 200 * 2**20
        assert of(samples, "cpus") == 1
        assert of(samples, "oom_kills_total") == 0
    finally:
        host.run(f"scancel {job}")
    until(host, lambda samples: not [key for key in samples if f'hpc_job="{job}"' in key])


def test_the_ledger_remembers_a_drain_and_its_end_and_what_people_write(host):
    reason = "[plumbline:gpu_xid] GPU 1: XID 79"
    host.run_expect([0], f"scontrol update NodeName=node State=DRAIN Reason='{reason}'")
    key = 'plumbline_node_incidents_total{kind="xid",node="node"}'
    try:
        until(host, lambda samples: samples.get(key) == 1)
    finally:
        host.run("scontrol update NodeName=node State=RESUME")
    until(host, lambda samples: state(samples, "drain") == 0)
    added = host.run("SUDO_USER=ops node-history add node 'new board' --kind repair --gpu 1650")
    assert added.rc == 0, added.stderr
    shown = host.check_output("node-history show node")
    assert f"xid        [GPU 1] {reason} (root)" in shown
    assert "return" in shown
    assert "repair     [GPU 1650] new board (ops)" in shown
    assert "1 nodes in 28 days" in host.check_output("node-history list")
    # Accounting is asked as well, of a real database.
    assert success(series(host))["history"] == 1


# In the place of a validation: it writes down how it was asked, and has a verdict.
VALIDATOR = """\
for word in "$@"; do case $word in --output=*) folder=${word#--output=} ;; esac; done
mkdir -p "$folder"
echo "$@" >asked
cp verdict "$folder/summary.json"
"""


def quarantined(play, folder, standing):
    """The steps of playbooks/quarantine-nodes.yml, with a validation that finds the node so."""
    (folder / "validator").write_text(VALIDATOR)
    found = {"name": "node", "standing": standing, "reason": "fan 3 is slow"}
    (folder / "verdict").write_text(json.dumps({"nodes": [found]}))
    settings = {
        "__node_update_suspects": ["node"],
        "__node_update_root": str(folder),
        "__node_update_validator": ["sh", "validator"],
        "node_update_validation_user": "root",
        "node_update_controller": "node",
        "node_reboot_controller": "node",
    }
    steps = (
        ("node_reboot", "read_slurm"),
        ("node_update", "quarantine"),
        ("node_reboot", "read_slurm"),
        ("node_update", "quarantine_prove"),
    )
    return play(
        [
            {
                "ansible.builtin.include_role": {"name": name, "tasks_from": part},
                "vars": settings,
            }
            for name, part in steps
        ]
    )


@pytest.mark.long
def test_a_suspect_is_proven_in_a_reservation_when_its_jobs_have_ended(host, play, tmp_path):
    submit = "runuser -u ops -- sbatch --chdir=/tmp --parsable --output=/dev/null"
    job = host.check_output(f"{submit} --wrap='sleep 600'")
    until(host, lambda samples: samples.get("slurm_jobs_running") == 1)
    try:
        run = quarantined(play, tmp_path, "passing")
        refused(run, "node is kept, and waits for job")
        assert not (tmp_path / "asked").exists()
        assert host.check_output(f"squeue --noheader --job={job} --format=%T") == "RUNNING"
        shown = host.check_output("scontrol --oneliner show reservation")
        assert "ReservationName=plumbline-quarantine" in shown
        assert "Flags=MAINT,IGNORE_JOBS" in shown
    finally:
        host.run(f"scancel {job}")
    until(host, lambda samples: samples.get("slurm_jobs_running") == 0)
    refused(quarantined(play, tmp_path, "failing"), "node is drained: the validation has it as")
    words = (tmp_path / "asked").read_text().split()
    assert {"--suite=burn-in", "--alone", "--nodes=node", "--duration=1h"} <= set(words)
    assert "--reservation=plumbline-quarantine" in words
    assert "plumbline-quarantine" not in host.run("scontrol --oneliner show reservation").stdout
    node = host.check_output("scontrol --oneliner show node node")
    assert "Reason=[plumbline:quarantine] the validation has it as failing: fan 3" in node
    try:
        run = quarantined(play, tmp_path, "passing")
        assert run.code == 0, run.output[-3000:]
        until(host, lambda samples: state(samples, "idle") and not state(samples, "drain"))
    finally:
        host.run("scontrol delete ReservationName=plumbline-quarantine")
        host.run("scontrol update NodeName=node State=RESUME")
    told = host.check_output("node-history show node")
    for words in ("suspect: it fails again", "drained: the validation", "proven: back in service"):
        assert words in told


def test_a_controller_that_is_gone_takes_its_series_with_it_and_they_return(host):
    host.run_expect([0], "systemctl stop slurmctld")
    try:
        gone = dict.fromkeys(OF_SLURM, 0.0) | dict.fromkeys(OF_OTHERS, 1.0)
        samples = until(host, lambda samples: success(samples) == gone)
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


@pytest.mark.long
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
