"""Users of the cluster on a node: who they are, who gets in, and what a run never touches."""

import os
from pathlib import Path

from roles.cluster_users.molecule.users import listed
from tests.role_play import refused

SECRETS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / ".secrets"


def test_users_have_the_numbers_of_the_list(host):
    ada = host.user("ada")
    assert (ada.uid, ada.gid, ada.gecos) == (2001, 2001, "Ada Lovelace")
    assert (ada.home, ada.shell) == ("/home/ada", "/bin/bash")
    assert sorted(ada.groups) == ["ada", "physics", "video"]
    assert (host.user("bob").gid, host.user("bob").groups) == (3000, ["physics"])
    assert (host.group("physics").gid, host.group("maths").gid) == (3000, 3001)
    with host.sudo():
        assert host.run("grep -c '^\\(ada\\|bob\\)' /etc/subuid /etc/subgid").rc != 0


def test_a_home_is_its_users_alone(host):
    with host.sudo():
        home = host.file("/home/ada")
        assert (home.user, home.group, home.mode) == ("ada", "ada", 0o700)
        assert host.file("/home/ada/.profile").user == "ada"
        assert not host.file("/home/carol").exists


def test_a_user_gets_in_with_the_key_of_the_list(login):
    assert login("ada", "id -un; pwd").stdout == "ada\n/home/ada\n"
    assert login("bob", "id -gn").stdout == "physics\n"
    assert login("ada", key="bob").returncode == 255


def test_nobody_gets_in_with_a_password(host):
    with host.sudo():
        assert host.check_output("getent shadow ada").split(":")[1] == "*"


def test_the_file_of_keys_is_not_the_users(host):
    with host.sudo():
        file = host.file("/etc/ssh/authorized_keys.d/ada")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o644)


def test_a_locked_user_gets_in_by_no_key_and_no_password(host, login, play):
    key = (SECRETS / "own.pub").read_text()
    with host.sudo():
        host.check_output("usermod --password '$6$salt$hash' ada")
        host.check_output(
            "install -d -o ada -g ada -m 700 /home/ada/.ssh && "
            f"echo '{key.strip()}' > /home/ada/.ssh/authorized_keys"
        )
    assert login("ada", key="own").returncode == 0
    with host.sudo():
        host.check_output("systemd-run --unit=adas --uid=ada sleep 600")
    locked = play(cluster_users_list=listed(ada={"state": "locked"}))
    assert locked.code == 0, locked.output
    assert login("ada").returncode == 255
    assert login("ada", key="own").returncode == 255
    with host.sudo():
        assert host.check_output("getent shadow ada").split(":")[1] == "!$6$salt$hash"
        assert host.user("ada").shell == "/usr/sbin/nologin"
        assert not host.file("/etc/ssh/authorized_keys.d/ada").exists
        # Its processes are the admin's to end.
        assert host.service("adas").is_running
        host.check_output("systemctl stop adas")
        # The account has ended, for su as for sshd.
        assert host.run("su ada -s /bin/sh -c true").rc != 0

    assert play().code == 0
    assert login("ada").returncode == 0
    with host.sudo():
        assert host.check_output("getent shadow ada").split(":")[1:8:6] == ["$6$salt$hash", ""]
        host.check_output("usermod --password '*' ada")


def test_nobody_locks_ansible_out(play):
    ops = {"name": "ops", "uid": 1000, "gid": 1000, "state": "locked"}
    refused(play(cluster_users_list=listed(ops)), "ops is locked in the list, and Ansible comes")
