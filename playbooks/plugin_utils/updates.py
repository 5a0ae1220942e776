"""An update of nodes in use, in rounds: pure functions from what Slurm and the last rounds say.

A round drains some nodes, updates those that are empty, and ends: it waits for no job. What an
update has done and has still to do is its progress, a file on the controller. Whose a drained node
is, its reason says: what begins with MARK was taken out by an update, and an update brings it back
once a validation has proven it. Other playbooks take such a node for somebody else's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cluster.hostlist import compress, expand
from cluster.slurm.node_states import NodeStatus
from cluster.text import printable
from playbooks.plugin_utils.service import SILENT, Answer, Job, read

MARK = "[plumbline:update]"
# In it a node that was updated is proven: Slurm gives it the validation's jobs alone.
RESERVATION = "plumbline-update"
# Between the parts of what the controller says of an update.
RESERVED = "-- reservation --"
SCHEMA = 1
REASON_CHARACTERS = 200
# Between a SuspendProgram and the end of a ResumeProgram: power saving has them, and no fault.
OFF = {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}
# A node whose jobs end sooner is not given back for one that is empty.
SOON = timedelta(minutes=10)
NEVER = datetime.max.replace(tzinfo=UTC)
NAMED = 5  # nodes and jobs that a line names one by one
# How a node was done: Slurm gives it jobs again, somebody else keeps it, or Slurm knows it not.
RETURNED, KEPT, UNKNOWN = "returned", "kept", "unknown"


class NoProgress(ValueError):
    """The controller's file, or what it says of an update, cannot be read; one sentence."""


# --- progress -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """What an update has done, and has still to do.

    begun  nodes that were worked on and are not proven: no other way leads them back into service
    """

    since: str  # UTC, ISO 8601
    by: str
    at_once: int
    nodes: tuple[str, ...]
    begun: tuple[str, ...] = ()
    done: Mapping[str, str] = field(default_factory=dict)  # node -> RETURNED, KEPT or UNKNOWN
    failed: Mapping[str, str] = field(default_factory=dict)  # node -> what is wrong
    ended: bool = False

    @property
    def left(self) -> list[str]:
        """The nodes that a round may still take, in the order of the inventory."""
        return [name for name in self.nodes if name not in self.done and name not in self.failed]


def written(progress: Progress) -> str:
    return f"{json.dumps({'schema': SCHEMA, **asdict(progress)}, indent=1)}\n"


def parsed(text: str) -> Progress | None:
    """None for no update. Raises NoProgress for what is not an update's file."""
    if not text.strip():
        return None
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise NoProgress(
                "the file of the update under way is of another version of Plumbline; go on with "
                "that version, or begin another update with -e node_update_anew=true"
            )
        return of_document(document)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, NoProgress):
            raise
        raise NoProgress(
            "the file of the update under way cannot be read; move it away, or begin another "
            "update with -e node_update_anew=true"
        ) from error


def of_document(document: Mapping[str, Any]) -> Progress:
    """Out of JSON, or of a variable of Ansible's. Raises KeyError, TypeError or ValueError."""
    return Progress(
        since=str(document["since"]),
        by=str(document["by"]),
        at_once=int(document["at_once"]),
        nodes=tuple(map(str, document["nodes"])),
        begun=tuple(map(str, document["begun"])),
        done={str(name): str(how) for name, how in dict(document["done"]).items()},
        failed={str(name): str(why) for name, why in dict(document["failed"]).items()},
        ended=bool(document["ended"]),
    )


def told(output: str) -> tuple[str, set[str]]:
    """What the controller says of an update: the file's text, and the nodes that are being proven.

    Raises NoProgress where it is not an answer: nothing said is not `no update`.
    """
    text, separator, reserved = output.partition(RESERVED)
    if not separator:
        raise NoProgress("the controller was asked for the update under way, and did not answer")
    return text, set(_hosts(reserved.split()))


def _hosts(words: Iterable[str]) -> list[str]:
    return [name for word in words if word != "(null)" for name in expand(word)]


def is_ours(node: NodeStatus) -> bool:
    return node.drained and node.reason.startswith(MARK)


def begun(
    asked: Sequence[str],
    answer: Answer,
    reserved: Collection[str],
    *,
    by: str,
    now: datetime,
    at_once: int,
) -> Progress:
    """A new update of these nodes, and of those that an earlier one has left out of service.

    Of the latter nobody knows how far they came, so they count as begun.
    """
    left = [name for name, node in answer.nodes.items() if is_ours(node) or name in reserved]
    nodes = dict.fromkeys([*asked, *left])
    since = now.isoformat(timespec="seconds")
    return Progress(since, by, at_once, tuple(nodes), begun=tuple(left))


def taken_up(
    before: Progress, inventory: Collection[str], *, retry: bool, at_once: int
) -> Progress:
    """The same update, with what the inventory has now; `retry` takes failed nodes up again."""
    return replace(
        before,
        at_once=at_once,
        nodes=tuple(name for name in before.nodes if name in inventory),
        begun=tuple(name for name in before.begun if name in inventory),
        done={name: how for name, how in before.done.items() if name in inventory},
        failed={}
        if retry
        else {name: why for name, why in before.failed.items() if name in inventory},
    )


def working(progress: Progress, nodes: Iterable[str]) -> Progress:
    """Before nodes are worked on."""
    return replace(progress, begun=tuple(dict.fromkeys([*progress.begun, *nodes])))


def recorded(
    progress: Progress, done: Mapping[str, str], failed: Mapping[str, str], off: Collection[str]
) -> Progress:
    """After a round. An update has ended when nothing is left but nodes that are switched off."""
    result = replace(
        progress,
        done={**progress.done, **done},
        failed={**{n: w for n, w in progress.failed.items() if n not in done}, **failed},
        begun=tuple(name for name in progress.begun if name not in done),
    )
    return replace(result, ended=not result.failed and set(result.left) <= set(off))


# --- the decision ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round does now, and what it leaves.

    drain      out of service, for an update of ours
    give_back  into service again, untouched: their jobs last, and others are empty now
    again      being proven when a round was killed: drained, and updated once more
    chosen     to be updated: empty, and nobody gives them jobs
    waits      node -> what for
    down       node -> Slurm's word for it; named, and not waited for
    off        switched off by power saving
    blocked    why no further node leaves service, where one would; "" otherwise
    kept       of `chosen`, those that somebody else keeps out of service
    strangers  of `chosen`, those that Slurm does not know: they run no jobs
    reserved   all that are being proven, whichever nodes the round is for
    unproven   of those, the ones that are not drained yet
    """

    drain: tuple[str, ...] = ()
    give_back: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    down: Mapping[str, str] = field(default_factory=dict)
    off: tuple[str, ...] = ()
    blocked: str = ""
    kept: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()

    @property
    def work(self) -> bool:
        """Whether a round would do anything."""
        return bool(self.drain or self.give_back or self.again or self.chosen)


def decide(
    progress: Progress,
    answer: Answer,
    reserved: Collection[str] = (),
    *,
    limit: Collection[str] | None = None,
    now: datetime | None = None,
) -> Plan:
    """What is to be done, now. At most `at_once` nodes are out, failed ones included.

    Until one node has come back, one alone is worked on: what breaks it breaks no other. Nodes
    without jobs go first, then those whose jobs end soonest. Where all places are taken, an empty
    node gets that of one whose jobs last: so no node waits for another's job.

    reserved  nodes that are being proven, or were when a round was killed
    limit     nodes of this round; others stay as they are
    """
    left = [name for name in progress.left if limit is None or name in limit]
    now = now or datetime.now(UTC)
    nodes = {name: answer.state_of(name) for name in left}
    off = [name for name in left if nodes[name].flags & OFF]
    again = [name for name in left if name in reserved]
    strangers = [name for name in left if name not in answer.nodes]
    rest = [name for name in left if name not in {*off, *again, *strangers}]
    down = {name: str(nodes[name]) for name in rest if nodes[name].unsettled}
    rest = [name for name in rest if name not in down]
    mine = [name for name in rest if is_ours(nodes[name])]
    kept = [name for name in rest if nodes[name].drained and name not in mine]
    serving = _soonest([n for n in rest if not nodes[n].drained], answer)

    out = [
        name
        for name in progress.nodes
        if name not in progress.done and (is_ours(answer.state_of(name)) or name in reserved)
    ]
    failed_out = [name for name in out if name in progress.failed]
    allowed = progress.at_once if progress.done else 1
    slots = max(0, allowed - len(out))
    drain = serving[:slots]
    waiting = [name for name in serving[slots:] if _empty(name, answer)]
    lasting = [
        name
        for name in reversed(_soonest(mine, answer))
        if name not in progress.begun
        and not _empty(name, answer)
        and _end(name, answer) - now > SOON
    ]
    held_up = bool(failed_out) and not progress.done
    swaps = [] if held_up else list(zip(waiting, lasting, strict=False))
    give_back = [old for _, old in swaps]
    drain += [new for new, _ in swaps]

    waits = {n: _held(n, answer) for n in mine if not _empty(n, answer) and n not in give_back}
    update = [name for name in mine if _empty(name, answer)]
    others = [name for name in kept if _empty(name, answer)] + strangers
    waits |= {name: _held(name, answer) for name in kept if not _empty(name, answer)}
    if not progress.done:  # one alone, and rather one that can come back
        update = [] if failed_out else sorted(update, key=lambda n: n not in progress.begun)[:1]
        others = [] if mine or serving or again or failed_out else others[:1]
    return Plan(
        drain=tuple(drain),
        give_back=tuple(give_back),
        again=tuple(again),
        chosen=tuple(update + others),
        waits=waits,
        down=down,
        off=tuple(off),
        blocked=_blocked(serving, drain, failed_out, allowed, bool(progress.done)),
        kept=tuple(name for name in others if name in kept),
        strangers=tuple(name for name in others if name in strangers),
        reserved=tuple(sorted(reserved)),
        unproven=tuple(sorted(n for n in reserved if not answer.state_of(n).drained)),
    )


def results(
    plan: Plan,
    fit: Collection[str],
    broken: Mapping[str, str],
    proof: Mapping[str, str],
    now: Answer,
) -> tuple[dict[str, str], dict[str, str]]:
    """What became of a round's nodes: those that are done, with how, and those that failed.

    fit     those that were updated, and work
    broken  what was wrong with others; one that is missing here too stopped answering
    proof   node -> why it may not return; "" where it may
    now     Slurm after all of it
    """
    done: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in plan.chosen:
        state = now.state_of(name)
        if name not in fit:
            failed[name] = broken.get(name) or f"{name} stopped answering while it was updated"
        elif name in plan.strangers:
            done[name] = UNKNOWN
        elif name in plan.kept:
            done[name] = KEPT
        elif name not in proof and state.drained and not is_ours(state):
            done[name] = KEPT  # by somebody who drained it meanwhile
        elif why := proof.get(name, "it was not validated"):
            failed[name] = f"{name} may not return: {why}"
        elif state.unsettled or is_ours(state):
            failed[name] = f"{name} did not come back: {state}"
        else:
            done[name] = KEPT if state.drained else RETURNED
    return done, failed


def to_return(fit: Iterable[str], answer: Answer) -> list[str]:
    """Nodes that work, and that nobody has drained for a reason of their own meanwhile."""
    return [name for name in fit if is_ours(answer.state_of(name))]


def to_drain(failed: Iterable[str], answer: Answer) -> list[str]:
    """Failed nodes whose reason is an update's to write: nobody else has drained them."""
    return [
        name
        for name in failed
        if name in answer.nodes and (is_ours(answer.nodes[name]) or not answer.nodes[name].drained)
    ]


def _empty(name: str, answer: Answer) -> bool:
    return not answer.jobs.get(name) and not answer.state_of(name).busy


def _end(name: str, answer: Answer) -> datetime:
    """When the last job of a node ends at the latest; long ago for an empty one."""
    if _empty(name, answer):
        return datetime.min.replace(tzinfo=UTC)
    return max((job.until or NEVER for job in answer.jobs.get(name, ())), default=NEVER)


def _soonest(names: Iterable[str], answer: Answer) -> list[str]:
    """Sorted by when they are empty; alike ones stay in their order."""
    return sorted(names, key=lambda name: _end(name, answer))


def _held(name: str, answer: Answer) -> str:
    jobs = sorted(answer.jobs.get(name, ()), key=lambda job: job.until or NEVER)
    if not jobs:
        return "a job that is just ending"
    words = [_job(job) for job in jobs[-NAMED:]]
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    return f"{'job' if len(jobs) == 1 else 'jobs'} {', '.join(words)}{more}"


def _job(job: Job) -> str:
    if job.until is None:
        return f"{job.number} of {job.user}"
    local, today = job.until.astimezone(), datetime.now(UTC).astimezone().date()
    form = "%H:%M" if local.date() == today else "%Y-%m-%d %H:%M"
    return f"{job.number} of {job.user} until {local:{form}}"


def _blocked(
    serving: Sequence[str],
    drain: Collection[str],
    failed_out: Sequence[str],
    allowed: int,
    any_done: bool,
) -> str:
    if not failed_out or len(failed_out) < allowed or not [n for n in serving if n not in drain]:
        return ""
    names = compress(failed_out)
    if not any_done:
        return f"no further node leaves service, because the first one, {names}, did not come back"
    return (
        f"no further node leaves service, because {names} did not come back, and "
        f"node_update_at_once allows {allowed}"
    )


# --- how a node is proven -------------------------------------------------------------------------


def verdicts(nodes: Iterable[str], summary: str, said: str) -> dict[str, str]:
    """Node -> why it may not return after a validation; "" for one that passed all of it.

    summary  the text of its summary.json; what cannot be read proves nothing
    said     the end of what it printed, for a run that came to no verdict
    """
    try:
        document = json.loads(summary)
        found = {str(node["name"]): node for node in document["nodes"]}
    except (KeyError, TypeError, ValueError):
        found = {}
    lines = [line for line in said.strip().splitlines() if line.strip()]
    nothing = f"the validation came to no verdict: {printable((lines or ['it said nothing'])[-1])}"
    return {name: _verdict(found[name]) if name in found else nothing for name in nodes}


def _verdict(node: Mapping[str, Any]) -> str:
    standing = str(node.get("standing", "unproven"))
    if standing == "passing":
        return ""
    return f"the validation has it as {standing}: {node.get('reason') or 'it gives no reason'}"


def reason(words: str) -> str:
    """A reason for Slurm: what for, in one line that its tables can show."""
    line = re.sub(r"\s+", " ", words).replace('"', "'").strip()
    return printable(f"{MARK} {line}", REASON_CHARACTERS)


# --- in words -------------------------------------------------------------------------------------


def outlook(progress: Progress, plan: Plan) -> str:
    """How far it is, in one line."""
    parts = [f"{len(progress.done)} of {len(progress.nodes)} nodes are done"]
    if plan.waits:
        shown = [f"{name} ({why})" for name, why in list(plan.waits.items())[:NAMED]]
        more = f" and {len(plan.waits) - NAMED} more" if len(plan.waits) > NAMED else ""
        verb = "waits" if len(plan.waits) == 1 else "wait"
        parts.append(f"{len(plan.waits)} {verb} for jobs: {', '.join(shown)}{more}")
    if progress.failed:
        parts.append(f"{len(progress.failed)} failed: {compress(progress.failed)}")
    if plan.down:
        parts.append(f"{len(plan.down)} down: {compress(plan.down)}")
    if plan.off:
        parts.append(f"{len(plan.off)} switched off: {compress(plan.off)}")
    return "; ".join(parts)


def begins(progress: Progress, plan: Plan) -> str:
    """What a round begins with, in one line."""
    if progress.done or progress.failed or progress.begun:
        first = f"Goes on with the update that {progress.by} began at {progress.since}"
    else:
        first = f"Begins an update of {len(progress.nodes)} nodes, {progress.at_once} at once"
    parts = [
        f"{what} {compress(names)}"
        for what, names in (
            ("drains", plan.drain),
            ("gives back", plan.give_back),
            ("proves again", plan.again),
        )
        if names
    ]
    return f"{'; '.join([first, *parts])}."


def summary(
    progress: Progress, plan: Plan, command: str, limit: Collection[str] | None = None
) -> str:
    """The end of a round, or of all rounds, as lines; `command` goes on.

    limit  the nodes that the run was for
    """
    lines = [f"{outlook(progress, plan)}."]
    for name, why in progress.failed.items():
        lines.append(f"    {name}: {why}")
    for name, why in plan.down.items():
        lines.append(f"    {name}: {why}")
    if plan.blocked:
        lines.append(f"{plan.blocked[0].upper()}{plan.blocked[1:]}.")
    if progress.ended:
        lines.append("The update is complete.")
    elif complete(progress, plan, limit):
        lines.append("All nodes of this run are done; others of the update are left.")
    elif (progress.failed or plan.down) and not plan.waits and not plan.work:
        lines.append(
            "Repair what failed or is down; the same command takes it up again. Or drain a node "
            f"with a reason of your own, and the others continue without it:\n    {command}"
        )
    else:
        lines.append(f"The update goes on with:\n    {command}")
    return "\n".join(lines)


def complete(progress: Progress, plan: Plan, limit: Collection[str] | None = None) -> bool:
    """Whether all nodes are done that are not switched off; of a limited run, its own."""
    mine = [name for name in progress.nodes if limit is None or name in limit]
    return all(name in progress.done or name in plan.off for name in mine)


# --- for playbooks and programs -------------------------------------------------------------------


def answered(output: str) -> Answer:
    """Slurm's answer. Raises NoProgress where none can be decided on."""
    try:
        answer = read(output)
    except ValueError as error:
        raise NoProgress(str(error)) from error
    if answer.slurm == SILENT:
        raise NoProgress("slurmctld does not answer")
    return answer
