"""What is between GPUs and network cards, of a bus in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.readers import pci
from tests.standins import pci_bus as bus


def test_gpus_and_cards_have_what_is_above_them(tmp_path: Path) -> None:
    bus.build(tmp_path)
    assert pci.devices(tmp_path) == [
        pci.Device(bus.GPU, pci.GPU, (bus.PORT, bus.SWITCH, bus.TO_GPU), "identity"),
        pci.Device(bus.CARD, pci.NETWORK, (bus.PORT, bus.SWITCH, bus.TO_CARD), "identity"),
        pci.Device(bus.OTHER_CARD, pci.NETWORK, (bus.OTHER_PORT,), "identity"),
    ]


def test_a_display_of_the_board_is_no_gpu(tmp_path: Path) -> None:
    bus.build(tmp_path)
    (tmp_path / "sys/bus/pci/devices" / bus.GPU / "vendor").write_text("0x1a03\n")
    assert pci.GPU not in {device.kind for device in pci.devices(tmp_path)}


def test_a_machine_without_a_bus_has_no_devices(tmp_path: Path) -> None:
    assert pci.devices(tmp_path) == []


@pytest.mark.parametrize(
    ("domain", "translated"),
    [("", False), ("identity", False), ("DMA", True), ("DMA-FQ", True), ("unmanaged", True)],
)
def test_an_iommu_translates_unless_it_is_off_or_passes_through(
    tmp_path: Path, domain: str, translated: bool
) -> None:
    bus.build(tmp_path, domain=domain)
    assert {device.translated for device in pci.devices(tmp_path)} == {translated}


def test_the_bridges_between_are_those_below_the_shared_one(tmp_path: Path) -> None:
    bus.build(tmp_path)
    found = pci.devices(tmp_path)
    assert pci.between(found) == [bus.TO_GPU, bus.TO_CARD]
    assert pci.between(device for device in found if device.address != bus.CARD) == []


@pytest.mark.parametrize(
    ("control", "redirects"),
    [(0, False), (0x01, False), (0x10, False), (0x04, True), (0x08, True), (0x20, True),
     (bus.ISOLATING, True), (None, False)],
)  # fmt: skip
def test_acs_redirects_by_three_of_its_bits(
    tmp_path: Path, control: int | None, redirects: bool
) -> None:
    bus.build(tmp_path, {bus.TO_GPU: control})
    assert pci.redirecting(bus.TO_GPU, tmp_path) is redirects
    assert pci.redirecting(bus.TO_CARD, tmp_path) is False


def test_a_bridge_passes_on_and_keeps_its_other_bits(tmp_path: Path) -> None:
    bus.build(tmp_path, {bus.TO_GPU: bus.ISOLATING})
    before = (tmp_path / "sys/bus/pci/devices" / bus.TO_GPU / "config").read_bytes()
    assert pci.pass_on(bus.TO_GPU, tmp_path) is True
    after = (tmp_path / "sys/bus/pci/devices" / bus.TO_GPU / "config").read_bytes()
    assert bus.control(tmp_path, bus.TO_GPU) == 0x11
    assert [place for place in range(4096) if before[place] != after[place]] == [0x14E]
    assert pci.pass_on(bus.TO_GPU, tmp_path) is False


@pytest.mark.parametrize(
    ("size", "sentence"),
    [(64, "only 64 bytes of the configuration of 0000:18:00.0 can be read"), (0, "only 0 bytes")],
)
def test_what_only_root_may_read_is_hidden_and_not_in_order(
    tmp_path: Path, size: int, sentence: str
) -> None:
    bus.build(tmp_path)
    (tmp_path / "sys/bus/pci/devices" / bus.TO_GPU / "config").write_bytes(bytes(size))
    with pytest.raises(pci.Hidden, match=sentence):
        pci.redirecting(bus.TO_GPU, tmp_path)


def test_a_bridge_of_the_old_pci_has_no_acs(tmp_path: Path) -> None:
    bus.build(tmp_path)
    (tmp_path / "sys/bus/pci/devices" / bus.TO_GPU / "config").write_bytes(bytes(256))
    assert pci.redirecting(bus.TO_GPU, tmp_path) is False


def test_a_ring_of_capabilities_ends(tmp_path: Path) -> None:
    bus.build(tmp_path)
    ring = bytearray(4096)
    ring[0x100:0x104] = (0x100 << 20 | 1).to_bytes(4, "little")
    (tmp_path / "sys/bus/pci/devices" / bus.TO_GPU / "config").write_bytes(bytes(ring))
    assert pci.redirecting(bus.TO_GPU, tmp_path) is False


def test_a_bridge_that_is_gone_is_hidden(tmp_path: Path) -> None:
    bus.build(tmp_path)
    with pytest.raises(pci.Hidden, match="No such file"):
        pci.redirecting("0000:99:00.0", tmp_path)


@pytest.mark.parametrize(("said", "machine"), [("none", ""), ("kvm", "kvm")])
def test_systemd_says_what_a_machine_is_virtual_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, machine: str
) -> None:
    program = tmp_path / "systemd-detect-virt"
    program.write_text(f'#!/bin/sh\n[ "$*" = --vm ] && echo {said}\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert pci.virtual() == machine


def test_only_some_of_many_are_named() -> None:
    assert pci.some(list("abcdef")) == "a, b, c, d and 2 more"
