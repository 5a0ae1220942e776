"""A report, as text and as a document."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster import hostlist
from roles.job_report.files.job_report import usage
from roles.job_report.files.job_report.sacct import AccountedJob


@dataclass(frozen=True)
class Report:
    """cpus_busy is the mean over the job's time; not_known has a sentence for each thing that
    could not be found out.
    """

    job: AccountedJob
    cpus_busy: float | None
    gpus: usage.Gpus | None
    not_known: tuple[str, ...]


def document(report: Report) -> dict[str, Any]:
    gpus = report.gpus
    return {
        "version": 1,
        **asdict(report),
        "cpu_ratio": _ratio(report.cpus_busy, report.job.cpus),
        "memory_ratio": _ratio(report.job.memory_peak_bytes, report.job.memory_bytes),
        "gpu_ratio": _busy(gpus),
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
        share = _percent(_ratio(report.cpus_busy, job.cpus))
        yield f"  CPU     {share} of {job.cpus}: {report.cpus_busy:.1f} busy in the mean"
    if job.memory_peak_bytes is not None:
        share = _percent(_ratio(job.memory_peak_bytes, job.memory_bytes))
        of = f", {share} of {_size(job.memory_bytes)}" if job.memory_bytes else ""
        yield f"  memory  {_size(job.memory_peak_bytes)} at the peak of its largest step{of}"
    if report.gpus is not None:
        yield from _gpus(report.gpus, job)
    if report.not_known:
        yield "Not known:"
        for sentence in report.not_known:
            yield f"  {sentence}"


def _gpus(gpus: usage.Gpus, job: AccountedJob) -> Iterator[str]:
    energy = usage.kilowatt_hours(gpus, job.elapsed_s)
    used = f", {_energy(energy)}" if energy is not None else ""
    busy = _busy(gpus)
    mean = f"{_percent(busy)} busy in the mean" if busy is not None else "of unknown use"
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
        of = f" of {_size(gpu.memory_mb * 2**20)}" if gpu.memory_mb is not None else ""
        memory = f"{_size(gpu.memory_peak_mb * 2**20)}{of}"
    return (
        gpu.node,
        f"{gpu.gpu}.{gpu.instance}" if gpu.instance else gpu.gpu,
        "-" if gpu.busy is None else f"{gpu.busy:.0f}%",
        "-" if gpu.busy_peak is None else f"{gpu.busy_peak:.0f}%",
        memory,
        "-" if gpu.watts is None else f"{gpu.watts:.0f} W",
    )


def _busy(gpus: usage.Gpus | None) -> float | None:
    """Between 0 and 1, over all GPUs; None where one of them is not known."""
    each = [gpu.busy for gpu in gpus.each] if gpus else []
    known = [busy for busy in each if busy is not None]
    return sum(known) / len(known) / 100 if known and len(known) == len(each) else None


def _state(job: AccountedJob) -> str:
    return f"{job.state}, exit code {job.exit_code}" if job.end is not None else job.state


def _time(job: AccountedJob) -> str:
    of = f" of {duration(job.limit_s)} allowed" if job.limit_s is not None else ""
    if job.start is None:
        return "it has not begun"
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.start))
    return f"{duration(job.elapsed_s)}{of}, from {began}"


def duration(seconds: float) -> str:
    """
    >>> duration(93784)
    '1-02:03:04'
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hours:02d}:{minutes:02d}:{rest:02d}"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{100 * ratio:.0f}%"


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


def _energy(kilowatt_hours: float) -> str:
    if kilowatt_hours >= 1:
        return f"{kilowatt_hours:.2f} kWh"
    return f"{1000 * kilowatt_hours:.1f} Wh"
