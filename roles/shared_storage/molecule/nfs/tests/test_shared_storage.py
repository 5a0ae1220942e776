"""What users write lies on the server, strangers get nothing, no daemon runs without all of it."""

import json
import time

import pytest

from tests.patience import until
from tests.role_play import refused

PROGRAM = "/usr/local/lib/plumbline/shared-storage"
NFS = [
    {"path": f"/shared/{tier}", "kind": "nfs", "source": f"127.0.0.1:/srv/{tier}"}
    for tier in ("home", "scratch", "state")
]
BOUND = {"path": "/bound", "kind": "nfs", "source": "node:/srv/home"}
LUSTRE = {"path": "/lustre", "kind": "external", "type": "tmpfs", "source": "lustre"}


@pytest.fixture(autouse=True)
def root(host):
    with host.sudo():
        yield


def mount_of(host, path):
    result = host.run(f"findmnt --json --mountpoint {path}")
    return json.loads(result.stdout)["filesystems"][0] if result.rc == 0 else None


def test_filesystems_are_mounted_by_nfs_4_and_hard(host):
    for tier in ("home", "scratch", "state"):
        mount = mount_of(host, f"/shared/{tier}")
        assert (mount["fstype"], mount["source"]) == ("nfs4", f"127.0.0.1:/srv/{tier}")
        assert {"hard", "nosuid", "nodev", "proto=tcp"} <= set(mount["options"].split(","))
        assert "vers=4" in mount["options"]


def test_what_a_user_writes_lies_on_the_server(host):
    host.check_output("install -d -o nobody /srv/home/ada")
    host.check_output("runuser -u nobody -- sh -c 'echo weights > /shared/home/ada/file'")
    assert host.file("/srv/home/ada/file").content_string == "weights\n"
    assert host.file("/bound/ada/file").content_string == "weights\n"


def test_root_of_a_client_is_nobody_but_on_the_state_of_the_controllers(host):
    assert "ermission denied" in host.run("touch /shared/home/file").stderr
    host.check_output("touch /shared/scratch/of-root /shared/state/of-root")
    assert host.file("/srv/scratch/of-root").user == "nobody"
    assert host.file("/srv/state/of-root").user == "root"


def test_who_is_no_client_gets_nothing(host):
    own = host.check_output("ip -4 -o address show scope global").split()[3].partition("/")[0]
    tried = host.run(f"timeout 60 mount -t nfs -o vers=4 {own}:/srv/home /mnt")
    assert tried.rc != 0
    assert "denied" in tried.stderr or "No such file" in tried.stderr, tried.stderr


def test_nothing_listens_that_nfs_4_does_not_need(host):
    listening = {line.split()[3] for line in host.check_output("ss -Hltun").splitlines() if line}
    ports = {address.rpartition(":")[2] for address in listening}
    assert "2049" in host.check_output("ss -Hltn")
    assert "111" not in ports


def test_folders_are_made_with_the_mode_of_their_tier(host):
    assert host.file("/lustre/scratch").mode == 0o1777
    assert host.file("/srv/home").mode == 0o755


def test_a_daemon_does_not_run_without_a_filesystem_and_starts_when_it_is_back(host):
    host.check_output("systemctl restart scenario")
    host.check_output("systemctl stop scenario && umount /lustre")
    assert host.run("systemctl start scenario").rc != 0
    assert host.run("systemctl is-active scenario").stdout.strip() != "active"
    journal = host.check_output("journalctl --unit=scenario --lines=20 --output=cat")
    assert "shared storage: /lustre: nothing is mounted there" in journal
    host.check_output("mount -t tmpfs -o size=20m lustre /lustre && mkdir -m 1777 /lustre/scratch")
    until(lambda: host.run("systemctl is-active scenario").stdout.strip() == "active")


def test_a_daemon_that_starts_brings_back_a_mount_that_was_lost(host):
    host.check_output("systemctl stop scenario && umount /shared/home")
    host.check_output("systemctl start scenario")
    assert mount_of(host, "/shared/home")["fstype"] == "nfs4"


def test_another_filesystem_in_its_place_is_told_by_its_type(host, play):
    wrong = [*NFS, BOUND, LUSTRE | {"type": "lustre", "source": ""}]
    refused(
        play(shared_storage_mounts=wrong),
        "/lustre on node is tmpfs (lustre) is mounted there, not lustre",
    )
    assert play().code == 0


def test_a_server_that_is_dead_keeps_no_question_waiting(host):
    host.check_output("systemctl stop nfs-server")
    try:
        began = time.monotonic()
        answers = json.loads(host.check_output(f"{PROGRAM} try"))
        assert time.monotonic() - began < 30
        assert answers["/shared/home"]["problem"] == "it does not answer within 10 s"
        assert answers["/lustre"]["problem"] == ""
    finally:
        host.check_output("systemctl start nfs-server")
    # Version 4 has clients of before come back first; new writes wait for up to 90 s.
    until(lambda: host.run("timeout 5 ls /shared/home").rc == 0, seconds=120)


def test_a_folder_with_files_is_not_hidden(host, play):
    host.check_output("mkdir -p /people/ada /people/bob")
    over = NFS[0] | {"path": "/people"}
    refused(
        play(shared_storage_mounts=[*NFS, BOUND, LUSTRE, over]),
        "shared_storage: node has files in /people (ada, bob), which the mount there would hide",
    )
    assert mount_of(host, "/people") is None


def test_what_is_declared_no_more_goes_unless_it_is_in_use(host, play):
    extra = NFS[1] | {"path": "/extra"}
    assert play(shared_storage_mounts=[*NFS, BOUND, LUSTRE, extra]).code == 0
    assert mount_of(host, "/extra")["fstype"] == "nfs4"
    # A unit with WorkingDirectory= there would be stopped by systemd, together with the mount.
    host.check_output("systemd-run --unit=busy sh -c 'cd /extra && exec sleep infinity'")
    until(lambda: host.run("fuser --mount /extra").rc == 0)
    refused(play(), "/extra is declared no more, and cannot be unmounted")
    host.check_output("systemctl stop busy")
    assert play().code == 0
    assert mount_of(host, "/extra") is None
    assert play().changed == 0


def test_an_export_that_ends_is_gone_at_once(host, play):
    assert "/srv/state" in host.check_output("exportfs -s")
    exports = [
        {"server": "node", "path": f"/srv/{tier}", "tier": tier, "clients": ["127.0.0.1"]}
        for tier in ("home", "scratch")
    ]
    fewer = [NFS[0], NFS[1], BOUND, LUSTRE]
    assert play(shared_storage_exports=exports, shared_storage_mounts=fewer).code == 0
    assert "/srv/state" not in host.check_output("exportfs -s")
    assert play().code == 0
    assert "/srv/state" in host.check_output("exportfs -s")
