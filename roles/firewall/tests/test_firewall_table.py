"""Rules that are tried, kept, undone and removed, on a host whose kernel is a text."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest
from ansible.module_utils.refused import Refused

from roles.firewall.library import firewall_table
from roles.firewall.library.firewall_table import Host, run

OLD, NEW, BAD = "old rules", "new rules", "no rules"


class Machine:
    """What nft and systemd do with a table, a timer and a unit."""

    def __init__(self, folder: Path) -> None:
        self.host = Host(
            folder / "firewall.nft", folder / "unit", folder / "again" / "ours.conf", folder / "run"
        )
        self.table = ""
        self.timer = False
        self.enabled = False

    def command(self, *words: str) -> CompletedProcess[str]:
        match words:
            case ("nft", "--stateless", *_):
                return self._said(self.table)
            case ("nft", "--file", file):
                self.table = Path(file).read_text().removeprefix(firewall_table.REPLACE)
            case ("nft", "delete", *_):
                self.table = ""
            case ("unshare", *_, file):
                text = Path(file).read_text()
                return self._said("", 1, f"{file}:1: Error") if text == BAD else self._said(text)
            case ("systemctl", "is-active", *_):
                return self._said("", 0 if self.timer else 3)
            case ("systemctl", "stop", *_):
                self.timer = False
            case ("systemd-run", *_):
                self.timer = True
            case ("systemctl", "enable" | "disable" as verb, *_):
                self.enabled = verb == "enable"
            case ("systemctl", "show", *_):
                state = ("enabled", "active") if self.enabled else ("disabled", "inactive")
                return self._said("UnitFileState={}\nActiveState={}\n".format(*state))
        return self._said("")

    def _said(self, output: str, code: int = 0, error: str = "") -> CompletedProcess[str]:
        return CompletedProcess([], code, output, error)

    def run(self, state: str, rules: str = "", *, check: bool = False) -> tuple[bool, bool]:
        options = {"state": state, "rules": rules, "unit": "[Unit]\n", "undo_after": 60}
        result = run(options, check, self.host)
        return result["changed"], result["trial"]

    def time_passes(self) -> None:
        """The timer, if it is there."""
        if self.timer:
            self.command("nft", "--file", str(self.host.undo))
            self.timer = False

    @property
    def of_the_boot(self) -> str:
        return self.host.rules.read_text() if self.host.rules.exists() else ""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine(tmp_path)
    monkeypatch.setattr(firewall_table, "command", made.command)
    return made


@pytest.fixture
def settled(machine):
    """One that has the old rules."""
    machine.run("tried", OLD)
    machine.run("kept", OLD)
    return machine


def test_rules_are_kept_in_two_steps_and_then_unchanged(machine):
    assert machine.run("tried", OLD) == (True, True)
    assert (machine.table, machine.timer, machine.of_the_boot) == (OLD, True, "")
    assert machine.run("kept", OLD) == (True, False)
    assert (machine.timer, machine.of_the_boot, machine.enabled) == (False, OLD, True)
    assert machine.run("tried", OLD) == (False, False)


def test_check_mode_changes_nothing(settled):
    assert settled.run("tried", NEW, check=True) == (True, True)
    assert settled.run("tried", OLD, check=True) == (False, False)
    assert settled.run("absent", check=True) == (True, False)
    assert (settled.table, settled.timer, settled.of_the_boot) == (OLD, False, OLD)


def test_what_nobody_keeps_is_undone(settled):
    settled.run("tried", NEW)
    assert (settled.table, settled.of_the_boot) == (NEW, OLD)
    settled.time_passes()
    assert settled.table == OLD
    assert settled.run("kept", NEW) == (False, False)
    assert settled.of_the_boot == OLD


def test_the_first_rules_are_undone_to_none(machine):
    machine.run("tried", NEW)
    machine.time_passes()
    assert machine.table == ""


def test_a_run_after_one_that_died_does_not_take_its_rules_for_kept(settled):
    """And goes back to what held before both."""
    settled.run("tried", NEW)
    assert settled.run("tried", NEW) == (True, True)
    settled.time_passes()
    assert settled.table == OLD


def test_what_nft_refuses_is_never_loaded(settled):
    with pytest.raises(Refused, match="nft does not take the rules, and the old ones stay"):
        settled.run("tried", BAD)
    assert (settled.table, settled.timer) == (OLD, False)


def test_a_file_or_a_unit_that_differs_needs_no_trial(settled):
    settled.host.rules.write_text("drift")
    assert settled.run("tried", OLD) == (True, False)
    settled.enabled = False
    assert settled.run("tried", OLD) == (True, False)
    assert (settled.of_the_boot, settled.enabled) == (OLD, True)


def test_it_goes_with_all_that_it_brought(settled):
    settled.run("tried", NEW)
    assert settled.run("absent") == (True, False)
    assert (settled.table, settled.timer, settled.enabled) == ("", False, False)
    assert not settled.host.rules.exists()
    assert not settled.host.unit.exists()
    assert settled.run("absent") == (False, False)


def test_a_host_that_has_no_nft_has_nothing_to_remove(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*words: str) -> CompletedProcess[str]:
        if words[0] == "nft":
            raise FileNotFoundError(2, "No such file or directory", "nft")
        return machine.command(*words)

    monkeypatch.setattr(firewall_table, "command", command)
    assert machine.run("absent") == (False, False)
