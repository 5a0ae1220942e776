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
from tests.role_play import Case
from tests.standins.mirror import REQUESTS, UNIT

FAILURES = "__package_repositories_verified | verify_failures"
# One word for all files of ours.
LEFT = f"{OURS} -exec sha256sum {{}} + | sort | sha256sum"


def test_apt_trusts_and_prefers_what_was_declared(host):
    assert candidate(host, "plumbline-tool") == "1.0"  # pinned, though there is a 2.0
    assert candidate(host, "plumbline-other") == "1.0"


def test_the_files_are_everybodys_to_read_and_nobody_elses_to_write(host):
    paths = host.check_output(OURS).split()
    assert len(paths) == 5
    for path in paths:
        file = host.file(path)
        assert (file.user, file.mode) == ("root", 0o644), path


def test_only_what_changed_is_asked_for_and_nothing_where_nothing_is(host, play, attempts, mirror):
    run = play(package_repositories_list=[flat(pins=[]), suites()])
    assert (run.code, run.changed) == (0, 1), run.output
    assert candidate(host, "plumbline-tool") == "2.0"
    paths = mirror.requests()
    assert any("/flat/InRelease" in path for path in paths)
    assert not any("/suites/" in path for path in paths)
    outcomes = attempts([Case("back", mends=f"rm -f {REQUESTS}"), Case("again")])
    outcomes["back"].passes(changed=True)
    outcomes["again"].passes(changed=False)
    assert mirror.requests() == []
    assert candidate(host, "plumbline-tool") == "1.0"


@pytest.mark.long
def test_what_is_no_longer_listed_goes(host, play, attempts):
    with host.sudo():
        host.check_output("touch /etc/apt/keyrings/site.asc")
    fewer = {"package_repositories_list": [suites()]}
    none = {"package_repositories_list": []}
    outcomes = attempts([Case("fewer", fewer, mends=OURS), Case("none", none, mends=OURS)])
    outcomes["fewer"].passes()
    assert "suites" in outcomes["fewer"].left
    assert "flat" not in outcomes["fewer"].left
    outcomes["none"].passes()
    assert outcomes["none"].left == ""
    assert host.file("/etc/apt/keyrings/site.asc").exists
    assert play().code == 0


def beside(*more, first=None):
    """The repositories of molecule.yml, with others beside them."""
    return {"package_repositories_list": [first or flat(), suites(), *more]}


@pytest.mark.usefixtures("unharmed")
def test_what_cannot_be_had_is_one_sentence_and_leaves_what_was_there(attempts):
    down, up = f"systemctl stop {UNIT}", f"systemctl start {UNIT}"
    outcomes = attempts(
        [
            Case("as_it_was", mends=LEFT),
            Case("away", beside(first=flat(architectures=["amd64"])), breaks=down, mends=LEFT),
            Case("key_away", beside(another("unread")), mends=f"{up} && {LEFT}"),
            Case("key", beside(another("unread", key_fingerprint="A" * 40)), mends=LEFT),
            Case("hash", beside(another("unread", key_sha256="b" * 64)), mends=LEFT),
            Case("foreign", beside(another("foreign")), mends=LEFT),
            Case("unsigned", beside(another("unsigned")), mends=LEFT),
            Case("nowhere", beside(another("nowhere")), mends=LEFT),
        ]
    )
    outcomes["as_it_was"].passes()
    for name, sentence in {
        "away": f"flat: {URL}/flat/ cannot be reached (Could not connect to 127.0.0.1:8098",
        "key_away": f"another: its key {URL}/flat/key.asc cannot be reached: Connection refused",
        "key": f"has the fingerprint {fingerprint()}, and {'A' * 40} is pinned",
        "hash": f"and {'b' * 64} is pinned in key_sha256",
        "foreign": f"another: {URL}/foreign/ is signed with another key (",
        "unsigned": f"another: {URL}/unsigned/ is not signed",
        "nowhere": f"another: {URL}/nowhere/ has no suite /",
    }.items():
        outcomes[name].refuses(sentence)
    assert len({outcome.left for outcome in outcomes.values()}) == 1, outcomes


@pytest.mark.long
@pytest.mark.usefixtures("unharmed")
def test_it_verifies_what_is_there_and_what_is_not_and_is_in_nobodys_way(attempts):
    """Also where the role was never applied, and without a change."""
    theirs = "/etc/apt/sources.list.d/theirs.list"

    def listed(folder):
        return f"echo 'deb [trusted=yes] {URL}/{folder}/ /' > {theirs}"

    other = {"package_repositories_list": [flat(pins=[]), another("unread"), suites()]}
    works = "apt-get indextargets >/dev/null && echo APT works"
    outcomes = attempts(
        [
            Case("well", {}, "verify", FAILURES),
            Case("not_well", other, "verify", FAILURES),
            Case("theirs", beside(another("unread")), breaks=listed("unread"), mends=works),
            # A list that came later, in conflict with what is in place: all of APT is in its way.
            Case("later", breaks=listed("flat")),
            Case("table", {}, "verify", FAILURES, mends=f"rm -f {theirs}"),
        ]
    )
    assert "msg: []" in outcomes["well"].output
    assert "repository flat is different, expected in place" in outcomes["not_well"].output
    assert "repository another is absent, expected in place" in outcomes["not_well"].output
    message = f"{theirs} on the node has its address {URL}"
    outcomes["theirs"].refuses(f"another: {message}/unread/ already")
    assert outcomes["theirs"].left == "APT works"
    outcomes["later"].refuses(f"flat: {message}/flat/ already")
    outcomes["table"].passes()
    assert f"repository flat is {theirs} on the node has its address" in outcomes["table"].output
    for name in ("not_well", "table"):
        assert "repository suites" not in outcomes[name].output
    assert {name: outcome.changed for name, outcome in outcomes.items()} == dict.fromkeys(
        outcomes, 0
    )
