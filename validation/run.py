"""Proves a cluster with real jobs, and says so in its exit code.

    python -m validation.run -i inventory/demo        from the control node
    python -m validation.run --here                   on a login node

Exit code 0: everything passed. 1: something failed. 2: the command line or this machine is not
right; nothing was judged. 3: nothing failed, but something could not be judged.
"""

import argparse
import logging
import os
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

from cluster import declaration, version
from cluster.declaration import Declaration, Submission
from cluster.errors import PlumblineError, UsageError
from cluster.watching import fitted, table
from validation import (
    baseline,
    burn_in,
    cluster,
    interrupts,
    kept,
    local,
    output,
    plan,
    rounds,
    suites,
    terminal,
    textfile,
    tiers,
)
from validation.burn_in import Round
from validation.checks.registry import CHECKS
from validation.kept import Begun, Earlier
from validation.model import (
    EXIT_USAGE,
    Outcome,
    RunReport,
    node_reports,
    overall,
    settle,
)
from validation.output import RoundFolder, RunFolder
from validation.plan import Plan, Selection
from validation.progress import Watcher
from validation.report import console
from validation.report import plan as plan_report
from validation.slurm.client import CommandLineClient, SlurmClient
from validation.suites import Suite
from validation.tiers import Walk
from validation.transport import Transport, inventory
from validation.transport.here import Here

# Options that srun has too, and what they name.
_WISHES = {
    "account": "account",
    "qos": "quality of service",
    "reservation": "reservation",
    "constraint": "required node features",
}

_CONTAINER = {
    "image": "run the payloads in this container with pyxis (none: without a container)",
    "mounts": "mounts of the container: SOURCE:TARGET,…",
    "python": "the Python in it, with torch (default: python3)",
}

PROGRAM = ("python", "-m", "validation.run")


def main(arguments: Sequence[str] | None = None, program: Sequence[str] = PROGRAM) -> int:
    """Runs, and returns the exit code. `program` is how it was started, without its options."""
    terminal.prepare()
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser(program)
    options = parser.parse_args(words)
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING,
        format="validation: %(message)s",
    )
    with interrupts.caught():
        try:
            if options.list:
                terminal.say(_listing())
                return 0
            if options.resume is not None:
                return _resume(options, parser)
            return _run(options, words)
        except PlumblineError as error:
            terminal.say(f"validation: {error}\n", sys.stderr)
            return EXIT_USAGE
        except KeyboardInterrupt:
            terminal.say("validation: interrupted, exit 1\n", sys.stderr)
            return 1


def _resume(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Go on with a run that was interrupted, as it was started."""
    given = [
        name
        for name, value in vars(options).items()
        if name not in ("resume", "verbose", "program") and value != parser.get_default(name)
    ]
    if given:
        raise UsageError(
            f"--resume: the run goes on as it was started; leave out --{given[0].replace('_', '-')}"
        )
    folder = RunFolder(kept.folder_of(options.resume))
    folder.lock()
    begun = kept.begun(folder.path)
    if Path.cwd() != Path(begun.directory):
        raise UsageError(
            f"--resume: the run was started in {begun.directory}; resume it there "
            f"(cd {shlex.quote(begun.directory)})"
        )
    before = parser.parse_args(begun.arguments)
    if before.local:
        raise UsageError("--resume: a run of --local is made anew, it takes minutes")
    before.verbose = options.verbose
    return _run(before, begun.arguments, (folder, begun))


def _run(
    options: argparse.Namespace,
    arguments: Sequence[str],
    resumed: tuple[RunFolder, Begun] | None = None,
) -> int:
    """One run, or with `resumed` what is left of one, in its folder."""
    if options.duration is not None:
        burn_in.seconds_of(options.duration)
    elif options.keep_going:
        raise UsageError("--keep-going: give --duration too; a run without it has one round")
    asked = _asked(options)
    now = datetime.now(timezone.utc)
    begun = resumed[1] if resumed else _begun(arguments, now)
    run_plan = asked.plan(begun.run_id, begun.secret)
    if options.record_baseline is not None:
        baseline.check(options.record_baseline, run_plan.nodes)
    if options.dry_run:
        shown = plan_report.render(run_plan, console.terminal_width(sys.stdout))
        terminal.say(f"{shown}  dry run: nothing was submitted\n")
        return 0
    transport = _transport(options, asked)
    if options.metrics is not None:
        textfile.check(options.metrics, transport)
    earlier = Earlier()
    if resumed and not options.local:
        CommandLineClient(transport, begun.run_id, run_plan.python).end_earlier(begun.run_id)
    if resumed:
        folder = resumed[0]
        earlier = kept.earlier(folder.path, begun, asked.follows_from(run_plan))
        begun = replace(begun, parts=begun.parts + 1)
        folder.reopen(run_plan, begun, earlier)
    else:
        begun = replace(begun, follows_from=asked.follows_from(run_plan))
        # The id and not only the time: two runs may start in one second.
        folder = RunFolder(Path(options.output or kept.RESULTS / begun.run_id))
        folder.prepare(run_plan, begun)
    shown = plan_report.render(run_plan, console.terminal_width(sys.stderr))
    terminal.say(f"{shown}\n", sys.stderr)
    going = _Going(options, asked, begun, transport, folder)
    if options.duration is not None:
        report = _burn_in(going, run_plan)
    else:
        client = going.client(run_plan)
        begin = time.monotonic()
        with Watcher(sys.stderr, folder, run_plan.longest_s) as watcher:
            walk = tiers.walk(run_plan, client, watcher, asked.interval_s, earlier)
            interrupts.ignored_from_now_on()
        # Before anything is printed: a terminal that is gone must not cost the reports.
        seconds = time.monotonic() - begin + earlier.seconds
        report = _report(run_plan, walk, client, going, seconds)
    if resumed:
        report = replace(report, notes=(*report.notes, _went_on(begun, earlier, now)))
    return _finish(report, options, folder, transport)


@dataclass(frozen=True, slots=True)
class _Going:
    """A run that has begun: what it was asked, and what it goes through."""

    options: argparse.Namespace
    asked: "Asked"
    begun: Begun
    transport: Transport
    folder: RunFolder

    def client(self, planned: Plan, number: int = 0) -> SlurmClient:
        """For one walk through a plan; `number` is that of a round."""
        slurm_id = self.begun.slurm_id(number)
        if self.options.local:
            return local.LocalClient(slurm_id, planned.python)
        wishes = planned.submission.words
        return CommandLineClient(self.transport, slurm_id, planned.python, wishes)


def _burn_in(going: _Going, first: Plan) -> RunReport:
    """Rounds of the suite for a duration."""
    folder, begun = going.folder, going.begun
    place = folder.path / output.LINES
    text = place.read_text(encoding="utf-8") if begun.parts > 1 and place.exists() else ""
    before = burn_in.read(text, str(place))
    for item in before:
        folder.more(output.LINES, item.line(), line=True)
    folder.more(output.LINES, "".join(item.line() for item in before))
    first_jobs = folder.path / output.ROUNDS / "0001" / kept.JOBS
    looks = kept.read_lines(first_jobs).looks if before and first_jobs.exists() else {}
    duration_s = burn_in.seconds_of(going.options.duration)
    last: list[tuple[SlurmClient, RoundFolder]] = []

    def plan_of(number: int) -> Plan:
        once = () if number == 1 else burn_in.ONCE
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
        return replace(walk, interrupted=walk.interrupted or _lost(walk))

    def keep(item: Round) -> None:
        folder.more(output.LINES, item.line(), line=True)
        if item.number > 1 and item.verdict.green:
            last[0][1].remove()

    ended = burn_in.loop(
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
    report = _report(first, whole, last[0][0], going, seconds)
    report = replace(report, notes=(*ended.notes, *report.notes))
    title = f"Burn-in of {report.cluster}: {report.verdict.name}"
    folder.more(output.PAGE, rounds.render(ended.rounds, title, ended.notes))
    return report


def _finish(
    report: RunReport, options: argparse.Namespace, folder: RunFolder, transport: Transport
) -> int:
    """Write and print what came out; the exit code."""
    if options.record_baseline is not None:
        note = baseline.record(report, options.record_baseline)
        report = replace(report, notes=(*report.notes, note))
    if options.metrics is not None:
        report = textfile.publish(report, options.metrics, transport)
    report = folder.finish(report)
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = console.terminal_width(sys.stdout)
    terminal.say(console.render(report, width=width, colour=colour))
    return report.exit_code


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for, and of which cluster."""

    selection: Selection
    suite: Suite
    inventories: tuple[str, ...]
    declared: Declaration
    site_thresholds: Path | None

    def plan(self, run_id: str, secret: str) -> Plan:
        return plan.make(
            self.declared, self.suite, self.selection, run_id, self.site_thresholds, secret
        )

    def without(self, checks: Sequence[str]) -> "Asked":
        skip = (*self.selection.skip, *checks)
        return replace(self, selection=replace(self.selection, skip=skip))

    @property
    def interval_s(self) -> float:
        """Between two looks. One at this machine costs nothing, through Ansible a second or two."""
        return 1.0 if self.inventories else 0.3

    def follows_from(self, planned: Plan) -> dict[str, str]:
        return kept.follows_from(self.declared, self.suite, planned)


def _asked(options: argparse.Namespace) -> Asked:
    selection = Selection(
        only=_names(options.only) if options.only is not None else None,
        skip=_names(options.skip or []),
        nodes=options.nodes,
        exclude=options.exclude,
        partition=options.partition,
        submission=_submission(options),
    )
    suite = suites.load(options.suite or (local.SUITE if options.local else "quick"))
    inventories = cluster.inventories(options)
    declared = cluster.declared(options, inventories)
    thresholds = cluster.site_thresholds(options, inventories)
    return Asked(selection, suite, tuple(inventories), declared, thresholds)


def _begun(arguments: Sequence[str], now: datetime) -> Begun:
    run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    started = now.isoformat(timespec="seconds")
    return Begun(run_id, secrets.token_hex(8), started, str(Path.cwd()), tuple(arguments), {})


def _transport(options: argparse.Namespace, asked: Asked) -> Transport:
    if options.here or options.local:
        return Here()
    declared = asked.declared
    return inventory.Inventory(asked.inventories, declared.submit_hosts, declared.submission.user)


def _went_on(begun: Begun, earlier: Earlier, now: datetime) -> str:
    judged = len(earlier.replies) - len(earlier.looks)
    return (
        f"part {begun.parts} of a run that was interrupted; it began at {begun.started} and went "
        f"on at {now.isoformat(timespec='seconds')} with the answers of {judged} jobs"
    )


def _report(
    planned: Plan, walk: Walk, client: SlurmClient, going: _Going, seconds: float
) -> RunReport:
    options, begun, folder = going.options, going.begun, going.folder
    results = tuple(settle(planned.checks, walk.results))
    return RunReport(
        run_id=planned.run_id,
        suite=planned.suite,
        cluster=planned.cluster,
        via=client.via,
        slurm=walk.slurm,
        started=begun.started,
        seconds=seconds,
        verdict=overall(planned.checks, walk.results),
        results=results,
        nodes=node_reports(planned.nodes, walk.states, results, planned.suite_checks),
        jobs=walk.jobs,
        checks={name: check.info for name, check in CHECKS.items()},
        notes=(*client.notes, *walk.notes),
        left_out=planned.left_out,
        interrupted=walk.interrupted,
        repeat=_repeat(options),
        resume=_resume_command(options, walk, folder),
        local=options.local,
        output=str(folder.path),
    )


# --- options ---------------------------------------------------------------------------------


def _parser(program: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=shlex.join(program),
        description="Prove a Slurm GPU cluster with real jobs.",
        epilog="Exit codes: 0 pass, 1 fail, 2 usage or environment, 3 inconclusive. "
        "LIST is a Slurm node list such as gpu[1-4],gpu9.",
    )
    where = cluster.add_place(parser)
    where.add_argument(
        "--local", action="store_true", help="test the GPUs of this machine, without Slurm"
    )
    parser.add_argument(
        "--suite", help=f"suite of checks (default: quick; with --local: {local.SUITE})"
    )
    parser.add_argument("--only", action="append", metavar="CHECK,…", help="run only these checks")
    parser.add_argument("--skip", action="append", metavar="CHECK,…", help="skip these checks")
    parser.add_argument("--nodes", metavar="LIST", help="test only these nodes")
    parser.add_argument("--exclude", metavar="LIST", help="leave out these nodes")
    parser.add_argument("--partition", metavar="P", help="test the nodes of this partition")
    for name, what in _WISHES.items():
        parser.add_argument(f"--{name}", metavar=name.upper(), help=f"{what} for the jobs")
    parser.add_argument(
        "--srun-option",
        action="append",
        metavar="--NAME=VALUE",
        help="additional option for srun, such as --srun-option=--comment=x",
    )
    for name, what in _CONTAINER.items():
        parser.add_argument(f"--container-{name}", metavar=name.upper(), help=what)
    parser.add_argument(
        "--output", metavar="DIR", help="folder for the results (default: results/<run id>)"
    )
    parser.add_argument(
        "--metrics",
        metavar="DIR",
        type=PurePosixPath,
        help="also write metrics to this textfile folder of the host that submits the jobs",
    )
    parser.add_argument(
        "--duration",
        metavar="TIME",
        help="repeat the suite for so long, or until it fails: 24h, 20m, 2h30m",
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="with --duration: go on after a failure"
    )
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="go on with an interrupted run: its folder, or its id under results/",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan, submit nothing")
    parser.add_argument("--list", action="store_true", help="list suites and checks")
    cluster.add_data(parser)
    parser.add_argument(
        "--record-baseline",
        metavar="DIR",
        type=Path,
        help="write a thresholds file per GPU model from the measurements that had no threshold",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print more details")
    version.add_option(parser)
    parser.set_defaults(program=program)
    return parser


def _submission(options: argparse.Namespace) -> Submission:
    for option in options.srun_option or []:
        if problem := declaration.option_problem(option or ""):
            raise UsageError(f"--srun-option: {problem}")
    named = {name: getattr(options, name) for name in _WISHES}
    for name, value in named.items():
        if value is not None and (not value.strip() or not value.isprintable()):
            raise UsageError(f"--{name}: expected a name, found {value!r}")
    inside = {f"container_{name}": getattr(options, f"container_{name}") for name in _CONTAINER}
    for name in _CONTAINER:
        value = inside[f"container_{name}"]
        if value is not None and (problem := declaration.container_problem(name, value)):
            raise UsageError(f"--container-{name}: {problem}")
    if options.local and any(inside.values()):
        raise UsageError("--container-image: containers are started by Slurm, not with --local")
    return Submission(**named, srun_options=tuple(options.srun_option or ()), **inside)


def _names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def _repeat(options: argparse.Namespace) -> str:
    """The command line for another run like this one, without its selection of nodes."""
    words = [*options.program]
    words += ["--here"] if options.here else []
    words += ["--local"] if options.local else []
    words += [word for text in options.inventory or [] for word in ("-i", text)]
    for name in (
        "suite",
        "duration",
        "partition",
        *_WISHES,
        "declaration",
        "thresholds",
        "metrics",
    ):
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name}", str(value)]
    for name in _CONTAINER:
        if (value := getattr(options, f"container_{name}")) is not None:
            words.append(f"--container-{name}={value}")
    words += [f"--srun-option={option}" for option in options.srun_option or []]
    return shlex.join(words)


def _resume_command(options: argparse.Namespace, walk: Walk, folder: RunFolder) -> str:
    """The command line that goes on with a run that did not come to its end; empty for others."""
    if options.local or not (walk.interrupted or _lost(walk)):
        return ""
    return shlex.join([*options.program, "--resume", str(folder.path)])


def _lost(walk: Walk) -> bool:
    """Whether contact was lost on the way."""
    return any(item.reply and item.reply.outcome is Outcome.LOST for item in walk.jobs)


def _listing() -> str:
    width = console.terminal_width(sys.stdout)
    lines = ["suites"]
    for name in suites.names():
        suite = suites.load(name)
        lines += [
            *fitted(f"  {name}  {suite.description}", width),
            *fitted(f"  {' ' * len(name)}  {', '.join(suite.checks)}", width),
        ]
    lines.append("checks")
    rows = [(c.info.tier.value, c.info.name, c.info.summary) for c in CHECKS.values()]
    header = ("tier", "check", "what it checks")
    lines += [line for row in table([header, *rows], width)[1:] for line in row]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
