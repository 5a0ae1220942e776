"""What every exporter does: one collector after another, one file for each round, a clean end.

A collector that fails has no series in this round, and says so with
`plumbline_exporter_collector_success` 0; the other collectors notice nothing. A value of the round
before never stands in for one that is missing, and neither does a zero.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, NoReturn, Protocol, TypeVar

from prometheus_client import Metric, write_to_textfile
from prometheus_client.registry import Collector as Registry

from cluster import version
from cluster.settings_file import BadConfig

T = TypeVar("T")
Labels = tuple[str, ...]
# What every exporter tells of itself. The help is the same in all files: node_exporter drops a
# metric whose help differs from that in another one.
SUCCESS, DURATION, LAST_RUN = OWN = (
    "plumbline_exporter_collector_success",
    "plumbline_exporter_collector_duration_seconds",
    "plumbline_exporter_last_run_timestamp_seconds",
)
HELP = {
    SUCCESS: "Whether the last run of a collector succeeded.",
    DURATION: "How long the last run of a collector took.",
    LAST_RUN: "When the exporter ran last.",
}


class Failed(Exception):
    """One sentence: why a collector has nothing to tell."""


@dataclass(frozen=True)
class Family:
    """The series of one metric: the values of its labels, in the order of `labels`, to its value.

    `kind` is gauge or counter; the name of a counter ends in _total.
    """

    name: str
    help: str
    labels: Labels
    samples: Mapping[Labels, float]
    kind: str = "gauge"


@dataclass(frozen=True)
class Collector:
    """`collect` raises whatever it likes; nobody else hears of it."""

    name: str
    collect: Callable[[], Iterable[Family]]


class Once(Generic[T]):
    """What several collectors of a round need is asked once; so is what fails."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._answer: list[T] = []
        self._error: Exception | None = None

    def __call__(self) -> T:
        if self._error is not None:
            raise self._error
        if not self._answer:
            try:
                self._answer.append(self._ask())
            except Exception as error:
                self._error = error
                raise
        return self._answer[0]


def gauge(name: str, text: str, value: float) -> Family:
    return Family(name, text, (), {(): value})


# --- one round -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """How one collector fared. `seconds` is what it took, `error` is empty when it went well."""

    collector: str
    seconds: float
    error: str
    families: tuple[Family, ...] = ()


def collected(collectors: Iterable[Collector]) -> Iterator[Outcome]:
    """Each collector by itself. Two that tell of the same metric are a fault of the second."""
    names = set(OWN)
    for collector in collectors:
        begin = time.monotonic()
        try:
            families = tuple(collector.collect())
            _check(families, names)
        except Exception as error:
            text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            yield Outcome(collector.name, time.monotonic() - begin, text or "no reason given")
        else:
            names.update(family.name for family in families)
            yield Outcome(collector.name, time.monotonic() - begin, "", families)


def _check(families: Sequence[Family], taken: set[str]) -> None:
    """node_exporter refuses its whole answer for one metric that is there twice."""
    names = [family.name for family in families]
    for family in families:
        if family.name in taken or names.count(family.name) > 1:
            raise Failed(f"{family.name} is told twice")
        for labels, value in family.samples.items():
            if len(labels) != len(family.labels) or not math.isfinite(value):
                raise Failed(f"{family.name}{labels} is {value}")


def own(exporter: str, outcomes: Sequence[Outcome], now: float) -> tuple[Family, ...]:
    """What an exporter tells of itself; `now` in seconds since 1970."""
    labels: Labels = ("exporter", "collector")
    success: dict[Labels, float] = {
        (exporter, outcome.collector): float(not outcome.error) for outcome in outcomes
    }
    duration: dict[Labels, float] = {
        (exporter, outcome.collector): outcome.seconds for outcome in outcomes
    }
    return (
        Family(SUCCESS, HELP[SUCCESS], labels, success),
        Family(DURATION, HELP[DURATION], labels, duration),
        Family(LAST_RUN, HELP[LAST_RUN], ("exporter",), {(exporter,): now}),
    )


class _Told(Registry):
    """Families in the form in which prometheus-client writes them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            counter = family.kind == "counter"
            name = family.name.removesuffix("_total") if counter else family.name
            metric = Metric(name, family.help, family.kind)
            for values, value in family.samples.items():
                labels = dict(zip(family.labels, values, strict=True))
                metric.add_sample(family.name, labels, value)
            yield metric


def write(file: Path, families: Iterable[Family]) -> None:
    """Whole or not at all. Raises OSError."""
    write_to_textfile(str(file), _Told(families))
    file.chmod(0o644)  # read by node_exporter, who is nobody to us


# --- the daemon ----------------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Exporter:
    """`collectors` is called for each round: what a round shares begins anew with it."""

    name: str
    file: Path
    collectors: Callable[[], Sequence[Collector]]
    say: Callable[[str], None] = say
    _errors: dict[str, str] = field(default_factory=dict)

    def round(self) -> None:
        """Ask all collectors, and write. A file that cannot be written is taken away."""
        outcomes = list(collected(self.collectors()))
        families = [family for outcome in outcomes for family in outcome.families]
        try:
            write(self.file, [*families, *own(self.name, outcomes, time.time())])
        except OSError as error:
            self.remove()
            outcomes.append(Outcome("textfile", 0, f"{self.file}: {error.strerror}"))
        else:
            outcomes.append(Outcome("textfile", 0, ""))
        self._log(outcomes)

    def _log(self, outcomes: Iterable[Outcome]) -> None:
        """What fails is said when it begins, and when it is over: every round would be noise."""
        for outcome in outcomes:
            before = self._errors.get(outcome.collector, "")
            if outcome.error and outcome.error != before:
                self.say(f"{outcome.collector}: {outcome.error}")
            elif before and not outcome.error:
                self.say(f"{outcome.collector}: well again")
            self._errors[outcome.collector] = outcome.error

    @property
    def failing(self) -> bool:
        """Whether anything went wrong in the last round."""
        return any(self._errors.values())

    def remove(self) -> None:
        """The file, and what an interrupted writing left beside it."""
        for left in self.file.parent.glob(f"{self.file.name}*"):
            left.unlink(missing_ok=True)

    def run(self, interval_s: float, wait: Callable[[float], None] = time.sleep) -> NoReturn:
        """A round every interval, until somebody ends us; a round that is late is not made up."""
        signal.signal(signal.SIGTERM, _end)
        try:
            while True:
                begin = time.monotonic()
                self.round()
                wait(max(0.0, begin + interval_s - time.monotonic()))
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.remove()


def _end(number: int, frame: object) -> NoReturn:
    """Wherever we are, in the middle of a command too: its process is ended on the way out."""
    del number, frame
    raise SystemExit(0)


# --- the command ---------------------------------------------------------------------------------


class Settings(Protocol):
    """What every exporter's settings have: where its file is, and the seconds between rounds."""

    @property
    def file(self) -> Path: ...

    @property
    def interval_s(self) -> float: ...


S = TypeVar("S", bound=Settings)


def command(
    arguments: Sequence[str],
    program: str,
    words: str,
    read: Callable[[Path], S],
    exporter: Callable[[S, bool], Exporter],
    config: Path,
) -> int:
    """Run the daemon, or with --once one round that goes to standard output.

    `words` are the help. `read` raises BadConfig. `exporter` is also told whether it only looks,
    beside a daemon from which nothing is taken away. Returns the exit status: 0 it was ended, or
    every collector went well; 1 one of them failed; 2 it has no settings that can be used.
    """
    summary, _, rest = words.partition("\n\n")
    parser = argparse.ArgumentParser(
        prog=program,
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=config, metavar="FILE")
    parser.add_argument("--once", action="store_true", help="one round on standard output")
    version.add_option(parser)
    options = parser.parse_args(arguments)
    try:
        settings = read(options.config)
    except BadConfig as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    daemon = exporter(settings, options.once)
    if not options.once:
        daemon.run(settings.interval_s)
    with TemporaryDirectory() as folder:
        daemon.file = Path(folder) / settings.file.name
        daemon.round()
        print(daemon.file.read_text(encoding="utf-8"), end="")
    return 1 if daemon.failing else 0
