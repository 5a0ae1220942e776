"""A file for node_exporter's textfile collector: the text format of Prometheus, written at once.

prometheus-client cannot write this one: it ends a counter's name with `_total`, and DCGM's names of
counters do not.
https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cluster.text import label

GAUGE, COUNTER = "gauge", "counter"


@dataclass(frozen=True)
class Sample:
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Family:
    """A metric: its series have the same name. kind is GAUGE or COUNTER."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


def text(families: Iterable[Family]) -> str:
    """One without samples is left out."""
    return "".join(f"{line}\n" for family in families if family.samples for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        pairs = [f'{key}="{label(value)}"' for key, value in sample.labels.items()]
        labels = f"{{{','.join(pairs)}}}" if pairs else ""
        yield f"{family.name}{labels} {_number(sample.value)}"


def _number(value: float) -> str:
    """A whole number without a point or an exponent: millijoules stay readable."""
    return str(int(value)) if value == int(value) else repr(value)
