"""What is in the way of users on a node, and a thousand of them."""

import os
from pathlib import Path

from roles.cluster_users.molecule.users import NEW, everything, listed
from tests.role_play import refused


def test_hosts_without_the_storage_make_no_homes(host, play):
    run = play(
        cluster_users_list=listed({**NEW, "home": "/home/not-here"}), cluster_users_make_homes=False
    )
    assert run.code == 0, run.output
    assert host.user("dan").home == "/home/not-here"
    with host.sudo():
        assert not host.file("/home/not-here").exists
    gone = play(cluster_users_list=listed({**NEW, "state": "absent"}))
    assert gone.code == 0, gone.output


def test_where_nobody_is_declared_and_nobody_was_nothing_is_done(host, login, play):
    ours = "/etc/ssh/sshd_config.d/30-plumbline-users.conf /var/lib/plumbline/cluster_users.json"
    with host.sudo():
        host.check_output(f"mkdir /root/kept && mv {ours} /root/kept")
        before = everything(host)
    try:
        run = play(cluster_users_list=[], cluster_users_groups=[])
        assert (run.code, run.changed) == (0, 0), run.output
        assert everything(host) == before
        with host.sudo():
            assert host.run(f"ls {ours}").rc != 0
    finally:
        with host.sudo():
            host.check_output(
                "mv /root/kept/*.conf /etc/ssh/sshd_config.d && "
                "mv /root/kept/*.json /var/lib/plumbline && rmdir /root/kept"
            )
    assert play().code == 0
    assert login("ada").returncode == 0


def test_who_was_taken_off_the_list_is_not_forgotten(host, play):
    before = everything(host)
    run = play(cluster_users_list=listed()[1:])
    refused(run, "an earlier run made ada, and the list has no such name; set state: absent or")
    assert everything(host) == before


def test_who_has_processes_does_not_go(host, play):
    with host.sudo():
        host.check_output("systemd-run --unit=bobs --uid=bob sleep 600")
    try:
        before = everything(host)
        run = play(cluster_users_list=listed(bob={"state": "absent"}))
        refused(run, "bob is absent in the list and has processes here (")
        assert everything(host) == before
    finally:
        with host.sudo():
            host.check_output("systemctl stop bobs")


def test_a_home_of_somebody_else(host, play):
    with host.sudo():
        host.check_output("install -d -o 2999 /home/dan.old")
    try:
        before = everything(host)
        run = play(cluster_users_list=listed({**NEW, "home": "/home/dan.old"}))
        refused(run, "/home/dan.old is uid 2999's here and should be the home of dan (2004)")
        assert everything(host) == before
    finally:
        with host.sudo():
            host.check_output("rmdir /home/dan.old")


def test_homes_are_not_made_below_what_is_to_be_mounted(host, play):
    before = everything(host)
    run = play(cluster_users_list=listed({**NEW, "home": "/shared/home/dan"}))
    refused(run, "/shared/home is not there, where the home of dan belongs; mount or make it")
    assert everything(host) == before


def test_a_quota_where_the_filesystem_has_none(host, play):
    before = everything(host)
    run = play(cluster_users_list=listed(NEW), cluster_users_quota={"blocks_hard": "1G"})
    refused(run, "a quota is declared, and /")
    assert "that holds no user to one; mount it with usrquota" in run.output
    assert everything(host) == before


def test_keys_that_sshd_would_not_look_for_end_the_run_with_a_sentence(host, play):
    site = "/etc/ssh/sshd_config.d/10-site.conf"
    with host.sudo():
        host.check_output(f"echo 'AuthorizedKeysFile .ssh/authorized_keys' > {site}")
    try:
        run = play()
        refused(run, "looks for keys in authorizedkeysfile .ssh/authorized_keys, so an")
    finally:
        with host.sudo():
            host.check_output(f"rm {site}")
        assert play().code == 0


def test_an_sshd_that_would_not_come_back_is_not_told(host, login, play):
    site = "/etc/ssh/sshd_config.d/90-site.conf"
    with host.sudo():
        host.check_output(f"echo 'NoSuchOption yes' > {site}")
    try:
        refused(play(), "sshd on node cannot read its configuration and was not restarted")
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
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output


def test_a_thousand_users_are_one_task(host, play):
    many = [
        {"name": f"user{n}", "uid": 5000 + n, "gid": 3001, "home": f"/home/user{n}"}
        for n in range(1000)
    ]
    try:
        run = play(cluster_users_list=listed(*many), cluster_users_make_homes=False)
        assert run.code == 0, run.output
        assert host.user("user999").uid == 5999
        again = play(cluster_users_list=listed(*many), cluster_users_make_homes=False)
        assert (again.code, again.changed) == (0, 0), again.output
    finally:
        gone = [{**user, "state": "absent"} for user in many]
        assert play(cluster_users_list=listed(*gone), cluster_users_make_homes=False).code == 0
    assert not host.user("user999").exists


SECRETS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / ".secrets"


def test_keys_that_users_added_count_and_stay(host, login, play):
    key = (SECRETS / "own.pub").read_text()
    assert login("ada", key="own").returncode == 255
    done = login("ada", f"mkdir -pm 700 .ssh && echo '{key.strip()}' >> .ssh/authorized_keys")
    assert done.returncode == 0, done.stderr
    assert login("ada", key="own").returncode == 0
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert login("ada", key="own").returncode == 0


def test_check_mode_tells_what_would_be(host, play):
    before = everything(host)
    users = listed(NEW, bob={"comment": "Bob", "groups": ["maths"]})
    run = play(None, "--check", "--diff", cluster_users_list=users)
    assert run.code == 0, run.output
    assert (
        "+dan: uid 2004, gid 2004, groups -, '', home /home/dan, shell /bin/bash, open"
        in run.output
    )
    assert "+bob: uid 2002, gid 3000, groups maths, 'Bob', home /home/bob" in run.output
    assert "+/home/dan: uid 2004, gid 2004" in run.output
    assert everything(host) == before


def test_groups_are_those_of_the_list_and_no_others(host, play):
    with host.sudo():
        host.check_output("usermod --append --groups maths,adm ada")
    run = play(cluster_users_list=listed(bob={"groups": ["maths"]}))
    assert run.code == 0, run.output
    assert sorted(host.user("ada").groups) == ["ada", "physics", "video"]
    assert sorted(host.user("bob").groups) == ["maths", "physics"]


def test_who_goes_leaves_the_home(host, play):
    assert play(cluster_users_list=listed(NEW)).code == 0
    with host.sudo():
        host.check_output("echo thesis > /home/dan/thesis; chown dan: /home/dan/thesis")
    gone = play(cluster_users_list=listed({**NEW, "state": "absent"}))
    assert gone.code == 0, gone.output
    assert "The accounts dan were removed. Their files were not touched" in gone.output
    assert "these homes stay: /home/dan" in gone.output
    assert not host.user("dan").exists
    assert not host.group("dan").exists
    with host.sudo():
        assert (host.file("/home/dan/thesis").uid, host.file("/home/dan").uid) == (2004, 2004)


def test_a_number_that_the_host_gave_to_somebody_else(host, play):
    with host.sudo():
        host.check_output("useradd --uid 2009 eve")
    try:
        before = everything(host)
        run = play(cluster_users_list=listed({**NEW, "uid": 2009}))
        refused(run, "cluster_users: uid 2009 of dan is that of eve here already.")
        assert everything(host) == before
        run = play(cluster_users_list=listed({"name": "eve", "uid": 2010, "gid": 2010}))
        refused(run, "eve has uid 2009 here and 2010 in the list; make them one number")
        assert everything(host) == before
    finally:
        with host.sudo():
            host.check_output("userdel eve")


def test_where_users_may_not_log_in_nobody_does_but_operators(host, login, play):
    key = (SECRETS / "own.pub").read_text()
    with host.sudo():
        host.check_output(
            "install -d -o ada -g ada -m 700 /home/ada/.ssh && "
            f"echo '{key.strip()}' > /home/ada/.ssh/authorized_keys"
        )
    assert login("ada", key="own").returncode == 0
    operators = listed(bob={"everywhere": True})
    with host.sudo():
        # As who is root on a node where the homes are mounted.
        host.check_output(
            "install -d -o bob -g physics -m 700 /home/bob/.ssh && "
            "install -o bob -m 600 /home/ada/.ssh/authorized_keys /home/bob/.ssh/authorized_keys"
        )
    assert login("bob", key="own").returncode == 0
    try:
        closed = play(cluster_users_list=operators, cluster_users_logins=False)
        assert closed.code == 0, closed.output
        assert host.user("ada").uid == 2001
        assert login("ada").returncode == 255
        assert login("ada", key="own").returncode == 255
        assert login("bob").returncode == 0
        assert login("bob", key="own").returncode == 255
        with host.sudo():
            assert not host.file("/etc/ssh/authorized_keys.d/ada").exists
        # Nobody's home counts: Ansible comes on, by its own keys, which were put there before.
        closed = play(
            cluster_users_list=operators, cluster_users_logins=False, cluster_users_home_keys="none"
        )
        assert closed.code == 0, closed.output
        assert login("bob").returncode == 0
        with host.sudo():
            assert host.file("/etc/ssh/authorized_keys.d/ops").user == "root"
            shown = host.check_output("sshd -T -C user=ops,host=x,addr=127.0.0.1")
            assert "\nauthorizedkeysfile /etc/ssh/authorized_keys.d/%u\n" in shown
    finally:
        assert play().code == 0
    assert login("ada").returncode == 0
    ops = {"name": "ops", "uid": 1000, "gid": 1000}
    run = play(cluster_users_list=listed(ops), cluster_users_logins=False)
    refused(run, "Ansible comes here as ops, and users of the list may not log in here; set")
