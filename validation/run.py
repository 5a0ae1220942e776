"""Proves a cluster with real jobs, and says so in its exit code.

    python -m validation.run -i inventory/demo        from the control node
    python -m validation.run --here                   on a login node

Exit code 0: everything passed. 1: something failed. 2: the command line or this machine is not
right; nothing was judged. 3: nothing failed, but something could not be judged.
"""

import argparse
import logging
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

from cluster import version
from cluster.errors import PlumblineError, UsageError
from cluster.watching import fitted, table
from validation import (
    baseline,
    cluster,
    interrupts,
    local,
    suites,
    terminal,
    textfile,
    tiers,
)
from validation.background import start as background
from validation.burn_in import start as burn_in
from validation.checks.registry import CHECKS
from validation.drain import decision, steps
from validation.drain.steps import Consent, Returning
from validation.execution import journal
from validation.execution.folder import RunFolder
from validation.execution.going import Going, begun_now, report_of
from validation.execution.journal import Begun, Earlier
from validation.execution.request import CONTAINER, WISHES, asked_by, seconds_of, transport_of
from validation.history import recording
from validation.model import EXIT_USAGE, RunReport
from validation.plan import Plan
from validation.progress import Watcher
from validation.report import console
from validation.report import plan as plan_report
from validation.slurm.admin import Operator
from validation.slurm.client import CommandLineClient

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
            if options.background:
                return background.run(options)
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
    folder = RunFolder(journal.folder_of(options.resume))
    folder.lock()
    begun = journal.begun(folder.path)
    if Path.cwd() != Path(begun.directory):
        raise UsageError(
            f"--resume: the run was started in {begun.directory}; resume it there "
            f"(cd {shlex.quote(begun.directory)})"
        )
    before = parser.parse_args(begun.arguments)
    if before.local:
        raise UsageError("--resume: a run of --local is made anew, it takes minutes")
    if before.undrain:
        raise UsageError("--resume: --undrain keeps its nodes for one run; begin another one")
    before.verbose = options.verbose
    return _run(before, begun.arguments, (folder, begun))


def _run(
    options: argparse.Namespace,
    arguments: Sequence[str],
    resumed: tuple[RunFolder, Begun] | None = None,
) -> int:
    """One run, or with `resumed` what is left of one, in its folder."""
    _check_drains(options)
    if options.duration is not None:
        seconds_of(options.duration)
    elif options.keep_going:
        raise UsageError("--keep-going: give --duration too; a run without it has one round")
    asked = asked_by(options)
    now = datetime.now(timezone.utc)
    begun = resumed[1] if resumed else begun_now(arguments, now)
    run_plan = asked.plan(begun.run_id, begun.secret)
    if options.record_baseline is not None:
        baseline.check(options.record_baseline, run_plan.nodes)
    transport = transport_of(options, asked)
    returning = None
    if options.undrain:
        returning = _returning(run_plan, Operator(transport))
        kept = decision.named(returning.returns)
        asked = asked.in_reservation(kept, returning.name, alone=options.alone)
        run_plan = asked.plan(begun.run_id, begun.secret)
    if options.dry_run:
        shown = plan_report.render(run_plan, console.terminal_width(sys.stdout))
        terminal.say(f"{shown}  dry run: nothing was submitted\n")
        return 0
    if options.metrics is not None:
        textfile.check(options.metrics, transport)
    consent = Consent(options.yes)
    if returning is not None:
        steps.confirmed(returning, consent)
    earlier = Earlier()
    if resumed and not options.local:
        CommandLineClient(transport, begun.run_id, run_plan.python).end_earlier(begun.run_id)
    if resumed:
        folder = resumed[0]
        earlier = journal.earlier(folder.path, begun, asked.follows_from(run_plan))
        begun = replace(begun, parts=begun.parts + 1)
        folder.reopen(run_plan, begun, earlier)
    else:
        begun = replace(begun, follows_from=asked.follows_from(run_plan))
        # The id and not only the time: two runs may start in one second.
        folder = RunFolder(Path(options.output or journal.RESULTS / begun.run_id))
        folder.prepare(run_plan, begun)
    shown = plan_report.render(run_plan, console.terminal_width(sys.stderr))
    terminal.say(f"{shown}\n", sys.stderr)
    going = Going(options, asked, begun, transport, folder)
    report = _walked(going, run_plan, earlier, returning)
    if resumed:
        note = _went_on(begun, earlier, now, rounds=options.duration is not None)
        report = replace(report, notes=(*report.notes, note))
    return _finish(report, going, consent)


def _walked(
    going: Going, run_plan: Plan, earlier: Earlier, returning: Returning | None
) -> RunReport:
    """The jobs, and what they came to. Nothing is printed of it yet: a terminal that is gone must
    not cost the reports.
    """
    if going.options.duration is not None:
        return burn_in.run(going, run_plan)
    client = going.client(run_plan)

    def walked() -> RunReport:
        begin = time.monotonic()
        with Watcher(sys.stderr, going.folder, run_plan.longest_s) as watcher:
            walk = tiers.walk(run_plan, client, watcher, going.asked.interval_s, earlier)
            interrupts.ignored_from_now_on()
        seconds = time.monotonic() - begin + earlier.seconds
        return report_of(run_plan, walk, client, going, seconds)

    if returning is None:
        return walked()
    returning.begin()
    return returning.around(walked)


def _check_drains(options: argparse.Namespace) -> None:
    """Raises UsageError for options of draining that do not belong together."""
    if not (options.drain or options.undrain):
        return
    if options.local:
        raise UsageError("--drain and --undrain change nodes of Slurm, which --local has not")
    if options.drain and options.undrain:
        raise UsageError("--drain and --undrain are two runs: give one of them")
    if options.undrain and options.reservation is not None:
        raise UsageError("--undrain makes a reservation of its own: leave --reservation out")
    if options.undrain and options.duration is not None:
        raise UsageError("--undrain proves its nodes once: leave --duration out")
    if not 0 < options.drain_limit <= 100:
        raise UsageError(f"--drain-limit: expected percent above 0, found {options.drain_limit:g}")


def _returning(planned: Plan, operator: Operator) -> Returning:
    checks = [check.check for check in planned.checks]
    names = [node.name for node in planned.nodes]
    return steps.before(operator, names, checks, planned.run_id)


def _finish(report: RunReport, going: Going, consent: Consent) -> int:
    """Write and print what came out; the exit code."""
    options, folder, transport = going.options, going.folder, going.transport
    if options.record_baseline is not None:
        note = baseline.record(report, options.record_baseline)
        report = replace(report, notes=(*report.notes, note))
    if options.metrics is not None:
        report = textfile.publish(report, options.metrics, transport)
    report = recording.record(report, options.history or recording.place(folder.path))
    report = folder.finish(report)
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = console.terminal_width(sys.stdout)
    terminal.say(console.render(report, width=width, colour=colour))
    if options.drain:
        operator, limit = Operator(transport), options.drain_limit
        report = steps.after(report, operator, going.asked.declared, limit, consent)
        folder.finish(report)
    return report.exit_code


def _went_on(begun: Begun, earlier: Earlier, now: datetime, rounds: bool) -> str:
    judged = f"the answers of {len(earlier.replies) - len(earlier.looks)} jobs"
    return (
        f"part {begun.parts} of a run that was interrupted; it began at {begun.started} and went "
        f"on at {now.isoformat(timespec='seconds')} with "
        f"{'all rounds that were complete' if rounds else judged}"
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
    parser.add_argument(
        "--alone",
        action="store_true",
        help="leave out what only several nodes could prove: each node is tested by itself",
    )
    for name, what in WISHES.items():
        parser.add_argument(f"--{name}", metavar=name.upper(), help=f"{what} for the jobs")
    parser.add_argument(
        "--srun-option",
        action="append",
        metavar="--NAME=VALUE",
        help="additional option for srun, such as --srun-option=--comment=x",
    )
    for name, what in CONTAINER.items():
        parser.add_argument(f"--container-{name}", metavar=name.upper(), help=what)
    parser.add_argument(
        "--output", metavar="DIR", help="folder for the results (default: results/<run id>)"
    )
    parser.add_argument(
        "--history",
        metavar="FILE",
        type=Path,
        help="file that remembers the runs (default: history.sqlite beside the results)",
    )
    parser.add_argument(
        "--metrics",
        metavar="DIR",
        type=PurePosixPath,
        help="also write metrics to this textfile folder of the host that submits the jobs",
    )
    parser.add_argument(
        "--drain", action="store_true", help="drain failing nodes afterwards, when asked and agreed"
    )
    parser.add_argument(
        "--undrain",
        action="store_true",
        help="prove the nodes that a former --drain took out of service, return those that pass",
    )
    parser.add_argument(
        "--drain-limit",
        type=float,
        default=decision.LIMIT_PERCENT,
        metavar="PERCENT",
        help="never drain more of a partition (default: %(default)g, and one node at least)",
    )
    parser.add_argument("--yes", action="store_true", help="with --drain or --undrain: do not ask")
    parser.add_argument(
        "--duration",
        metavar="TIME",
        help="repeat the suite for so long, or until it fails: 24h, 20m, 2h30m",
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="with --duration: go on after a failure"
    )
    parser.add_argument(
        "--background",
        action="store_true",
        help="test idle nodes one after another, the one whose test is oldest first",
    )
    parser.add_argument(
        "--at-once",
        metavar="N",
        type=_count,
        default=1,
        help="with --background: so many nodes at a time (default: 1)",
    )
    parser.add_argument(
        "--every",
        metavar="TIME",
        default="7d",
        help="with --background: a node is due again so long after its last test (default: 7d)",
    )
    parser.add_argument(
        "--at-most",
        metavar="TIME",
        default="50m",
        help="with --background: for so long (default: 50m)",
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


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of nodes, found {text!r}")
    return int(text)


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
