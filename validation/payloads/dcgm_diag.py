#!/usr/bin/python3
"""What DCGM's diagnostic says of this node: one line, and exit status 0 if every GPU passed.

    plumbline-dcgm-diag --level 1 --gpus 8 --limit 20

Exit status 1: a GPU does not pass. 2: nobody knows, because DCGM did not answer, or answered what
this program does not understand; that is no pass either. The line is a reason for a node's drain.

The answer is that of `dcgmi diag --run LEVEL --json` of DCGM 4, a `DCGM Diagnostic` with
`test_categories`, `tests` and a result for each entity:
https://github.com/NVIDIA/DCGM/blob/master/testing/python3/tests/test_dcgm_diag.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PASSED, FAILED, UNKNOWN = 0, 1, 2

# The statuses of a result; anything else is not understood.
PASS, FAIL, WARN, SKIP, NOT_RUN = "pass", "fail", "warn", "skip", "not run"
STATUSES = {PASS, FAIL, WARN, SKIP, NOT_RUN, "notrun"}

# A reason is one line, and Slurm shows it in a column.
LONGEST = 200


class NotUnderstood(Exception):
    """One sentence, without its end: why there is no verdict."""


@dataclass(frozen=True)
class Result:
    """What one test said of one entity, such as GPU 3."""

    test: str
    group: str
    entity: int | None
    status: str
    warnings: tuple[str, ...]

    @property
    def sentence(self) -> str:
        where = self.test if self.entity is None else f"{self.group} {self.entity}: {self.test}"
        return f"{where}: {'; '.join(self.warnings) or 'no reason given'}"


@dataclass(frozen=True)
class Verdict:
    """`status` is the exit status, `passed` the number of GPUs that passed a test."""

    status: int
    reason: str
    passed: int = 0


def results(document: Any) -> Iterator[Result]:
    """Every result of a diagnostic. Raises NotUnderstood."""
    if not isinstance(document, dict) or not isinstance(document.get("DCGM Diagnostic"), dict):
        raise NotUnderstood("the answer has no DCGM Diagnostic, as DCGM 4 writes it")
    diagnostic = document["DCGM Diagnostic"]
    if error := diagnostic.get("runtime_error"):
        raise NotUnderstood(f"DCGM could not run it: {error}")
    for category in _list(diagnostic, "test_categories"):
        for test in _list(category, "tests"):
            yield from _results_of(test)


def _list(holder: Any, key: str) -> list[Any]:
    items = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(items, list):
        raise NotUnderstood(f"the answer has no list {key}, as DCGM 4 writes it")
    return items


def _results_of(test: Any) -> Iterator[Result]:
    if not isinstance(test, dict):
        raise NotUnderstood(f"{test} is no test, as DCGM 4 writes it")
    name = str(test.get("name", ""))
    summary = test.get("test_summary")
    # The summary stands for the test where it says more than its results do.
    for result in [*_list(test, "results"), *([summary] if summary is not None else [])]:
        if not isinstance(result, dict):
            raise NotUnderstood(f"a result of {name} is no object")
        status = str(result.get("status", "")).strip().lower()
        if status not in STATUSES:
            raise NotUnderstood(f"{name} has the status {result.get('status')!r}")
        entity = result.get("entity_id")
        if entity is not None and not isinstance(entity, int):
            raise NotUnderstood(f"{name} has a result for {entity!r}, which is no number")
        warnings = result.get("warnings") or []
        if not isinstance(warnings, list):
            raise NotUnderstood(f"{name} has warnings that are no list")
        texts = (w.get("warning", w) if isinstance(w, dict) else w for w in warnings)
        words = tuple(" ".join(str(text).split()) for text in texts)
        yield Result(name, str(result.get("entity_group", "")), entity, status, words)


def judge(document: Any, gpus: int) -> Verdict:
    """The verdict on a node that declares so many GPUs: each must have passed something."""
    try:
        all_results = list(results(document))
    except NotUnderstood as problem:
        return Verdict(UNKNOWN, f"{problem}")
    bad = [result for result in all_results if result.status == FAIL]
    failed = {result.entity for result in bad}
    of_gpus = [
        result.entity for result in all_results if result.group == "GPU" and result.status == PASS
    ]
    passed = len({*of_gpus} - failed - {None})
    if bad:
        shown = [result for result in bad if result.warnings] or bad
        more = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        return Verdict(FAILED, f"{shown[0].sentence}{more}", passed)
    if passed != gpus:
        return Verdict(UNKNOWN, f"{passed} of {gpus} GPUs passed a test, none failed one", passed)
    if undone := [result.test for result in all_results if result.status in (NOT_RUN, "notrun")]:
        return Verdict(UNKNOWN, f"{undone[0]} was not run", passed)
    if warned := [result for result in all_results if result.status == WARN]:
        return Verdict(PASSED, f"{passed} GPUs passed; {warned[0].sentence}", passed)
    return Verdict(PASSED, f"{passed} GPUs passed", passed)


def ask(program: str, level: int, limit_s: float) -> Any:
    """The diagnostic's answer. Raises NotUnderstood when there is none."""
    argv = [program, "diag", "--run", str(level), "--json"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=limit_s)
    except FileNotFoundError:
        raise NotUnderstood(f"there is no {program}; is DCGM installed?") from None
    except OSError as error:
        raise NotUnderstood(f"{program} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NotUnderstood(f"no answer within {limit_s:g} s") from None
    # Its exit status says less than its answer, and is not 0 for a GPU that fails.
    start = done.stdout.find("{")
    try:
        return json.loads(done.stdout[start:] if start >= 0 else "")
    except ValueError:
        words = " ".join((done.stderr or done.stdout).split()) or "nothing"
        raise NotUnderstood(f"dcgmi ended with {done.returncode} and said {words}") from None


def verdict(program: str, level: int, limit_s: float, gpus: int) -> Verdict:
    """Asks and judges; what goes wrong is a verdict, too."""
    try:
        return judge(ask(program, level, limit_s), gpus)
    except NotUnderstood as problem:
        return Verdict(UNKNOWN, str(problem))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="DCGM's diagnostic as one line and exit status.")
    parser.add_argument("--level", type=int, choices=(1, 2, 3, 4), default=1)
    parser.add_argument("--gpus", type=int, required=True, help="how many this node declares")
    parser.add_argument("--limit", type=float, default=60, help="seconds (default: 60)")
    parser.add_argument("--dcgmi", default="dcgmi", help="the program to ask (default: dcgmi)")
    options = parser.parse_args(arguments)
    outcome = verdict(options.dcgmi, options.level, options.limit, options.gpus)
    word = {PASSED: "passes", FAILED: "fails", UNKNOWN: "gives no verdict"}[outcome.status]
    print(f"dcgmi diag level {options.level} {word}: {outcome.reason}"[:LONGEST])
    return outcome.status


if __name__ == "__main__":
    sys.exit(main())
