"""plumbline-health: what prolog, epilog and slurmd run, and what an operator asks.

    plumbline-health show                  what is wrong here, and what Slurm was told
    plumbline-health list                  the checks of this node
    plumbline-health run CHECK …           some checks now; Slurm is told nothing
    plumbline-health check --dry-run       all of the HealthCheckProgram's; Slurm is told nothing
    plumbline-health check                 what slurmd runs every minute
    plumbline-health prolog | epilog       what slurmd runs before and after a job
    plumbline-health nvml --json           what NVML and the kernel's log say of the GPUs

--json prints one document in place of a table. Exit status: 0 all is well, or Slurm was told;
1 something fails, or Slurm could not be told; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import sys
import syslog
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from cluster import version
from cluster.files import write_whole
from cluster.processes import DAEMON_PATH
from cluster.settings_file import BadConfig
from cluster.slurm.drain_reasons import reason
from validation.node_health import runner, state
from validation.node_health.config import Check, HealthSettings, read
from validation.node_health.outcome import FAIL, PASS, SKIP, UNKNOWN, WARN, Outcome

FRAMEWORK = "framework"
LAST = state.SPARE / "last.json"  # of the last run of the HealthCheckProgram
_SLACK_S = 5  # for what is left to do after the last check
_JOB_GPUS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS")

Outcomes = Mapping[str, Outcome]


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    # slurmd gives the HealthCheckProgram no PATH at all.
    os.environ["PATH"] = os.environ.get("PATH") or DAEMON_PATH
    syslog.openlog("plumbline-health", syslog.LOG_PID, syslog.LOG_DAEMON)
    try:
        config = read()
    except BadConfig as error:
        return _broken(options.verb, str(error))
    _first()
    _bound(config, options.verb)
    if options.verb in ("prolog", "epilog"):
        return job(config, options.verb, os.environ)
    verbs: Mapping[str, Callable[[], int]] = {
        "check": lambda: _dry(config, options.json) if options.dry_run else check(config),
        "run": lambda: _some(config, options.names, options.json),
        "list": lambda: _list(config, options.json),
        "show": lambda: show(config, options.json),
        "nvml": lambda: _nvml(options.json),
    }
    return verbs[options.verb]()


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    summary, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="plumbline-health",
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version.add_option(parser)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in ("prolog", "epilog", "check", "list", "run", "show", "nvml"):
        added = verbs.add_parser(verb)
        if verb not in ("prolog", "epilog"):
            added.add_argument("--json", action="store_true", help="one document, for programs")
        if verb == "check":
            added.add_argument("--dry-run", action="store_true", help="tell Slurm nothing")
        if verb == "run":
            added.add_argument("names", nargs="+", metavar="CHECK")
    return parser.parse_args(arguments)


def _first() -> None:
    """Before a job that keeps every CPU busy: what waits for its turn looks like one that hangs."""
    with suppress(OSError):
        os.nice(-15)


def _bound(config: HealthSettings, verb: str) -> None:
    """Whatever hangs, a disk under our own files too: the alarm ends us, which is a failure."""
    checks = config.of(verb)
    if verb in ("prolog", "epilog") and checks:
        signal.alarm(int(max(check.timeout_s for check in checks)) + _SLACK_S)


# --- prolog and epilog: no word with Slurm -------------------------------------------------------


def job(config: HealthSettings, context: str, environment: Mapping[str, str]) -> int:
    """0, or 1 with the reason on standard error: slurmd drains the node then."""
    gpus = job_gpus(environment)
    checks = config.of(context)
    about = dict.fromkeys((check.name for check in checks), frozenset(gpus or ()))
    outcomes = runner.run(config, checks, {"PLUMBLINE_CONTEXT": context}, about)
    failing = failures(checks, outcomes)
    _log(checks, outcomes)
    if not failing:
        return 0
    _say(state.together(failing))
    try:
        state.Files().keep_job(state.JobFailure(context, time.time(), failing, gpus or ()))
    except OSError as error:
        # Slurm drains the node all the same; without this file an operator has to return it.
        _say(reason(FRAMEWORK, f"{state.SPARE} cannot be written: {error.strerror}"))
    return 1


def job_gpus(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """The minor numbers of the job's GPUs, "0,2" or "0-3,7"; None where Slurm says nothing."""
    text = next((environment[name] for name in _JOB_GPUS if environment.get(name)), None)
    if text is None:
        return None
    minors: list[int] = []
    for part in text.split(","):
        ends = [int(number) for number in re.findall(r"\d+", part)]
        minors += range(ends[0], ends[-1] + 1) if ends else []
    return tuple(minors)


def failures(checks: Sequence[Check], outcomes: Outcomes) -> dict[str, str]:
    """The reasons of the checks for which the node is to be drained, by check."""
    return {
        check.name: reason(check.name, check.reason or outcomes[check.name].text)
        for check in checks
        if check.on_fail == "drain" and outcomes[check.name].failed
    }


def _log(checks: Sequence[Check], outcomes: Outcomes) -> None:
    for check in checks:
        outcome = outcomes[check.name]
        if outcome.failed and check.on_fail == "log":
            syslog.syslog(syslog.LOG_WARNING, reason(check.name, outcome.text))


def _say(text: str) -> None:
    """To slurmd's log and the node's."""
    print(text, file=sys.stderr)
    syslog.syslog(syslog.LOG_ERR, text)


# --- the HealthCheckProgram ----------------------------------------------------------------------


def check(config: HealthSettings) -> int:
    """Runs the checks, and tells Slurm what it does not know yet."""
    files = state.Files()
    try:
        with files.lock() as alone:
            return _check(config, files) if alone else 0
    except OSError as error:
        return _cannot_keep(config, error)


def _check(config: HealthSettings, files: state.Files) -> int:
    drain, job_failed = files.drain(), files.job()
    checks, about = due(config, drain, job_failed)
    outcomes = runner.run(config, checks, {"PLUMBLINE_CONTEXT": "check"}, about)
    _remember(config, checks, outcomes)
    _log_changes(checks, outcomes, drain)
    return tell(config.node, files, drain, job_failed, failures(checks, outcomes))


def due(
    config: HealthSettings, drain: state.Drain | None, job_failed: state.JobFailure | None
) -> tuple[list[Check], dict[str, frozenset[int] | None]]:
    """The checks of this context, and those that failed elsewhere: they are asked until they pass.

    A failure of a job's GPUs is asked about these GPUs again, not about those of other jobs.
    """
    open_ = dict(drain.checks) if drain else {}
    if job_failed is not None:
        open_ |= dict.fromkeys(job_failed.failures, job_failed.gpus)
    checks = [item for item in config.checks if "check" in item.contexts or item.name in open_]
    about = {
        name: None if gpus is None or _is_due(config, name) else frozenset(gpus)
        for name, gpus in open_.items()
    }
    return checks, about


def _is_due(config: HealthSettings, name: str) -> bool:
    return any(item.name == name and "check" in item.contexts for item in config.checks)


def tell(
    node: str,
    files: state.Files,
    drain: state.Drain | None,
    job_failed: state.JobFailure | None,
    failing: Mapping[str, str],
) -> int:
    """One step of state.decide. Raises OSError where it cannot be written down."""
    from validation.node_health import slurm

    now = time.time()
    if not state.must_look(drain, job_failed, failing, now):
        if not failing and drain is not None:
            files.keep_drain(None)  # it was somebody else's
        return 0
    try:
        step = state.decide(drain, job_failed, failing, slurm.look(node), now)
        if step.note:
            syslog.syslog(syslog.LOG_NOTICE, f"{node} is {step.note}")
        if step.before is not None:
            files.keep_drain(step.before)
        if step.say is not None:
            slurm.drain(node, step.say)
            _say(step.say)
        if step.undrain:
            slurm.undrain(node)
            syslog.syslog(syslog.LOG_NOTICE, f"{node} is well again and returned to Slurm")
    except slurm.SlurmError as error:
        _say(reason(FRAMEWORK, f"Slurm could not be told, the next run tries again: {error}"))
        return 1
    files.keep_drain(step.after)
    if step.job_done:
        files.forget_job(job_failed)
    return 0


def _cannot_keep(config: HealthSettings, error: OSError) -> int:
    """Without memory nothing can be returned later, but a bad node must not go on either."""
    from validation.node_health import slurm

    text = reason(FRAMEWORK, f"{state.SPARE} cannot be written: {error.strerror}")
    _say(text)
    try:
        if not slurm.look(config.node).drained:
            slurm.drain(config.node, text)
    except slurm.SlurmError as problem:
        _say(str(problem))
    return 1


def _broken(verb: str, why: str) -> int:
    """Nothing is known of this node, so it gets no jobs; until the next run of the role."""
    text = reason(FRAMEWORK, why)
    _say(text)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    files = state.Files()
    try:
        if verb in state.GENERIC:
            files.keep_job(state.JobFailure(verb, time.time(), {FRAMEWORK: text}))
        elif verb == "check":
            with files.lock() as alone:
                if alone:
                    tell(node, files, files.drain(), files.job(), {FRAMEWORK: text})
    except OSError as error:
        _say(f"{state.SPARE} cannot be written: {error.strerror}")
    return 1


def _log_changes(checks: Sequence[Check], outcomes: Outcomes, drain: state.Drain | None) -> None:
    """A failure that is only logged is told when it begins: every minute would be noise."""
    before = _last()
    known = {row["check"] for row in before if row["verdict"] == FAIL}
    _log([item for item in checks if item.name not in known], outcomes)


def _last() -> list[dict[str, str]]:
    try:
        return list(json.loads(LAST.read_text(encoding="utf-8"))["checks"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _remember(config: HealthSettings, checks: Sequence[Check], outcomes: Outcomes) -> None:
    """For `show` and for whoever watches: /run is memory, so it works with a full disk too."""
    document = {"node": config.node, "at": time.time(), "checks": _rows(checks, outcomes)}
    LAST.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_whole(LAST, json.dumps(document))


# --- for people ----------------------------------------------------------------------------------


def _rows(checks: Sequence[Check], outcomes: Outcomes) -> list[dict[str, str]]:
    return [
        {
            "check": item.name,
            "verdict": outcomes[item.name].verdict,
            "on_fail": item.on_fail,
            "text": outcomes[item.name].text,
        }
        for item in checks
    ]


_ORDER = (FAIL, UNKNOWN, WARN, SKIP, PASS)


def _dry(config: HealthSettings, as_json: bool) -> int:
    return _print_checks(config, config.of("check"), as_json)


def _print_checks(config: HealthSettings, checks: Sequence[Check], as_json: bool) -> int:
    outcomes = runner.run(config, checks, {"PLUMBLINE_CONTEXT": "check"}, {})
    rows = _rows(checks, outcomes)
    if as_json:
        print(json.dumps({"node": config.node, "checks": rows}))
    else:
        ordered = sorted(rows, key=lambda row: _ORDER.index(row["verdict"]))
        _table(ordered, ("verdict", "check", "on_fail", "text"))
    return 1 if any(outcome.failed for outcome in outcomes.values()) else 0


def _some(config: HealthSettings, names: Sequence[str], as_json: bool) -> int:
    known = {item.name: item for item in config.checks}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"plumbline-health: no check {unknown[0]} here; see plumbline-health list")
        return 2
    return _print_checks(config, [known[name] for name in names], as_json)


def _list(config: HealthSettings, as_json: bool) -> int:
    rows = [
        {
            "check": item.name,
            "contexts": " ".join(item.contexts),
            "on_fail": item.on_fail,
            "limit": f"{item.timeout_s:g} s",
            "asks": item.builtin or " ".join(item.command),
        }
        for item in config.checks
    ]
    if as_json:
        print(json.dumps(rows))
    else:
        _table(rows, ("check", "contexts", "on_fail", "limit", "asks"))
    return 0


def show(config: HealthSettings, as_json: bool) -> int:
    files = state.Files()
    drain, job_failed, last = files.drain(), files.job(), _last()
    failing = [row for row in last if row["verdict"] in (FAIL, UNKNOWN, WARN)]
    if as_json:
        document = {
            "node": config.node,
            "drain": drain and asdict(drain),
            "job": job_failed and asdict(job_failed),
            "last": last,
        }
        print(json.dumps(document))
        return 0
    if drain is None:
        print(f"{config.node}: Slurm was told nothing by the health checks.")
    elif not drain.reasons:
        print(f"{config.node}: checks fail, and somebody else has drained it; it is left so.")
    else:
        what = "drained by the health checks" if drain.told else "about to be told to Slurm"
        print(f"{config.node}: {what} since {_when(drain.at)}\n  {drain.reasons[0]}")
    if job_failed is not None:
        print(f"{job_failed.context} failed at {_when(job_failed.at)}")
        for text in job_failed.failures.values():
            print(f"  {text}")
    if not last:
        print("The HealthCheckProgram has not run since the boot.")
    elif not failing:
        print(f"All {len(last)} checks of its last run are well.")
    else:
        _table(failing, ("verdict", "check", "on_fail", "text"))
    return 0


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _nvml(as_json: bool) -> int:
    from validation.payloads import health

    measured: dict[str, Any] = health.measure(health.Config())
    print(json.dumps(measured, indent=None if as_json else 2))
    return 0 if measured["nvml"]["error"] is None else 1


def _table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> None:
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in columns]
    for row in ({name: name for name in columns}, *rows):
        cells = (row[name].ljust(width) for name, width in zip(columns, widths, strict=True))
        print("  ".join(cells).rstrip())
