"""How the persistence daemon is started so that it keeps persistence mode on. Pure functions."""

from __future__ import annotations

OFF, ON = "--no-persistence-mode", "--persistence-mode"


def command(unit: str) -> str:
    """The command of the package's own unit, without the option that leaves persistence mode off.

    `unit` is what `systemctl cat` prints: the package's file first, then drop-ins. Empty where the
    unit has no such option, and then it needs no other command.
    """
    lines = (line.partition("=") for line in unit.splitlines())
    commands = [value.strip() for key, _, value in lines if key.strip() == "ExecStart" and value]
    words = commands[0].split() if commands else []
    if OFF not in words:
        return ""
    return " ".join(ON if word == OFF else word for word in words)
