"""What cannot be had of Debian's archive, and a driver that is not as declared."""

import pytest

from roles.nvidia_driver.molecule.default.tests.archive import BRANCH, FAKE, described, versions


def test_without_the_stand_in_the_real_library_finds_no_device(host, play):
    with host.sudo():
        host.check_output(f"mv {FAKE} /root/stand-in && ldconfig")
    try:
        run = play()
    finally:
        with host.sudo():
            host.check_output(f"mv /root/stand-in {FAKE} && ldconfig")
    assert run.code != 0
    assert "nvidia_driver: NVML is NVML: Driver Not Loaded (code 9), expected answers" in run.output


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"nvidia_driver_kernel_modules": True},
            "without which there are no kernel modules for its kernel",
        ),
        (
            {"nvidia_driver_branch": 580},
            f"has only {BRANCH}; set it to that, or nvidia_driver_source",
        ),
        (
            {"nvidia_driver_version": f"{BRANCH}.1.1"},
            f", not {BRANCH}.1.1, and no package was changed; set nvidia_driver_version to what",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence_and_changes_no_package(
    host, play, variables, words
):
    before = versions(host)
    run = play(**variables)
    assert run.code != 0
    assert words in run.output
    assert versions(host) == before


def test_an_archive_that_does_not_answer_is_told_and_the_driver_stays(host, play):
    before = versions(host)
    with host.sudo():
        host.check_output("apt-get -qq remove --allow-change-held-packages nvidia-persistenced")
    try:
        run = play(nvidia_driver_mirror="http://127.0.0.1:9/debian")
        assert run.code != 0
        assert "cannot be refreshed, and no package was changed" in run.output
        assert not host.package("nvidia-persistenced").is_installed
        assert host.package("libcuda1").is_installed
    finally:
        assert play().code == 0
    assert versions(host) == before


def test_what_is_not_as_declared_ends_the_run_and_is_all_said(host, play):
    faults = ["driver = 999.1.2", "count = 3", "gpu.1.name = NVIDIA L4", "gpu.0.persistence = 0"]
    with described(host, *faults, "gpu.2.error.* = GPU_IS_LOST"):
        run = play()
    assert run.code != 0
    for words in (
        f"driver is 999.1.2, expected {BRANCH}",
        "number of GPUs is 3, expected 2; see lspci",
        "model of all GPUs is NVIDIA L4, expected h100_sxm",
        "GPU 2 is NVML: GPU is lost (code 15), expected answers",
        "persistence mode is off on GPU 0, expected on",
    ):
        assert words in run.output


def test_without_gpus_nothing_applies(play):
    run = play(None, nvidia_driver_source="none", nvidia_driver_gpu_count=0)
    assert (run.code, run.changed) == (0, 0), run.output
