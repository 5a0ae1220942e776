"""Starts a burn-in, or goes on with one: gives the rounds their plans and folders."""

import sys
import time
from dataclasses import replace

from validation import interrupts, terminal, tiers
from validation.burn_in import page, rounds
from validation.burn_in.rounds import Round
from validation.execution import folder as folders
from validation.execution import journal
from validation.execution.folder import RoundFolder
from validation.execution.going import Going, lost, report_of
from validation.execution.journal import Earlier
from validation.execution.request import seconds_of
from validation.model import RunReport
from validation.plan import Plan
from validation.progress import Watcher
from validation.slurm.client import SlurmClient
from validation.tiers import Walk


def run(going: Going, first: Plan) -> RunReport:
    """Rounds of the suite for a duration."""
    folder, begun = going.folder, going.begun
    place = folder.path / folders.LINES
    text = place.read_text(encoding="utf-8") if begun.parts > 1 and place.exists() else ""
    before = rounds.read(text, str(place))
    folder.more(folders.LINES, "".join(item.line() for item in before))
    first_jobs = folder.path / folders.ROUNDS / "0001" / journal.JOBS
    looks = journal.read_lines(first_jobs).looks if before and first_jobs.exists() else {}
    duration_s = seconds_of(going.options.duration)
    last: list[tuple[SlurmClient, RoundFolder]] = []

    def plan_of(number: int) -> Plan:
        once = () if number == 1 else rounds.ONCE
        skip = [name for name in once if name in going.asked.suite.checks]
        return going.asked.without(skip).plan(begun.run_id, f"{begun.secret}-{number}")

    def walk_of(number: int, planned: Plan) -> Walk:
        client, own = going.client(planned, number), RoundFolder(folder, number)
        own.remove()  # of one that was interrupted
        own.prepare(planned)
        last[:] = [(client, own)]
        done = sum(item.seconds for item in before)
        terminal.say(f"round {number}\n", sys.stderr)
        # Each part holds the nodes against those of the parts before it, once.
        fresh = number == len(before) + 1
        known = Earlier(looks=looks, boots=begun.boots) if fresh and done else Earlier()
        with Watcher(sys.stderr, own, planned.longest_s) as watcher:
            walk = tiers.walk(planned, client, watcher, going.asked.interval_s, known)
        own.close()
        return replace(walk, interrupted=walk.interrupted or lost(walk))

    def keep(item: Round) -> None:
        folder.more(folders.LINES, item.line(), line=True)
        if item.number > 1 and item.verdict.green:
            last[0][1].remove()

    ended = rounds.loop(
        first,
        plan_of,
        walk_of,
        keep,
        duration_s,
        time.monotonic,
        lambda: last[0][1].seen,
        before,
        going.options.keep_going,
    )
    interrupts.ignored_from_now_on()
    seconds = ended.rounds[-1].end_s if ended.rounds else 0.0
    whole = replace(ended.walk, results=ended.results, interrupted=ended.interrupted)
    report = report_of(first, whole, last[0][0], going, seconds)
    report = replace(report, notes=(*ended.notes, *report.notes))
    title = f"Burn-in of {report.cluster}: {report.verdict.name}"
    folder.more(folders.PAGE, page.render(ended.rounds, title, ended.notes))
    return report
