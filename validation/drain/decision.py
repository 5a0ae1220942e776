"""Which nodes a run takes out of service, and which it returns.

A run drains what it found failing by itself, never more than a share of a partition, and returns
only what a validation drained and every failed check of which passes now.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.declaration import Partition
from cluster.hostlist import compress
from cluster.slurm import drain_reasons
from cluster.slurm.drain_reasons import Shown
from cluster.text import printable
from validation.causes import Cause
from validation.model import NodeReport, Result, RunReport, Standing
from validation.slurm.admin import Drain

LIMIT_PERCENT = 10.0

# Failures that say nothing of the node: they are nobody's, or Slurm has drawn its own conclusion.
_NOT_OF_THE_NODE = {
    cause.value
    for cause in (
        *(Cause.CONTROLLER, Cause.REFUSED, Cause.ACCOUNT, Cause.LOST, Cause.BUSY),
        *(Cause.NOT_STARTED, Cause.NOT_RUN, Cause.UNPROVEN, Cause.INTERRUPTED, Cause.NO_THRESHOLD),
    )
}
_OF_SLURM = "slurm_state"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be drained, and sentences about what is not."""

    drains: tuple[Drain, ...]
    notes: tuple[str, ...] = ()


def proposed(report: RunReport) -> tuple[Drain, ...]:
    """Nodes with a failure of their own. None of an interrupted run: it does not know enough."""
    if report.interrupted:
        return ()
    drains = []
    for item in report.nodes:
        failures = _own(item) if item.standing is Standing.FAILING else []
        if failures:
            checks = [result.check for result in failures]
            text = failures[0].message
            drains.append(Drain(item.node.name, drain_reasons.of_validation(checks, text)))
    return tuple(drains)


def _own(item: NodeReport) -> list[Result]:
    return [
        result
        for result in item.own_failures
        if result.check != _OF_SLURM and result.cause not in _NOT_OF_THE_NODE
    ]


def plan(
    drains: Sequence[Drain],
    shown: Mapping[str, Shown],
    partitions: Iterable[Partition],
    percent: float = LIMIT_PERCENT,
) -> Plan:
    """What of it may be drained, by Slurm's view of now.

    A node that somebody has drained, or that is away, is left alone. Where a partition would lose
    more than its share, counting what validations drained before, nothing at all is drained: so
    many failures at once are rather a fault of what the nodes share, or of the run.
    """
    notes = []
    wanted = []
    for drain in drains:
        node = shown.get(drain.node)
        if node is None:
            notes.append(f"{drain.node} is not drained: Slurm does not show it")
        elif not node.in_service:
            state = "+".join(sorted(node.words))
            reason = f" ({node.reason})" if node.reason else ""
            notes.append(f"{drain.node} is not drained: Slurm has it as {state}{reason}")
        else:
            wanted.append(drain)
    names = {drain.node for drain in wanted}
    for partition in partitions:
        if sentence := _too_many(names, shown, partition, percent):
            return Plan((), (*map(printable, notes), sentence))
    return Plan(tuple(wanted), tuple(map(printable, notes)))


def _too_many(
    names: Collection[str], shown: Mapping[str, Shown], partition: Partition, percent: float
) -> str:
    """Why these may not be drained, as far as one partition goes; "" where they may."""
    new = [name for name in partition.nodes if name in names]
    ours = [
        node.name
        for name in partition.nodes
        if (node := shown.get(name)) is not None
        and node.drained
        and drain_reasons.failed_checks(node.reason) is not None
    ]
    allowed = max(1, int(len(partition.nodes) * percent / 100))
    if not new or len(new) + len(ours) <= allowed:
        return ""
    before = f" beside {len(ours)} that a validation has drained already" if ours else ""
    return (
        f"nothing is drained: {len(new)} of the {len(partition.nodes)} nodes of partition "
        f"{partition.name} would be{before}, and --drain-limit {percent:g} allows {allowed}"
    )


# --- returning nodes -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Return:
    """A node that a validation drained, and the checks that failed; none are all of the suite."""

    node: str
    reason: str
    checks: tuple[str, ...]


def returnable(
    names: Iterable[str], shown: Mapping[str, Shown], suite: Collection[str]
) -> tuple[tuple[Return, ...], tuple[str, ...]]:
    """The nodes that may be proven again; and sentences about those that only look like it.

    `suite` has the checks that the run makes.
    """
    returns, notes = [], []
    for name in names:
        node = shown.get(name)
        checks = drain_reasons.failed_checks(node.reason) if node and node.drained else None
        if node is None or checks is None:
            continue
        if missing := [check for check in checks if check not in suite]:
            notes.append(f"{name} stays drained: this run does not make {', '.join(missing)}")
        elif away := node.words & {"DOWN", "NOT_RESPONDING", "FAIL"}:
            notes.append(f"{name} stays drained: Slurm has it as {'+'.join(sorted(away))}")
        else:
            returns.append(Return(name, node.reason, checks))
    return tuple(returns), tuple(notes)


def proven(item: Return, report: RunReport) -> bool:
    """Whether every check that failed on the node passes now, and nothing else fails."""
    standing = next((n.standing for n in report.nodes if n.node.name == item.node), None)
    if report.interrupted or standing in (None, Standing.FAILING, Standing.SUSPECT):
        return False
    if not item.checks:
        return standing is Standing.PASSING
    return all(_passes(check, item.node, report.results) for check in item.checks)


def _passes(check: str, node: str, results: Iterable[Result]) -> bool:
    mine = [r for r in results if r.check == check and node in r.subject.nodes]
    return bool(mine) and all(result.verdict.green for result in mine)


def named(items: Iterable[Drain] | Iterable[Return]) -> str:
    return compress(item.node for item in items)
