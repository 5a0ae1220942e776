"""What a host lacks is planned from its files alone; what is another's there is refused."""

from dataclasses import replace

import pytest
from ansible.module_utils.cluster_users_plan import (
    LOCKED_DATE,
    LOCKED_DAY,
    Account,
    Beyond,
    Group,
    HostAccounts,
    User,
    host_accounts,
    keys_in,
    plan,
    refusals,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
ops:x:1000:1000::/home/ops:/bin/bash
ada:x:2001:2001:Ada Lovelace:/home/ada:/bin/bash
+nis::::::
broken
"""
GROUP = """\
root:x:0:
video:x:44:ada
ops:x:1000:
ada:x:2001:
physics:x:3000:ada,ops
"""
SHADOW = "root:*:20000:0:99999:7:::\nada:$6$x:20000:0:99999:7:::\nops:!:20000:0:99999:7::20500:\n"

ADA = User("ada", 2001, 2001, "ada", "/home/ada", "/bin/bash", groups=("physics", "video"))
BOB = User("bob", 2002, 3000, "physics", "/home/bob", "/bin/bash")
PHYSICS = Group("physics", 3000)
HAS = host_accounts(PASSWD, SHADOW, GROUP, {})
NOLOGIN = "/usr/sbin/nologin"


def commands(users, groups=(PHYSICS,), current=HAS, system_groups=("video",)):
    return [" ".join(s.command) for s in plan(users, groups, system_groups, current, NOLOGIN)]


def refused(users, groups=(PHYSICS,), current=HAS, **beyond):
    return refusals(users, groups, current, Beyond(**beyond))


def with_account(name="ada", **changes):
    changed = replace(HAS.accounts[name], **changes)
    return replace(HAS, accounts={**HAS.accounts, name: changed})


def test_the_files_are_read():
    assert set(HAS.accounts) == {"root", "ops", "ada"}
    assert HAS.accounts["ada"] == Account(
        2001, 2001, "Ada Lovelace", "/home/ada", "/bin/bash", "$6$x", "", frozenset(ADA.groups)
    )
    assert HAS.accounts["ops"].ends == "20500"
    assert HAS.groups["physics"] == 3000


def test_what_is_as_declared_needs_nothing():
    assert commands([ADA]) == []
    assert refused([ADA]) == []


# --- what is planned -----------------------------------------------------------------------------


def test_an_account_is_made_with_its_numbers_and_no_home():
    [command] = commands([ADA, BOB])
    assert command.startswith("useradd --uid 2002 --gid 3000 --no-user-group --groups  --comment")
    assert "--no-create-home --shell /bin/bash --password * --no-log-init" in command
    assert "SUB_UID_COUNT=0" in command
    assert command.endswith(" bob")


def test_groups_come_before_who_is_in_them():
    carol = User("carol", 2003, 2003, "carol", "/home/carol", "/bin/bash", groups=("maths",))
    lines = commands([ADA, carol], [PHYSICS, Group("maths", 3001)])
    assert lines[:2] == ["groupadd --gid 3001 maths", "groupadd --gid 2003 carol"]
    assert "--groups maths " in lines[2]


def test_one_usermod_for_all_that_differs():
    wanted = replace(ADA, comment="Ada", shell="/bin/zsh", home="/data/ada", groups=("physics",))
    assert commands([wanted]) == [
        "usermod --comment Ada --home /data/ada --shell /bin/zsh --groups physics ada"
    ]
    assert commands([replace(ADA, comment=None)]) == []
    assert commands([replace(ADA, groups=())]) == ["usermod --groups  ada"]


def test_a_system_group_that_the_host_lacks_is_passed_over():
    render = replace(ADA, groups=("physics", "render", "video"))
    assert commands([render], system_groups=["video", "render"]) == []
    # A group of the site's own that only has the same name is none of the system's.
    other = replace(HAS, groups={**HAS.groups, "render": 1500})
    assert commands([render], current=other, system_groups=["video", "render"]) == []


def test_who_is_locked_is_out_in_every_way():
    locked = replace(ADA, state="locked")
    assert commands([locked]) == [
        f"usermod --shell {NOLOGIN} --expiredate {LOCKED_DATE} --lock ada"
    ]
    done = with_account(shell=NOLOGIN, ends=LOCKED_DAY, password="!$6$x")
    assert commands([locked], current=done) == []
    [command] = commands([ADA, replace(BOB, state="locked")])
    assert f"--shell {NOLOGIN} --password !*" in command
    assert f"--expiredate {LOCKED_DATE} bob" in command


def test_unlocking_takes_back_what_locking_did():
    locked = with_account(shell=NOLOGIN, ends=LOCKED_DAY, password="!$6$x")
    assert commands([ADA], current=locked) == [
        "usermod --shell /bin/bash --expiredate  --unlock ada"
    ]
    nothing = with_account(shell=NOLOGIN, ends=LOCKED_DAY, password="!")
    # usermod does not unlock an account without a password.
    assert commands([ADA], current=nothing) == [
        "usermod --shell /bin/bash --expiredate  --password * ada"
    ]


def test_what_somebody_else_locked_or_let_end_stays_so():
    assert commands([ADA], current=with_account(password="!$6$x")) == []
    assert commands([ADA], current=with_account(ends="20000")) == []


def test_nobody_gets_in_with_an_empty_password():
    assert commands([ADA], current=with_account(password="")) == ["usermod --password * ada"]


def test_who_is_absent_goes_with_the_group_of_his_own():
    gone = replace(ADA, state="absent")
    assert commands([gone]) == ["userdel ada", "groupdel ada"]
    assert commands([replace(BOB, state="absent")]) == []
    shared = replace(HAS, accounts={**HAS.accounts, "eve": replace(HAS.accounts["ada"], uid=2009)})
    assert commands([gone], current=shared) == ["userdel ada"]


def test_a_group_goes_after_its_users():
    gone = replace(ADA, gid=3000, group="physics", state="absent")
    current = with_account(gid=3000)
    assert commands([gone], [replace(PHYSICS, state="absent")], current) == [
        "userdel ada",
        "groupdel physics",
    ]


def test_passwords_are_in_no_description():
    for step in plan([replace(ADA, state="locked")], [PHYSICS], ["video"], HAS, NOLOGIN):
        assert "$6$" not in step.before + step.after
        assert step.before.endswith("open")
        assert step.after.endswith("locked")


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["present", "locked", "absent"])
def test_a_name_with_another_number(state):
    [sentence] = refused([replace(ADA, uid=2005, state=state)])
    assert sentence.startswith("ada has uid 2001 here and 2005 in the list;")


def test_a_number_with_another_name():
    assert refused([replace(BOB, uid=2001)]) == ["uid 2001 of bob is that of ada here already"]
    assert refused([ADA], [Group("maths", 3000)]) == [
        "gid 3000 of maths is that of the group physics here already"
    ]


def test_another_primary_group_is_refused_because_files_would_follow():
    """usermod --gid gives a whole home to the new group."""
    assert refused([replace(ADA, gid=3000, group="physics")])[0].startswith(
        "ada has gid 2001 here and 3000 in the list"
    )


def test_a_group_with_another_number():
    assert "the group physics has gid 3000 here and 3001 in the list" in " ".join(
        refused([ADA], [Group("physics", 3001)])
    )
    # A group of a user's own is held against the host's like any other.
    video = User("video", 2005, 2005, "video", "/home/video", "/bin/bash")
    assert "the group video has gid 44 here and 2005 in the list" in " ".join(refused([video]))


def test_names_and_numbers_of_a_directory():
    assert refused([ADA, BOB], user_with=lambda uid: "zoe") == [
        "uid 2002 of bob is that of zoe here already"
    ]
    assert refused([ADA, BOB], uid_of=lambda name: 70001) == [
        "bob is there already with uid 70001, not from /etc/passwd"
    ]
    groups = [PHYSICS, Group("maths", 3001)]
    [sentence] = refused([ADA], groups, group_with=lambda gid: "zoo")
    assert "gid 3001 of maths is that of the group zoo" in sentence
    [sentence] = refused([ADA], groups, gid_of=lambda name: 9)
    assert "the group maths is there already with gid 9" in sentence


def test_a_directory_is_not_asked_of_what_the_host_has():
    def never(_):
        raise AssertionError

    lookups = dict.fromkeys(("uid_of", "user_with", "gid_of", "group_with"), never)
    assert refused([ADA], **lookups) == []


def test_who_is_on_the_list_no_more_is_not_forgotten():
    current = replace(HAS, recorded={"ada": 2001, "eve": 2009, "ops": 1001})
    [sentence] = refused([], current=current)
    assert sentence.startswith("an earlier run made ada, and the list has no such name;")
    assert refused([ADA], current=current) == []


OPS = User("ops", 1000, 1000, "ops", "/home/ops", "/bin/bash")


@pytest.mark.parametrize(
    ("users", "beyond", "words"),
    [
        ([replace(OPS, state="locked")], {"caller": "ops"}, "ops is locked in the list, and"),
        ([replace(OPS, state="absent")], {"caller": "ops"}, "ops is absent in the list, and"),
        ([OPS], {"caller": "ops"}, ""),
        ([replace(OPS, enters=False)], {"caller": "ops"}, "users of the list may not log in here"),
        ([replace(OPS, enters=False)], {"caller": "admin"}, ""),
        ([], {"caller": "grace", "closed_to_directory": True}, "as grace of the directory, whose"),
        ([], {"caller": "grace"}, ""),
        ([], {"caller": "ops", "closed_to_directory": True}, ""),
        ([], {"caller": "", "closed_to_directory": True}, ""),
    ],
)
def test_ansible_is_not_shut_out(users, beyond, words):
    sentences = refused(users, **beyond)
    assert len(sentences) == bool(words)
    assert words in "".join(sentences)


KEY, OTHER = "ssh-ed25519 AAAAC3Nza ops@laptop", "ecdsa-sha2-nistp256 AAAAE2Vj other"


def test_keys_are_found_after_their_options():
    text = f'# {OTHER}\nfrom="10.0.0.1",command="echo ssh-x a" {KEY}\n\nnonsense\n'
    assert keys_in(text) == {"ssh-ed25519 AAAAC3Nza"}
    assert keys_in(f"{KEY}\n{OTHER}\n") == {
        "ssh-ed25519 AAAAC3Nza",
        "ecdsa-sha2-nistp256 AAAAE2Vj",
    }


@pytest.mark.parametrize(
    ("keys", "home", "caller", "words"),
    [
        ((KEY,), KEY, "ops", ""),
        ((KEY,), "", "ops", ""),
        ((), "", "ops", ""),  # comes by a certificate
        ((OTHER,), KEY, "ops", "ops may come here with a key of ~/.ssh/authorized_keys"),
        ((OTHER,), f"{KEY}\n{OTHER}", "ops", "that is not in ssh_keys"),
        ((OTHER,), KEY, "admin", ""),
        ((), KEY, "admin", "add it to ssh_keys, or set cluster_users_home_keys: all"),
        ((KEY,), None, "ops", "ops may come here with a key"),
    ],
)
def test_an_operator_of_the_list_does_not_lose_his_keys(keys, home, caller, words):
    beyond = {
        "caller": caller,
        "keys_in_home": lambda name: None if home is None else keys_in(home),
    }
    operator = replace(OPS, keys=keys, home_keys=False)
    sentences = refused([operator], **beyond)
    assert len(sentences) == bool(words)
    assert words in "".join(sentences)
    assert refused([replace(operator, home_keys=True)], **beyond) == []
    elsewhere = replace(operator, enters=False)
    assert refused([elsewhere], **beyond | {"caller": "admin"}) == []


@pytest.mark.parametrize(
    ("homes", "kept", "caller", "words"),
    [
        ({"ops": KEY}, {}, "ops", ""),  # copied first
        ({"ops": KEY}, {}, "", "and ops would lose keys"),  # nobody knows who comes
        ({"ops": KEY, "root": OTHER}, {}, "ops", "and root would lose keys"),
        ({"ops": KEY, "root": OTHER}, {"root": OTHER}, "ops", ""),
        ({"ops": f"{KEY}\n{OTHER}"}, {"ops": KEY}, "ops", "and ops would lose keys"),
        ({"ops": None}, {}, "ops", "copy them here to /etc/ssh/authorized_keys.d/NAME"),
        ({"grace": KEY}, {}, "grace", ""),
        ({}, {}, "ops", ""),
    ],
)
def test_without_keys_in_homes_nobody_loses_his(homes, kept, caller, words):
    def in_home(name):
        text = homes.get(name, "")
        return None if text is None else keys_in(text)

    beyond = {
        "caller": caller,
        "keys_in_home": in_home,
        "keys_of_root": lambda name: keys_in(kept.get(name, "")),
    }
    sentences = refused([ADA], home_keys=False, **beyond)
    assert len(sentences) == bool(words)
    assert words in "".join(sentences)
    assert refused([ADA], **beyond) == []


def test_who_has_processes_does_not_go():
    gone = replace(ADA, state="absent")
    [sentence] = refused(
        [gone], processes=lambda uids: {2001: [11, 12, 13, 14]} if 2001 in uids else {}
    )
    assert sentence.startswith("ada is absent in the list and has processes here (11, 12, 13, …);")
    assert refused([replace(BOB, state="absent")], processes=lambda uids: 1 / 0) == []


def test_a_primary_group_does_not_go():
    current = with_account(gid=3000)
    gone = replace(PHYSICS, state="absent")
    assert refused([], [gone], current) == [
        "the group physics cannot go: it is the primary group of ada"
    ]
    left = replace(ADA, gid=3000, group="physics", state="absent")
    assert refused([left], [gone], current) == []


# --- what a plan comes to ------------------------------------------------------------------------


def applied(step, current: HostAccounts) -> HostAccounts:
    """What useradd and its like do to the files, as far as plans go."""
    program, *words, name = step.command
    options = {}
    while words:
        word = words.pop(0)
        options[word] = "" if word.startswith(("--no-", "--lock", "--unlock")) else words.pop(0)
    accounts, groups = dict(current.accounts), dict(current.groups)
    match program:
        case "groupadd":
            assert name not in groups
            groups[name] = int(options["--gid"])
        case "groupdel":
            assert groups.pop(name) not in {account.gid for account in accounts.values()}
            accounts = {n: replace(a, groups=a.groups - {name}) for n, a in accounts.items()}
        case "userdel":
            del accounts[name]
        case "useradd" | "usermod":
            if program == "useradd":
                gid = int(options["--gid"])
                assert gid in groups.values()
                assert name not in accounts
                account = Account(int(options["--uid"]), gid, "", "", "")
            else:
                account = accounts[name]
            password = options.get("--password", account.password)
            if "--lock" in options and not password.startswith("!"):
                password = f"!{password}"
            if "--unlock" in options:
                password = password.removeprefix("!")
                assert password
            member = account.groups
            if "--groups" in options:
                member = frozenset(filter(None, options["--groups"].split(",")))
            assert member <= set(groups)
            ends = {LOCKED_DATE: LOCKED_DAY}.get(*[options.get("--expiredate", account.ends)] * 2)
            accounts[name] = replace(
                account,
                comment=options.get("--comment", account.comment),
                home=options.get("--home", options.get("--home-dir", account.home)),
                shell=options.get("--shell", account.shell),
                password=password,
                ends=ends,
                groups=member,
            )
    return replace(current, accounts=accounts, groups=groups)


STATES = st.sampled_from(["present", "locked", "absent"])
USERS = st.builds(
    lambda number, shared, groups, state, comment: User(
        name=f"user{number}",
        uid=2000 + number,
        gid=3000 if shared else 2000 + number,
        group="physics" if shared else f"user{number}",
        home=f"/home/user{number}",
        shell="/bin/bash",
        groups=tuple(groups),
        comment=comment,
        state=state,
    ),
    st.integers(0, 5),
    st.booleans(),
    st.sets(st.sampled_from(["physics", "maths", "video", "render"])),
    STATES,
    st.sampled_from([None, "", "somebody"]),
)
LISTS = st.lists(USERS, unique_by=lambda user: user.name)
GROUPS = [PHYSICS, Group("maths", 3001)]


@settings(suppress_health_check=[HealthCheck.too_slow])  # that of a machine with other work
@given(LISTS, LISTS, st.data())
def test_a_plan_is_right_after_each_step_and_leaves_nothing_to_do(first, second, data):
    """Also when it is interrupted: the next run finishes it."""
    system_groups = ["video", "render"]
    current = HAS
    for step in plan(first, GROUPS, system_groups, current, NOLOGIN):
        current = applied(step, current)
    # A primary group is never changed, it is refused.
    wanted = [
        user
        for user in second
        if not any("has gid" in sentence for sentence in refused([user], GROUPS, current))
    ]
    steps = plan(wanted, GROUPS, system_groups, current, NOLOGIN)
    for step in steps[: data.draw(st.integers(0, len(steps)))]:
        current = applied(step, current)
    for step in plan(wanted, GROUPS, system_groups, current, NOLOGIN):
        current = applied(step, current)
    assert plan(wanted, GROUPS, system_groups, current, NOLOGIN) == []
    for user in wanted:
        account = current.accounts.get(user.name)
        assert (account is None) == (user.state == "absent")
        if account:
            assert (account.uid, account.gid) == (user.uid, user.gid)
            assert (account.ends == LOCKED_DAY) == (user.state == "locked")
            assert account.password.startswith("!") == (user.state == "locked")
            expected = set(user.groups) & {"physics", "maths", "video"} - {user.group}
            assert account.groups == expected
    assert current.accounts["ada"] == HAS.accounts["ada"]
