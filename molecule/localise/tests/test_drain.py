"""A node that a run has drained, and that another returns once it passes."""

from __future__ import annotations

import pytest

from tests.live_validator import fault, on, run

__all__ = ["run"]

RIGHTS = "sacctmgr -i modify user plumbline-validation set adminlevel={}"
LOST, FOUND = "mv /dev/nvidia1 /root/", "mv /root/nvidia1 /dev/"
ASKED = ("--only", "slurm_state,gpus", "--yes")


def standing() -> dict[str, str]:
    """Of each node that Slurm gives no jobs: the reason."""
    lines = on("ctl1", "sinfo -h -N -t drain,down,maint,resv -o '%N %E'").splitlines()
    return dict(line.split(" ", 1) for line in lines)


@pytest.fixture(autouse=True)
def in_service_afterwards():
    yield
    for node in standing():
        on("ctl1", f"scontrol update nodename={node} state=resume")


def test_a_failing_node_is_drained_and_returned_once_it_passes(run):
    with fault("ctl1", RIGHTS.format("Admin"), RIGHTS.format("None")):
        with fault("gpu2", LOST, FOUND):
            done = run(*ASKED, "--drain")
            assert done.nodes("failing") == ["gpu2"], done.output[-4000:]
            assert standing().keys() == {"gpu2"}
            assert standing()["gpu2"].startswith("[plumbline:validation/gpus]")
            still = run(*ASKED, "--undrain")
            assert still.nodes("failing") == ["gpu2"], still.output[-4000:]
            assert standing()["gpu2"].startswith("[plumbline:validation/gpus]")
        returned = run(*ASKED, "--undrain")
        assert returned.code == 0, returned.output[-4000:]
        assert standing() == {}
    assert on("ctl1", "scontrol -o show reservation") == "No reservations in the system\n"
