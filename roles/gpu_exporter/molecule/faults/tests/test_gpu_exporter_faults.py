"""What goes wrong with GPUs, DCGM and settings, and that what ran before runs on."""

from roles.gpu_exporter.molecule.default.tests.exporters import OWN, TEXTFILE, series
from tests.patience import until
from tests.role_play import refused


def test_a_gpu_that_is_lost_is_gone_and_comes_back(host, nvml):
    nvml("gpu.1.error.* = GPU_IS_LOST")
    until(lambda: len(series(host, "DCGM_FI_DEV_GPU_TEMP")) == 1)
    failed = 'plumbline_exporter_collector_success{exporter="gpu",collector="gpu1"} 0'
    assert failed in series(host, "plumbline_exporter_collector_success")


def test_dcgm_that_is_not_there_is_refused_and_ours_goes_on(host, play):
    refused(play(gpu_exporter_source="dcgm"), "DCGM 4 is not installed; install it first")
    assert host.service(OWN).is_running
    assert host.file(TEXTFILE).exists


def test_a_dcgm_that_nobody_paired_is_refused_and_ours_goes_on(host, play):
    host.check_output("apt-get install --yes datacenter-gpu-manager-4-core=1:4.4.0-1")
    refused(play(gpu_exporter_source="dcgm"), "DCGM 1:4.4.0-1 is installed, and the dcgm-exporter")
    assert host.service(OWN).is_running
    assert host.file(TEXTFILE).exists
    host.check_output("apt-get remove --yes datacenter-gpu-manager-4-core")


def test_what_cannot_work_is_refused(play):
    message = "gpu_exporter_users has no prometheus; add it"
    refused(play(gpu_exporter_source="dcgm", gpu_exporter_users={}), message)
    refused(play(gpu_exporter_interval=5), "gpu_exporter_interval is 5")


def test_fewer_gpus_than_declared(play):
    refused(play(gpu_exporter_gpus=8), "GPUs that answer is 2, expected 8")
