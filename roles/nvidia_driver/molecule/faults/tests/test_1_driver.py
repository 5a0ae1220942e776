"""What cannot be had, and a driver that is not as declared."""

import pytest

from roles.nvidia_driver.molecule.default.tests.driver import FAKE, described, versions
from tests.role_play import Case
from tests.standins.mirror import OnNode


def test_a_driver_without_its_library_is_told(host, play):
    with host.sudo():
        host.check_output(f"mv {FAKE} /root/stand-in && ldconfig")
    try:
        run = play()
    finally:
        with host.sudo():
            host.check_output(f"mv /root/stand-in {FAKE} && ldconfig")
    assert run.code != 0
    assert "NVML is NVML: NVML Shared Library Not Found (code 12), expected answers" in run.output


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"nvidia_driver_kernel_modules": True},
            "without which there are no kernel modules for its kernel",
        ),
        (
            {"nvidia_driver_version": "580.1.1"},
            ", not 580.1.1, and no package was changed; set nvidia_driver_version to what",
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


def test_a_repository_that_does_not_answer_is_told_and_the_driver_stays(host, play):
    before = versions(host)
    mirror = OnNode(host)
    mirror.down()
    lists = "/var/lib/apt/lists"
    with host.sudo():
        host.check_output("apt-get -qq remove --allow-change-held-packages nvidia-driver-cuda")
        # Old lists are refreshed. A repository without lists that cannot be read is an error.
        host.check_output(f"rm {lists}/127.0.0.1*")
        stamp = "/var/lib/apt/periodic/update-success-stamp"
        host.check_output(f"touch --no-create --date='2 hours ago' {lists} {stamp}")
    try:
        run = play()
        assert run.code != 0
        assert "cannot be refreshed, and no package was changed" in run.output
        assert not host.package("nvidia-driver-cuda").is_installed
        assert host.package("nvidia-modprobe").is_installed
    finally:
        mirror.up()
        with host.sudo():
            host.check_output("apt-get -qq update")
        assert play().code == 0
    assert versions(host) == before


def test_what_is_not_as_declared_ends_the_run_and_is_all_said(host, play):
    faults = ["driver = 999.1.2", "count = 3", "gpu.1.name = NVIDIA L4", "gpu.0.persistence = 0"]
    with described(host, *faults, "gpu.2.error.* = GPU_IS_LOST"):
        run = play()
    assert run.code != 0
    for words in (
        "driver is 999.1.2, expected 580",
        "number of GPUs is 3, expected 2; see lspci",
        "model of all GPUs is NVIDIA L4, expected h100_sxm",
        "GPU 2 is NVML: GPU is lost (code 15), expected answers",
        "persistence mode is off on GPU 0, expected on",
    ):
        assert words in run.output


def module(file, version, of_license):
    """A command after which modinfo finds a module of this file name, and a boot would load it."""
    told = {"version": version, "license": of_license, "file": file}
    words = "".join(rf"{file}.{key}={value}\0" for key, value in told.items())
    return (
        "mkdir -p /lib/modules/$(uname -r) && cd /lib/modules/$(uname -r) && touch modules.order"
        f" && echo kernel/{file}.ko > modules.builtin"
        f" && printf '{words}' > modules.builtin.modinfo && depmod"
    )


def test_a_reboot_is_due_where_the_next_boot_loads_another_module(attempts):
    """What runs is 580.105.08 open; Debian's own module is called otherwise, and tells nothing."""
    gone = "rm -r /lib/modules/$(uname -r)"
    own = {"nvidia_driver_source": "preinstalled"}
    outcomes = attempts(
        [
            Case("same", breaks=module("nvidia", "580.105.08", "Dual MIT/GPL"), mends=gone),
            Case("newer", breaks=module("nvidia", "580.159.03", "Dual MIT/GPL"), mends=gone),
            Case("other_kind", breaks=module("nvidia", "580.105.08", "NVIDIA"), mends=gone),
            Case("alias", own, breaks=module("nvidia-current", "580.1.1", "NVIDIA"), mends=gone),
        ]
    )
    due = "A reboot is due before the driver can be verified: 580.105.08 open is loaded and "
    for outcome in outcomes.values():
        outcome.passes(changed=False)
    assert f"{due}580.159.03 open is installed" in outcomes["newer"].output
    assert f"{due}580.105.08 proprietary is installed" in outcomes["other_kind"].output
    assert "A reboot is due" not in outcomes["same"].output + outcomes["alias"].output


def test_without_gpus_nothing_applies(play):
    run = play(None, nvidia_driver_source="none", nvidia_driver_gpu_count=0)
    assert (run.code, run.changed) == (0, 0), run.output
