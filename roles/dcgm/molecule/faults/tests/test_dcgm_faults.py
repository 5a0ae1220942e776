"""What can happen to packages on their way, and another driver; each is a run of the role."""

import pytest

from roles.dcgm.molecule.default.tests.parts import CORE, started, version
from tests.role_play import refused


@pytest.mark.usefixtures("unharmed")
class TestWhatCannotBeHad:
    def test_an_unreachable_mirror(self, host, play, mirror):
        mirror.down()
        refused(play(dcgm_version="4.7.0"), "1:4.7.0-1 is not installed: http://127.0.0.1:8098")

    @pytest.mark.parametrize("kind", ["404", "truncated", "wrong", "reset"])
    def test_a_package_that_does_not_arrive(self, host, play, mirror, kind):
        mirror.fault("*cuda13_4.7.0*", kind)
        refused(play(dcgm_version="4.7.0"), "1:4.7.0-1 is not installed: http://127.0.0.1:8098")

    def test_a_version_that_there_is_not(self, play):
        refused(
            play(dcgm_version="4.9.9"), "there is 1:4.7.0-1, 1:4.5.2-1; set dcgm_version to one"
        )

    def test_a_driver_that_nobody_declared(self, play):
        refused(play(dcgm_driver_branch=0), "dcgm_driver_branch is 0 on a node with 2 GPUs")


def test_another_driver_gets_other_plugins(host, play):
    assert play(dcgm_driver_branch=570).code == 0
    assert version(host, CORE.replace("core", "cuda12")) == "1:4.5.2-1"
    assert not version(host, CORE.replace("core", "cuda13"))
    run = play(dcgm_version="4.7.0")  # and the driver that it was before
    assert run.code == 0, run.output
    assert version(host, CORE.replace("core", "cuda13")) == "1:4.7.0-1"
    assert play().code == 0


def test_a_new_version_restarts_the_engine_and_goes_back(host, play):
    before = started(host)
    run = play(dcgm_version="4.7.0")
    assert run.code == 0, run.output
    assert (version(host), started(host) != before) == ("1:4.7.0-1", True)
    assert play().code == 0
    assert version(host) == "1:4.5.2-1"
