"""What the checks of the payload `soak` share: stretches of load, and a node in all its rounds.

A round of a burn-in has one stretch for each GPU of each node. Checks that look at a node over time
judge the stretches of all rounds together; a single run has one round, and is judged alike.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from cluster.errors import CannotRun
from validation.checks.comparison import ComparedNode
from validation.checks.document import Document, Fields, Unusable, read, unusable_result
from validation.model import Job, Proof, Result
from validation.payloads import config, soak
from validation.thresholds import Rules

PAYLOAD = "soak"
KINDS = ("gemm", "attention")
_HASH = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a stretch: when it ended, ns by the node's clock, and products per second."""

    at_ns: int
    rate: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """One GPU under load, in one round.

    alike      GPUs that have this in common give equal bits: model, software, numbers
    title      in words: "GPU 3", or "CPU" where that worked in the place of GPUs
    hashes     of each kind of work, the different hashes of its results
    highest_c  the highest temperature that was seen
    least_mhz  the lowest clock of it that was seen
    power_w    the median power
    """

    host: str
    index: int
    title: str
    real: bool
    alike: tuple[str, ...]
    windows: tuple[Window, ...]
    hashes: Mapping[str, tuple[str, ...]]
    highest_c: float | None = None
    least_mhz: float | None = None
    power_w: float | None = None

    @property
    def what(self) -> str:
        return f"{self.title} of {self.host}"


@dataclass(frozen=True, slots=True)
class NodeOverTime:
    """A node in all rounds so far: its last job, and of each round the stretches of its GPUs."""

    job: Job
    rules: Rules
    rounds: tuple[tuple[Stretch, ...], ...]
    proof: Proof | None = None

    @property
    def by_gpu(self) -> dict[int, list[Stretch]]:
        gpus: dict[int, list[Stretch]] = {}
        for stretches in self.rounds:
            for stretch in stretches:
                gpus.setdefault(stretch.index, []).append(stretch)
        return gpus

    def and_then(self, later: "NodeOverTime") -> "NodeOverTime":
        return NodeOverTime(later.job, later.rules, (*self.rounds, *later.rounds), later.proof)


OverTime = Callable[[Sequence[NodeOverTime]], Sequence[Result]]


def settings(job: Job) -> soak.Config:
    """What the job asked for. Raises Unusable where the payload could not have read it."""
    try:
        return config.load(soak.Config, json.dumps(dict(job.config)))
    except CannotRun as problem:
        raise Unusable(f"it could not be measured: {problem}") from problem


def stretches(job: Job, document: Document) -> tuple[Stretch, ...]:
    """Of each GPU of the node. Raises Unusable unless each worked from beginning to end."""
    asked = settings(job)
    measured = document.measured
    device = measured.text("device")
    if device != asked.device:
        raise Unusable(f"worked on {device!r}, {asked.device!r} was asked for")
    began = measured.whole("began_ns")
    seen = _seen(measured)
    rows = measured.items("gpus")
    expected = asked.gpus if device == "cuda" else 1
    if [row.whole("index") for row in rows] != list(range(expected)):
        raise Unusable(f"{len(rows)} GPUs worked, {expected} are declared")
    return tuple(_stretch(job, asked, row, began, seen) for row in rows)


def _stretch(
    job: Job, asked: soak.Config, row: Fields, began: int, seen: Mapping[str, Mapping[str, float]]
) -> Stretch:
    index, real = row.whole("index"), asked.device == "cuda"
    title = f"GPU {index}" if real else "CPU"
    start, done = row.inner("start"), row.inner("soak")
    for part in (start, done):
        if (problem := part.maybe_text("error")) is not None:
            raise Unusable(f"{title}: {problem or 'no reason'}", blamed=job.hosts)
    if done.text("dtype") != asked.dtype or done.whole("size") != asked.size:
        raise Unusable(f"{title} multiplied something else than was asked for")
    windows, hashes = _windows(title, asked, done, began)
    if real:
        identity = start.maybe_text("uuid") or start.maybe_text("bus") or ""
        whose = f"{start.text('name')}, {start.whole('multiprocessors')} multiprocessors"
    else:
        identity, whose = "", done.text("cpu")
    software = f"torch {start.text('torch')}, CUDA {start.maybe_text('cuda')}"
    figures = seen.get(identity if real else "", {})
    return Stretch(
        job.hosts[0],
        index,
        title,
        real,
        (whose, software, asked.dtype, done.text("data")),
        windows,
        hashes,
        **figures,
    )


def _windows(
    title: str, asked: soak.Config, done: Fields, began: int
) -> tuple[tuple[Window, ...], dict[str, tuple[str, ...]]]:
    windows: list[Window] = []
    hashes: dict[str, dict[str, None]] = {kind: {} for kind in KINDS}
    last_s = busy_s = 0.0
    for row in done.items("windows"):
        at_s, products, busy = row.number("at_s"), row.whole("products"), row.number("busy_s")
        if not last_s < at_s or products < 1 or not 0 < busy <= 1.05 * (at_s - last_s) + 0.1:
            what = f"{products} products in {busy:g} s of a window up to {at_s:g} s"
            raise Unusable(f"{title}: {what}")
        windows.append(Window(began + int(at_s * 1e9), products / busy))
        last_s, busy_s = at_s, busy_s + busy
        for kind in KINDS:
            if not _HASH.fullmatch(digest := row.text(kind)):
                raise Unusable(f"{title}: {digest[:20]!r} is no hash of its {kind}")
            hashes[kind][digest] = None
    if last_s < asked.seconds or not isfinite(busy_s):
        raise Unusable(f"{title} was under load for {last_s:g} s of {asked.seconds:g}")
    return tuple(windows), {kind: tuple(found) for kind, found in hashes.items()}


def _seen(measured: Fields) -> dict[str, dict[str, float]]:
    """What was sampled of each GPU, and of the host under "", for curves: nothing judges it."""
    samples = measured.inner("samples")
    found: dict[str, dict[str, list[float]]] = {}

    def note(whose: str, name: str, fields: Fields, source: str, per: float = 1.0) -> None:
        if source in fields.values and fields.has(source):
            found.setdefault(whose, {}).setdefault(name, []).append(fields.number(source) / per)

    for gpu in samples.items("gpus"):
        values = gpu.inner("values")
        whose = values.maybe_text("uuid") or ""
        note(whose, "highest_c", values, "temperature_c")
        note(whose, "least_mhz", values, "clock_sm_mhz")
        note(whose, "power_w", values, "power_mw", 1000.0)
    for host in samples.items("host"):
        note("", "highest_c", host, "temperature_c")
        note("", "least_mhz", host, "mhz_least")
    picked: Mapping[str, Callable[[Sequence[float]], float]] = {
        "highest_c": max,
        "least_mhz": min,
        "power_w": lambda values: sorted(values)[len(values) // 2],
    }
    return {
        whose: {name: picked[name](values) for name, values in figures.items()}
        for whose, figures in found.items()
    }


def over_time(
    check: str, members: Iterable[ComparedNode]
) -> tuple[list[NodeOverTime], list[Result]]:
    """The nodes of one round that answered, and the results of those whose answer is none."""
    nodes: list[NodeOverTime] = []
    results: list[Result] = []
    for member in members:
        if member.reply is None:
            continue
        try:
            document = read(member.job, member.reply)
            of_round = stretches(member.job, document)
        except Unusable as unusable:
            results.append(unusable_result(check, member.job, member.reply, unusable))
        else:
            nodes.append(NodeOverTime(member.job, member.rules, (of_round,), document.proof))
    return nodes, results


def comparing(check: str, judge: OverTime) -> Callable[[Sequence[ComparedNode]], Sequence[Result]]:
    """How one round is judged by a check that looks at all of them."""

    def compare(members: Sequence[ComparedNode]) -> Sequence[Result]:
        nodes, results = over_time(check, members)
        return [*results, *judge(nodes)]

    return compare
