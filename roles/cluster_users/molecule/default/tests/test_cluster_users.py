"""Users of the cluster on a node: who they are, who gets in, and what a run never touches."""

import os
from pathlib import Path

import pytest
import yaml

from tests.role_play import refused

SCENARIO = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"], "molecule/default/molecule.yml")
VARIABLES = yaml.safe_load(SCENARIO.read_text())["provisioner"]["inventory"]["group_vars"]["all"]
USERS = {user["name"]: user for user in VARIABLES["cluster_users_list"]}
NEW = {"name": "dan", "uid": 2004, "gid": 2004}
ACCOUNTS = "cat /etc/passwd /etc/group /etc/shadow /etc/gshadow /etc/ssh/authorized_keys.d/*"


def listed(*more, **changes):
    """The scenario's users with changes by name, and further ones."""
    return [*({**user, **changes.get(name, {})} for name, user in USERS.items()), *more]


def everything(host) -> str:
    with host.sudo():
        return host.check_output(f"{ACCOUNTS} | sha256sum; ls -lan /home")


@pytest.fixture
def back(play):
    """Afterwards the host is as the scenario declares it; who came in between is gone."""
    yield
    gone = play(cluster_users_list=listed({**NEW, "state": "absent"}))
    assert gone.code == 0, gone.output
    assert play().code == 0


# --- who they are --------------------------------------------------------------------------------


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
    key = (Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / ".secrets/own.pub").read_text()
    assert login("ada", key="own").returncode == 255
    done = login("ada", f"mkdir -pm 700 .ssh && echo '{key.strip()}' >> .ssh/authorized_keys")
    assert done.returncode == 0, done.stderr
    assert login("ada", key="own").returncode == 0
    assert play().changed == 0
    assert login("ada", key="own").returncode == 0


def test_nobody_gets_in_with_a_password(host):
    with host.sudo():
        assert host.check_output("getent shadow ada").split(":")[1] == "*"


def test_the_file_of_keys_is_not_the_users(host):
    with host.sudo():
        file = host.file("/etc/ssh/authorized_keys.d/ada")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o644)


# --- changes -------------------------------------------------------------------------------------


def test_a_run_that_changes_nothing(play):
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert play(None, "--check").changed == 0


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


@pytest.mark.usefixtures("back")
def test_groups_are_those_of_the_list_and_no_others(host, play):
    with host.sudo():
        host.check_output("usermod --append --groups maths,adm ada")
    run = play(cluster_users_list=listed(bob={"groups": ["maths"]}))
    assert run.code == 0, run.output
    assert sorted(host.user("ada").groups) == ["ada", "physics", "video"]
    assert sorted(host.user("bob").groups) == ["maths", "physics"]


@pytest.mark.usefixtures("back")
def test_a_locked_user_gets_in_by_no_key_and_no_password(host, login, play):
    key = (Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / ".secrets/own.pub").read_text()
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
        # Without PAM sshd itself asks whether the account has ended.
        assert host.run("su ada -s /bin/sh -c true").rc != 0
    assert play(cluster_users_list=listed(ada={"state": "locked"})).changed == 0

    assert play().code == 0
    assert login("ada").returncode == 0
    with host.sudo():
        assert host.check_output("getent shadow ada").split(":")[1:8:6] == ["$6$salt$hash", ""]
        host.check_output("usermod --password '*' ada")


@pytest.mark.usefixtures("back")
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
    assert play(cluster_users_list=listed({**NEW, "state": "absent"})).changed == 0
    # Who comes back has everything again.
    assert play(cluster_users_list=listed(NEW)).code == 0
    with host.sudo():
        assert host.file("/home/dan/thesis").user == "dan"


@pytest.mark.usefixtures("back")
def test_hosts_without_the_storage_make_no_homes(host, play):
    run = play(
        cluster_users_list=listed({**NEW, "home": "/home/not-here"}), cluster_users_make_homes=False
    )
    assert run.code == 0, run.output
    assert host.user("dan").home == "/home/not-here"
    with host.sudo():
        assert not host.file("/home/not-here").exists


# --- what is refused, with nothing changed -------------------------------------------------------


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


def test_a_home_of_somebody_else(host, play):
    with host.sudo():
        host.check_output("install -d -o 2999 /home/dan.old")
    try:
        before = everything(host)
        said = play(cluster_users_list=listed({**NEW, "home": "/home/dan.old"}))
        refused(said, "/home/dan.old is uid 2999's here and should be the home of dan (2004)")
        assert everything(host) == before
    finally:
        with host.sudo():
            host.check_output("rmdir /home/dan.old")


def test_homes_are_not_made_below_what_is_to_be_mounted(host, play):
    before = everything(host)
    said = play(cluster_users_list=listed({**NEW, "home": "/shared/home/dan"}))
    refused(said, "/shared/home is not there, where the home of dan belongs; mount or make it")
    assert everything(host) == before


def test_a_quota_where_the_filesystem_has_none(host, play):
    before = everything(host)
    said = play(cluster_users_list=listed(NEW), cluster_users_quota={"blocks_hard": "1G"})
    refused(said, "a quota is declared, and /")
    assert "that holds no user to one; mount it with usrquota" in said.output
    assert everything(host) == before


def test_who_was_taken_off_the_list_is_not_forgotten(host, play):
    before = everything(host)
    said = play(cluster_users_list=listed()[1:])
    refused(said, "an earlier run made ada, and the list has no such name; set state: absent or")
    assert everything(host) == before


def test_who_has_processes_does_not_go(host, play):
    with host.sudo():
        host.check_output("systemd-run --unit=bobs --uid=bob sleep 600")
    try:
        before = everything(host)
        said = play(cluster_users_list=listed(bob={"state": "absent"}))
        refused(said, "bob is absent in the list and has processes here (")
        assert everything(host) == before
    finally:
        with host.sudo():
            host.check_output("systemctl stop bobs")


def test_nobody_locks_ansible_out(play):
    ops = {"name": "ops", "uid": 1000, "gid": 1000, "state": "locked"}
    refused(play(cluster_users_list=listed(ops)), "ops is locked in the list, and Ansible comes")


# --- sshd ----------------------------------------------------------------------------------------


def test_keys_that_sshd_would_not_look_for_end_the_run_with_a_sentence(host, play):
    site = "/etc/ssh/sshd_config.d/10-site.conf"
    with host.sudo():
        host.check_output(f"echo 'AuthorizedKeysFile .ssh/authorized_keys' > {site}")
    try:
        said = play()
        refused(said, "looks for keys in authorizedkeysfile .ssh/authorized_keys, so an")
    finally:
        with host.sudo():
            host.check_output(f"rm {site}")
        assert play().code == 0


def test_an_sshd_that_would_not_come_back_is_not_told(host, login, play):
    site = "/etc/ssh/sshd_config.d/90-site.conf"
    with host.sudo():
        host.check_output(f"echo 'NoSuchOption yes' > {site}")
    try:
        refused(play(), "sshd on node cannot read its files, and was not told of any")
        assert login("ada").returncode == 0
    finally:
        with host.sudo():
            host.check_output(f"rm {site}")
    assert play().code == 0


def test_a_run_that_was_interrupted_before_sshd_knew_is_mended_by_the_next(host, login, play):
    drop_in = "/etc/ssh/sshd_config.d/30-plumbline-users.conf"
    with host.sudo():
        host.check_output(f"mv {drop_in} /root/ && systemctl restart ssh")
    assert login("ada").returncode == 255
    configure = {
        "ansible.builtin.include_role": {"name": "cluster_users", "tasks_from": "configure"}
    }
    interrupted = play([configure, {"ansible.builtin.fail": {"msg": "interrupted"}}])
    assert "interrupted" in interrupted.output
    assert login("ada").returncode == 255
    mended = play()
    assert mended.code == 0, mended.output
    assert login("ada").returncode == 0
    assert play().changed == 0


# --- a thousand ----------------------------------------------------------------------------------


def test_a_thousand_users_are_one_task(host, play):
    many = [
        {"name": f"user{n}", "uid": 5000 + n, "gid": 3001, "home": f"/home/user{n}"}
        for n in range(1000)
    ]
    try:
        made = play(cluster_users_list=listed(*many), cluster_users_make_homes=False)
        assert made.code == 0, made.output
        assert host.user("user999").uid == 5999
        again = play(cluster_users_list=listed(*many), cluster_users_make_homes=False)
        assert (again.code, again.changed) == (0, 0), again.output
    finally:
        gone = [{**user, "state": "absent"} for user in many]
        assert play(cluster_users_list=listed(*gone), cluster_users_make_homes=False).code == 0
    assert not host.user("user999").exists
