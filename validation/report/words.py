"""How values, thresholds and next steps are put into words; every report uses the same ones."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from validation.model import (
    Metric,
    Outcome,
    Proof,
    Result,
    RunReport,
    Threshold,
    Tier,
    Value,
    Verdict,
    printable,
)
from validation.nodelist import compress

FOLD = 4  # passes of one check on more nodes than this are one row


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: one result, or several that say the same."""

    tier: str
    check: str
    subject: str
    value: str
    threshold: str
    verdict: Verdict
    message: str


@dataclass(frozen=True, slots=True)
class Step:
    """What to do about one failure: why, in a sentence, and commands to type."""

    title: str
    advice: str
    commands: tuple[str, ...]


def number(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def metric(value: Metric | None) -> str:
    if value is None:
        return "–"
    if value.unit or isinstance(value.value, str):
        return printable(f"{number(value.value)} {value.unit}".strip())
    return printable(f"{value.name} {number(value.value)}")


def threshold(limit: Threshold | None) -> str:
    if limit is None:
        return "–"
    return printable(f"{limit.op} {number(limit.value)} ({limit.provenance})")


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{seconds:.0f} s"


def gpu_hours(hours: float) -> str:
    return f"{hours:.2g} GPU-hours" if hours else "0 GPU-hours"


def count(number_of: int, noun: str) -> str:
    return f"{number_of} {noun}" + ("" if number_of == 1 else "s")


def backends(report: RunReport) -> str:
    found = sorted({item.job.backend for item in report.jobs if item.job.backend})
    return ", ".join(found)


def title(report: RunReport) -> str:
    nodes = [item.node for item in report.nodes]
    gpus = sum(node.gpus.count for node in nodes)
    kinds = sorted({node.hardware for node in nodes} | {node.fabric for node in nodes})
    parts = [
        f"suite {report.suite}",
        f"{count(len(nodes), 'node')}, {count(gpus, 'GPU')} ({', '.join(kinds)})",
        *([backends(report)] if backends(report) else []),
        *([f"Slurm {report.slurm}"] if report.slurm else []),
        duration(report.seconds),
        gpu_hours(report.gpu_hours),
    ]
    return printable(" · ".join(["plumbline", *parts]))


def subject(result: Result, several_groups: bool) -> str:
    if result.tier is Tier.NODE:
        return result.subject.name
    nodes = count(len(result.subject.nodes), "node")
    return f"{nodes} ({result.subject.name})" if several_groups else nodes


def rows(results: Sequence[Result]) -> Iterator[Row]:
    """The table, without rows that only repeat another one."""
    several = len({r.subject.name for r in results if r.tier is Tier.CLUSTER}) > 1
    passes: dict[str, list[Result]] = {}
    echoes: dict[tuple[str, Verdict, str], list[Result]] = {}
    for result in results:
        if result.tier is Tier.NODE and result.verdict is Verdict.PASS and not result.message:
            passes.setdefault(result.check, []).append(result)
        elif result.tier is Tier.NODE and result.value is None:
            # One job's fault, told by each check that would have judged its answer.
            key = (result.subject.name, result.verdict, result.message)
            echoes.setdefault(key, []).append(result)
    for result in results:
        folded = passes.get(result.check, [])
        key = (result.subject.name, result.verdict, result.message)
        if len(folded) > FOLD and result in folded:
            if result is folded[0]:
                yield _folded(folded)
        elif len(alike := echoes.get(key, [])) > 1 and result.value is None:
            if result is alike[0]:
                yield _row(result, f"{result.check} and {len(alike) - 1} more", several)
        else:
            yield _row(result, result.check, several)


def _row(result: Result, check: str, several_groups: bool) -> Row:
    return Row(
        result.tier.value,
        check,
        subject(result, several_groups),
        metric(result.value),
        threshold(result.threshold),
        result.verdict,
        printable(result.message),
    )


def _folded(results: Sequence[Result]) -> Row:
    values = [result.value for result in results if result.value]
    texts = list(dict.fromkeys(metric(value) for value in values))
    numbers = [v.value for v in values if not isinstance(v.value, str)]
    if len(texts) > 1 and len(numbers) == len(values):
        unit = values[0].unit
        value = f"{number(min(numbers))} … {number(max(numbers))} {unit}".strip()
    else:
        value = ", ".join(texts[:3])
    limits = list(dict.fromkeys(threshold(result.threshold) for result in results))
    first = results[0]
    return Row(
        first.tier.value,
        first.check,
        count(len(results), "node"),
        value,
        limits[0] if len(limits) == 1 else "as declared",
        first.verdict,
        "",
    )


def tally(report: RunReport) -> str:
    parts = [
        f"{number_of} {verdict.value}"
        for verdict in Verdict
        if (number_of := sum(result.verdict is verdict for result in report.results))
    ]
    return ", ".join(parts)


def passing(report: RunReport) -> list[str]:
    return [item.node.name for item in report.nodes if item.passing]


def failing(report: RunReport) -> list[str]:
    return [item.node.name for item in report.nodes if not item.passing]


def proof(found: Proof) -> str:
    """What really ran, in one line."""
    parts = []
    if found.job_id:
        parts.append(f"job {found.job_id}")
    if found.world_size is not None:
        parts.append(
            f"{count(found.world_size, 'rank')} on {count(len(found.hosts), 'node')} "
            f"({compress(found.hosts)})"
        )
    elif found.hosts:
        parts.append(f"on {compress(found.hosts)}")
    for name, value in (
        ("backend", found.backend),
        ("torch", found.torch),
        ("NCCL", found.nccl),
        ("Python", found.python),
    ):
        if value:
            parts.append(f"{name} {value}")
    return printable(", ".join(parts))


def next_steps(report: RunReport) -> list[Step]:
    """For each node that failed by itself, then for each check of the cluster tier that ran.

    What an interruption left undone needs no advice.
    """
    steps = []
    for item in report.nodes:
        causes = [r for r in item.own_failures if not (report.interrupted and _undone(r))]
        if causes:
            steps.append(_node_step(report, item.node.name, causes[0]))
    for result in report.results:
        if result.tier is Tier.CLUSTER and _needs_advice(result):
            ran = [
                item.job.name
                for item in report.jobs
                if item.job.subject.name == result.subject.name
                and result.check in item.job.checks
                and not (item.reply and item.reply.outcome is Outcome.CANCELLED)
            ]
            if ran:
                steps.append(_cluster_step(report, result, ran))
    return steps


def _needs_advice(result: Result) -> bool:
    return result.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)


def _undone(result: Result) -> bool:
    return "interrupted" in result.message


def _node_step(report: RunReport, name: str, cause: Result) -> Step:
    info = report.checks[cause.check]
    commands = [command.format(node=name) for command in info.commands]
    if cause.check != "slurm_state" and cause.verdict is Verdict.FAIL:
        # It is in service, and should not be.
        reason = shlex.quote(printable(f"plumbline: {cause.check}: {cause.message}", 120))
        commands.append(f"scontrol update nodename={name} state=drain reason={reason}")
    commands.append(f"{report.repeat} --nodes {name}")
    return Step(f"{name}: {cause.check}: {cause.message}", info.advice, tuple(commands))


def _cluster_step(report: RunReport, result: Result, ran: Sequence[str]) -> Step:
    info = report.checks[result.check]
    commands = [f"less {shlex.quote(f'{report.output}/jobs/{name}.stderr')}" for name in ran]
    nodes = result.subject.nodes
    again = f"{report.repeat} --only {result.check}"
    if len(nodes) >= 4 and result.verdict is Verdict.FAIL:
        half = len(nodes) // 2
        commands += [
            f"{again} --nodes {shlex.quote(compress(part))}"
            for part in (nodes[:half], nodes[half:])
        ]
    else:
        commands.append(again)
    return Step(f"{result.check}: {result.message}", info.advice, tuple(commands))
