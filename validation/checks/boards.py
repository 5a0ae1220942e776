"""Whether boards were held back, or counted new errors, while ranks communicated.

Payloads whose ranks exchange much bring what NVML said of each node's boards meanwhile
(payloads/boards.py). A board that works is judged as `load_clocks`, `load_ecc` and `links` judge it
under the loads of one node. Here all nodes work at once, and one board that is slow delays all.

What to do       A board that was held back: all ranks waited for it. Look at fans, airflow, power
                 supply and cables of the named node, and run the suite gpu on it. A board with new
                 errors: drain the named node, reset its GPUs and run the vendor's diagnostics; if
                 the errors return, have the board replaced. NVML without answers: whether a board
                 was held back is not proven; repair what `driver` reports, or update the driver. A
                 container needs NVML's library (NVIDIA_DRIVER_CAPABILITIES with `utility`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cluster.text import printable
from validation.checks import health, links, load_clocks, load_ecc
from validation.checks.document import Document, Fields, Unusable
from validation.checks.health import Finding, GpuValues
from validation.checks.nccl_logs import Problem
from validation.checks.transport import with_problem
from validation.model import Job, Metric, Rank, Result, Threshold, Verdict, When, worst
from validation.payloads.boards import LOAD
from validation.thresholds import Rules

HEAT = "gpu_heat_share"

CAUSES = {
    "A board that was held back": When(
        rf"(?:slowdown|power brake) in \d+% of the answers under {LOAD}|°C under {LOAD}",
        ("ssh {node} 'nvidia-smi -q -d TEMPERATURE,PERFORMANCE,POWER'",),
    ),
    "A board with new errors": When(
        r"errors under load|under load \(|taken out of use under load|PCIe replays in|"
        r"waits for a reset|remapping a memory row failed",
        ("ssh {node} 'nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi nvlink --errorcounters'",),
    ),
    "NVML without answers": When(
        r"NVML (?:could not|did not|does not|reported)|gives no answers|does not tell its|"
        r"were reset during",
        ("ssh {node} nvidia-smi -q",),
    ),
}

# Below it NVML, which is asked ten times a second, may have nothing to say; that proves no fault.
_LONG_ENOUGH_S = 1.0
_NAMED = 3  # findings that a sentence spells out
_ORDER = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN)


@dataclass(frozen=True, slots=True)
class _Board:
    """A rank's GPU."""

    title: str
    identity: str | None


def held_against(result: Result, job: Job, document: Document, rules: Rules) -> Result:
    """A check's result, or the worse one that the boards of its ranks speak for.

    Raises Unusable for answers of other nodes or ranks than took part.
    """
    if job.backend != "nccl" or job.nodes[0].gpus.mig:
        return result
    heat = rules.common.limits[HEAT]
    found: list[tuple[str, Finding]] = []
    loads: list[Fields] = []
    for host, node, ranks in _nodes(document):
        if (error := node.inner("nvml").maybe_text("error")) is not None:
            text = f"NVML could not be asked: {printable(error, 120)}"
            found.append((host, Finding(Verdict.INCONCLUSIVE, f"{host}: {text}")))
            continue
        for rank, row in zip(ranks, node.items("boards"), strict=True):
            found += [(host, finding) for finding in _judged(rank, node, row, heat)]
            loads.append(_load(row))
    result = replace(result, metrics=(*result.metrics, *_measures(loads)))
    problem = _problem([each for each in found if each[1].verdict is not Verdict.PASS])
    return result if problem is None else with_problem(result, problem)


def _nodes(document: Document) -> Iterator[tuple[str, Fields, Sequence[Rank]]]:
    """Each node that took part, what NVML said there, and the node's ranks in the same order."""
    ranks: dict[str, list[Rank]] = {}
    for rank in sorted(document.proof.ranks, key=lambda rank: rank.rank):
        ranks.setdefault(rank.host, []).append(rank)
    answers = document.measured.items("boards")
    if (told := [answer.text("host") for answer in answers]) != list(ranks):
        raise Unusable(f"NVML was asked on {told[:8]}, ranks were on {list(ranks)[:8]}")
    for host, answer in zip(ranks, answers, strict=True):
        numbers = [row.whole("rank") for row in answer.items("boards")]
        if numbers != [rank.rank for rank in ranks[host]]:
            raise Unusable(f"NVML was asked on {host} for the boards of ranks {numbers[:16]}")
        yield host, answer, ranks[host]


def _judged(rank: Rank, node: Fields, row: Fields, heat: Threshold) -> Iterator[Finding]:
    """What is wrong with a rank's board, each in a sentence that names it."""
    title = f"GPU {rank.local_rank} on {rank.host}"
    board = _Board(title, rank.gpu_uuid)
    before = links.told_before(board, row)
    told = before if isinstance(before, Finding) else links.told_after(board, row, before)
    if isinstance(told, Finding):
        findings = [told]
    else:
        findings = health.examined(told[0], partial(_examined, told[1], node, row, heat))
    return (Finding(finding.verdict, f"{title}: {finding.text}") for finding in findings)


def _examined(
    after: GpuValues, node: Fields, row: Fields, heat: Threshold, before: GpuValues
) -> Iterator[Finding]:
    """Raises Unanswered where NVML answered with an error."""
    load, seconds, work_s = _load(row), node.number("seconds"), node.number("work_s")
    if not 0 <= work_s <= seconds:
        raise Unusable(f"ranks worked for {work_s:.3g} s in {seconds:.3g} s")
    seen, long_enough = load.whole("samples") > 0, work_s >= _LONG_ENOUGH_S
    if seen or long_enough:
        yield from load_clocks.held_back(load, before.whole("temperature_slowdown_c"), heat)
    yield from load_ecc.grown(before, after)
    yield from links.replays(before, after, seconds)
    yield from links.nvlink(before, after, seconds)


def _load(row: Fields) -> Fields:
    loads = row.items("loads")
    if [load.text("load") for load in loads] != [LOAD]:
        raise Unusable(f"NVML was asked under {[load.text('load') for load in loads]}, not {LOAD}")
    return loads[0]


def _problem(found: Sequence[tuple[str, Finding]]) -> Problem | None:
    """All findings as one, the worst first, with the nodes that have the worst."""
    if not found:
        return None
    verdict = worst(finding.verdict for _, finding in found)
    ordered = sorted(found, key=lambda each: _ORDER.index(each[1].verdict))
    more = len(ordered) - _NAMED
    sentence = "; ".join(finding.text for _, finding in ordered[:_NAMED])
    sentence += f"; and {more} more" if more > 0 else ""
    nodes = dict.fromkeys(host for host, finding in found if finding.verdict is verdict)
    return Problem(verdict, printable(sentence, 300), tuple(nodes))


def _measures(loads: Sequence[Fields]) -> Iterator[Metric]:
    """The worst of all boards: each by itself would be hundreds of numbers."""
    for name, words, unit, extreme in (
        ("sm_mhz", "lowest SM clock", "MHz", min),
        ("power_w", "highest power", "W", max),
        ("temperature_c", "highest temperature", "°C", max),
    ):
        if known := [load.whole(name) for load in loads if load.has(name)]:
            yield Metric(f"{words} under {LOAD}", extreme(known), unit)
    shares: dict[str, float] = {}
    for load in loads:
        own: Mapping[str, float] = load_clocks.shares_of(load)
        shares |= {reason: max(share, shares.get(reason, 0.0)) for reason, share in own.items()}
    if shares:
        held_by = ", ".join(f"{reason} up to {share:.0%}" for reason, share in shares.items())
        yield Metric(f"held back under {LOAD}", printable(held_by, 120))
