"""Accounts of a host, in files of a folder: what is refused changes nothing, nor a second run."""

import json
import os
import re
import time
from dataclasses import replace

import pytest
from ansible.module_utils.cluster_users_module import Failed, Refused
from ansible.module_utils.cluster_users_plan import Beyond, Group, User

from roles.cluster_users.library import cluster_users

KEY = "ssh-ed25519 AAAA ada@laptop"
ADA = User("ada", 2001, 2001, "ada", "/home/ada", "/bin/sh", groups=("physics",), keys=(KEY,))
PHYSICS = Group("physics", 3000)


@pytest.fixture
def host(tmp_path):
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (etc / "group").write_text("root:x:0:\n")
    (etc / "shadow").write_text("root:*:20000:0:99999:7:::\n")
    return cluster_users.Host(etc, tmp_path / "lib/record.json", tmp_path / "keys")


def files(host):
    return {
        path.relative_to(host.etc.parent).as_posix(): path.read_text()
        for path in host.etc.parent.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def useradd(host):
    """What useradd, groupadd and userdel do to the files, for users of these tests."""

    def execute(command):
        program, name = command[0], command[-1]
        if program == "groupadd":
            line(host.etc / "group", f"{name}:x:{command[2]}:")
        elif program == "useradd":
            line(host.etc / "passwd", f"{name}:x:{command[2]}:{command[4]}::/home/{name}:/bin/sh")
            line(host.etc / "shadow", f"{name}:*:20000:0:99999:7:::")
            if command[7]:
                text = (host.etc / "group").read_text()
                (host.etc / "group").write_text(text.replace(":3000:", f":3000:{name}"))
        elif program in ("userdel", "groupdel"):
            for file in ("passwd", "shadow", "group"):
                path = host.etc / file
                path.write_text(re.sub(rf"^{name}:.*\n", "", path.read_text(), flags=re.MULTILINE))
        else:
            raise AssertionError(command)

    def line(path, text):
        path.write_text(path.read_text() + f"{text}\n")

    return execute


def run(host, users, execute, *, check_mode=False, beyond=None, groups=(PHYSICS,)):
    return cluster_users.run(
        users, groups, [], "/usr/sbin/nologin", host, beyond or Beyond(), check_mode, execute
    )


def never(command):
    raise AssertionError(command)


def recorded(host):
    return json.loads(host.record.read_text())["users"]


def test_a_second_run_starts_no_program_and_changes_no_file(host, useradd):
    first = run(host, [ADA], useradd)
    assert first["changed"]
    before = files(host)
    assert before["keys/ada"] == f"{cluster_users.HEADER}{KEY}\n"
    assert (host.keys / "ada").stat().st_mode & 0o7777 == 0o644
    assert recorded(host) == {"ada": 2001}
    second = run(host, [ADA], never)
    assert (second["changed"], second["diff"], files(host)) == (False, [], before)


def test_check_mode_tells_what_would_be_and_changes_nothing(host):
    before = files(host)
    result = run(host, [ADA], never, check_mode=True)
    assert result["changed"]
    accounts, keys = result["diff"]
    assert accounts["before"] == ""
    assert "group physics: gid 3000\n" in accounts["after"]
    assert "ada: uid 2001, gid 2001, groups physics" in accounts["after"]
    assert keys["after_header"] == str(host.keys / "ada")
    assert files(host) == before


def test_what_is_refused_changes_nothing(host):
    (host.etc / "passwd").write_text("bob:x:2001:100::/home/bob:/bin/sh\n")
    before = files(host)
    with pytest.raises(Refused) as refused:
        run(host, [ADA], never)
    assert refused.value.sentences == ["uid 2001 of ada is that of bob here already"]
    assert files(host) == before


def test_an_interrupted_run_forgets_nobody(host, useradd):
    def power_cut(command):
        useradd(command)
        if command[0] == "useradd":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(host, [ADA], power_cut)
    assert recorded(host) == {"ada": 2001}
    with pytest.raises(Refused, match="an earlier run made ada"):
        run(host, [], never)
    run(host, [ADA], never)
    assert (host.keys / "ada").exists()


def test_who_is_absent_leaves_account_and_keys_and_may_then_leave_the_list(host, useradd):
    run(host, [ADA], useradd)
    gone = replace(ADA, state="absent")
    result = run(host, [gone], useradd)
    assert result["removed"] == ["ada"]
    assert "ada" not in files(host)["etc/passwd"]
    assert not (host.keys / "ada").exists()
    assert recorded(host) == {}
    assert not run(host, [gone], never)["changed"]
    assert not run(host, [], never)["changed"]


def test_who_is_locked_or_goes_loses_the_keys_first(host, useradd):
    run(host, [ADA], useradd)
    seen = []

    def look(command):
        seen.append((command[0], (host.keys / "ada").exists()))

    run(host, [replace(ADA, state="locked")], look)
    assert seen == [("usermod", False)]


def test_keys_of_others_stay(host, useradd):
    host.keys.mkdir()
    (host.keys / "site-admin").write_text(KEY)
    (host.keys / "gone").write_text(cluster_users.HEADER + KEY)
    run(host, [ADA], useradd)
    assert sorted(path.name for path in host.keys.iterdir()) == ["ada", "site-admin"]


def test_a_file_of_keys_that_somebody_changed_is_ours_again(host, useradd):
    run(host, [ADA], useradd)
    (host.keys / "ada").chmod(0o666)
    assert run(host, [ADA], never)["changed"]
    assert (host.keys / "ada").stat().st_mode & 0o7777 == 0o644
    (host.keys / "ada").write_text("")
    assert run(host, [ADA], never)["changed"]
    assert KEY in (host.keys / "ada").read_text()


def test_an_account_that_an_admin_removed_is_forgotten(host, useradd):
    run(host, [ADA], useradd)
    useradd(("userdel", "ada"))
    assert run(host, [], never)["changed"]  # its keys
    assert recorded(host) == {}


def test_a_program_that_fails_is_one_sentence():
    with pytest.raises(Failed, match=r"^ls /no/such failed: .*No such file"):
        cluster_users.execute(["ls", "/no/such"])


def test_whoever_has_the_lock_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: (tmp_path / "free").touch())
    script = f"[ -e {tmp_path}/free ] || {{ echo 'cannot lock /etc/passwd' >&2; exit 1; }}"
    cluster_users.execute(["sh", "-c", script])
    monkeypatch.setattr(cluster_users, "LOCK_S", -1)
    with pytest.raises(Failed, match="cannot lock"):
        cluster_users.execute(["sh", "-c", "echo cannot lock >&2; exit 1"])


def test_a_shell_that_is_not_there_is_a_warning():
    zoe = User("zoe", 2005, 2005, "zoe", "/home/zoe", "/no/shell")
    assert cluster_users.missing_shells([ADA, zoe]) == ["The shell /no/shell of zoe is not there."]
    (many,) = cluster_users.missing_shells([replace(zoe, name=f"u{i}") for i in range(5)])
    assert "of u0, u1, u2, … is" in many


def test_processes_are_those_of_the_users_asked_for():
    assert os.getpid() in cluster_users.processes([os.getuid()])[os.getuid()]
    assert cluster_users.processes([4_000_000]) == {}
