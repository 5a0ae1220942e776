"""Judges each hostile inventory as preflight does, without a host and without a process of its own.

    python -m tests.hostile_inventories.sweep [WORD...]     cases with a word in their name

It takes 0.4 CPU-seconds for each (2026-11-25, two cores of a busy Xeon).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest import mock

from ansible import constants
from ansible.errors import AnsibleError

from playbooks.plugin_utils import variable_files, variables
from tests.hostile_inventories.cases import BASE, CASES, Case
from tests.standins import inventories

SLOW = 20.0  # seconds
CRASH = "preflight ended with"
PLACE = re.compile(r" \(set in [^)]*\)")


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    sentences: Sequence[str]
    seconds: float
    folder: str

    @property
    def problem(self) -> str:
        """What is wrong with the judgement, nothing for most."""
        words, text = self.case.words, "\n".join(self.sentences)
        wrong = {
            f"took {self.seconds:.0f} s": self.seconds > SLOW,
            "crashes": CRASH in text,
            "wrongly refused": not words and self.sentences,
            "wrongly accepted": words and not self.sentences,
            f"not in the words {words!r}": words not in PLACE.sub("", text),
            "without a place": any(f"{self.folder}/" not in each for each in self.sentences),
        }
        return next((problem for problem, holds in wrong.items() if holds), "")


def write(folder: Path, case: Case) -> Path:
    for name, content in {**BASE, **case.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if case.makes and name in case.files:
            SPECIAL[case.makes](path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


SPECIAL: dict[str, Callable[[Path], None]] = {
    "fifo": os.mkfifo,
    "loop": lambda path: path.symlink_to(path),
    "lost": lambda path: path.symlink_to("nowhere"),
}


def decrypt(_: Path) -> None:
    raise ValueError("is encrypted, and there is no vault password")


def judge(folder: Path) -> list[str]:
    """What preflight prints, in its order: unreadable inventory, unreadable variables, refusals."""
    ready()
    # Before Ansible reads variables: it would wait for a FIFO.
    try:
        if problems := variable_files.problems(variable_files.files([str(folder)]), decrypt):
            return problems
        return list(inventories.judged(folder).sentences)
    except variable_files.Unread as end:
        return list(end.sentences)
    except AnsibleError as error:
        return [str(error)]
    except Exception as error:  # what preflight would print as a defect of its own
        return [f"{CRASH} {type(error).__name__}: {error}"]


@cache
def ready() -> None:
    """What is the same for every inventory is read once."""
    specs = variables.read_specs(inventories.REPOSITORY / "roles")
    mock.patch.object(inventories, "read_specs", return_value=specs).start()
    mock.patch.object(constants, "INVENTORY_ANY_UNPARSED_IS_FAILED", new=True).start()


def outcome(case: Case) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        site = write(Path(folder) / "site", case)
        begin = time.monotonic()
        sentences = judge(site)
        return Outcome(case, sentences, time.monotonic() - begin, str(site))


def main() -> int:
    words = sys.argv[1:]
    cases = [case for case in CASES if not words or any(word in case.name for word in words)]
    outcomes = []
    begin = time.process_time()
    for case in cases:
        outcomes.append(result := outcome(case))
        if result.problem or words:
            print(f"{result.problem or 'right'}: {case.name}")
            for sentence in result.sentences:
                print(f"    {sentence[:400].replace(result.folder, 'SITE')}", flush=True)
    wrong = [result.problem for result in outcomes if result.problem]
    for kind in sorted(set(wrong)):
        print(f"{wrong.count(kind)} {kind}")
    slowest = max(result.seconds for result in outcomes)
    print(
        f"{len(outcomes)} cases, {sum(not c.words for c in cases)} to accept; {len(wrong)} wrong; "
        f"{time.process_time() - begin:.0f} CPU-s, slowest {slowest:.1f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
