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
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

from cluster import declaration, version
from cluster.declaration import Declaration, Submission
from cluster.errors import PlumblineError, UsageError
from cluster.watching import fitted, table
from validation import (
    baseline,
    cluster,
    drain_steps,
    draining,
    interrupts,
    local,
    plan,
    suites,
    terminal,
    textfile,
    tiers,
)
from validation.checks.registry import CHECKS
from validation.declaring import doubts
from validation.drain_steps import Consent
from validation.history import recording
from validation.model import EXIT_USAGE, RunReport, node_reports, overall, settle
from validation.output import RunFolder
from validation.plan import Plan, Selection
from validation.progress import Watcher
from validation.report import console
from validation.report import plan as plan_report
from validation.slurm.client import CommandLineClient, SlurmClient
from validation.slurm.operator import Operator
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
    options = _parser(program).parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING,
        format="validation: %(message)s",
    )
    with interrupts.caught():
        try:
            if options.list:
                terminal.say(_listing())
                return 0
            return _run(options)
        except PlumblineError as error:
            terminal.say(f"validation: {error}\n", sys.stderr)
            return EXIT_USAGE
        except KeyboardInterrupt:
            terminal.say("validation: interrupted, exit 1\n", sys.stderr)
            return 1


def _run(options: argparse.Namespace) -> int:
    _check_drains(options)
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
    now = datetime.now(timezone.utc)
    run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    site = cluster.site_thresholds(options, inventories)
    run_plan = plan.make(declared, suite, selection, run_id, site)
    if options.record_baseline is not None:
        baseline.check(options.record_baseline, run_plan.nodes)
    transport = _transport(options, inventories, declared)
    returning = None
    if options.undrain:
        returning = _returning(run_plan, Operator(transport))
        run_plan = plan.make(declared, suite, _only(selection, returning), run_id, site)
    if options.dry_run:
        shown = plan_report.render(run_plan, console.terminal_width(sys.stdout))
        terminal.say(f"{shown}  dry run: nothing was submitted\n")
        return 0
    if options.metrics is not None:
        textfile.check(options.metrics, transport)
    consent = Consent(options.yes)
    if returning is not None:
        drain_steps.confirmed(returning, consent)
    # The id and not only the time: two runs may start in one second.
    folder = RunFolder(Path(options.output or f"results/{run_id}"))
    folder.prepare(run_plan)
    shown = plan_report.render(run_plan, console.terminal_width(sys.stderr))
    terminal.say(f"{shown}\n", sys.stderr)
    client = _client(options, transport, run_plan)
    if returning is not None:
        returning.begin()

    def walked() -> RunReport:
        begin = time.monotonic()
        with Watcher(sys.stderr, folder, run_plan.longest_s) as watcher:
            # A look at this machine costs nothing; through Ansible each costs a second or two.
            walk = tiers.walk(run_plan, client, watcher, interval_s=1.0 if inventories else 0.3)
            interrupts.ignored_from_now_on()
        return _report(run_plan, walk, client, now, time.monotonic() - begin, options, folder)

    # Before anything is printed: a terminal that is gone must not cost the reports.
    report = returning.around(walked) if returning is not None else walked()
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
        limit = options.drain_limit
        report = drain_steps.after(report, Operator(transport), declared, limit, consent)
        folder.finish(report)
    return report.exit_code


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
    if not 0 < options.drain_limit <= 100:
        raise UsageError(f"--drain-limit: expected percent above 0, found {options.drain_limit:g}")


def _returning(planned: Plan, operator: Operator) -> drain_steps.Returning:
    checks = [check.check for check in planned.checks]
    names = [node.name for node in planned.nodes]
    return drain_steps.before(operator, names, checks, planned.run_id)


def _only(selection: Selection, returning: drain_steps.Returning) -> Selection:
    """The same checks on the nodes that may return, in the reservation that keeps them."""
    nodes = draining.named(returning.returns)
    submission = replace(selection.submission, reservation=returning.name)
    return replace(selection, nodes=nodes, exclude=None, submission=submission)


def _transport(
    options: argparse.Namespace, inventories: Sequence[str], declared: Declaration
) -> Transport:
    if options.here or options.local:
        return Here()
    return inventory.Inventory(inventories, declared.submit_hosts, declared.submission.user)


def _client(options: argparse.Namespace, transport: Transport, planned: Plan) -> SlurmClient:
    if options.local:
        return local.LocalClient(planned.run_id, planned.python)
    return CommandLineClient(transport, planned.run_id, planned.python, planned.submission.words)


def _report(
    planned: Plan,
    walk: Walk,
    client: SlurmClient,
    started: datetime,
    seconds: float,
    options: argparse.Namespace,
    folder: RunFolder,
) -> RunReport:
    results = tuple(settle(planned.checks, walk.results))
    return RunReport(
        run_id=planned.run_id,
        suite=planned.suite,
        cluster=planned.cluster,
        via=client.via,
        slurm=walk.slurm,
        started=started.isoformat(timespec="seconds"),
        seconds=seconds,
        verdict=overall(planned.checks, walk.results),
        results=results,
        nodes=node_reports(
            planned.nodes, walk.states, results, planned.suite_checks, planned.checks
        ),
        jobs=walk.jobs,
        checks={name: check.info for name, check in CHECKS.items()},
        notes=(*client.notes, *walk.notes, *doubts(planned.nodes)),
        left_out=planned.left_out,
        interrupted=walk.interrupted,
        repeat=_repeat(options),
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
        default=draining.LIMIT_PERCENT,
        metavar="PERCENT",
        help="never drain more of a partition (default: %(default)g, and one node at least)",
    )
    parser.add_argument("--yes", action="store_true", help="with --drain or --undrain: do not ask")
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
    for name in ("suite", "partition", *_WISHES, "declaration", "thresholds", "metrics", "history"):
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name}", str(value)]
    for name in _CONTAINER:
        if (value := getattr(options, f"container_{name}")) is not None:
            words.append(f"--container-{name}={value}")
    words += [f"--srun-option={option}" for option in options.srun_option or []]
    return shlex.join(words)


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
