"""What follows from what a host is."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from roles.enroot.library import enroot_host
from roles.enroot.plugin_utils import host

ROLE = Path(__file__).parents[1]

MOUNTS = """overlay / overlay rw 0 0
tmpfs /run tmpfs rw 0 0
files:/home /srv/with\\040blank nfs4 rw 0 0
/dev/nvme0n1 /scratch xfs rw 0 0
tank:/x /scratch/shared nfs4 rw 0 0
"""


def disk(**of: Any) -> dict[str, Any]:
    plain = {"path": "/scratch", "filesystem": "xfs", "free_gib": 900.0, "size_gib": 1800.0}
    return {**plain, **of}


@pytest.mark.parametrize(
    ("path", "filesystem"),
    [
        ("/var/lib/enroot", "overlay"),
        ("/run/enroot", "tmpfs"),
        ("/runaway", "overlay"),
        ("/srv/with blank/x", "nfs4"),
        ("/scratch", "xfs"),
        ("/scratch/shared/enroot", "nfs4"),
        ("/scratch/sharedother", "xfs"),
    ],
)
def test_the_filesystem_of_a_path(path, filesystem):
    assert enroot_host.mount_of(Path(path), MOUNTS) == filesystem


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"filesystem": "nfs4"}, "/scratch, which is on nfs4, a network filesystem"),
        ({"filesystem": "lustre"}, "a network filesystem"),
        ({"filesystem": "fuse.glusterfs"}, "a network filesystem"),
        ({"filesystem": "fuse.snapfuse"}, ""),
        (
            {"free_gib": 39.9},
            "/scratch has 39.9 GiB free of 1800, and enroot_room_gib is 40, for the layers",
        ),
        ({"filesystem": "tmpfs", "free_gib": 12, "size_gib": 12}, "12 GiB free of 12 in memory"),
        ({"filesystem": "tmpfs"}, ""),
    ],
)
def test_disks_for_containers(changes, words):
    problems = host.disk_problems(disk(**changes), 40)
    assert bool(problems) == bool(words)
    assert words in "".join(problems)
    assert (host.room(disk(**changes), 40) == "enough") == (not problems)


def test_the_room_holds_all_that_an_import_has_at_once() -> None:
    """Layers, what is unpacked of them, and the file, of which no block is packed."""
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())
    option = options["argument_specs"]["main"]["options"]["enroot_room_gib"]
    parts = r"about (\d+) for its layers, (\d+) for what is unpacked .* (\d+) for the \.sqsh file"
    found = re.search(parts, option["description"])
    assert found
    assert sum(map(int, found.groups())) <= option["default"]


@pytest.mark.parametrize(
    ("enabled", "abi", "restricted", "what"),
    [
        (True, True, True, "load"),  # Ubuntu 23.10 and later
        (True, True, False, ""),  # Debian 13
        (True, False, False, "disable"),  # Ubuntu 22.04, Debian 12
        (False, True, True, ""),  # switched off, or a container
        (False, False, False, ""),
    ],
)
def test_the_profile(enabled, abi, restricted, what):
    state = {"enabled": enabled, "abi": abi, "restricted": restricted, "loaded": False}
    assert host.apparmor({"apparmor": state}) == what


def test_kernel_settings_are_those_that_the_host_has():
    hardened = {"sysctls": {"user.max_user_namespaces": "0", "user.max_mnt_namespaces": "96365"}}
    assert host.sysctls(hardened, 65536) == dict.fromkeys(hardened["sysctls"], 65536)
    assert host.sysctls_amiss(hardened, 65536) == {"user.max_user_namespaces": 65536}
    old = {"sysctls": {"kernel.unprivileged_userns_clone": "0"}}
    assert host.sysctls_amiss(old, 65536) == {"kernel.unprivileged_userns_clone": 1}
    assert host.sysctls({"sysctls": {}}, 65536) == {}  # a container may not set them


def test_settings_that_are_read_before_ours(tmp_path):
    (tmp_path / "enroot.conf").write_text("#ENROOT_A x\nENROOT_B=no\nENROOT_OTHER y\n")
    (tmp_path / "enroot.conf.d").mkdir()
    (tmp_path / "enroot.conf.d/10-site.conf").write_text("  ENROOT_A /tmp\n")
    (tmp_path / "enroot.conf.d/60-site.conf").write_text("ENROOT_B later\n")
    assert enroot_host.overridden(["ENROOT_A", "ENROOT_B"], tmp_path) == [
        f"ENROOT_B in {tmp_path}/enroot.conf",
        f"ENROOT_A in {tmp_path}/enroot.conf.d/10-site.conf",
    ]
    assert enroot_host.overridden(["ENROOT_A"], tmp_path / "none") == []


def test_a_command_that_is_not_there_or_hangs(monkeypatch):
    monkeypatch.setattr(enroot_host, "_SECONDS", 0.2)
    assert enroot_host.run(["plumbline-no-such-program"])[0] == 127
    assert enroot_host.run(["sleep", "9"]) == (124, "no end after 0.2 s")
