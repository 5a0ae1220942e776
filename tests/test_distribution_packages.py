"""The packages that dpkg does not know as installed are the ones that APT is asked for."""

from __future__ import annotations

import shutil

import pytest

from playbooks.action_plugins import distribution_packages as packages
from tests.processes import run
from tests.standins.connection_plugins import remembering_node


@pytest.mark.parametrize(
    ("names", "output", "missing"),
    [
        (["munge"], "installed munge\n", []),
        (["munge"], "installed munge hold\n", []),
        (["munge", "jq"], "installed munge\n", ["jq"]),
        # Removed with its configuration left, and unpacked by a run that was killed.
        (["munge", "jq"], "config-files munge\nhalf-configured jq\n", ["munge", "jq"]),
        # dpkg knows no versions and no virtual packages by these names: APT judges them.
        (["jq=1.7", "mail-transport-agent"], "installed jq\n", ["jq=1.7", "mail-transport-agent"]),
        # Two architectures of one package.
        (["libc6"], "installed libc6\nnot-installed libc6\n", []),
        (["munge"], "", ["munge"]),
    ],
)
def test_missing_is_what_dpkg_does_not_call_installed(names, output, missing):
    assert packages.missing(names, output) == missing


def test_what_is_to_be_held_is_what_dpkg_does_not_call_so():
    output = "installed slurmd hold\ninstalled slurm-client install\n"
    assert packages.loose(["slurmd", "slurm-client", "sackd"], output) == ["slurm-client", "sackd"]
    assert packages.loose([], output) == []


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="asks this machine's dpkg")
def test_dpkg_understands_the_question():
    names = ["dpkg", "no-such-package", "$(touch x)", "dpkg=1"]
    done = run("/bin/sh", "-c", packages.question(names))
    assert done.stderr == ""
    assert packages.missing(names, done.stdout) == names[1:]


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ({"failed": True, "msg": "No package matching 'slurm-smd' is available"}, "slurm-smd"),
        ({"failed": True, "msg": "no available installation candidate for jq=1.9"}, ""),
        ({"failed": True}, ""),
        ({"changed": True}, ""),
    ],
)
def test_a_package_that_no_list_has_is_told_from_other_failures(answer, name):
    assert packages.unknown(answer) == name


def test_apt_waits_for_others_and_starts_no_daemon_that_is_not_configured():
    request = packages.request(["munge"], start_daemons=False)
    assert (request["lock_timeout"], request["policy_rc_d"]) == (600, 101)
    assert "policy_rc_d" not in packages.request(["chrony"], start_daemons=True)


def test_the_made_up_node_of_the_benchmarks_has_and_holds_what_it_is_asked_for():
    answer = remembering_node.installed(packages.question(["jq", "slurm-wlm"]))
    assert packages.missing(["jq", "slurm-wlm"], answer) == []
    assert packages.loose(["jq", "slurm-wlm"], answer) == []
