"""Both exporters on one node. GPUs, DCGM and dcgm-exporter are stand-ins: the role is tested."""

import re

import pytest

from roles.gpu_exporter.molecule.default.tests.exporters import DCGM, OWN, TEXTFILE, series
from tests.patience import until

JOBS = "/run/plumbline/gpu-jobs"
KERNEL_LOG = "/var/log/kern.log"
SCRIPT = "/usr/local/libexec/plumbline/gpu-jobs"


def run(host, phase, job, gpus):
    host.run_expect([0], f"env SLURM_JOB_ID={job} SLURM_JOB_GPUS={gpus} {SCRIPT} {phase}")


def test_the_gpus_are_read_and_everybody_may_read_the_file(host):
    until(lambda: len(series(host, "DCGM_FI_DEV_GPU_TEMP")) == 2)
    assert host.file(TEXTFILE).mode == 0o644
    (line,) = [line for line in series(host, "DCGM_FI_DEV_GPU_TEMP") if 'gpu="1"' in line]
    assert 'device="nvidia1"' in line
    assert "hpc_job" not in line


def xid(host, gpu, code):
    """Writes it into the kernel's log, and waits until it is counted, once."""
    before = xids(host).get((gpu, code), 0)
    line = f"node kernel: [ 4711.5] NVRM: Xid (PCI:0000:{gpu}:00): {code}, pid=1, whatever"
    host.run_expect([0], f"echo '{line}' >> {KERNEL_LOG}")
    until(lambda: xids(host).get((gpu, code), 0) == before + 1)


def xids(host):
    """By GPU and code; all those of this file are faults."""
    pattern = r'pci_bus_id="00000000:(..):00.0",kind="xid",xid="(\d+)",verdict="fail"} (\d+)$'
    lines = series(host, "plumbline_kernel_xid_total")
    counts = [re.search(pattern, line).groups() for line in lines]
    return {(gpu.lower(), int(code)): int(count) for gpu, code, count in counts}


def test_an_xid_of_the_kernels_log_is_counted(host):
    xid(host, "2b", 79)


def test_a_job_has_its_gpus_in_the_metrics_while_it_runs(host):
    run(host, "begin", 4711, "0")
    run(host, "begin", 4712, "0,1")
    until(lambda: len(series(host, "DCGM_FI_DEV_GPU_UTIL")) == 3)
    run(host, "end", 4712, "0,1")
    run(host, "end", 4711, "0")
    assert host.run(f"ls {JOBS}").stdout == ""
    until(lambda: "hpc_job" not in "".join(series(host, "DCGM_FI_DEV_GPU_UTIL")))


def test_a_prolog_never_fails_and_says_why(host):
    run(host, "begin", "none", "0")
    assert "SLURM_JOB_ID is none" in host.check_output("journalctl -t plumbline-gpu-jobs")


def test_no_dead_value_stays(host):
    for signal in ("TERM", "KILL"):
        host.check_output(f"systemctl start {OWN}")
        until(lambda: host.file(TEXTFILE).exists)
        if signal == "TERM":
            host.check_output(f"systemctl stop {OWN}")
        else:
            host.check_output(f"systemctl kill --signal=KILL {OWN}")
        until(lambda: not host.file(TEXTFILE).exists, 15)
    host.check_output(f"systemctl start {OWN}")
    until(lambda: host.file(TEXTFILE).exists)


@pytest.mark.long
def test_a_run_that_changes_nothing(play):
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert play(None, "--check").changed == 0


@pytest.mark.long
def test_dcgm_exporter_comes_in_the_version_of_the_dcgm(host, play):
    host.check_output("apt-get install --yes datacenter-gpu-manager-4-core=1:4.6.0-1")
    host.check_output("systemctl enable --now nvidia-dcgm")
    run = play(gpu_exporter_source="dcgm")
    assert run.code == 0, run.output
    assert host.package("datacenter-gpu-manager-exporter").version == "4.8.3-1"
    assert host.service(DCGM).is_enabled
    # Ours has left the GPUs to it, and counts XIDs.
    assert series(host, "DCGM_FI_DEV_GPU_TEMP") == []
    assert len(series(host, "plumbline_exporter_collector_success")) == 1
    xid(host, "1b", 48)
    assert xids(host)["2b", 79] >= 1
    assert host.file("/etc/dcgm-exporter/web-config.yml").mode == 0o600
    again = play(gpu_exporter_source="dcgm")
    assert (again.code, again.changed) == (0, 0), again.output


@pytest.mark.long
def test_it_comes_back_whatever_ends_it_and_with_the_engine(host):
    host.check_output(f"systemctl kill --signal=KILL {DCGM}")
    until(lambda: host.service(DCGM).is_running)
    before = host.check_output(f"systemctl show --property=MainPID {DCGM}")
    host.check_output("systemctl restart nvidia-dcgm")
    until(lambda: host.service(DCGM).is_running)
    assert host.check_output(f"systemctl show --property=MainPID {DCGM}") != before


@pytest.mark.long
def test_nothing_stays_without_gpus(host, play):
    run = play(gpu_exporter_source="none")
    assert run.code == 0, run.output
    for path in (TEXTFILE, SCRIPT, f"/etc/systemd/system/{OWN}.service"):
        assert not host.file(path).exists
    assert not host.service(DCGM).is_running
    assert not host.service(OWN).is_running
    assert play(gpu_exporter_source="none").changed == 0
    assert play().code == 0
