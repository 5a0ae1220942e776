"""Packages of a folder, which APT of the node reads and keeps to one version of."""

import os
from pathlib import Path

import pytest

from tests.role_play import Case, played

FOLDERS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "slurm"
ROLE = {"ansible.builtin.include_role": {"name": "slurm_install"}}
INSTALL = {
    "distribution_packages": {
        "name": "{{ ['client', 'compute'] | slurm_packages(slurm_install_method | "
        "slurm_packaging) }}"
    }
}
PURGE = (
    "apt-get -o DPkg::Lock::Timeout=600 --quiet=2 --yes --allow-change-held-packages purge "
    "'slurm-smd*'"
)
CANDIDATE = "LC_ALL=C apt-cache policy slurm-smd | sed -n 's/^ *Candidate: //p'"
SINFO = "sinfo --version"
SITE = {"slurm_install_folder": "", "slurm_install_repository": "site"}


UPGRADES = {"__slurm_install_upgrades": True}
PINNED = (
    "awk '/^P/ { print $NF }' /etc/apt/preferences.d/slurm-install.pref | head -n 2; "
    + CANDIDATE.replace("slurm-smd", "slurm-client")
)


def folder(version):
    return {"slurm_install_folder": str(FOLDERS / version)}


@pytest.fixture(scope="module")
def installed(host, tmp_path_factory):
    """24.11.5 is installed, until tests further down put something else in its place."""
    with host.sudo():
        host.check_output(PURGE)
    run = played(tmp_path_factory.mktemp("installed"), [ROLE, INSTALL])
    assert run.code == 0, run.output


def test_apt_would_install_that_version(host):
    assert host.check_output(CANDIDATE) == "24.11.5-1"
    with host.sudo():
        host.check_output("apt-get update --error-on=any")
    assert host.check_output(CANDIDATE) == "24.11.5-1"


def test_what_schedmds_packages_do_not_make_is_there(host):
    assert host.user("slurm").uid == host.group("slurm").gid == 64030
    assert host.file("/var/log/slurm").user == "slurm"
    assert host.file("/var/lib/slurm").user == "root"  # what is in it is slurm's
    with host.sudo():
        host.check_output(
            "logrotate --debug /etc/logrotate.d/slurmctld 2>&1 || ! command -v logrotate"
        )


@pytest.mark.usefixtures("installed")
def test_roles_find_their_parts(host):
    assert host.check_output(SINFO) == "slurm 24.11.5"
    assert host.package("slurm-smd-slurmd").version == "24.11.5-1"


@pytest.mark.long
@pytest.mark.usefixtures("installed")
def test_what_cannot_work_is_one_sentence_and_changes_nothing(attempts):
    cases = {
        "another_release": folder("25.05.1"),
        "older": folder("24.11.4") | UPGRADES,
        "distribution": {"slurm_install_method": "distro"},
        "no_folder": {"slurm_install_folder": "/nowhere"},
        "no_repository": SITE,
    }
    outcomes = attempts(
        [Case(name, own, mends=f"{SINFO}; {CANDIDATE}") for name, own in cases.items()]
    )
    for name, sentence in {
        "another_release": "run playbooks/upgrade-slurm.yml",
        "older": "is asked for, which is older",
        "no_folder": "on the control node has no slurm-smd_VERSION_",
        "no_repository": "the hosts have no such repository (none)",
    }.items():
        outcomes[name].refuses(sentence)
    # Debian's may be older or newer than the stand-ins: either way nothing changes unasked.
    mixed = outcomes["distribution"]
    assert mixed.failed
    assert "playbooks/upgrade-slurm.yml" in mixed.output or "which is older" in mixed.output
    left = {name: outcome.left for name, outcome in outcomes.items()}
    assert left == dict.fromkeys(cases, "slurm 24.11.5 24.11.5-1")


@pytest.mark.usefixtures("installed")
def test_a_version_of_the_same_release_takes_its_place_and_another_one_in_an_upgrade(attempts):
    patch = folder("24.11.7")
    release = folder("25.05.1") | UPGRADES
    outcomes = attempts(
        [
            Case("patch", patch, mends=SINFO),
            Case("change", patch, "change", mends=SINFO),
            Case("again", patch, "change"),
            Case("release", release),
            Case("change_release", release, "change", mends=SINFO),
        ]
    )
    for outcome in outcomes.values():
        outcome.passes()
    # What is installed is nobody's to change but the role's own.
    assert outcomes["patch"].left == "slurm 24.11.5"
    assert outcomes["change"].left == "slurm 24.11.7"
    assert outcomes["again"].changed == 0
    assert outcomes["change_release"].left == "slurm 25.05.1"


@pytest.mark.long
def test_the_distribution_again_leaves_nothing_and_what_nobody_has_is_told(host, attempts):
    with host.sudo():
        host.check_output(PURGE)
    ours = "/var/lib/plumbline/slurm-packages /etc/apt/sources.list.d/slurm-install.sources"
    left = f"ls -d {ours} 2>/dev/null | cat"
    nowhere = {"slurm_install_repositories": ["site"], "slurm_install_version": "23.11.9"}
    outcomes = attempts(
        [
            Case("distribution", {"slurm_install_method": "distro"}, mends=f"{left}; {PINNED}"),
            Case("nobody", SITE | nowhere),
            Case("ours", mends=left),
        ]
    )
    outcomes["distribution"].passes()
    # APT keeps to what it would install today.
    source, kept, candidate = outcomes["distribution"].left.split()
    assert (source, kept) == ("src:slurm-wlm", candidate)
    outcomes["nobody"].refuses(
        "cannot have Slurm 23.11.9: no repository that it reads has slurm-smd in that version"
    )
    outcomes["ours"].passes()
    assert sorted(outcomes["ours"].left.split()) == sorted(ours.split())
