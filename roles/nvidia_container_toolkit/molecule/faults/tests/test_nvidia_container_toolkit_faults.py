"""What can happen to a part on its way, and other GPUs; each is a run of the role."""

import pytest

from roles.nvidia_container_toolkit.molecule.default.tests.parts import SPEC, versions
from tests.role_play import refused


def test_mig_instances_are_noticed(host, play, gpus):
    gpus("0:0 0:1 1")
    run = play()
    assert (run.code, run.changed) == (0, 2), run.output
    assert "name: '0:1'" in host.file(SPEC).content_string


@pytest.mark.usefixtures("unharmed")
class TestWhatCannotBeHad:
    @pytest.fixture(autouse=True)
    def current(self, play):
        assert play().code == 0

    def test_an_unreachable_mirror(self, play, mirror):
        mirror.down()
        run = play(nvidia_container_toolkit_version="1.21.0-1")
        refused(run, "1.21.0-1 is not installed: http://127.0.0.1:8098")

    @pytest.mark.parametrize("kind", ["404", "truncated", "wrong", "reset"])
    def test_a_part_that_does_not_arrive(self, play, mirror, kind):
        mirror.fault("*/libnvidia-container1_1.21*", kind)
        run = play(nvidia_container_toolkit_version="1.21.0-1")
        refused(run, "1.21.0-1 is not installed: http://127.0.0.1:8098")

    def test_a_version_that_there_is_not(self, play):
        run = play(nvidia_container_toolkit_version="1.99.0-1")
        refused(run, "there is 1.21.0-1, 1.20.1-1, 1.19.0-1; set nvidia_container_toolkit_version")

    def test_a_version_that_is_too_old(self, play):
        run = play(nvidia_container_toolkit_version="1.17.8-1")
        refused(run, "set it to 1.18.0 or newer")


def test_parts_that_went_apart_come_together(host, play):
    with host.sudo():
        host.check_output(
            "apt-get install --yes --allow-change-held-packages libnvidia-container1=1.21.0-1"
        )
    assert len(versions(host)) == 2
    assert play().code == 0
    assert versions(host) == {"1.20.1-1"}


def test_gpus_that_are_not_there(play, gpus):
    gpus("0")
    run = play()
    refused(run, "GPUs in the CDI specification is 1, expected 2; see journalctl")
    gpus("0 1")
    assert play().code == 0


def test_nothing_is_done_without_gpus(play):
    run = play(nvidia_container_toolkit_gpus=0)
    assert (run.code, run.changed) == (0, 0), run.output


def test_it_verifies_what_is_there_and_what_is_not(host, play):
    role = {"name": "nvidia_container_toolkit", "tasks_from": "verify"}
    verify = {"ansible.builtin.include_role": role}
    failures = "__nvidia_container_toolkit_verified | verify_failures"
    show = {"ansible.builtin.debug": {"var": failures}}
    assert "verify_failures: []" in play([verify, show]).output
    with host.sudo():
        host.check_output(f"rm {SPEC}")
        host.check_output("systemctl stop nvidia-cdi-refresh.path")
    run = play([verify, show], "--check", nvidia_container_toolkit_version="1.21.0-1")
    assert run.changed == 0
    for sentence in (
        "version of the packages is 1.20.1-1, expected 1.21.0-1",
        "nvidia-cdi-refresh.path is inactive, expected active",
        "GPUs in the CDI specification is 0, expected 2",
        "CDI specification is missing, expected current",
    ):
        assert sentence in run.output
    assert play().code == 0
