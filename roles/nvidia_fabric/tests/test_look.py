"""What the module sees on a node: a tree of files made here stands for /proc and /sys."""

import time

import pytest

from roles.nvidia_fabric.library import nvidia_fabric_look as look


def pci(root, address, vendor, kind, vpd=None):
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    if vpd is not None:
        (device / "vpd").write_bytes(vpd)


def test_nvswitches_are_found_with_the_driver_and_without(tmp_path):
    assert look.switches(tmp_path) == 0
    pci(tmp_path, "0000:05:00.0", "0x10de", "0x068000")
    pci(tmp_path, "0000:06:00.0", "0x10de", "0x068000")
    pci(tmp_path, "0000:07:00.0", "0x10de", "0x030200")  # a GPU
    pci(tmp_path, "0000:08:00.0", "0x8086", "0x068000")  # a bridge of somebody else's
    assert look.switches(tmp_path) == 2
    for name in ("a", "b", "c"):
        (tmp_path / "proc/driver/nvidia-nvswitch/devices" / name).mkdir(parents=True)
    assert look.switches(tmp_path) == 3


def test_bridges_are_network_functions_that_manage_switches(tmp_path):
    pci(tmp_path, "0000:05:00.0", "0x15b3", "0x020700", b"\x82\x10\x00ConnectX-7 SMDL=SW_MNG")
    pci(tmp_path, "0000:06:00.0", "0x15b3", "0x020700", b"\x82\x10\x00ConnectX-7")
    pci(tmp_path, "0000:07:00.0", "0x15b3", "0x020000", b"SW_MNG")  # Ethernet
    pci(tmp_path, "0000:08:00.0", "0x15b3", "0x020700")  # without such data
    assert look.bridges(tmp_path) == 1


@pytest.mark.parametrize(
    ("modinfo", "libraries", "version"),
    [
        ("580.95.05\n", ["libnvidia-ml.so.580.126.20"], "580.95.05"),
        ("", ["libnvidia-ml.so.1", "libnvidia-ml.so.570.211.01"], "570.211.01"),
        ("", ["libnvidia-ml.so.580.95.05", "libnvidia-ml.so.580.126.20"], "580.126.20"),
        ("modinfo: ERROR", ["libnvidia-ml.so.1"], ""),
        ("", [], ""),
    ],
)
def test_the_installed_driver_is_the_kernels_before_the_librarys(modinfo, libraries, version):
    assert look.installed(modinfo, libraries) == version


def test_a_program_that_is_missing_says_nothing():
    assert look.said_by("/no/such/program") == ""


def test_imex_is_waited_for_until_it_is_ready(monkeypatch):
    replies = iter(["", "UNAVAILABLE\n", "READY\n"])
    monkeypatch.setattr(look, "said_by", lambda *_: next(replies))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert look.imex(60) == "READY"
    monkeypatch.setattr(look, "said_by", lambda *_: "UNAVAILABLE\n")
    assert look.imex(0) == "UNAVAILABLE"
