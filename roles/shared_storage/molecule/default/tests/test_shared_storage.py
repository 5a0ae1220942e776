"""No daemon runs without what is declared, and what cannot be is refused in a sentence."""

import json

import pytest

from tests.patience import until
from tests.role_play import Case

PROGRAM = "/usr/local/lib/plumbline/shared-storage"
LUSTRE = {"path": "/lustre", "kind": "external", "type": "tmpfs", "source": "lustre"}


@pytest.fixture(autouse=True)
def root(host):
    with host.sudo():
        yield


def active(host):
    return host.run("systemctl is-active scenario").stdout.strip() == "active"


def test_a_file_is_written_and_read_there(host):
    answers = json.loads(host.check_output(f"{PROGRAM} try"))
    assert answers == {"/lustre": {"problem": "", "note": ""}}
    assert host.file("/lustre/scratch").mode == 0o1777


def test_a_daemon_does_not_run_without_it_and_starts_when_it_is_back(host):
    host.check_output("systemctl restart scenario")
    host.check_output("systemctl stop scenario && umount /lustre")
    assert host.run("systemctl start scenario").rc != 0
    assert not active(host)
    journal = host.check_output("journalctl --unit=scenario --lines=20 --output=cat")
    assert "shared storage: /lustre: nothing is mounted there" in journal
    host.check_output("mount -t tmpfs -o size=20m lustre /lustre && mkdir -m 1777 /lustre/scratch")
    until(lambda: active(host))


def test_another_filesystem_in_its_place_is_told_and_a_folder_with_files_is_not_hidden(
    host, attempts
):
    host.check_output("mkdir -p /people/ada /people/bob")
    wrong = LUSTRE | {"type": "lustre", "source": ""}
    over = {"path": "/people", "kind": "nfs", "source": "nas.site.org:/people"}
    outcomes = attempts(
        [
            Case("type", {"shared_storage_mounts": [wrong]}),
            Case("hidden", {"shared_storage_mounts": [LUSTRE, over]}),
        ]
    )
    outcomes["type"].refuses("tmpfs (lustre) is mounted there, not lustre")
    outcomes["hidden"].refuses(
        "node has files in /people (ada, bob), which the mount there would hide"
    )


@pytest.mark.long
def test_what_is_declared_no_more_holds_nobody(host, play, attempts):
    none = {"shared_storage_mounts": [], "shared_storage_folders": []}
    outcomes = attempts([Case("none", none), Case("again", none)])
    outcomes["none"].passes()
    outcomes["again"].passes(changed=False)
    assert not host.file(PROGRAM).exists
    host.check_output("umount /lustre")
    host.check_output("systemctl restart scenario")
    assert active(host)
    host.check_output("mount -t tmpfs -o size=20m lustre /lustre && mkdir -m 1777 /lustre/scratch")
    assert play().code == 0
