"""Packages of a folder, which APT of the node reads and keeps to one version of."""

import os
from pathlib import Path

import pytest

from tests.role_play import refused

FOLDERS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "slurm"
INSTALL = [
    {
        "distribution_packages": {
            "name": "{{ ['client', 'compute'] | slurm_packages(slurm_install_method | "
            "slurm_packaging) }}"
        }
    }
]
CHANGE = [{"ansible.builtin.include_role": {"name": "slurm_install", "tasks_from": "change.yml"}}]


def candidate(host, name="slurm-smd"):
    policy = host.check_output(f"LC_ALL=C apt-cache policy {name}")
    return policy.partition("Candidate: ")[2].split("\n")[0]


@pytest.fixture
def installed(host, play):
    """24.11.5 is installed, and afterwards again."""

    def again():
        with host.sudo():
            host.check_output("apt-get --quiet=2 --yes purge 'slurm-smd*'")
        run = play(None)
        assert run.code == 0, run.output
        assert play(INSTALL).code == 0

    again()
    yield
    again()


def test_apt_would_install_that_version(host):
    assert candidate(host) == "24.11.5-1"
    with host.sudo():
        host.check_output("apt-get update --error-on=any")
    assert candidate(host) == "24.11.5-1"


def test_what_schedmds_packages_do_not_make_is_there(host):
    assert host.user("slurm").uid == host.group("slurm").gid == 64030
    for folder in ("/var/lib/slurm", "/var/log/slurm"):
        assert host.file(folder).user == "slurm"
    with host.sudo():
        host.check_output(
            "logrotate --debug /etc/logrotate.d/slurmctld 2>&1 || ! command -v logrotate"
        )


def test_roles_find_their_parts(host, installed):
    assert host.check_output("sinfo --version") == "slurm 24.11.5"
    assert host.package("slurm-smd-slurmd").version == "24.11.5-1"


def test_a_version_of_the_same_release_takes_its_place(host, play, installed):
    newer = {"slurm_install_folder": str(FOLDERS / "24.11.7")}
    assert play(None, **newer).code == 0
    # What is installed is nobody's to change but the role's own.
    assert host.check_output("sinfo --version") == "slurm 24.11.5"
    assert play(CHANGE, **newer).code == 0
    assert host.check_output("sinfo --version") == "slurm 24.11.7"
    again = play(CHANGE, **newer)
    assert (again.code, again.changed) == (0, 0), again.output


def test_another_release_needs_a_word(host, play, installed):
    newer = {"slurm_install_folder": str(FOLDERS / "25.05.1")}
    refused(play(None, **newer), "then run with -e slurm_install_change=true")
    assert candidate(host) == "24.11.5-1"
    assert play(None, **newer, slurm_install_change="true").code == 0
    assert play(CHANGE, **newer, slurm_install_change="true").code == 0
    assert host.check_output("sinfo --version") == "slurm 25.05.1"


def test_an_older_one_is_refused_whoever_allows_a_change(host, play, installed):
    older = {"slurm_install_folder": str(FOLDERS / "24.11.4"), "slurm_install_change": True}
    refused(play(None, **older), "is asked for, which is older")
    assert host.check_output("sinfo --version") == "slurm 24.11.5"


def test_the_distributions_own_are_not_mixed_with_them(host, play, installed):
    """Debian's may be older or newer than the stand-ins: either way nothing changes unasked."""
    run = play(None, slurm_install_method="distro")
    assert run.code == 2
    assert "slurm_install_change=true" in run.output or "which is older" in run.output
    assert host.check_output("sinfo --version") == "slurm 24.11.5"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"slurm_install_folder": ""}, "neither slurm_install_repository nor"),
        ({"slurm_install_folder": "/nowhere"}, "on the control node has no slurm-smd_VERSION_"),
        (
            {"slurm_install_folder": "", "slurm_install_repository": "site"},
            "the hosts have no such repository (none)",
        ),
        (
            {
                "slurm_install_folder": "",
                "slurm_install_repository": "site",
                "slurm_install_repositories": ["site"],
                "slurm_install_version": "23.11.9",
            },
            "cannot have Slurm 23.11.9: no repository that it reads has slurm-smd",
        ),
        ({"slurm_install_method": "build"}, "slurm_install_url is empty"),
    ],
)
def test_what_cannot_work_is_one_sentence(play, settings, sentence):
    refused(play(None, **settings), sentence)
    assert play(None).code == 0


def test_the_distribution_again_leaves_nothing(host, play):
    with host.sudo():
        host.check_output("apt-get --quiet=2 --yes purge 'slurm-smd*'")
    assert play(None, slurm_install_method="distro").code == 0
    assert not host.file("/var/lib/plumbline/slurm-packages").exists
    assert not host.file("/etc/apt/sources.list.d/slurm-install.sources").exists
    assert play(None).code == 0
