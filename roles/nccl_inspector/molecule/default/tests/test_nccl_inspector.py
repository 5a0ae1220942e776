"""A job's folder from its prolog to its epilog, with what its user may put there."""

import json
import time

import pytest

from roles.nccl_inspector.tests.test_dumps import V40

FOLDER = "/run/plumbline_nccl"
FILE = "/var/lib/prometheus/node-exporter/nccl.prom"
UNIT = "plumbline-nccl-inspector"
SCRIPTS = "/usr/local/libexec/plumbline"
JOB = "SLURM_JOB_ID=4711 SLURM_JOB_UID=1234"


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield


@pytest.fixture
def job(host):
    host.check_output(f"{JOB} {SCRIPTS}/nccl-job begin")
    yield f"{FOLDER}/4711"
    host.check_output(f"{JOB} {SCRIPTS}/nccl-job end")
    assert not host.file(f"{FOLDER}/4711").exists


def alice(host, command):
    return host.check_output("runuser -u alice -- sh -c %s", command)


def until(host, text, there=True):
    """What the file has once `text` is there, or is gone."""
    limit = time.monotonic() + 40
    while (text in (content := host.run(f"cat {FILE}").stdout)) is not there:
        assert time.monotonic() < limit, content
        time.sleep(0.5)
    return content


def test_what_a_task_is_told(host, job):
    told = alice(host, f"{JOB} SLURM_NODEID=0 {SCRIPTS}/nccl-task").splitlines()
    library = "/usr/local/lib/plumbline/nccl/libnccl-profiler-inspector.so"
    assert told == [
        "export NCCL_RAS_ADDR=localhost:28643",
        f"export PLUMBLINE_WATCH={job}/watch.json",
        "export PLUMBLINE_WATCH_INTERVAL=1",
        f"export NCCL_PROFILER_PLUGIN={library}",
        "export NCCL_INSPECTOR_ENABLE=1",
        "export NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=10000000",
        f"export NCCL_INSPECTOR_DUMP_DIR={job}",
    ]
    assert host.file(library).mode == 0o755
    assert host.file(f"{job}/first").user == "alice"
    opted_out = "PLUMBLINE_NCCL_INSPECTOR=0 PLUMBLINE_NCCL_WATCH=0"
    assert alice(host, f"{JOB} {opted_out} {SCRIPTS}/nccl-task") == ""
    own = "NCCL_RAS_ADDR=localhost:1 NCCL_PROFILER_PLUGIN=mine.so"
    assert "NCCL_" not in alice(host, f"{JOB} {own} {SCRIPTS}/nccl-task")
    # A job of somebody else's.
    assert host.check_output(f"{JOB} {SCRIPTS}/nccl-task") == ""


def test_what_the_inspector_writes_is_summed_up_and_links_are_not_followed(host, job):
    line = json.dumps(V40)
    alice(host, f"for i in 1 2 3; do echo '{line}' >> {job}/node-pid7.log; done")
    alice(host, f"ln -s /etc/shadow {job}/link.log; mkfifo {job}/pipe.log; echo x > {job}/x.log")
    alice(host, f"head -c 80000000 /dev/zero > {job}/big.log 2>/dev/null || true")
    labels = 'collective="AllReduce",comm="0x7f8c496ae9f661",hpc_job="4711",rank="2"'
    content = until(host, f"nccl_inspector_collectives_total{{{labels}}} 3.0")
    assert 'nccl_inspector_unreadable_total{hpc_job="4711"} 4.0' in content
    assert 'collector_success{collector="inspector",exporter="nccl"} 1.0' in content
    assert host.file(FILE).mode == 0o644
    used = host.check_output(f"df --output=used {FOLDER} | tail -n1")
    assert int(used) < 65536


def test_a_hang_is_told_with_its_rank(host, job):
    alice(host, f"{JOB} SLURM_NODEID=0 {SCRIPTS}/nccl-task")
    ranks = [
        {"rank": rank, "host": f"n{rank}", "collective_counts": {"all": 7 - rank // 3}}
        for rank in range(4)
    ]
    answer = json.dumps({"keeper": 0, "communicators": [{"hash": "0", "ranks": ranks}]})
    alice(host, f"echo '{answer}' > {job}/watch.json")
    until(host, 'nccl_job_watched{hpc_job="4711",source="file"} 1.0')
    content = until(host, 'nccl_job_hanging{hpc_job="4711"} 1.0')
    assert 'nccl_job_odd_rank_info{hpc_job="4711",place="n3",rank="3"} 1.0' in content
    log = host.check_output(f"journalctl --unit={UNIT} --output=cat")
    assert "job 4711 hangs" in log
    assert "rank 3 on n3 launched 6 all, others 7 (nothing was done)" in log


def test_a_name_that_is_no_number_makes_no_folder(host):
    for name in ("../x", "1;touch x", ""):
        host.check_output("env SLURM_JOB_ID=%s SLURM_JOB_UID=1234 %s/nccl-job begin", name, SCRIPTS)
    assert host.check_output(f"ls {FOLDER}") == ""
    assert host.file(FOLDER).mode == 0o711
    assert host.check_output(f"findmnt -n -o FSTYPE {FOLDER}") == "tmpfs"


def test_the_file_goes_with_the_program(host):
    until(host, "plumbline_exporter_last_run")
    host.check_output(f"systemctl stop {UNIT}")
    assert not host.file(FILE).exists
    host.check_output(f"systemctl start {UNIT}")
    until(host, "plumbline_exporter_last_run")
