"""The driver of Debian's archive, as far as a container can have it: all but the kernel modules.

A stand-in for NVML answers in the place of the driver's own library, which is installed beside it.
"""

import os

import pytest

from roles.nvidia_driver.molecule.default.tests.archive import (
    BRANCH,
    DESCRIPTION,
    SHOW,
    VERIFY,
    versions,
)
from tests.role_play import Case


@pytest.mark.parametrize(
    "package", ["libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "nvidia-smi", "nvidia-persistenced"]
)
def test_the_archives_own_packages_are_installed_of_the_branch_and_held(host, package):
    there = host.package(package)
    assert there.is_installed
    assert there.version.startswith(f"{BRANCH}.")
    assert package in host.check_output("apt-mark showhold").split()


def test_what_belongs_to_them_is_held_too(host):
    held = set(host.check_output("apt-mark showhold").split())
    assert "libnvidia-ptxjitcompiler1" in held
    assert not {name for name in held if "nvidia" not in name and name != "libcuda1"}


def test_they_work_as_far_as_that_goes_without_a_gpu(host):
    """The real library, which the stand-in hides from everybody else."""
    library = host.check_output("find /usr/lib -name 'libnvidia-ml.so.*.*' | head -1")
    result = host.run("LD_LIBRARY_PATH=%s nvidia-smi", os.path.dirname(library))
    assert result.rc != 0
    assert "couldn't communicate with the NVIDIA driver" in result.stdout + result.stderr


def test_an_upgrade_leaves_the_driver_alone(host):
    with host.sudo():
        output = host.check_output("apt-get --simulate full-upgrade")
    assert not [line for line in output.splitlines() if line.startswith("Inst libcuda1")]


def test_nouveau_is_kept_away_and_profiling_is_roots(host):
    text = host.file("/etc/modprobe.d/plumbline-nvidia-driver.conf").content_string
    assert "\nblacklist nouveau\noptions nouveau modeset=0\n" in text
    assert "\noptions nvidia NVreg_RestrictProfilingToAdminUsers=1\n" in text


def test_the_persistence_daemon_is_there_for_the_next_boot(host):
    assert host.service("nvidia-persistenced").is_enabled


def test_the_rows_are_read_in_check_mode_without_a_change(host, play):
    before = versions(host)
    run = play([VERIFY, SHOW], "--check")
    assert (run.code, run.changed) == (0, 0), run.output
    assert run.output.count("verdict: PASS") == 7
    assert "verdict: FAIL" not in run.output
    assert versions(host) == before


def test_a_preinstalled_driver_is_verified_and_left_alone(host, attempts):
    before = versions(host)
    own = {"nvidia_driver_source": "preinstalled"}
    fewer = f"cp {DESCRIPTION} /root/description; echo count = 1 >> {DESCRIPTION}"
    outcomes = attempts(
        [
            Case("well", own),
            Case("fewer", own, breaks=fewer, mends=f"cp /root/description {DESCRIPTION}"),
        ]
    )
    outcomes["well"].passes(changed=False)
    outcomes["fewer"].refuses("number of GPUs is 1, expected 2")
    assert versions(host) == before
