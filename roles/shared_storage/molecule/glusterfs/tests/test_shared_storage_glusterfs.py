"""A volume of GlusterFS: mounted, without its server, and without the process that is its mount."""

import json

import pytest

from tests.patience import until

PROGRAM = "/usr/local/lib/plumbline/shared-storage"
GONE = "Transport endpoint is not connected"


@pytest.fixture(autouse=True)
def root(host):
    with host.sudo():
        yield


def tried(host):
    return json.loads(host.check_output(f"{PROGRAM} try"))["/shared"]["problem"]


def active(host):
    return host.run("systemctl is-active scenario").stdout.strip() == "active"


def test_the_volume_is_mounted_and_what_is_written_lies_in_it(host):
    mount = json.loads(host.check_output("findmnt --json --mountpoint /shared"))["filesystems"][0]
    assert (mount["fstype"], mount["source"]) == ("fuse.glusterfs", "127.0.0.1:/people")
    assert {"nosuid", "nodev"} <= set(mount["options"].split(","))
    assert tried(host) == ""
    host.check_output("echo weights > /shared/home/file")
    assert host.file("/srv/people/home/file").content_string == "weights\n"
    assert host.file("/shared/home").mode == 0o755


def test_a_lock_of_one_keeps_out_another(host):
    host.check_output("systemd-run --unit=holder flock /shared/home/lock sleep infinity")
    try:
        until(lambda: host.run("flock --nonblock /shared/home/lock true").rc == 1)
    finally:
        host.check_output("systemctl stop holder")
    host.check_output("flock --nonblock /shared/home/lock true")


def test_a_daemon_does_not_start_without_the_server_and_does_when_it_is_back(host):
    host.check_output("systemctl restart scenario")
    host.check_output("systemctl stop scenario && gluster --mode=script volume stop people")
    try:
        until(lambda: tried(host) != "")
        assert host.run("systemctl start scenario").rc != 0
        assert not active(host)
    finally:
        host.check_output("gluster --mode=script volume start people")
    until(lambda: active(host))
    assert tried(host) == ""


def test_a_mount_whose_process_died_is_made_anew(host, play):
    """The kernel still has it in its table, and every question ends with one error."""
    host.check_output("systemctl restart scenario")
    host.check_output("pkill -9 -x glusterfs")
    until(lambda: GONE in tried(host))
    host.check_output("systemctl restart --no-block scenario")
    until(lambda: active(host) and tried(host) == "")
    assert play().changed == 0


def test_so_it_is_by_hand(host):
    """As docs/operate/storage.md has it."""
    host.check_output("pkill -9 -x glusterfs")
    until(lambda: GONE in tried(host))
    host.check_output('systemctl restart "$(systemd-escape --path --suffix=mount /shared)"')
    assert tried(host) == ""


def test_what_is_declared_no_more_goes(host, play):
    assert play(shared_storage_mounts=[], shared_storage_folders=[]).code == 0
    assert host.run("findmnt --mountpoint /shared").rc != 0
    assert play(shared_storage_mounts=[], shared_storage_folders=[]).changed == 0
    assert play().code == 0
    assert host.file("/shared/home/file").content_string == "weights\n"
