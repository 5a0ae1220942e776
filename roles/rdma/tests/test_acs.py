"""The program that clears ACS at boot, on a bus in a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.readers import pci
from roles.rdma.files.acs.main import main
from roles.rdma.plugin_utils import archive
from tests.standins import pci_bus as bus

SET = dict.fromkeys([bus.PORT, bus.TO_GPU, bus.TO_CARD, bus.OTHER_PORT], bus.ISOLATING)


@pytest.fixture(autouse=True)
def real_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pci, "virtual", lambda: "")


def test_only_bridges_between_gpus_and_cards_are_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bus.build(tmp_path, SET)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "ACS redirects no more at 0000:18:00.0, 0000:18:01.0.\n"
    assert {address: bus.control(tmp_path, address) for address in SET} == {
        bus.PORT: bus.ISOLATING,
        bus.TO_GPU: 0x11,
        bus.TO_CARD: 0x11,
        bus.OTHER_PORT: bus.ISOLATING,
    }
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "ACS redirects nothing between GPUs and network cards.\n"


def test_nothing_is_changed_while_the_iommu_translates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A switch would take the IOMMU's addresses for its own devices'."""
    bus.build(tmp_path, SET, domain="DMA-FQ")
    assert main([str(tmp_path)]) == 1
    assert "the IOMMU translates the addresses of 0000:19:00.0," in capsys.readouterr().err
    assert bus.control(tmp_path, bus.TO_GPU) == bus.ISOLATING


def test_nothing_is_changed_on_a_virtual_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pci, "virtual", lambda: "kvm")
    bus.build(tmp_path, SET)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "Nothing is changed on a virtual machine (kvm).\n"
    assert bus.control(tmp_path, bus.TO_GPU) == bus.ISOLATING


def test_a_bridge_that_does_not_change_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.build(tmp_path, SET)
    monkeypatch.setattr(pci, "pass_on", lambda bridge, root: True)
    assert main([str(tmp_path)]) == 1
    assert "ACS of 0000:18:00.0, 0000:18:01.0 does not change" in capsys.readouterr().err


def test_the_packed_program_runs_alone(tmp_path: Path) -> None:
    program = tmp_path / "acs.pyz"
    program.write_bytes(archive.content())
    detect = tmp_path / "systemd-detect-virt"
    detect.write_text("#!/bin/sh\necho none\nexit 1\n")
    detect.chmod(0o755)
    bus.build(tmp_path / "root", SET)
    done = subprocess.run(
        [sys.executable, "-I", str(program), str(tmp_path / "root")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert bus.control(tmp_path / "root", bus.TO_CARD) == 0x11
