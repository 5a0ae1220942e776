"""Ends a run of scripts/test: a table of its parts, the budget, and how many passed.

Exit status: 0 all passed, 1 something failed or there was nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.runner import budget, counts, results, yardstick
from tests.runner.budget import Judgement, Verdict
from tests.runner.part import log_of
from tests.runner.results import FAILED, LOGS, PASSED, Result

LEFT = re.compile(r"^SKIPPED \[(\d+)\].*left for scripts/test --full$", re.MULTILINE)

FAILURE = re.compile(r"^(?:FAILED|ERROR) .+$", re.MULTILINE)
WIDTH = 300  # of what is said of one test


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"


def table(done: Sequence[Result], judged: Iterable[Judgement], seconds: float) -> Iterator[str]:
    """Parts in the order in which they ended; `record` is the worse of both costs of a part."""
    worst: dict[str, float] = {}
    for item in judged:
        if item.key.measure in budget.COSTS and item.ratio is not None:
            worst[item.key.part] = max(item.ratio, worst.get(item.key.part, 0))
    yield f"{'part':32} {'time':>6} {'CPU s':>7} {'nodes':>7} {'record':>7}  verdict"
    for result in done:
        nodes = "" if result.nodes is None else f"{result.nodes:.0f}"
        ratio = f"× {worst[result.part]:.2f}" if result.part in worst else ""
        yield (
            f"{result.part:32} {clock(result.seconds)} {result.control:7.0f} {nodes:>7} {ratio:>7}"
            f"  {result.verdict}"
        )
    control = sum(result.control for result in done)
    nodes = f"{sum(result.nodes or 0 for result in done):.0f}"
    yield f"{'from start to end':32} {clock(seconds)} {control:7.0f} {nodes:>7}"


def left_for_full(logs: Iterable[Path]) -> int:
    texts = (log.read_text(encoding="utf-8", errors="replace") for log in logs)
    return sum(int(number) for text in texts for number in LEFT.findall(text))


def roles_left(names: Path) -> list[str]:
    return names.read_text(encoding="utf-8").split() if names.exists() else []


def what_failed(part: str, text: str) -> Iterator[str]:
    """The tests that failed, by a part's log; of a part without tests its last line."""
    lines = FAILURE.findall(text) or [line for line in text.splitlines() if line.strip()][-1:]
    for line in lines:
        yield f"{part}: {line if len(line) <= WIDTH else line[: WIDTH - 1] + '…'}"


def of_budget(judged: Sequence[Judgement]) -> tuple[str, list[str]]:
    """The verdict, and a line for each number that is not as it was."""
    failed = any(item.verdict is Verdict.FAILED for item in judged)
    lines = [
        f"budget, {'FAILED' if item.verdict is Verdict.FAILED else 'told'}: {item.sentence()}"
        for item in judged
        if item.verdict is not Verdict.KEPT
    ]
    return (FAILED if failed else PASSED), lines


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.runner.summary", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.0, help="from start to end")
    parser.add_argument("--whole", action="store_true", help="all stages had their turn")
    parser.add_argument("--renew", action="store_true", help="write what was measured")
    parser.add_argument("--not-judged", metavar="WHY", help="the records are for other runs")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    done = list(results.read())
    passed = frozenset(result.part for result in done if result.passed)
    yardsticks = yardstick.read()
    records = budget.read()
    lines: list[str] = []
    judged: list[Judgement] = []
    if chosen.not_judged:
        lines = [f"budget: not judged, for its records are not those of {chosen.not_judged}"]
    elif not yardsticks:
        done.append(Result("budget", FAILED))
        lines = ["budget, FAILED: there is no yardstick, so nothing was judged"]
    else:
        costs = budget.measured(done, counts.read(), yardsticks)
        whole = chosen.whole and len(passed) == len(done)
        if chosen.renew:
            budget.write(budget.renewed(costs, records, passed, whole))
            lines = [f"budget: {budget.RECORDS} has what was measured; say why in the commit"]
            records = budget.read()
        judged = budget.judge(costs, records, passed, whole, budget.busy(done, yardsticks))
        verdict, notes = of_budget(judged)
        spent = [sample.seconds for sample in yardsticks]
        lines += [*notes, f"budget: a yardstick was {min(spent):.2f} to {max(spent):.2f} CPU s"]
        done.append(Result("budget", verdict))
    print()
    print(*table(done, judged, chosen.seconds), sep="\n")
    print()
    for result in done:
        log = log_of(result.part)
        if not result.passed and log.exists():
            text = log.read_text(encoding="utf-8", errors="replace")
            print(*what_failed(result.part, text), sep="\n")
    if lines:
        print(*lines, sep="\n")
    if left := left_for_full(sorted(LOGS.glob("*.log"))):
        print(f"{left} tests were left for scripts/test --full")
    if roles := roles_left(LOGS / "roles-left"):
        some = "1 role was" if len(roles) == 1 else f"{len(roles)} roles were"
        print(f"{some} left for scripts/test --full: {', '.join(roles)}")
    ran = [result for result in done if result.part != "budget"]
    failures = sum(not result.passed for result in done)
    print(f"{len(done) - failures} passed, {failures} failed")
    return 0 if ran and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
