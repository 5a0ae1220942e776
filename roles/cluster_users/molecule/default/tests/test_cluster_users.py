"""Users of the cluster on a node: who they are, who gets in, and what a run never touches."""

import os
from pathlib import Path

from roles.cluster_users.molecule.users import NEW, everything, listed
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


def test_keys_that_users_added_count_and_stay(host, login, play):
    key = (SECRETS / "own.pub").read_text()
    assert login("ada", key="own").returncode == 255
    done = login("ada", f"mkdir -pm 700 .ssh && echo '{key.strip()}' >> .ssh/authorized_keys")
    assert done.returncode == 0, done.stderr
    assert login("ada", key="own").returncode == 0
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert login("ada", key="own").returncode == 0


def test_nobody_gets_in_with_a_password(host):
    with host.sudo():
        assert host.check_output("getent shadow ada").split(":")[1] == "*"


def test_the_file_of_keys_is_not_the_users(host):
    with host.sudo():
        file = host.file("/etc/ssh/authorized_keys.d/ada")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o644)


def test_check_mode_tells_what_would_be(host, play):
    before = everything(host)
    users = listed(NEW, bob={"comment": "Bob", "groups": ["maths"]})
    told = play(None, "--check", "--diff", cluster_users_list=users)
    assert told.code == 0, told.output
    assert (
        "+dan: uid 2004, gid 2004, groups -, '', home /home/dan, shell /bin/bash, open"
        in told.output
    )
    assert "+bob: uid 2002, gid 3000, groups maths, 'Bob', home /home/bob" in told.output
    assert "+/home/dan: uid 2004, gid 2004" in told.output
    assert everything(host) == before


def test_groups_are_those_of_the_list_and_no_others(host, play):
    with host.sudo():
        host.check_output("usermod --append --groups maths,adm ada")
    run = play(cluster_users_list=listed(bob={"groups": ["maths"]}))
    assert run.code == 0, run.output
    assert sorted(host.user("ada").groups) == ["ada", "physics", "video"]
    assert sorted(host.user("bob").groups) == ["maths", "physics"]


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


def test_who_goes_leaves_the_home(host, play):
    assert play(cluster_users_list=listed(NEW)).code == 0
    with host.sudo():
        host.check_output("echo thesis > /home/dan/thesis; chown dan: /home/dan/thesis")
    gone = play(cluster_users_list=listed({**NEW, "state": "absent"}))
    assert gone.code == 0, gone.output
    assert "The accounts dan are gone from node; no file of theirs was touched" in gone.output
    assert "these homes stay: /home/dan" in gone.output
    assert not host.user("dan").exists
    assert not host.group("dan").exists
    with host.sudo():
        assert (host.file("/home/dan/thesis").uid, host.file("/home/dan").uid) == (2004, 2004)


def test_two_users_with_one_uid_are_one_sentence(host, play):
    before = everything(host)
    said = play(cluster_users_list=listed({**NEW, "uid": 2001}))
    refused(said, "cluster_users: ada and dan have one uid, 2001; give each its own.")
    assert everything(host) == before


def test_a_number_that_the_host_gave_to_somebody_else(host, play):
    with host.sudo():
        host.check_output("useradd --uid 2009 eve")
    try:
        before = everything(host)
        said = play(cluster_users_list=listed({**NEW, "uid": 2009}))
        refused(said, "cluster_users: uid 2009 of dan is that of eve here already.")
        assert everything(host) == before
        said = play(cluster_users_list=listed({"name": "eve", "uid": 2010, "gid": 2010}))
        refused(said, "eve has uid 2009 here and 2010 in the list; make them one number")
        assert everything(host) == before
    finally:
        with host.sudo():
            host.check_output("userdel eve")


def test_nobody_locks_ansible_out(play):
    ops = {"name": "ops", "uid": 1000, "gid": 1000, "state": "locked"}
    refused(play(cluster_users_list=listed(ops)), "ops is locked in the list, and Ansible comes")


def test_where_users_may_not_log_in_nobody_does_but_operators(host, login, play):
    key = (SECRETS / "own.pub").read_text()
    with host.sudo():
        host.check_output(
            "install -d -o ada -g ada -m 700 /home/ada/.ssh && "
            f"echo '{key.strip()}' > /home/ada/.ssh/authorized_keys"
        )
    assert login("ada", key="own").returncode == 0
    operators = listed(bob={"everywhere": True})
    try:
        closed = play(cluster_users_list=operators, cluster_users_logins=False)
        assert closed.code == 0, closed.output
        assert host.user("ada").uid == 2001
        assert login("ada").returncode == 255
        assert login("ada", key="own").returncode == 255
        assert login("bob").returncode == 0
        with host.sudo():
            assert not host.file("/etc/ssh/authorized_keys.d/ada").exists
    finally:
        assert play().code == 0
    assert login("ada").returncode == 0
    ops = {"name": "ops", "uid": 1000, "gid": 1000}
    said = play(cluster_users_list=listed(ops), cluster_users_logins=False)
    refused(said, "Ansible comes here as ops, and users of the list may not log in here; set")
