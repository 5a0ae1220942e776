"""A report, as text and as a document."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster import hostlist
from roles.job_report.files.job_report import hints, usage, words
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.files.job_report.sacct import AccountedJob

Ask = Callable[[AccountedJob], usage.Measured]  # what was measured of it; raises NotKnown


@dataclass(frozen=True)
class Report:
    """cpus_busy is the mean over the job's time; hints has a sentence for each thing that was
    wasted, and not_known one for each that could not be found out.
    """

    job: AccountedJob
    cpus_busy: float | None
    gpus: usage.Gpus | None
    hints: tuple[str, ...]
    not_known: tuple[str, ...]


def build(job: AccountedJob, ask: Ask) -> Report:
    """Everything that can be known. Only what Slurm does not know is asked for."""
    cpus_busy = job.cpu_s / job.elapsed_s if job.cpu_s is not None and job.elapsed_s else None
    measured = usage.Measured()
    if job.gpus or cpus_busy is None:
        try:
            measured = ask(job)
        except NotKnown as error:
            measured = usage.Measured(not_known=(str(error),))
    gpus = measured.gpus
    not_known = sentences(job, gpus, measured.not_known)
    if cpus_busy is None:
        cpus_busy = measured.cpus_busy
    return Report(job, cpus_busy, gpus, hints.hints(job, gpus), not_known)


def document(report: Report) -> dict[str, Any]:
    gpus = report.gpus
    return {
        "version": 1,
        **asdict(report),
        "cpu_ratio": words.ratio(report.cpus_busy, report.job.cpus),
        "memory_ratio": words.ratio(report.job.memory_peak_bytes, report.job.memory_bytes),
        "gpu_ratio": usage.busy(gpus),
        "gpu_kwh": usage.kilowatt_hours(gpus, report.job.elapsed_s) if gpus else None,
    }


def text(report: Report) -> str:
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    job = report.job
    yield f"Job {job.shown} ({job.name}) of {job.user}, account {job.account}: {_state(job)}"
    yield f"  time    {_time(job)}"
    if job.nodes:
        yield f"  nodes   {hostlist.compress(job.nodes)}, partition {job.partition}"
    if report.cpus_busy is not None:
        share = words.percent(words.ratio(report.cpus_busy, job.cpus))
        yield f"  CPU     {share} of {job.cpus}: {report.cpus_busy:.1f} busy in the mean"
    if job.memory_peak_bytes is not None:
        share = words.percent(words.ratio(job.memory_peak_bytes, job.memory_bytes))
        of = f", {share} of {words.size(job.memory_bytes)}" if job.memory_bytes else ""
        yield f"  memory  {words.size(job.memory_peak_bytes)} at the peak of its largest step{of}"
    if job.energy_j is not None:
        yield f"  energy  {words.energy(job.energy_j / 3.6e6)}, of its nodes as a whole"
    if report.gpus is not None:
        yield from _gpus(report.gpus, job)
    if report.hints:
        yield "Hints:"
        for sentence in report.hints:
            yield f"  {sentence}"
    if report.not_known:
        yield "Not known:"
        for sentence in report.not_known:
            yield f"  {sentence}"


def _gpus(gpus: usage.Gpus, job: AccountedJob) -> Iterator[str]:
    energy = usage.kilowatt_hours(gpus, job.elapsed_s)
    used = f", {words.energy(energy)}" if energy is not None else ""
    busy = usage.busy(gpus)
    mean = f"{words.percent(busy)} busy in the mean" if busy is not None else "of unknown use"
    yield f"  GPU     {len(gpus.each)}, {mean}{used}; found {gpus.how}"
    rows = [("node", "gpu", "busy", "at most", "memory at most", "power")]
    rows += [_row(gpu) for gpu in gpus.each]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"          {'  '.join(cells).rstrip()}"


def _row(gpu: usage.GpuUse) -> tuple[str, str, str, str, str, str]:
    memory = "-"
    if gpu.memory_peak_mb is not None:
        of = f" of {words.size(gpu.memory_mb * 2**20)}" if gpu.memory_mb is not None else ""
        memory = f"{words.size(gpu.memory_peak_mb * 2**20)}{of}"
    return (
        gpu.node,
        f"{gpu.gpu}.{gpu.instance}" if gpu.instance else gpu.gpu,
        "-" if gpu.busy is None else f"{gpu.busy:.0f}%",
        "-" if gpu.busy_peak is None else f"{gpu.busy_peak:.0f}%",
        memory,
        "-" if gpu.watts is None else f"{gpu.watts:.0f} W",
    )


def _state(job: AccountedJob) -> str:
    return f"{job.state}, exit code {job.exit_code}" if job.end is not None else job.state


def _time(job: AccountedJob) -> str:
    of = f" of {words.duration(job.limit_s)} allowed" if job.limit_s is not None else ""
    if job.start is None:
        return "it has not begun"
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.start))
    return f"{words.duration(job.elapsed_s)}{of}, from {began}"


def sentences(job: AccountedJob, gpus: usage.Gpus | None, more: Sequence[str]) -> tuple[str, ...]:
    """What accounting and metrics leave open, before what could not be asked."""
    result = []
    if job.running:
        result.append("The job runs: Slurm counts CPU and memory of a step when the step ends.")
    elif job.end is not None and job.memory_peak_bytes is None and job.start is not None:
        result.append(
            "Memory: Slurm has no sample of it; the job was shorter than JobAcctGatherFrequency, "
            "or nothing gathers them (JobAcctGatherType)."
        )
    if gpus is not None and len(gpus.each) < job.gpus:
        result.append(f"GPU use: of {job.gpus - len(gpus.each)} of its GPUs there are no metrics.")
    if gpus is not None and any(gpu.busy is None for gpu in gpus.each):
        result.append(
            "GPU use: how busy an instance of MIG was is not measured, only the GPU it is part of."
            if any(gpu.instance for gpu in gpus.each)
            else "GPU use: not all of its GPUs say how busy they were."
        )
    return (*result, *more)
