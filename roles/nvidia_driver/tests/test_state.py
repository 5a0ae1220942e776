"""What the module makes of what a node says of its driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roles.nvidia_driver.library import nvidia_driver_state as state

OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs)\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("550.163.01-2", "550.163.01"),
        ("580.95.05-0ubuntu0.24.04.2", "580.95.05"),
        ("1:590.44.01-1", "590.44.01"),
        ("535.216.03-3~deb12u1", "535.216.03"),
        ("1.2.2", ""),
        ("20240109+1", ""),
        ("", ""),
    ],
)
def test_the_drivers_version_in_a_packages(version: str, number: str) -> None:
    assert state.number(version) == number


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("580.95.05-1", "580", True),
        ("580.95.05-1", "580.95.05", True),
        ("580.95.05-1", "580.95.0", False),
        ("5800.1-1", "580", False),
        ("590.44.01-1", "580", False),
        ("580.95.05-1", "", False),
        ("", "580", False),
    ],
)
def test_a_version_is_of_a_branch(version: str, wanted: str, fits: bool) -> None:
    assert state.fits(version, wanted) is fits


@pytest.mark.parametrize(
    ("kernel", "images", "flavour"),
    [
        ("6.12.43+deb13-amd64", ["linux-image-amd64"], "amd64"),
        ("6.1.0-40-cloud-amd64", [], "cloud-amd64"),
        ("6.8.0-45-generic", ["linux-image-generic", "linux-image-6.8.0-45-generic"], "generic"),
        ("6.8.0-45-generic", ["linux-image-generic-hwe-22.04"], "generic-hwe-22.04"),
        ("6.8.0-1015-aws", ["linux-image-generic-hwe-22.04"], "aws"),
        ("6.18.44", [], ""),
    ],
)
def test_the_kind_of_a_kernel(kernel: str, images: list[str], flavour: str) -> None:
    assert state.flavour(kernel, images) == flavour


ARGUMENTS: dict[str, Any] = {
    "packages": [],
    "optional": [],
    "others": [],
    "kernel": [],
    "kernel_update": False,
    "version": "",
    "modules": "",
    "key": "/var/lib/dkms/mok.pub",
}
WANTED = ["libcuda1", "nvidia-smi", "nvidia-persistenced"]
OLD = {"libcuda1": "535.1.1-1", "nvidia-smi": "535.1.1-1", "nvidia-persistenced": "535.0.9-1"}
NEW = {"libcuda1": "550.2.2-1", "nvidia-smi": "550.2.2-1", "nvidia-persistenced": "550.2.2-1"}
MODPROBE = {**NEW, "nvidia-modprobe": "550.2.2-1"}


@pytest.mark.parametrize(
    ("version", "installed", "candidates", "changed"),
    [
        ("550", {}, NEW, WANTED),
        ("550", NEW, NEW, []),
        # Another branch takes all of them with it.
        ("550", OLD, NEW, WANTED),
        ("535", NEW, OLD, WANTED),
        # A newer one of the same branch takes none.
        ("550", NEW, {**NEW, "libcuda1": "550.9.9-1", "nvidia-smi": "550.9.9-1"}, []),
        ("550.9.9", NEW, {**NEW, "libcuda1": "550.9.9-1"}, ["libcuda1"]),
        ("550", {"libcuda1": "550.2.2-1"}, NEW, ["nvidia-smi", "nvidia-persistenced"]),
        # But one that is missing comes in the archive's version, and the rest with it.
        (
            "550",
            {"libcuda1": "550.1.1-1", "nvidia-smi": "550.1.1-1", "nvidia-modprobe": "550.1.1-1"},
            MODPROBE,
            [*WANTED, "nvidia-modprobe"],
        ),
        # No archive has the branch: that is told, not overlooked.
        ("590", NEW, {}, ["libcuda1"]),
        # What it depends on goes with it, there and back.
        ("550", {**OLD, "nvidia-modprobe": "535.1.1-1"}, MODPROBE, [*WANTED, "nvidia-modprobe"]),
        ("550", {**NEW, "nvidia-modprobe": "570.3.3-1"}, MODPROBE, ["nvidia-modprobe"]),
        # But not what the archive has in one version for all drivers.
        ("550", {**NEW, "nvidia-modprobe": "570.3.3-1"}, NEW, []),
        ("550", {**NEW, "nvidia-container-toolkit": "1.18.0-1"}, NEW, []),
    ],
)
def test_what_changes(
    version: str, installed: dict[str, str], candidates: dict[str, str], changed: list[str]
) -> None:
    assert state.change(WANTED, version, installed, candidates) == changed


def test_all_of_the_driver_is_held_and_nothing_else() -> None:
    installed = {
        **NEW,
        "libnvidia-ml1": "550.2.2-1",
        "firmware-nvidia-gsp": "550.2.2-1",
        "nvidia-container-toolkit": "1.18.0-1",
        "libfoo": "550.2.2-1",
        "linux-headers-amd64": "6.12",
    }
    wanted = [*WANTED, "linux-headers-amd64"]
    names = state.to_hold(wanted, ["linux-image-amd64"], installed, {"nvidia-smi"})
    assert names == ["firmware-nvidia-gsp", "libcuda1", "libnvidia-ml1", "nvidia-persistenced"]
    assert state.to_hold(wanted, ["linux-image-amd64"], {}, set()) == []
    kernel = {**installed, "linux-image-generic": "6.8.0-149.149"}
    assert set(state.to_hold(wanted, ["linux-image-generic"], kernel, {"nvidia-smi"})) == {
        *names,
        "linux-image-generic",
    }


SERVER = {
    "libnvidia-compute-535-server": "535.1.1-1",
    "nvidia-kernel-source-535-server": "535.1.1-1",
    "nvidia-settings": "510.47.03-0ubuntu4",
    "linux-modules-nvidia-535-server-6.8.0-45-generic": "6.8.0-45.45",
    "linux-image-generic": "6.8.0-45.45",
    "slurm-smd": "25.11-1",
}


@pytest.mark.parametrize(
    "wanted", [["libnvidia-compute-580-server"], ["libnvidia-compute-535"], ["libnvidia-compute"]]
)
def test_a_driver_that_is_called_otherwise_goes_whole(wanted: list[str]) -> None:
    gone, may_go = state.leave(wanted, wanted, SERVER)
    assert gone == [
        "libnvidia-compute-535-server",
        "linux-modules-nvidia-535-server-6.8.0-45-generic",
        "nvidia-kernel-source-535-server",
    ]
    assert may_go == ["nvidia-settings"], "of another version, and so none of that driver's"


def test_of_a_driver_that_keeps_its_names_nothing_must_go() -> None:
    """Modules for another kernel stay, and what another kind needed goes where APT says so."""
    family = "linux-modules-nvidia-535-server-"
    wanted = ["libnvidia-compute-535-server", f"{family}6.8.0-99-generic"]
    assert state.leave(wanted, wanted, SERVER) == (
        [],
        [f"{family}6.8.0-45-generic", "nvidia-kernel-source-535-server", "nvidia-settings"],
    )
    assert state.leave([], wanted, SERVER) == ([], [])


@pytest.mark.parametrize(
    ("text", "kind"),
    [("Dual MIT/GPL\n", "open"), ("NVIDIA\n", "proprietary"), ("", "")],
)
def test_the_kind_of_the_module_that_a_boot_would_load(text: str, kind: str) -> None:
    assert state.license_modules(text) == kind


MODULES = "linux-modules-nvidia-580-server-open-"


@pytest.mark.parametrize(
    ("installed", "newer"),
    [
        ([], ""),
        ([f"{MODULES}6.8.0-99-generic"], ""),
        ([f"{MODULES}6.8.0-99-generic", f"{MODULES}6.8.0-149-generic"], "6.8.0-149-generic"),
        ([f"{MODULES}generic", "linux-image-6.8.0-149-generic"], ""),
    ],
)
def test_a_newer_kernel_has_prebuilt_modules(installed: list[str], newer: str) -> None:
    assert state.newer_kernel("6.8.0-99-generic", installed) == newer


@pytest.mark.parametrize(
    ("was", "comes", "driver", "next_kernel", "words"),
    [
        (("580.95.05", "open"), ("580.95.05", "open"), "580.95.05", "", ""),
        (("580.95.05", "open"), ("580.95.05", ""), "580.95.05", "", ""),
        (
            ("580.95.05", "open"),
            ("580.95.05", "proprietary"),
            "580.95.05",
            "",
            "580.95.05 open is loaded and 580.95.05 proprietary is installed",
        ),
        (("", ""), ("580.95.05", "open"), "580.95.05", "6.8.0-149-generic", ""),
        (
            ("580.95.05", "open"),
            ("580.95.05", "open"),
            "580.173.02",
            "6.8.0-149-generic",
            "the modules of 580.173.02 are for the kernel 6.8.0-149-generic",
        ),
        (("580.95.05", "open"), ("580.95.05", "open"), "580.173.02", "", ""),
    ],
)
def test_what_only_a_boot_brings(
    was: tuple[str, str], comes: tuple[str, str], driver: str, next_kernel: str, words: str
) -> None:
    assert state.stale(was, comes, driver, next_kernel) == words


def test_an_update_of_the_kernel_takes_the_driver_along() -> None:
    kernel = ["linux-generic", "linux-image-generic"]
    wanted = ["nvidia-utils-580-server", f"{MODULES}6.8.0-99-generic", f"{MODULES}generic"]
    installed = {
        "linux-image-generic": "6.8.0-99.99",
        "nvidia-utils-580-server": "580.95.05-0ubuntu1",
        "nvidia-kernel-common-580-server": "580.95.05-0ubuntu1",
        f"{MODULES}6.8.0-99-generic": "6.8.0-99.99",
        f"{MODULES}generic": "6.8.0-99.99",
    }
    newer = {
        "linux-image-generic": "6.8.0-149.149",
        "nvidia-utils-580-server": "580.173.02-0ubuntu1",
        "nvidia-kernel-common-580-server": "580.173.02-0ubuntu1",
        f"{MODULES}6.8.0-99-generic": "6.8.0-99.99+1",
        f"{MODULES}generic": "6.8.0-149.149",
    }
    assert state.with_kernel(kernel, wanted, installed, newer) == [
        "linux-image-generic",
        "nvidia-utils-580-server",
        f"{MODULES}generic",
        "nvidia-kernel-common-580-server",
    ]
    early = newer | {f"{MODULES}generic": installed[f"{MODULES}generic"]}
    assert state.with_kernel(kernel, wanted, installed, early) == [], "no modules for it yet"
    same = newer | {"linux-image-generic": installed["linux-image-generic"]}
    assert state.with_kernel(kernel, wanted, installed, same) == []


def test_candidates_are_what_apt_would_install() -> None:
    output = (
        "libcuda1:\n  Installed: (none)\n  Candidate: 550.163.01-2\n  Version table:\n"
        "     550.163.01-2 500\n"
        "nvidia-kernel-dkms:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
    )
    assert state.policy(output) == {"libcuda1": "550.163.01-2"}


def test_what_is_removed_is_not_installed() -> None:
    output = "installed hold libcuda1 550-1\nconfig-files deinstall nvidia-smi 535-1\n"
    assert state.packages(output) == ({"libcuda1": "550-1"}, {"libcuda1"})


@pytest.mark.parametrize(
    ("variable", "on"),
    [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False), (b"", False)],
)
def test_secure_boot_is_the_firmwares_word(variable: bytes, on: bool) -> None:
    assert state.secure_boot(variable) is on


@pytest.mark.parametrize(
    ("loaded", "module", "stale"),
    [
        (OPEN, "580.95.05", False),
        (OPEN, "590.44.01", True),
        (OPEN, "", False),  # the modules come from elsewhere, and nothing says which a boot loads
        ("", "590.44.01", False),  # that takes no reboot, it can be loaded now
        ("", "", False),
    ],
)
def test_a_reboot_is_due_when_another_module_is_loaded(
    tmp_path: Path, monkeypatch: Any, loaded: str, module: str, stale: bool
) -> None:
    (tmp_path / "loaded").write_text(loaded)
    monkeypatch.setattr(state, "LOADED", tmp_path / "loaded")
    said = {
        ("modinfo", "version"): module,
        ("modinfo", "license"): "Dual MIT/GPL" if module else "",
    }
    result = state.look(lambda command: (0, said.get((command[0], command[-2]), "")), ARGUMENTS)
    assert (result["stale"], result["change"], result["hold"]) == (stale, [], [])


def test_a_node_is_looked_at_with_what_it_has(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "loaded").write_text(OPEN)
    (tmp_path / "modules").write_text("nouveau 2000 0 - Live 0x0\nxfs 1 0 - Live 0x0\n")
    monkeypatch.setattr(state, "LOADED", tmp_path / "loaded")
    monkeypatch.setattr(state, "MODULES", tmp_path / "modules")
    monkeypatch.setattr(state, "SECURE_BOOT", tmp_path / "none")
    monkeypatch.setattr(state, "LISTS", tmp_path)
    outputs = {
        "uname": "6.12.43+deb13-amd64\n",
        "dpkg-query": "installed hold libcuda1 550.2.2-1\n",
        "apt-cache": "libcuda1:\n  Candidate: 550.2.2-1\nlinux-headers-amd64:\n  Candidate: 6.12\n",
        "modinfo": "590.44.01\n",
    }
    result = state.look(
        lambda command: (0, outputs.get(command[0], "")),
        ARGUMENTS
        | {
            "packages": ["libcuda1", "linux-headers-{flavour}", "linux-headers-{kernel}"],
            "optional": ["nvidia-persistenced"],
            "version": "550",
        },
    )
    assert result["packages"] == [
        "libcuda1",
        "linux-headers-amd64",
        "linux-headers-6.12.43+deb13-amd64",
    ]
    assert result["change"] == result["packages"][1:]
    assert result["missing"] == ["linux-headers-6.12.43+deb13-amd64"]
    assert (result["loaded"], result["loaded_modules"], result["module"]) == (
        "580.95.05",
        "open",
        "590.44.01",
    )
    assert result["storage"] is False
    assert (result["nouveau"], result["secure_boot"], result["hold"], result["lists"]) == (
        True,
        False,
        [],
        False,
    )
