"""Which version packages get, and what APT says as one sentence; APT itself is asked on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from ansible.module_utils.refused import Refused
from hypothesis import given
from hypothesis import strategies as st

from playbooks.library import exact_packages
from playbooks.library.exact_packages import PackageSet
from playbooks.module_utils.package_version import fits

TWO = PackageSet(names=["core", "cuda13"], variable="dcgm_version")
KNOWN = {"core": ["1:4.7.0-1", "1:4.5.2-1"], "cuda13": ["1:4.5.2-1"]}


@pytest.mark.parametrize("wanted", ["1:4.5.2-1", "4.5.2-1", "4.5.2", "1:4.5.2"])
def test_a_version_may_leave_out_epoch_and_revision(wanted: str) -> None:
    assert fits("1:4.5.2-1", wanted)
    assert not fits("1:4.5.20-1", wanted)
    assert not fits("1:4.5-2", wanted)


def test_without_a_version_the_newest_that_all_have() -> None:
    assert exact_packages.chosen(KNOWN, TWO, "") == "1:4.5.2-1"


def test_what_the_first_has_is_kept() -> None:
    have = {"core": "1:4.5.2-1", "cuda13": "1:4.7.0-1"}
    assert exact_packages.kept(have, TWO) == "1:4.5.2-1"
    assert exact_packages.kept({"cuda13": "1:4.7.0-1"}, TWO) == "1:4.7.0-1"
    assert exact_packages.kept(have, PackageSet(TWO.names, "4.7.0")) == ""
    assert exact_packages.kept({}, TWO) == ""
    assert exact_packages.kept({}, PackageSet(TWO.names, "4.7.0")) == ""


@pytest.mark.parametrize(
    ("known", "version", "words"),
    [
        (KNOWN, "9", "core, cuda13 cannot be had in version 9: there is 1:4.5.2-1; set dcgm_ver"),
        (KNOWN, "4.7.0", "cannot be had in version 4.7.0: there is 1:4.5.2-1"),
        ({"core": ["2"], "cuda13": ["1"]}, "2", "they have no version in common"),
        ({"core": ["2"], "cuda13": []}, "2", "no repository of this node has cuda13"),
        ({"core": [], "cuda13": []}, "", "no repository of this node has core"),
    ],
)
def test_an_unknown_version_is_one_sentence(
    known: dict[str, list[str]], version: str, words: str
) -> None:
    with pytest.raises(Refused) as refused:
        exact_packages.chosen(known, PackageSet(TWO.names, version, variable="dcgm_version"), "")
    assert words in str(refused.value)


@given(st.lists(st.sampled_from("123"), unique=True), st.lists(st.sampled_from("123"), unique=True))
def test_all_get_one_version_or_none(first: list[str], second: list[str]) -> None:
    known = {"core": first, "cuda13": second}
    if set(first) & set(second):
        assert exact_packages.chosen(known, TWO, "") in set(first) & set(second)
    else:
        with pytest.raises(Refused):
            exact_packages.chosen(known, TWO, "")


def test_what_nobody_named_is_not_removed() -> None:
    output = "Remv old [1:3.3.6]\nRemv tool:amd64 [1]\nInst core (1 x)\n"
    assert exact_packages.also_gone(output, ["old"]) == ["tool:amd64"]
    assert exact_packages.also_gone(output, ["old", "tool"]) == []


FETCH = "E: Failed to fetch http://m/x.deb"


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "disk is full"),
        (
            f"{FETCH}  404  File not found [IP: 127.0.0.1 80]\nE: Unable",
            "x.deb does not exist (404 File not found)",
        ),
        (
            f"{FETCH}  Could not connect to m:80. - connect (111)\nE: U",
            "x.deb cannot be reached: Could not connect to m:80. - connect (111)",
        ),
        (
            f"{FETCH}  File has unexpected size (5 != 6). Mirror sync?",
            "x.deb did not arrive completely: File has unexpected size (5 != 6)",
        ),
        (
            "The following packages have unmet dependencies:\n a : Depends: b\nE: x",
            "a : Depends: b",
        ),
        ("E: one\nE: Sub-process dpkg returned an error code (1)", "Sub-process dpkg returned"),
        ("", "it says nothing"),
    ],
)
def test_what_apt_says_becomes_one_sentence(output: str, sentence: str) -> None:
    assert sentence in exact_packages.meaning(output)
    assert "\n" not in exact_packages.meaning(output)


class Node:
    """A node's dpkg and APT, as far as the module asks them."""

    def __init__(self, have: dict[str, str], known: dict[str, list[str]]) -> None:
        self.have, self.known, self.held = have, known, set[str]()
        self.commands: list[str] = []
        self.services: dict[str, str] = {}
        self.broken = False

    def run(self, *argv: str) -> CompletedProcess[str]:
        output = ""
        match argv:
            case ["dpkg-query", _, _, *names]:
                there = [name for name in names if name in self.have]
                output = "".join(f"installed {name} {self.have[name]}\n" for name in there)
            case ["apt-mark", "showhold"]:
                output = "\n".join(self.held)
            case ["apt-mark", "hold", *names]:
                self.held |= set(names)
            case ["apt-cache", "madison", *names]:
                output = "".join(
                    f" {name} | {version} | http://m Packages\n"
                    for name in names
                    for version in self.known.get(name, [])
                )
            case ["apt-get", "update", *_]:
                self.commands.append("update")
            case ["systemctl", verb, *words]:
                output = self.systemctl(verb, *words)
            case ["dpkg", *_, "--configure", "-a"]:
                self.commands.append("configure")
            case ["apt-get", "install", *words]:
                return self.install(*words)
        return CompletedProcess(argv, 0, output, "")

    def systemctl(self, verb: str, *words: str) -> str:
        services = [word for word in words if not word.startswith("--")]
        if verb == "show":
            return self.services.get(services[0], "inactive")
        for service in services:
            self.services[service] = "active" if verb == "start" else "inactive"
            self.commands.append(f"{verb} {service}")
        return ""

    def install(self, *words: str) -> CompletedProcess[str]:
        simulated = "--simulate" in words
        if "--download-only" in words:
            self.commands.append("download")
            return CompletedProcess(words, 0, "", "")
        for word in words:  # dpkg begins
            option, _, command = word.partition("Pre-Invoke::=")
            if option == "--option=DPkg::" and not simulated:
                self.run(*command.split())
        if self.broken and not simulated:
            return CompletedProcess(words, 100, "", "E: broken")
        for word in (word for word in words if not word.startswith("--")):
            name, _, version = word.partition("=")
            self.commands.append(f"{'would ' if simulated else ''}{word}")
            if not simulated and version:
                self.have[name] = version
            elif not simulated:
                del self.have[name.rstrip("-")]
        return CompletedProcess(words, 0, "", "")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Node:
    stand_in = Node({"old": "3"}, {name: list(versions) for name, versions in KNOWN.items()})
    monkeypatch.setattr(exact_packages, "run", stand_in.run)
    monkeypatch.setattr(exact_packages, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(exact_packages, "UPDATES", tmp_path / "updates")
    exact_packages.UPDATES.mkdir()
    return stand_in


def bring(version: str = "", remove: Sequence[str] = (), check_mode: bool = False):
    return exact_packages.bring(PackageSet(TWO.names, version, remove), check_mode)


def test_one_transaction_installs_holds_and_removes(node: Node) -> None:
    done = bring(remove=["old", "older"])
    assert (done.changed, done.version, done.removed) == (True, "1:4.5.2-1", ["old 3"])
    assert node.commands[-3:] == ["core=1:4.5.2-1", "cuda13=1:4.5.2-1", "old-"]
    assert node.have == {"core": "1:4.5.2-1", "cuda13": "1:4.5.2-1"}
    assert node.held == {"core", "cuda13"}
    assert not exact_packages.POLICY.exists()

    node.commands.clear()
    assert not bring(remove=["old", "older"]).changed
    assert not bring(version="4.5.2").changed
    assert node.commands == []


def test_a_package_that_has_another_version_joins_the_first(node: Node) -> None:
    node.have |= {"core": "1:4.5.2-1", "cuda13": "1:4.4.0-1"}
    assert bring().version == "1:4.5.2-1"
    assert node.have["cuda13"] == "1:4.5.2-1"


def test_a_hold_that_was_taken_away_comes_back(node: Node) -> None:
    bring()
    node.held.clear()
    assert bring().changed
    assert node.held == {"core", "cuda13"}


def test_check_mode_says_what_would_be_and_does_nothing(node: Node) -> None:
    done = bring(remove=["old"], check_mode=True)
    assert (done.changed, done.version, done.removed) == (True, "1:4.5.2-1", ["old 3"])
    assert (node.have, node.held) == ({"old": "3"}, set())


def test_check_mode_before_the_repository_is_there(node: Node) -> None:
    node.known.clear()
    assert bring(check_mode=True).version == ""
    assert bring(check_mode=True).changed


def test_check_mode_refuses_a_version_that_no_repository_has(node: Node) -> None:
    with pytest.raises(Refused, match="version 9"):
        bring(version="9", check_mode=True)
    assert node.commands == []


def test_lists_are_refreshed_before_a_version_is_unknown(node: Node) -> None:
    with pytest.raises(Refused, match="version 9"):
        bring(version="9")
    assert node.commands == ["update"]
    assert node.have == {"old": "3"}


OWN = {"core": "1:4.7.0-1", "exporter": "4.8.3-1"}


def test_each_may_have_a_version_of_its_own(node: Node) -> None:
    wanted = PackageSet(list(OWN), versions=OWN, hold=False)
    assert exact_packages.bring(wanted, check_mode=False).changed
    assert node.commands[-2:] == ["core=1:4.7.0-1", "exporter=4.8.3-1"]
    assert node.held == set()
    node.commands.clear()
    assert not exact_packages.bring(wanted, check_mode=False).changed
    node.broken, node.have = True, {}
    with pytest.raises(Refused, match=r"^core 1:4.7.0-1, exporter 4\.8\.3-1 is not"):
        exact_packages.bring(wanted, check_mode=False)


def test_a_version_is_given_to_each_or_to_none() -> None:
    assert exact_packages.named(["core", "cuda13"]) == (["core", "cuda13"], {})
    assert exact_packages.named([f"{name}={of}" for name, of in OWN.items()]) == ([*OWN], OWN)
    with pytest.raises(Refused, match="give each package a version, or none"):
        exact_packages.named(["core=1:4.7.0-1", "cuda13"])
    with pytest.raises(Refused, match="name is empty"):
        exact_packages.named([])


def test_apt_may_remove_what_it_may_and_nothing_else(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[str]] = []

    def run(*argv: str) -> CompletedProcess[str]:
        asked.append(argv)
        done = node.run(*argv)
        done.stdout += "Remv source [3]\n" if "--simulate" in argv else ""
        return done

    monkeypatch.setattr(exact_packages, "run", run)
    with pytest.raises(Refused, match="cannot be installed beside source, which may not be"):
        bring()
    ignores = "--option=APT::Ignore-Hold=true"
    assert not any(ignores in argv for argv in asked)
    exact_packages.bring(PackageSet(TWO.names, may_go=["source"]), check_mode=False)
    assert any(ignores in argv for argv in asked)


SERVED = PackageSet(TWO.names, stop=["ctl", "agent", "away"], start=["agent", "away"])


def test_services_are_away_while_files_change_and_no_longer(node: Node) -> None:
    node.services = {"ctl": "active", "agent": "activating", "away": "failed"}
    exact_packages.bring(SERVED, check_mode=False)
    after = node.commands[node.commands.index("download") :]
    assert after == [
        "download",
        "stop ctl",
        "stop agent",
        "core=1:4.5.2-1",
        "cuda13=1:4.5.2-1",
        "start agent",
    ]
    node.commands.clear()
    assert exact_packages.bring(SERVED, check_mode=False).changed is False
    assert node.commands == []


def test_services_that_ran_run_again_where_the_packages_did_not_come(node: Node) -> None:
    node.services, node.broken = {"agent": "active"}, True
    with pytest.raises(Refused, match="is not installed"):
        exact_packages.bring(SERVED, check_mode=False)
    assert node.services == {"agent": "active"}


def test_an_interrupted_installation_is_finished_first(node: Node) -> None:
    (exact_packages.UPDATES / "0001").touch()
    node.services = {"agent": "active"}
    exact_packages.bring(SERVED, check_mode=False)
    first = node.commands[: node.commands.index("download")]
    assert first[:3] == ["stop agent", "configure", "start agent"]
