"""enroot on one node: what users and jobs find, and what comes of a download that goes wrong.

The releases are of our own (packages.py): containers do not run here.
"""

import json
import os
from pathlib import Path

import pytest

from tests.role_play import Case
from tests.standins.mirror import FAULTS, TRUNCATED, UNIT, WRONG

OLD, NEW, BROKEN = "4.9.0", "4.9.1", "4.9.2"
PACKAGES = ("enroot", "enroot+caps")
MIRROR = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "mirror/enroot"
SCRATCH, RUN = "/var/lib/enroot", "/run/enroot"
JOB = "/usr/local/libexec/plumbline/enroot-job"
VERIFY = [{"ansible.builtin.include_role": {"name": "enroot", "tasks_from": "verify"}}]
INSTALL = [{"ansible.builtin.include_role": {"name": "enroot", "tasks_from": "install"}}]
CONFIGURE = [
    {"ansible.builtin.include_role": {"name": "enroot", "tasks_from": name}}
    for name in ("look", "configure")
]
TABLE = [*VERIFY, {"ansible.builtin.debug": {"msg": "{{ __enroot_verified }}"}}]


@pytest.fixture
def root(host):
    """Runs a command as root; its output."""

    def run(command: str) -> str:
        with host.sudo():
            return host.check_output("sh -ec %s", command)

    return run


@pytest.fixture
def tiny(root):
    """A full disk: 64 KiB in memory, less than a package has."""
    root("mkdir -p /mnt/tiny && mount -t tmpfs -o size=64k tmpfs /mnt/tiny")
    yield "/mnt/tiny"
    root("umount /mnt/tiny")


@pytest.fixture
def users(root):
    """Two ordinary users, and what they had in containers is gone afterwards."""
    root("for name in ada bob; do id $name >/dev/null 2>&1 || useradd --no-create-home $name; done")
    yield {name: int(root(f"id -u {name}")) for name in ("ada", "bob")}
    root(f"rm -rf {RUN}/jobs/* {RUN}/user-* {SCRATCH}/*/user-[1-9]* {SCRATCH}/gone/*")


def version(root) -> str:
    """As a user asks for it."""
    return root(
        "cd / && for n in CACHE DATA RUNTIME; do export ENROOT_${n}_PATH=/tmp; done; enroot version"
    )


def installed(root) -> str:
    return root(
        "dpkg-query --show --showformat='${Package}=${Version} ${db:Status-Abbrev};' 'enroot*'"
    )


def job(root, phase: str, uid: int, number: int) -> str:
    return root(f"SLURM_JOB_UID={uid} SLURM_JOB_ID={number} {JOB} {phase}")


# --- what is there --------------------------------------------------------------------------------


def test_the_release_is_installed_and_held(host, root):
    assert version(root) == NEW
    assert installed(root).split(";")[:2] == [f"enroot={NEW}-1 hi ", f"enroot+caps={NEW}-1 hi "]
    assert host.run("ls /var/cache/plumbline").stdout == ""


def test_the_settings_are_those_of_the_role_and_the_site(host):
    """Read as enroot does: a name, blanks, and a value that a shell expands."""
    lines = host.file("/etc/enroot/enroot.conf.d/50-plumbline.conf").content_string.splitlines()
    settings = dict(line.split(" ", 1) for line in lines if not line.startswith("#"))
    assert settings["ENROOT_MAX_CONNECTIONS"] == "4"
    assert (settings["ENROOT_MOUNT_HOME"], settings["ENROOT_RESTRICT_DEV"]) == ("no", "yes")
    assert host.check_output(f'eval echo "{settings["ENROOT_DATA_PATH"]}"').startswith(
        f"{SCRATCH}/data/user-"
    )
    assert "lzo" not in settings["ENROOT_SQUASH_OPTIONS"]


def test_the_squash_options_make_an_image_that_can_be_read(host, root):
    """With the node's own mksquashfs: the superblock says gzip."""
    lines = host.file("/etc/enroot/enroot.conf.d/50-plumbline.conf").content_string
    options = next(line for line in lines.splitlines() if "SQUASH" in line).split(" ", 1)[1]
    root(f"rm -f /tmp/x.sqsh; mksquashfs /etc/enroot /tmp/x.sqsh -no-progress -all-root {options}")
    output = root("unsquashfs -s /tmp/x.sqsh")
    assert "Compression gzip" in output
    assert "Data is uncompressed" in output
    assert root("unsquashfs -cat /tmp/x.sqsh enroot.conf") == root("cat /etc/enroot/enroot.conf")


def test_hooks_are_linked_and_there(host):
    for name in ("50-slurm-pmi.sh", "50-slurm-pytorch.sh"):
        link = host.file(f"/etc/enroot/hooks.d/{name}")
        assert link.is_symlink
        assert host.run(f"test -x {link.linked_to}").rc == 0


@pytest.mark.long
def test_the_key_is_nobody_elses(host, play):
    with host.sudo():
        key = host.file("/etc/enroot/.credentials")
        assert (key.user, key.mode) == ("root", 0o600)
        assert "machine nvcr.io login $oauthtoken password nvapi-of-the-scenario" in (
            key.content_string
        )
    assert host.run("sudo -u nobody cat /etc/enroot/.credentials").rc != 0
    run = play(CONFIGURE, "-vvv", "--diff", enroot_ngc_api_key="nvapi-another")
    assert (run.code, run.changed) == (0, 1), run.output
    assert "nvapi-another" not in run.output.replace('enroot_ngc_api_key": "nvapi-another', "")
    assert play(CONFIGURE, enroot_ngc_api_key="").changed == 1
    assert not host.file("/etc/enroot/.credentials").exists
    assert play(CONFIGURE).changed == 1


def test_the_clean_up_runs(host, root):
    assert host.service("plumbline-enroot-clean.timer").is_enabled
    assert host.service("plumbline-enroot-clean.timer").is_running
    root("systemctl start plumbline-enroot-clean.service")


# --- users and jobs -------------------------------------------------------------------------------


def test_a_job_finds_folders_of_its_user(host, root, users):
    job(root, "begin", users["ada"], 7)
    for folder in (f"{RUN}/user-", f"{SCRATCH}/cache/user-", f"{SCRATCH}/temp/user-"):
        with host.sudo():
            entry = host.file(f"{folder}{users['ada']}")
            assert (entry.user, entry.mode) == ("ada", 0o700)
    assert root(f"runuser -u ada -- touch {SCRATCH}/data/user-{users['ada']}/x") == ""
    assert host.run(f"sudo runuser -u bob -- ls {SCRATCH}/data/user-{users['ada']}").rc != 0


def test_nobody_makes_the_folder_of_another(host, users):
    for folder in (RUN, f"{SCRATCH}/cache", f"{SCRATCH}/data", f"{SCRATCH}/temp"):
        refused = host.run(f"sudo runuser -u bob -- mkdir {folder}/user-{users['ada']}")
        assert "Permission denied" in refused.stderr


def test_the_end_of_a_job_takes_its_containers_and_no_others(host, root, users):
    ada = users["ada"]
    job(root, "begin", ada, 7)
    job(root, "begin", ada, 71)
    data = f"{SCRATCH}/data/user-{ada}"
    root(f"cd {data} && mkdir pyxis_7.0 pyxis_7_mine pyxis_71.0 pyxis_8_other mine")
    root(f"ln -s /etc {data}/pyxis_7.1; mkdir {RUN}/user-{ada}/x {SCRATCH}/temp/user-{ada}/x")
    job(root, "end", ada, 7)
    assert root(f"ls {data}").split() == ["mine", "pyxis_71.0", "pyxis_8_other"]
    assert root(f"ls {RUN}/user-{ada} {SCRATCH}/temp/user-{ada}").split().count("x") == 2
    job(root, "end", ada, 71)
    assert root(f"ls {data}").split() == ["mine", "pyxis_8_other"]
    with host.sudo():
        assert not host.file(f"{RUN}/user-{ada}").exists
        assert not host.file(f"{SCRATCH}/temp/user-{ada}").exists
        assert host.file("/etc/enroot/enroot.conf").exists
    assert root(f"systemctl start plumbline-enroot-clean; ls {SCRATCH}/gone") == ""


def test_a_user_that_does_not_exist_stops_no_job(root):
    begun = root("date +%s")
    assert job(root, "begin", 64999, 9) == ""  # and its exit status is 0
    assert "begin of job 9 of user 64999" in root(
        f"journalctl --sync; journalctl --identifier=plumbline-enroot --since=@{begun} --output=cat"
    )
    assert root(f"ls {RUN}/jobs") == ""


def test_an_ordinary_user_makes_a_namespace(host):
    assert host.run("sudo runuser -u nobody -- unshare --user --map-root-user true").rc == 0


# --- what goes wrong: the version that was there stays ------------------------------------------


# What must be the same before and after: the program, both packages, and no half of anything.
STATE = (
    "export ENROOT_CACHE_PATH=/tmp ENROOT_DATA_PATH=/tmp ENROOT_RUNTIME_PATH=/tmp; "
    "enroot version; dpkg-query --show --showformat='${Package}=${Version};' 'enroot*'; "
    "dpkg --audit; ls -A /var/cache/plumbline | grep -v '^enroot' | cat"
)
SERVE = f"(systemctl start {UNIT}; rm -f {FAULTS}) >/dev/null"


def fault(pattern: str, kind: str) -> str:
    faults = json.dumps({f"/enroot/{pattern}": kind})
    return f"printf %s '{faults}' > {FAULTS}"


def download(name, own, breaks=SERVE):
    """The installation, from a mirror that a command breaks; what the case before has brought
    would not be asked for again."""
    fresh = f"rm -f /var/cache/plumbline/*; {breaks}"
    return Case(name, own, "install", breaks=fresh, mends=f"{SERVE}; {STATE}")


@pytest.mark.long
def test_whatever_goes_wrong_with_a_download_the_old_version_still_works(root, attempts, tiny):
    """The first package does not come; then the second does not, when the first is there."""
    before = " ".join(root(STATE).split())
    assert before == f"{NEW} enroot={NEW}-1;enroot+caps={NEW}-1;"
    old = {"enroot_version": OLD}
    architectures = ("amd64", "arm64")
    pins = {f"4.9.7-{name}-{p}": "0" * 64 for name in architectures for p in PACKAGES}
    unknown = {"enroot_version": "4.9.7", "enroot_sha256": pins}
    outcomes = attempts(
        [
            download("truncated", old, fault(f"v{OLD}/enroot_*", TRUNCATED)),
            download("wrong", old, fault(f"v{OLD}/enroot+caps_*", WRONG)),
            download("away", old, f"systemctl stop {UNIT}"),
            download("unknown", unknown),
            download("full", {"enroot_version": OLD, "enroot_download_folder": tiny}),
            download("uninstallable", {"enroot_version": BROKEN}),
        ]
    )
    for name, sentence in {
        "truncated": "broke off after ",
        "wrong": "has the SHA-256 ",
        "away": "cannot be reached: Connection refused; set enroot_mirror to a mirror",
        "unknown": "does not exist (404)",
        "full": "cannot be written: its disk is full; make room there and run again",
        "uninstallable": f"APT cannot install enroot {BROKEN} on node: E: ",
    }.items():
        outcomes[name].refuses(sentence)
    outcomes["uninstallable"].refuses(f"{NEW}-1 stays installed.")
    assert {name: outcome.left for name, outcome in outcomes.items()} == dict.fromkeys(
        outcomes, before
    )
    assert root(f"ls -A {tiny}") in ("", f"enroot+caps_{OLD}-1_amd64.deb")  # that one has room


@pytest.mark.long
def test_another_version_and_back(root, play, mirror):
    """The packages are held, and go to what is asked for all the same, without imports as well."""
    assert play(INSTALL, enroot_version=OLD, enroot_import=False).code == 0
    assert version(root) == OLD
    assert f"enroot={OLD}-1 hi " in installed(root)
    assert "enroot+caps=" + OLD not in installed(root)
    assert "enroot+caps=" + NEW not in installed(root)
    assert play().code == 0
    mirror.requests()
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert mirror.requests() == []  # nothing is downloaded for nothing
    assert version(root) == NEW
    assert installed(root).count(f"{NEW}-1 hi ") == 2


# --- what is refused, and what is told ------------------------------------------------------------

UNSHARE = r"""mv /usr/bin/unshare /usr/bin/unshare.kept
printf '#!/bin/sh\necho unshare: unshare failed: No space left on device >&2; exit 1' \
    > /usr/bin/unshare && chmod 755 /usr/bin/unshare"""


def test_what_cannot_work_is_said_in_a_sentence(attempts, mirror, tiny):
    mirror.requests()  # those of the tests before
    outcomes = attempts(
        [
            Case("small", {"enroot_scratch": tiny}),
            Case(
                "overridden",
                tasks_from="service",
                breaks="echo ENROOT_MOUNT_HOME=yes >> /etc/enroot/enroot.conf",
                mends="sed -i '$d' /etc/enroot/enroot.conf",
            ),
            Case(
                "forbidden",
                tasks_from="service",
                breaks=UNSHARE,
                mends="mv /usr/bin/unshare.kept /usr/bin/unshare",
            ),
        ]
    )
    for name, sentence in {
        "small": f"{tiny} has 0 GiB free of 0 in memory, and enroot_room_gib is 1",
        "overridden": "another file decides is ENROOT_MOUNT_HOME in /etc/enroot/enroot.conf, exp",
        "forbidden": "an ordinary user is unshare: unshare failed: No space left on device",
    }.items():
        outcomes[name].refuses(sentence)
    assert mirror.requests() == []


@pytest.mark.long
def test_a_node_without_enroot_is_told_of_and_not_changed(root, play, mirror):
    root("apt-get remove -yq --allow-change-held-packages enroot enroot+caps >/dev/null 2>&1")
    try:
        run = play(TABLE, "--check")
    finally:
        mended = play(INSTALL)
    assert (run.code, run.changed) == (0, 0), run.output
    assert run.output.count('"found": "nothing"') + run.output.count("found: nothing") == 1
    assert "FAIL" in run.output
    assert mended.code == 0, mended.output
    assert version(root) == NEW


@pytest.mark.long
def test_a_node_that_is_not_to_have_it_is_left_alone(root, play):
    whole = [{"ansible.builtin.include_role": {"name": "enroot"}}]
    run = play([*whole, *TABLE], enroot_install=False, enroot_version=OLD)
    assert (run.code, run.changed) == (0, 0), run.output
    assert "SKIP" in run.output
    assert "FAIL" not in run.output
    assert version(root) == NEW


def test_the_hashes_are_of_what_the_mirror_has():
    """Or the tests above would try nothing."""
    assert len(json.loads((MIRROR / "sha256.json").read_text())) == 12
