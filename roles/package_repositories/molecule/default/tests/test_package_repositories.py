"""Repositories of our own on one node, and the ways in which one is not to be trusted."""

import pytest

from roles.package_repositories.molecule.default.tests.lists import (
    OURS,
    URL,
    another,
    candidate,
    fingerprint,
    flat,
    suites,
)
from tests.role_play import refused

VERIFY = {"ansible.builtin.include_role": {"name": "package_repositories", "tasks_from": "verify"}}
SHOW = {"ansible.builtin.debug": {"var": "__package_repositories_verified | verify_failures"}}


def test_apt_trusts_and_prefers_what_was_declared(host):
    assert candidate(host, "plumbline-tool") == "1.0"  # pinned, though there is a 2.0
    assert candidate(host, "plumbline-other") == "1.0"


def test_the_files_are_everybodys_to_read_and_nobody_elses_to_write(host):
    paths = host.check_output(OURS).split()
    assert len(paths) == 5
    for path in paths:
        file = host.file(path)
        assert (file.user, file.mode) == ("root", 0o644), path


def test_a_run_that_changes_nothing_asks_no_mirror(play, mirror):
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert mirror.requests() == []


def test_only_what_changed_is_asked_for(host, play, mirror):
    run = play(package_repositories_list=[flat(pins=[]), suites()])
    assert (run.code, run.changed) == (0, 1), run.output
    assert candidate(host, "plumbline-tool") == "2.0"
    asked = mirror.requests()
    assert any("/flat/InRelease" in path for path in asked)
    assert not any("/suites/" in path for path in asked)
    assert (play().changed, play().changed) == (1, 0)
    assert candidate(host, "plumbline-tool") == "1.0"


def test_what_is_no_longer_listed_goes(host, play):
    with host.sudo():
        host.check_output("touch /etc/apt/keyrings/site.asc")
    assert play(package_repositories_list=[suites()]).code == 0
    assert "flat" not in host.check_output(OURS)
    assert play(package_repositories_list=[]).code == 0
    assert not host.check_output(OURS)
    assert host.file("/etc/apt/keyrings/site.asc").exists
    assert play().code == 0


@pytest.mark.usefixtures("unharmed")
class TestWhatCannotBeHad:
    def test_an_unreachable_mirror(self, play, mirror):
        mirror.down()
        run = play(package_repositories_list=[flat(architectures=["amd64"]), suites()])
        refused(run, f"flat: {URL}/flat/ cannot be reached (Could not connect to 127.0.0.1:8098")
        run = play(package_repositories_list=[flat(), suites(), another("unread")])
        refused(run, f"another: its key {URL}/flat/key.asc cannot be reached: Connection refused")

    def test_another_key_than_pinned(self, play):
        stranger = another("unread", key_fingerprint="A" * 40)
        run = play(package_repositories_list=[flat(), suites(), stranger])
        refused(run, f"has the fingerprint {fingerprint()}, and {'A' * 40} is pinned")
        stranger = another("unread", key_sha256="b" * 64)
        run = play(package_repositories_list=[flat(), suites(), stranger])
        refused(run, f"and {'b' * 64} is pinned in key_sha256")

    @pytest.mark.parametrize(
        ("folder", "sentence"),
        [
            ("foreign", f"{URL}/foreign/ is signed with another key ("),
            ("unsigned", f"{URL}/unsigned/ is not signed"),
            ("nowhere", f"{URL}/nowhere/ has no suite /"),
        ],
    )
    def test_a_repository_without_the_signature(self, play, folder, sentence):
        run = play(package_repositories_list=[flat(), suites(), another(folder)])
        refused(run, f"another: {sentence}")

    def test_a_list_of_somebody_elses_with_the_same_address(self, host, play):
        theirs = "/etc/apt/sources.list.d/theirs.list"
        with host.sudo():
            host.check_output(f"echo 'deb [trusted=yes] {URL}/unread/ /' > {theirs}")
            run = play(package_repositories_list=[flat(), suites(), another("unread")])
            works = host.run("apt-get indextargets")
            # A list that came later, in conflict with what is in place: all of APT is in its way.
            host.check_output(f"echo 'deb [trusted=yes] {URL}/flat/ /' > {theirs}")
            later = play()
            table = play([VERIFY, SHOW])
            host.check_output(f"rm -f {theirs}")
        refused(run, f"another: {theirs} on the node has its address {URL}/unread/ already")
        assert works.rc == 0, works.stderr
        refused(later, f"flat: {theirs} on the node has its address {URL}/flat/ already")
        assert table.code == 0, table.output
        assert f"repository flat is {theirs} on the node has its address" in table.output
        assert "repository suites" not in table.output


def test_it_verifies_what_is_there_and_what_is_not(host, play):
    """Also where the role was never applied, and without a change."""
    assert "verify_failures: []" in play([VERIFY, SHOW]).output
    run = play(
        [VERIFY, SHOW], package_repositories_list=[flat(pins=[]), another("unread"), suites()]
    )
    assert run.changed == 0
    assert "repository flat is different, expected in place" in run.output
    assert "repository another is absent, expected in place" in run.output
    assert "repository suites" not in run.output
