"""The driver of NVIDIA's repository, as far as a container can have it: all but the kernel modules.

Its packages are stand-ins, and a stand-in for NVML answers in the place of the driver's library.
"""

import pytest

from roles.nvidia_driver.molecule.default.tests.driver import (
    DESCRIPTION,
    PACKAGES,
    SHOW,
    VERIFY,
    versions,
)
from tests.role_play import Case


@pytest.mark.parametrize("package", PACKAGES)
def test_the_packages_and_what_they_depend_on_are_of_the_branch_and_held(host, package):
    there = host.package(package)
    assert there.is_installed
    assert there.version.startswith("580.")
    assert package in host.check_output("apt-mark showhold").split()


def test_nothing_else_is_held(host):
    assert set(host.check_output("apt-mark showhold").split()) <= set(PACKAGES)


def test_an_upgrade_leaves_the_driver_alone(host):
    with host.sudo():
        output = host.check_output("apt-get --simulate full-upgrade")
    assert not [line for line in output.splitlines() if line.startswith("Inst nvidia-")]


def test_nouveau_is_kept_away_and_profiling_is_roots(host):
    text = host.file("/etc/modprobe.d/plumbline-nvidia-driver.conf").content_string
    assert "\nblacklist nouveau\noptions nouveau modeset=0\n" in text
    assert "\noptions nvidia NVreg_RestrictProfilingToAdminUsers=1\n" in text


def test_the_persistence_daemon_is_there_for_the_next_boot_and_stays(host):
    # A static unit is "enabled" to testinfra.
    assert host.check_output("systemctl is-enabled nvidia-persistenced") == "enabled"
    assert host.service("nvidia-persistenced").is_running
    shown = "systemctl show nvidia-persistenced --property=StopWhenUnneeded,ExecStart"
    said = host.check_output(shown)
    assert "StopWhenUnneeded=no" in said
    assert " --persistence-mode" in said
    assert "--no-persistence-mode" not in said


@pytest.mark.long
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
