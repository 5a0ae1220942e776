"""What a run asks a node, so that the next run can ask all of it in one look.

An unchanged run asks a node for some hundred small things, each a Python process of its own there.
What was asked is remembered; the next run has all of it answered by one process before it needs
the answers, by the same modules with the same arguments, in check mode. Nothing is taken on
trust: an answer counts only where the module says that the node is as the task wants it, only for
exactly the question that the task asks now, and only until something changes on any host.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

# After so many looks that nobody used its answer for, a question is forgotten.
PATIENCE = 2
# Where less than this share of the answers can be used, the node is far from what is declared, and
# is looked at no more in this run.
USEFUL = 0.5

# Modules whose check mode compares and does nothing else. Ours do, too.
COMPARING = frozenset(
    {
        "blockinfile",
        "dpkg_selections",
        "file",
        "find",
        "getent",
        "group",
        "hostname",
        "lineinfile",
        "slurp",
        "stat",
        "systemd_service",
        "user",
    }
)
# These do nothing else than read, and so say nothing of a change.
READING = frozenset({"find", "getent", "slurp", "stat"})
# A command is a question where its task says that it only reads: `changed_when: false` and
# `check_mode: false`.
COMMAND = "command"
# These have paths, modes and owners in their arguments, and never a secret.
WITHOUT_SECRETS = frozenset({"file", "stat"})


@dataclass(frozen=True, slots=True)
class Question:
    """A module and its arguments. `reads`: it is run as it is, for it changes nothing."""

    module: str  # without its collection
    arguments: str  # JSON with sorted keys
    reads: bool = False

    @property
    def key(self) -> str:
        text = f"{self.module} {self.reads} {self.arguments}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def lenient(self) -> Question:
        """The same, of a module that is to ignore arguments that it does not know."""
        arguments = {**json.loads(self.arguments), "_ansible_ignore_unknown_opts": True}
        return replace(self, arguments=json.dumps(arguments, sort_keys=True))


@dataclass(frozen=True, slots=True)
class Remembered:
    """A question, with the number of looks since an answer of it was used.

    `held` says in which part of a run it is asked: before the run holds the inventory, or after.
    """

    question: Question
    unused: int = 0
    held: bool = False

    @property
    def key(self) -> tuple[str, bool]:
        return self.question.key, self.held


def own_arguments(module: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a task asks a module, without what Ansible adds or what differs in each run."""
    own = {key: value for key, value in arguments.items() if not key.startswith("_ansible_")}
    # `copy` names a temporary file of the control node here, which counts for folders alone.
    if module == "file" and str(own.get("_original_basename", "")).startswith("."):
        del own["_original_basename"]
    return own


def has_condition(module: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a command compares: `creates` or `removes` says where it has nothing to do."""
    return module == COMMAND and bool(arguments.get("creates") or arguments.get("removes"))


def shell_arguments(command: str) -> str:
    """Arguments of the module `command` for a line of shell."""
    return json.dumps({"_raw_params": command, "_uses_shell": True}, sort_keys=True)


def usable(question: Question, answer: Mapping[str, Any]) -> bool:
    """Whether the answer is what the module itself would say now, and nothing is left to do."""
    if any(answer.get(key) for key in ("skipped", "warnings", "deprecations", "exception")):
        return False
    # What a command's end means is for its task to judge.
    if question.reads:
        return True
    changed = answer.get("changed", question.module not in READING)
    return not (answer.get("failed", False) or changed)


def as_returned(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as Ansible hands the result of a module to its task."""
    result = {key: value for key, value in answer.items() if not key.startswith("_ansible_")}
    for stream in ("stdout", "stderr"):
        if stream in result:
            result.setdefault(f"{stream}_lines", (result[stream] or "").splitlines())
    return result


def remember(
    known: Iterable[Remembered],
    questions: Iterable[Remembered],
    used: Iterable[tuple[str, bool]],
    looked: Iterable[bool],
) -> list[Remembered]:
    """What the next run asks for: `known`, and `questions` without an answer at hand.

    `used` has the keys of the answers that were used, `looked` the parts of the run with a look.
    """
    now = {entry.key: entry for entry in questions}
    taken, parts = set(used), set(looked)
    for entry in known:
        unused = 0 if entry.key in taken else entry.unused + int(entry.held in parts)
        if unused < PATIENCE:
            now.setdefault(entry.key, replace(entry, unused=unused))
    return list(now.values())
