"""What APT may upgrade, by what it says that it would do; APT itself is asked on a node."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest
from ansible.module_utils.refused import Refused

from roles.node_update.library import system_packages as s

SIMULATED = """\
Reading package lists...
Inst libc6 [2.41-12] (2.41-12+deb13u1 Debian:13/stable, Debian-Security:13/security [amd64])
Inst base-files [13.8] (13.8+deb13u2 Debian:13.2/stable [amd64]) []
Inst linux-image-6.12.57+deb13-amd64 (6.12.57-1 Debian-Security:13/stable-security [amd64])
Conf libc6 (2.41-12+deb13u1 Debian:13.2/stable [amd64])
"""


def test_what_would_change_is_read():
    libc, base, kernel = s.changes(SIMULATED)
    assert libc == s.Change("libc6", "2.41-12+deb13u1", upgrade=True, security=True)
    assert (base.name, base.security) == ("base-files", False)
    assert (kernel.upgrade, kernel.security) == (False, True)
    assert s.changes("") == []


def test_security_takes_what_an_archive_for_security_has():
    argv = s.command("security", s.changes(SIMULATED))
    assert argv[:3] == ["apt-get", "install", "--only-upgrade"]
    assert argv[-1] == "libc6=2.41-12+deb13u1"
    assert "base-files" not in " ".join(argv)
    assert s.command("security", s.changes(SIMULATED)[1:2]) == []


def test_nothing_is_ever_removed():
    assert "--no-remove" in s.command("all", s.changes(SIMULATED))
    assert s.command("all", []) == []
    with pytest.raises(Refused, match="would remove nfs-common, and nothing was changed"):
        s.checked(CompletedProcess([], 0, f"Remv nfs-common [1.3]\n{SIMULATED}", ""), [])


def test_what_others_bring_is_left_alone():
    simulated = f"Inst slurmd [24.11.5-4] (24.11.5-5 Debian:13/stable [amd64])\n{SIMULATED}"
    patterns = ["slurm-wlm*", "slurmd"]
    assert s.meant(s.changes(simulated), patterns) == ["slurmd"]
    with pytest.raises(Refused, match="would change slurmd, which the playbooks keep in step"):
        s.checked(CompletedProcess([], 0, simulated, ""), patterns)
    assert len(s.checked(CompletedProcess([], 0, SIMULATED, ""), patterns)) == 3


class Apt:
    """Answers of APT by the verb; the calls are kept."""

    def __init__(self, simulated: str = SIMULATED, **status: int) -> None:
        self.simulated, self.status = simulated, status
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, *argv: str) -> CompletedProcess[str]:
        self.calls.append(argv)
        verb = "simulate" if "--simulate" in argv else argv[1]
        code = self.status.get(verb.replace("-", "_"), 0)
        return CompletedProcess(argv, code, self.simulated, "E: no room\n" if code else "")

    @property
    def changing(self) -> list[str]:
        return [c[1] for c in self.calls if c[1] != "update" and "--simulate" not in c]


@pytest.fixture
def apt(monkeypatch, tmp_path: Path):
    def use(made: Apt) -> Apt:
        monkeypatch.setattr(s, "run", made)
        monkeypatch.setattr(s, "UPDATES", tmp_path)
        return made

    return use


def test_it_upgrades_once_and_says_what(apt):
    made = apt(Apt())
    assert s.upgrade("all", [], check_mode=False)[0] == "libc6 2.41-12+deb13u1"
    assert made.changing == ["dist-upgrade"]


def test_check_mode_and_an_upgraded_node_change_nothing(apt):
    made = apt(Apt())
    assert len(s.upgrade("all", [], check_mode=True)) == 3
    assert made.changing == []
    made = apt(Apt(simulated=""))
    assert s.upgrade("all", [], check_mode=False) == []
    assert made.changing == []


@pytest.mark.parametrize(
    ("verb", "why"),
    [
        ("update", "the package lists cannot be refreshed, and nothing was changed: no room"),
        ("simulate", "the packages cannot be upgraded: no room"),
        ("dist_upgrade", "the packages were not upgraded: no room"),
    ],
)
def test_what_apt_refuses_is_one_sentence(apt, verb, why):
    made = Apt()
    made.status = {verb: 100}
    apt(made)
    with pytest.raises(Refused, match=why):
        s.upgrade("all", [], check_mode=False)


def test_lists_that_another_apt_refreshes_are_waited_for(monkeypatch):
    answers = [CompletedProcess([], 100, "", "E: Could not get lock /var/lib/apt/lists/lock.")] * 2
    answers.append(CompletedProcess([], 0, "", ""))
    monkeypatch.setattr(s, "run", lambda *_: answers.pop(0))
    monkeypatch.setattr(s, "LOCK_PAUSE_S", 0)
    assert s.refresh().returncode == 0
    assert not answers
