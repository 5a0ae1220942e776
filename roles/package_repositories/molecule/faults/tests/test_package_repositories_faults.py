"""All that can happen to a repository on its way; each is one run of the role."""

import pytest

from roles.package_repositories.molecule.default.tests.lists import (
    another,
    candidate,
    flat,
    suites,
)
from tests.role_play import refused


def test_lists_that_are_gone_are_read_again(host, play):
    with host.sudo():
        host.check_output("rm -f /var/lib/apt/lists/*repositories_flat*")
    assert candidate(host, "plumbline-tool") != "1.0"
    assert play().changed == 1
    assert candidate(host, "plumbline-tool") == "1.0"


@pytest.mark.usefixtures("unharmed")
class TestWhatCannotBeHad:
    def test_an_unknown_suite_and_an_unknown_component(self, play):
        unknown = suites(suites=["testing"])
        refused(play(package_repositories_list=[flat(), unknown]), "has no suite testing")
        unknown = suites(components=["extra"])
        refused(
            play(package_repositories_list=[flat(), unknown]),
            "has no component extra; see components",
        )

    @pytest.mark.parametrize(
        ("path", "kind"),
        [
            ("*/unread/Packages*", "truncated"),
            ("*/unread/Packages*", "wrong"),
            ("*/unread/InRelease", "truncated"),
            ("*/unread/InRelease", "reset"),
            ("*/key.asc", "404"),
            ("*/key.asc", "truncated"),
            ("*/key.asc", "wrong"),
            ("*/key.asc", "reset"),
        ],
    )
    def test_what_arrives_damaged(self, host, play, mirror, kind, path):
        mirror.fault(path, kind)
        unread = another("unread")
        run = play(package_repositories_list=[flat(), suites(), unread])
        refused(run, "another: ")
        with host.sudo():
            assert not host.check_output("find /var/lib/apt/lists -maxdepth 1 -name '*_unread_*'")


def test_what_is_good_is_put_in_place_beside_what_is_not(host, play):
    run = play(package_repositories_list=[another("unsigned"), flat(pins=[]), suites()])
    refused(run, "is not signed")
    assert candidate(host, "plumbline-tool") == "2.0"
    assert play().code == 0
