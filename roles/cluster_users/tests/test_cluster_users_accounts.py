"""Lists of users and groups: what no host could have is refused before any is asked."""

import dataclasses

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from roles.cluster_users.plugin_utils import accounts, public_keys, quota
from roles.cluster_users.plugin_utils.accounts import Site

SITE = Site(system_groups=["video"], home_root="/home", shell="/bin/bash", quota={})
PHYSICS = {"name": "physics", "gid": 3000}


def openssh(key) -> str:
    public: bytes = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return public.decode()


ED25519 = openssh(ed25519.Ed25519PrivateKey.generate())
ECDSA = openssh(ec.generate_private_key(ec.SECP256R1()))
RSA = openssh(rsa.generate_private_key(65537, 2048))
# A security key's: the blob is type, curve's point and application (PROTOCOL.u2f).
SK = (
    "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIJdWzhnHGEgmSs2cJRzc"
    "9SCtL5/+I8kqAi8MPd2XOlBlAAAABHNzaDo="
)


def user(name="ada", uid=2001, **more):
    return {"name": name, "uid": uid, "gid": uid, **more}


def problems(*users, groups=(PHYSICS,), site=SITE):
    return accounts.problems(users, groups, site)


def test_users_that_can_be_have_no_problem():
    assert problems() == []
    assert (
        problems(
            user(groups=["physics", "video"], comment="Ada Lovelace, 1843", ssh_keys=[ED25519]),
            user("bob", 2002, gid=3000, state="locked", home="/data/bob", shell="/bin/zsh"),
            user("carol_2-x", 70000, state="absent"),
        )
        == []
    )


GONE = PHYSICS | {"state": "absent"}


@pytest.mark.parametrize(
    ("users", "groups", "words"),
    [
        (
            [user(), user("bob", gid=2002), user("carol", 2003)],
            [PHYSICS],
            "ada and bob have one uid, 2001; give each its own.",
        ),
        ([user(), user("bob", gid=2002, state="absent")], [PHYSICS], "who is absent keep it"),
        ([user(), user("bob", gid=2002), user("eve", gid=3000)], [PHYSICS], "ada, bob and eve"),
        ([], [PHYSICS, {"name": "chemistry", "gid": 3000}], "physics and chemistry have one gid"),
        ([user(), user(uid=2002)], [PHYSICS], "ada is listed 2 times"),
        ([], [PHYSICS, PHYSICS | {"gid": 3001}], "physics is listed 2 times"),
        ([user(), user("bob", 2002, gid=2001)], [PHYSICS], "one gid, 2001, that is no group's"),
        ([user("physics", 2002)], [PHYSICS], "2002, and the group physics has 3000"),
        ([user(gid=3000)], [GONE], "the primary group physics is absent"),
        ([user(gid=100)], [PHYSICS], "gid 100 is the group users; declare it"),
        ([], [{"name": "staff", "gid": 100}], "gid 100 is the system's"),
        ([user("root", 2001)], [PHYSICS], "root is no user of the cluster"),
        ([user("slurm", 2001)], [PHYSICS], "slurm is the account of a service"),
        ([user(groups=["phisics"])], [PHYSICS], "phisics is not declared; did you mean physics?"),
        ([user(groups=["docker"])], [PHYSICS], "docker is not declared; declare it in"),
        ([user(groups=["physics"])], [GONE], "the group physics is absent"),
        ([user(), user("bob", 2002, home="/home/ada")], [], "ada and bob have one home, /home/ada"),
    ],
)
def test_users_and_groups_that_cannot_be_are_one_sentence(users, groups, words):
    (clause,) = problems(*users, groups=groups)
    assert words in f"{clause}."


@pytest.mark.parametrize(
    ("users", "groups"),
    [
        ([user(gid=3000), user("bob", 2002, gid=3000)], [PHYSICS]),
        ([user(gid=3000, state="absent")], [GONE]),
        ([user(gid=100)], [{"name": "users", "gid": 100}]),
        ([user(state="absent"), user("bob", 2002, home="/home/ada")], []),
    ],
)
def test_what_two_of_them_may_have_together(users, groups):
    assert problems(*users, groups=groups) == []


@pytest.mark.parametrize("uid", [0, 999, 61184, 65519, 65534, 65535, 2**31, 2**32 - 1, -1])
def test_numbers_of_the_system(uid):
    (sentence,) = problems(user(uid=uid, gid=2001))
    assert sentence.startswith(f"ada: uid {uid} is the system's; use one from 1000 to 61183, or ")
    assert f"gid {uid} is the system's" in problems(groups=[{"name": "physics", "gid": uid}])[0]


@pytest.mark.parametrize("uid", [1000, 61183, 65536, 2**31 - 1])
def test_numbers_of_people(uid):
    assert problems(user(uid=uid)) == []


@pytest.mark.parametrize(
    "name", ["Ada", "ada lovelace", "1ada", "-ada", "ada.l", "a" * 33, "", "ädä", "ada:x", "ada\n"]
)
def test_names_that_useradd_would_not_take(name):
    assert "cannot be an account's name" in " ".join(problems(user(name)))
    assert "cannot be a group's name" in " ".join(problems(groups=[{"name": name, "gid": 3000}]))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"comment": "Ada: x"}, "the comment has a colon"),
        ({"comment": "Ada\nroot"}, "the comment has a colon or a line's end"),
        ({"shell": "bash"}, "the shell 'bash' is no absolute path"),
        ({"shell": "/bin/bash\nx:y"}, "is no absolute path"),
        ({"home": "home/ada"}, "the home 'home/ada' is no absolute path"),
        ({"home": "/home/../root"}, "is no absolute path"),
        ({"home": "/home/ada/"}, "is no absolute path"),
        ({"home": "/"}, "is no absolute path"),
        ({"home": "/home"}, "the home is /home, which all homes are in"),
    ],
)
def test_what_passwd_cannot_hold(more, words):
    assert words in " ".join(problems(user(**more)))


def test_homes_are_below_an_absolute_path():
    wrong = Site([], "home", "/bin/bash", {})
    assert "cluster_users_home_root is 'home'" in problems(site=wrong)[0]


# --- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        ED25519,
        f"{ECDSA} ada@laptop",
        f"{RSA} a comment of several words",
        SK,
        f'from="10.0.0.0/8,*.site",no-pty {ED25519} ada',
        f'command="echo \\"a b\\"",restrict {ED25519}',
        f"restrict {ED25519}",
    ],
    ids=lambda line: line[:30],
)
def test_lines_that_sshd_takes(line):
    assert public_keys.key_problem(line) == ""


def test_what_is_no_public_key_is_told_without_its_text():
    private = (
        ed25519.Ed25519PrivateKey.generate()
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        .decode()
    )
    sentences = problems(user(ssh_keys=[ED25519, private]))
    assert sentences == [
        "ada: key 2 of 2 is a private key; give the public one, and replace the pair: it was "
        "written down"
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "is not one line"),
        (f"{ED25519}\n{ECDSA}", "is not one line; list each key by itself"),
        ("/home/ada/.ssh/id_ed25519.pub", "is the name of a file"),
        ("AAAAC3NzaC1lZDI1NTE5AAAAI", "is no public key"),
        ("hunter2", "is no public key"),
        # Keys are new in each process, and pytest-xdist compares the names of the tests.
        pytest.param(ED25519[:-12], "is no whole public key of type ssh-ed25519", id="cut off"),
        pytest.param(
            ED25519.replace("ssh-ed25519", "ssh-rsa", 1),
            "is no whole public key of type ssh-rsa",
            id="named otherwise",
        ),
        ("ssh-ed25519 !!!", "is no whole public key"),
        ("ssh-ed25519-cert-v01@openssh.com AAAA", "is a certificate"),
        ("ssh-foo AAAA", "is no whole public key of type ssh-foo"),
    ],
)
def test_lines_that_sshd_does_not_take(line, words):
    assert public_keys.key_problem(line).startswith(words)


def test_a_short_key_of_rsa():
    short = openssh(rsa.generate_private_key(65537, 1024))
    assert public_keys.key_problem(short) == "has 1024 bits; one of RSA has at least 2048"


# --- quota ---------------------------------------------------------------------------------------


def test_limits_are_kib_and_files():
    written = {"blocks_soft": "100G", "blocks_hard": "1T", "files_hard": 500000}
    assert [*quota.quota_problems(written)] == []
    assert quota.quota_values(written) == [100 * 1024**2, 1024**3, 0, 500000]
    assert quota.quota_values({}) == []
    assert quota.quota_values({"blocks_hard": 0}) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"blocks": "1G"}, "there is no limit blocks"),
        ({"blocks_hard": "100"}, "set it to a size such as 100G"),
        ({"blocks_hard": "lots"}, "blocks_hard is 'lots'"),
        ({"files_hard": "1M"}, "set it to a number"),
        ({"files_hard": -1}, "files_hard is -1"),
        ({"blocks_soft": "2G", "blocks_hard": "1G"}, "blocks_soft is above blocks_hard"),
    ],
)
def test_limits_that_are_none(written, words):
    assert words in " ".join(quota.quota_problems(written))
    site = Site([], "/home", "/bin/bash", written)
    assert problems(site=site)[0].startswith("cluster_users_quota: ")


def test_a_users_own_limit_is_held_against_everybodys():
    site = Site([], "/home", "/bin/bash", {"blocks_soft": "10G", "blocks_hard": "11G"})
    assert problems(user(quota={"blocks_hard": "1G"}), site=site) == [
        "ada: blocks_soft is above blocks_hard, so it would never be told"
    ]
    homes = accounts.homes_for_host([user(quota={"blocks_hard": "1T"}), user("bob", 2002)], site)
    assert [home["quota"] for home in homes] == [
        [10 * 1024**2, 1024**3, 0, 0],
        [10 * 1024**2, 11 * 1024**2, 0, 0],
    ]


# --- what hosts are told -------------------------------------------------------------------------


def test_what_the_list_leaves_out_is_filled_in():
    bob = user("bob", 2002, gid=3000, groups=["video"])
    users = accounts.users_for_hosts([user(ssh_keys=[f" {ED25519} "]), bob], [PHYSICS], SITE)
    filled = {"comment": None, "shell": "/bin/bash", "state": "present", "enters": True}
    filled["home_keys"] = True
    ada = user(group="ada", groups=[], home="/home/ada", ssh_keys=[ED25519])
    assert users == [
        ada | filled,
        bob | {"group": "physics", "home": "/home/bob", "ssh_keys": []} | filled,
    ]
    assert accounts.groups_for_hosts([PHYSICS]) == [{**PHYSICS, "state": "present"}]


def test_where_users_may_not_log_in_the_list_brings_no_keys():
    closed = dataclasses.replace(SITE, logins=False)
    users = [
        user(ssh_keys=[ED25519]),
        user("bob", 2002, ssh_keys=[ED25519], everywhere=True),
        user("carol", 2003, state="locked"),
        user("dan", 2004, state="absent"),
    ]
    by_name = {entry["name"]: entry for entry in accounts.users_for_hosts(users, [], closed)}
    assert [by_name[name]["ssh_keys"] for name in ("ada", "bob")] == [[], [ED25519]]
    assert [by_name[name]["enters"] for name in ("ada", "bob")] == [False, True]
    assert accounts.shut_out(users, closed) == ["ada", "carol"]
    assert accounts.shut_out(users, SITE) == []
    # Who is root on a compute node may write to bob's home, which the host may mount.
    assert not by_name["bob"]["home_keys"]
    assert accounts.without_home_keys(users, closed) == ["bob"]
    assert accounts.without_home_keys(users, SITE) == []
    every = dataclasses.replace(closed, home_keys="all")
    assert accounts.without_home_keys(users, every) == []
    assert all(entry["home_keys"] for entry in accounts.users_for_hosts(users, [], every))
