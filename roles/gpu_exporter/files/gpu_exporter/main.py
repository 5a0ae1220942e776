"""plumbline-gpu-exporter: what DCGM does not tell of GPUs, for node_exporter's textfile collector.

    plumbline-gpu-exporter --textfile FILE   writes FILE each interval, and removes it when it ends
    plumbline-gpu-exporter                   prints the metrics once

    --collect xid        XIDs of the kernel's log, which DCGM forgets after minutes
    --collect nvml xid   also the GPUs, where there is no DCGM

It asks NVML through the one reader that the node's health checks use, in processes of their own:
a driver that hangs costs time, never the exporter.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cluster import version
from cluster.files import write_whole
from cluster.readers import nvml
from roles.gpu_exporter.files.gpu_exporter import jobs, metrics, textfile
from roles.gpu_exporter.files.gpu_exporter.xid import Series, Xids

JOBS = Path("/run/plumbline/gpu-jobs")
LIMIT_S = 10.0  # for the node, and then for all GPUs at once
COLLECT = ("nvml", "xid")

Errors = Mapping[str, str]  # collector to sentence
Read = Callable[[], tuple[Sequence[textfile.Family], Sequence[metrics.Collected]]]


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    # Both remember what they saw in earlier rounds.
    known: Mapping[str, Read] = {"nvml": Gpus(options.jobs), "xid": Log(Xids().collect)}
    reads = [known[name] for name in COLLECT if name in options.collect]
    before: Errors = {}
    if options.textfile is None:
        text, errors = collected(reads)
        print(text, end="")
        _say(before, errors)
        return 0
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        while not ended.is_set():
            began = time.monotonic()
            text, errors = collected(reads)
            _keep(options.textfile, text)
            _say(before, errors)
            before = errors
            ended.wait(max(0.0, options.interval - (time.monotonic() - began)))
    finally:
        options.textfile.unlink(missing_ok=True)
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    summary, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="plumbline-gpu-exporter",
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--textfile", type=Path, metavar="FILE", help="FILE ends with .prom")
    parser.add_argument("--interval", type=float, default=30.0, metavar="S", help="seconds (30)")
    parser.add_argument("--jobs", type=Path, default=JOBS, metavar="FOLDER", help=f"({JOBS})")
    parser.add_argument("--collect", nargs="+", choices=COLLECT, default=COLLECT, help="(both)")
    version.add_option(parser)
    return parser.parse_args(arguments)


def collected(reads: Sequence[Read]) -> tuple[str, Errors]:
    """All metrics of this moment; what cannot be read is absent, and its collector says so. Why,
    by collector, is the second.
    """
    families: list[textfile.Family] = []
    ends: list[metrics.Collected] = []
    for read in reads:
        more, ended = read()
        families += more
        ends += ended
    text = textfile.text([*families, *metrics.of_exporter(ends, time.time())])
    return text, {end.collector: end.error for end in ends if end.error}


class Gpus:
    """What NVML says, and which jobs have the GPUs."""

    def __init__(self, folder: Path, limit_s: float = LIMIT_S) -> None:
        self._folder = folder
        self._limit_s = limit_s
        self._events = metrics.ClockEvents()

    def __call__(self) -> tuple[list[textfile.Family], list[metrics.Collected]]:
        system, gpus = nvml.ask(self._limit_s, metrics.QUESTIONS)
        began = time.monotonic()
        job_ids: jobs.JobsOfGpu = {}
        why = ""
        try:
            job_ids = jobs.read(self._folder)
        except (OSError, ValueError) as error:
            why = str(error)
        ends = metrics.of_nvml(system, gpus)
        ends.append(metrics.Collected("jobs", time.monotonic() - began, why))
        return metrics.of_gpus(gpus, job_ids, self._events, time.monotonic()), ends


class Log:
    """XIDs of the kernel's log. Whatever is wrong with it, the GPUs are told."""

    def __init__(self, collect: Callable[[], Series]) -> None:
        self._collect = collect

    def __call__(self) -> tuple[list[textfile.Family], list[metrics.Collected]]:
        began = time.monotonic()
        families: list[textfile.Family] = []
        why = ""
        try:
            families.append(metrics.of_log(self._collect()))
        except Exception as error:
            why = str(error) or type(error).__name__
        return families, [metrics.Collected("xid", time.monotonic() - began, why)]


def changes(before: Errors, now: Errors) -> list[str]:
    """For the journal: what fails is said when it begins and when it is over."""
    begun = [f"{name}: {why}" for name, why in now.items() if before.get(name) != why]
    return [*begun, *(f"{name}: well again" for name in before if name not in now)]


def _say(before: Errors, now: Errors) -> None:
    for line in changes(before, now):
        print(line, file=sys.stderr, flush=True)


def _keep(path: Path, text: str) -> None:
    """Values that cannot be renewed are removed: nobody must take them for today's."""
    try:
        write_whole(path, text, 0o644)  # node_exporter is a user of its own
    except OSError as error:
        print(f"{path} cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        with suppress(OSError):
            path.unlink(missing_ok=True)
