"""Explains what a run, a log or an alert says: what it means, what to type next, whom to call.

    python -m validation.explain gpu17                  a node: what the last runs found on it
    python -m validation.explain all_reduce too slow    a check, or one of its causes
    python -m validation.explain xid 79                 an XID of NVIDIA's driver
    python -m validation.explain QOSMaxJobsPerUserLimit a word that Slurm or a run prints
    python -m validation.explain results/x/summary.json a run; or a log of NCCL, the kernel, Slurm

Nothing is asked of the cluster: the evidence is what runs have left in the folder of --results.
Exit code 0, or 2 where nothing is known of the words.
"""

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from cluster import strict, version
from cluster.errors import DataError, PlumblineError, UsageError
from cluster.readers import xids
from cluster.slurm import job_reasons, node_states
from cluster.slurm.node_states import NodeState
from cluster.text import printable
from validation import causes, terminal
from validation.causes import Cause
from validation.checks.registry import CHECKS
from validation.model import EXIT_USAGE, Case, CheckInfo, Outcome, Standing, Tier, Verdict
from validation.records import Found, Run, last
from validation.report import console
from validation.report.advice import ADVICE

FILE = Path(__file__).with_name("explanations.yml")
_RUNS = 10  # whose evidence is looked at
_SHOWN = 5  # of what is alike
_WIDTH = 100

_CAUSES = tuple(cause.value for cause in Cause)
_COMMON = (*causes.COMMON, causes.UNUSABLE)
_ENTRY = strict.table({"meaning": strict.text, "who": strict.text})
_CURED = strict.table({"meaning": strict.text, "cure": strict.text})
_CAUSED = strict.table({"meaning": strict.text, "cause": strict.one_of(*_CAUSES)})
_READER = strict.table(
    {
        "who": strict.map_of(strict.text),
        "checks": strict.map_of(strict.list_of(strict.text)),
        "cases": strict.map_of(strict.list_of(strict.text)),
        "common": strict.map_of(_ENTRY),
        "causes": strict.map_of(strict.text),
        "severities": strict.map_of(_ENTRY),
        "actions": strict.map_of(strict.text),
        "outcomes": strict.map_of(_CAUSED),
        "reasons": strict.map_of(_CAUSED),
        "words": strict.map_of(_CURED),
        "states": strict.map_of(_CURED),
        "lines": strict.list_of(
            strict.table(
                {
                    "name": strict.text,
                    "words": strict.text,
                    "meaning": strict.text,
                    "cure": strict.text,
                    "commands": strict.list_of(strict.text, empty=False),
                    "who": strict.text,
                }
            ),
            empty=False,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of one thing. `evidence` are sentences about this cluster's last runs."""

    title: str
    meaning: str
    cure: str
    commands: tuple[str, ...]
    who: str
    evidence: tuple[str, ...] = ()


@cache
def known() -> Mapping[str, Any]:
    """The file of explanations. Raises DataError with every problem of it."""
    problems: strict.Problems = []
    read = _READER(strict.load_yaml(FILE), "", problems)
    if not problems:
        entries = (*read["severities"].values(), *read["common"].values(), *read["lines"])
        named = [*read["checks"], *read["cases"], *read["causes"].values()]
        named += [entry["who"] for entry in entries]
        problems = [f"who: there is no {name}" for name in named if name not in read["who"]]
    if problems:
        raise DataError(str(FILE), problems)
    return dict(read)


# --- answers ---------------------------------------------------------------------------------


def of_check(name: str, case: str, runs: Sequence[Run]) -> Answer:
    """A check, or one of its causes. Raises UsageError for a cause that it does not know."""
    info = CHECKS[name].info
    again = f"python -m validation.run --here --only {name}"
    if not case:
        meaning = f"{info.summary} {info.what} {info.why}"
        commands = (*info.commands[:2], again)
        return _checked(info, "", meaning, info.advice, commands, _found(runs, name, ""))
    names = [item.name for item in info.cases]
    if case not in names:
        causes = ", ".join(names) or "none that are told apart"
        raise UsageError(f"{name} has no cause {case!r}; it has {causes}")
    item = info.cases[names.index(case)]
    commands = tuple(c.replace("{found}", "NUMBER") for c in item.commands[:2]) or (again,)
    evidence = _found(runs, name, case)
    return _checked(info, case, info.summary, item.advice, commands, evidence)


def _checked(
    info: CheckInfo,
    case: str,
    meaning: str,
    cure: str,
    commands: Sequence[str],
    evidence: tuple[str, ...],
) -> Answer:
    of_it = (("cases", case), ("checks", info.name))
    whose = (who for kind, it in of_it for who, names in known()[kind].items() if it in names)
    who = next(whose, "vendor" if info.tier is Tier.NODE else "network")
    filled = tuple(_of_a_node(command) for command in commands)
    title = f"{info.name}: {case}" if case else info.name
    return Answer(title, meaning, cure, filled, _who(who), evidence)


def of_xid(code: int, runs: Sequence[Run]) -> Answer:
    """An XID by NVIDIA's catalog; one that is not in it says so."""
    table = xids.load()
    xid = table.of(code)
    title = f"XID {code}"
    commands = (
        "ssh NODE 'sudo dmesg | grep -i xid'",
        'ssh NODE \'nvidia-smi -q | grep -i -e "bus id" -e "recovery action"\'',
    )
    evidence = _said(runs, re.compile(rf"\bXID {code}\b"))
    if xid is None:
        meaning = f"It is not in our table: {table.source}. A run warns of it."
        return Answer(
            title, meaning, "Look it up in the catalog.", commands, _who("vendor"), evidence
        )
    severity = known()["severities"][xid.severity]
    meaning = f"{xid.name}. Severity {xid.severity}: {severity['meaning']} ({table.source})."
    cure = known()["actions"][xid.action]
    return Answer(title, meaning, cure, commands, _who(severity["who"]), evidence)


def of_cause(cause: Cause, runs: Sequence[Run], title: str = "", meaning: str = "") -> Answer:
    """Why a result is not green where the check itself has nothing to say."""
    advice = ADVICE.get(cause)
    text = advice.text if advice else _OWN[cause]
    commands = tuple(map(_of_a_node, advice.commands[:2])) if advice else ()
    who = _who(known()["causes"][cause.value])
    evidence = _found(runs, "", cause.value) if not title else _said(runs, _word(title))
    return Answer(
        title or cause.value, meaning or _MEANING[cause], text, commands or _REPEAT, who, evidence
    )


_OWN = {
    Cause.FINDING: "See the advice of the check: `python -m validation.explain CHECK`.",
    Cause.INTERRUPTED: "Repeat the run.",
}
_REPEAT = ("python -m validation.run --here",)
_MEANING = {
    Cause.FINDING: "The check measured something, and it is wrong.",
    Cause.NO_THRESHOLD: "A value was measured, and there is nothing to judge it by.",
    Cause.CONTROLLER: "Slurm's controller does not answer.",
    Cause.REFUSED: "Slurm does not take or start the job as it was submitted.",
    Cause.ACCOUNT: "The user who submits has no account that Slurm accepts there.",
    Cause.LOST: "The state of a job is lost.",
    Cause.OUT_OF_SERVICE: "A node of the job went out of service during the run.",
    Cause.BUSY: "Other jobs use the nodes.",
    Cause.NOT_STARTED: "The job did not start in time.",
    Cause.NO_TASK: "The job has its nodes, and no task started on them.",
    Cause.HUNG: "The task started, and did not end.",
    Cause.NOT_CONNECTED: "The ranks did not reach each other, or lost each other.",
    Cause.ENDED_BADLY: "A task ended with an error.",
    Cause.NO_ANSWER: "The job ended without an answer that can be read.",
    Cause.NOT_RUN: "It was not run, because something before it failed.",
    Cause.UNPROVEN: "This run could not prove it.",
    Cause.INTERRUPTED: "The run was interrupted.",
}


def of_outcome(outcome: Outcome, runs: Sequence[Run]) -> Answer:
    entry = known()["outcomes"][outcome.value]
    return of_cause(Cause(entry["cause"]), runs, outcome.value, _sentence(entry["meaning"]))


def of_reason(reason: str, runs: Sequence[Run]) -> Answer:
    """Slurm's reason for not starting a job."""
    whose = job_reasons.cause(reason)
    entry = known()["reasons"][whose.value]
    cause = Cause.ACCOUNT if job_reasons.of_account(reason) else Cause(entry["cause"])
    meaning = f"Slurm's reason for not starting a job: {entry['meaning']}."
    return of_cause(cause, runs, reason, meaning)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def of_word(word: str, runs: Sequence[Run]) -> Answer:
    """A verdict, or what a run makes of a node."""
    entry = known()["words"][word]
    meaning = _sentence(entry["meaning"])
    commands = ("less results/RUN/summary.json", "python -m validation.explain results/RUN")
    return Answer(word, meaning, entry["cure"], commands, _who("operator"))


def of_state(word: str, runs: Sequence[Run]) -> Answer:
    """A state of a node, as sinfo or scontrol write it."""
    entry = known()["states"][_state_group(word)]
    flags = node_states.split(word)[1]
    named = [flag for flag in flags if flag in node_states.FLAGS]
    told = "".join(f" `{flag}`: the node {node_states.FLAGS[flag]}." for flag in named)
    commands = ("scontrol show node NODE", "sinfo --list-reasons")
    meaning = f"A state of a node in Slurm: {entry['meaning']}.{told}"
    return Answer(word, meaning, entry["cure"], commands, _who("slurm"))


def _state_group(word: str) -> str:
    """The group of a state; "" for a word that is none."""
    plain = word.lower().partition("+")[0]
    state = NodeState("node", _OF_SCONTROL.get(plain, plain))
    base, flags = node_states.split(state.state)
    if base not in _STATES:
        return ""
    groups = {
        "on purpose": bool(node_states.on_purpose(state)),
        "drained": base in ("drained", "draining", "failing", "fail"),
        "broken": node_states.out_of_service(state),
        "asleep": node_states.asleep(state),
        "reserved": base in node_states.RESERVED,
        "takes jobs": not flags,
    }
    return next((name for name, fits in groups.items() if fits), "on purpose")


# Words of scontrol that sinfo writes otherwise.
_OF_SCONTROL = {
    "drain": "drained",
    "invalid": "inval",
    "invalid_reg": "inval",
    "maintenance": "maint",
    "not_responding": "idle*",
    "power_down_asap": "idle!",
    "power_down_force": "idle!",
    "power_drain": "drained",
    "reboot_canceled": "cancel_reboot",
    "reboot_issued": "reboot",
    "reboot_requested": "idle@",
}
_STATES = {
    *node_states.TAKES_JOBS, *node_states.RESERVED, *node_states.GONE,
    "draining", "failing", "cloud", "dynamic_future", "dynamic_norm", "external", "perfctrs",
    "resume", "undrain", "cancel_reboot", "reboot",
}  # fmt: skip


def of_line(text: str) -> Answer | None:
    """What a line of a log, or a reason of a node, says; None where nothing is known of it."""
    if match := _XID.search(text):
        return of_xid(int(match["code"]), ())
    for entry in known()["lines"]:
        if re.search(entry["words"], text):
            return _of_entry(entry)
    return None


_XID = re.compile(r"\bX[iI][dD] (?:\((?:PCI:)?[0-9A-Fa-f:.]+\): )?(?P<code>[0-9]{1,3})\b")


def of_node(name: str, runs: Sequence[Run]) -> Answer:
    """What the last runs found on a node."""
    mine = [run for run in runs if name in run.nodes]
    if not mine:
        raise UsageError(_unknown(name, runs))
    newest = mine[0]
    standing, reason = newest.nodes[name]
    meaning = f"A node. In the run {newest.run} ({newest.started}) it was {standing}."
    open_ = [found for found in newest.found if name in found.nodes and found.bad]
    commands: tuple[str, ...] = _REPEAT
    cure, who = "Nothing is to be done.", _who("nobody")
    if open_:
        worst = next((found for found in open_ if found.names(name)), open_[0])
        answer = _of_found(worst)
        cure, who = answer.cure, answer.who
        commands = tuple(command.replace("NODE", name) for command in answer.commands)
        meaning += f" {printable(reason, 200)}" if reason else ""
    evidence = tuple(_history(name, run) for run in mine[:_SHOWN])
    return Answer(name, meaning, cure, commands, who, evidence)


def _history(node: str, run: Run) -> str:
    bad = [found for found in run.found if node in found.nodes and found.bad][:2]
    told = "".join(f"; {found.check}: {printable(found.message, 100)}" for found in bad)
    return f"{run.started}, {run.run}: {run.nodes[node][0]}{told}"


def _of_found(found: Found) -> Answer:
    """What a result of a run asks for."""
    if found.cause in _CAUSES and found.cause != Cause.FINDING.value:
        return of_cause(Cause(found.cause), ())
    common = [case for case in _COMMON if case.name == found.cause]
    if common:
        return _of_common(common[0], ())
    if found.check not in CHECKS:
        return of_cause(Cause.FINDING, ())
    cases = [case.name for case in CHECKS[found.check].info.cases]
    if found.check == "xid" and (answer := of_line(found.message)):
        return answer
    return of_check(found.check, found.cause if found.cause in cases else "", ())


# --- files -----------------------------------------------------------------------------------


def of_file(path: Path) -> list[Answer]:
    """What a file of a run or a log tells that is known, each thing once. Raises UsageError."""
    if path.is_dir():
        path /= "summary.json"
    if path.name == "summary.json":
        return list(_of_run(last(path.parent, 1)))
    found: dict[str, tuple[Answer, int, str]] = {}
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if answer := of_line(line):
                    kept, count, first = found.get(answer.title, (answer, 0, line))
                    found[answer.title] = (kept, count + 1, first)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise UsageError(f"{path} has no line of which anything is known")
    return [
        Answer(
            answer.title,
            answer.meaning,
            answer.cure,
            answer.commands,
            answer.who,
            (f"{count} {'line' if count == 1 else 'lines'}, first: {printable(first, 160)}",),
        )
        for answer, count, first in found.values()
    ]


def _of_run(runs: Sequence[Run]) -> Iterator[Answer]:
    if not runs:
        raise UsageError("there is no run in this folder: no summary.json that can be read")
    bad = [found for found in runs[0].found if found.bad]
    if not bad:
        title = f"run {runs[0].run}: {runs[0].verdict}"
        yield Answer(title, "Nothing failed.", "Nothing is to be done.", _REPEAT, _who("nobody"))
    kinds: dict[tuple[str, str], list[Found]] = {}
    for found in bad:
        kinds.setdefault((found.check, found.cause), []).append(found)
    for (check, _), alike in kinds.items():
        answer = _of_found(alike[0])
        title = answer.title if answer.title.startswith(check) else f"{check}: {answer.title}"
        evidence = tuple(f"{found.where}: {printable(found.message, 160)}" for found in alike)
        more = (f"and {len(evidence) - _SHOWN} more",) if len(evidence) > _SHOWN else ()
        commands = tuple(c.replace("NODE", alike[0].nodes[0]) for c in answer.commands)
        shown = (*evidence[:_SHOWN], *more)
        yield Answer(title, answer.meaning, answer.cure, commands, answer.who, shown)


# --- evidence --------------------------------------------------------------------------------


def _found(runs: Sequence[Run], check: str, cause: str) -> tuple[str, ...]:
    """Of each run how often a check, or a cause, was found, and where first; "" is any."""
    evidence = []
    for run in runs:
        judged = [found for found in run.found if check in ("", found.check)]
        bad = [found for found in judged if found.bad and cause in ("", found.cause)]
        if judged and (check or bad):
            evidence.append(_counted(run, bad, judged))
    return tuple(evidence[:_SHOWN])


def _counted(run: Run, bad: Sequence[Found], judged: Sequence[Found]) -> str:
    begin = f"{run.started}, {run.run}: {len(bad)} of {len(judged)} not green"
    return begin + (f", first {bad[0].where}: {printable(bad[0].message, 120)}" if bad else "")


def _said(runs: Sequence[Run], words: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(
        f"{run.started}, {run.run}: {found.where}: {printable(found.message, 160)}"
        for run in runs
        for found in run.found
        if words.search(found.message)
    )[:_SHOWN]


def _word(text: str) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(text)}\b")


def _who(key: str) -> str:
    return str(known()["who"][key])


def _of_a_node(command: str) -> str:
    """A command with words in capitals where a run puts in names."""
    for name in re.findall(r"\{(\w+)\}", command):
        command = command.replace(f"{{{name}}}", name.upper())
    return command


# --- words -----------------------------------------------------------------------------------


def vocabulary() -> dict[str, Callable[[Sequence[Run]], Answer]]:
    """Every word that a run prints and that has an answer, in small letters.

    Where two things have one name, the one that comes first counts.
    """
    words: dict[str, Callable[[Sequence[Run]], Answer]] = {}

    def add(word: str, answer: Callable[[Sequence[Run]], Answer]) -> None:
        words.setdefault(word.lower(), answer)

    for name, check in CHECKS.items():
        add(name, partial(of_check, name, ""))
        for case in check.info.cases:
            add(f"{name} {case.name}", partial(of_check, name, case.name))
    for case in _COMMON:
        add(case.name, partial(_of_common, case))
    for code in xids.load().by_code:
        add(f"xid {code}", partial(of_xid, code))
    for cause in Cause:
        add(cause.value, partial(of_cause, cause))
    for outcome in Outcome:
        add(outcome.value, partial(of_outcome, outcome))
    for word in (*Verdict, *Standing):
        add(word.value, partial(of_word, word.value))
    for reason in job_reasons.CAUSES:
        add(reason, partial(of_reason, reason))
    for entry in known()["lines"]:
        add(entry["name"], partial(_of_entry, entry))
    return words


def _of_common(case: Case, runs: Sequence[Run]) -> Answer:
    commands = tuple(map(_of_a_node, case.commands))
    evidence = _found(runs, "", case.name)
    entry = known()["common"][case.name]
    who = _who(entry["who"])
    return Answer(case.name, entry["meaning"], case.advice, commands, who, evidence)


def _of_entry(entry: Mapping[str, Any], runs: Sequence[Run] = ()) -> Answer:
    commands = tuple(entry["commands"][:2])
    return Answer(entry["name"], entry["meaning"], entry["cure"], commands, _who(entry["who"]))


def explain(text: str, runs: Sequence[Run]) -> list[Answer]:
    """What is known of words or of a file. Raises UsageError with the words that are near."""
    if Path(text).is_file() or Path(text, "summary.json").is_file():
        return of_file(Path(text))
    plain = " ".join(text.split())
    for look in (_as_node, _as_xid, _as_word, _as_state, _as_case, _as_line):
        if (answer := look(plain, runs)) is not None:
            return [answer]
    raise UsageError(_unknown(plain, runs))


def _as_node(text: str, runs: Sequence[Run]) -> Answer | None:
    return of_node(text, runs) if any(text in run.nodes for run in runs) else None


def _as_xid(text: str, runs: Sequence[Run]) -> Answer | None:
    match = re.fullmatch(r"(?:xid ?)?([0-9]{1,4})", text.lower())
    return of_xid(int(match[1]), runs) if match else None


def _as_word(text: str, runs: Sequence[Run]) -> Answer | None:
    answer = vocabulary().get(text.lower().replace(": ", " "))
    return answer(runs) if answer else None


def _as_state(text: str, runs: Sequence[Run]) -> Answer | None:
    return of_state(text, runs) if " " not in text and _state_group(text) else None


def _as_case(text: str, runs: Sequence[Run]) -> Answer | None:
    """A few words behind a check's name: they name a cause, or are refused with those it has."""
    check, _, case = text.lower().partition(" ")
    few = 0 < len(case.split()) <= 4
    return of_check(check, case.strip(": "), runs) if check in CHECKS and few else None


def _as_line(text: str, runs: Sequence[Run]) -> Answer | None:
    return of_line(text)


def _unknown(text: str, runs: Sequence[Run]) -> str:
    nodes = [name for run in runs for name in run.nodes]
    near = difflib.get_close_matches(text.lower(), [*vocabulary(), *nodes], 3, 0.6)
    hint = f"near are {', '.join(near)}" if near else "see --help for what is"
    return f"nothing is known of {printable(text, 60)!r}; {hint}"


# --- the program -----------------------------------------------------------------------------


def render(answer: Answer, width: int) -> str:
    lines = [answer.title]
    parts: list[tuple[str, Sequence[str]]] = [("Meaning", [answer.meaning])]
    parts += [("Last runs", answer.evidence)] if answer.evidence else []
    parts += [("Next", answer.commands), ("Cure", [answer.cure]), ("Call", [answer.who])]
    for name, texts in parts:
        for index, text in enumerate(texts):
            begin = f"  {name if index == 0 else '':9} "
            if name == "Next":  # a command is one line, to be copied
                lines.append(f"{begin}{printable(text)}")
            else:
                lines += textwrap.wrap(
                    printable(text), width, initial_indent=begin, subsequent_indent=" " * 12
                )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    terminal.prepare()
    options = _parser().parse_args(arguments)
    try:
        runs = last(options.results, _RUNS)
        answers = explain(" ".join(options.words), runs)
    except PlumblineError as error:
        terminal.say(f"explain: {error}\n", sys.stderr)
        return EXIT_USAGE
    width = console.terminal_width(sys.stdout) or _WIDTH
    terminal.say("\n".join(render(answer, width) for answer in answers))
    return 0


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m validation.explain",
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="+", metavar="NODE|CHECK|XID|WORDS|FILE", help="what is to be explained"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="where runs have left their results (default: results)",
    )
    version.add_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
