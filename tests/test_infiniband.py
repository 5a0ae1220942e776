"""The action `infiniband`: the validation's reader, sent to a node and run there.

The node is this machine over Ansible's local connection; its ports are a tree of files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.readers import infiniband
from validation.tests import standin_host


def device(root: Path, name: str, **states: str) -> None:
    """A device with one port, as the kernel shows it."""
    port = standin_host.port(0, **states)
    place = root / name / "ports/1"
    (place / "counters").mkdir(parents=True)
    for what in infiniband.STATES:
        (place / what).write_text(f"{port[what]}\n")


@pytest.fixture
def look(ask):
    return lambda *options, **arguments: ask({"infiniband": arguments}, *options)


@pytest.mark.sample(1)
@pytest.mark.parametrize("options", [[], ["--check"]])
def test_the_ports_are_those_that_the_reader_reads_here(look, tmp_path, options):
    root = tmp_path / "class"
    device(root, "mlx5_0")
    device(root, "mlx5_1", state="1: DOWN", phys_state="3: Disabled")
    result = look(*options, root=str(root))
    assert (result["changed"], result["error"]) == (False, None)
    assert result["ports"] == infiniband.read(root)
    assert [port["state"] for port in result["ports"]] == ["4: ACTIVE", "1: DOWN"]


def test_a_node_without_devices_has_no_ports(look, tmp_path):
    assert look(root=str(tmp_path / "none"))["ports"] == []


def test_a_kernel_that_does_not_answer_is_an_answer(look, tmp_path):
    """A pipe that nobody writes to is read for ever."""
    root = tmp_path / "class"
    device(root, "mlx5_0")
    (root / "mlx5_0/ports/1/rate").unlink()
    os.mkfifo(root / "mlx5_0/ports/1/rate")
    result = look(root=str(root), timeout=0.5)
    assert result["ports"] is None
    assert "0.5 s" in result["error"]


def test_no_time_at_all_is_refused(look):
    assert "give it some seconds" in look(timeout=0)["msg"]
