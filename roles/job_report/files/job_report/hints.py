"""What a job was given and did not use, where that is sure; a sentence each, with what to do.

Few and true: a hint that is wrong once is not read again. Nothing is said of a job that was too
short to be more than a try, or of what was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from roles.job_report.files.job_report import usage, words
from roles.job_report.files.job_report.sacct import AccountedJob

# A shorter job may have been a try, or loading its data all the time; and a longer one has twenty
# samples of each GPU and of memory at the usual thirty seconds.
SHORTEST_S = 600.0
# A GPU on which nothing runs says 0; one per cent is rounding.
IDLE_PERCENT = 1.0
# Below this, a GPU waits for something else most of the time, whatever the program is.
LOW_GPU = 0.15
# Not a matter of taste at ten times too much: a job that used more of its memory was careful.
LOW_MEMORY = 0.10
# What another job could have used. Less keeps nobody waiting.
SPARE_MEMORY = 16 * 2**30
# With one or two CPUs there is nothing to give back.
CPUS = 4
LOW_CPU = 0.25
# Slurm's backfill starts what fits into a gap; hours decide whether a job fits, minutes do not.
LOW_TIME = 0.10
SPARE_TIME_S = 4 * 3600.0


def hints(job: AccountedJob, gpus: usage.Gpus | None) -> tuple[str, ...]:
    if job.elapsed_s < SHORTEST_S or (job.end is None and not job.running):
        return ()
    result = list(_gpus(job, gpus)) if gpus is not None else []
    # What a job asked for too much of is only known of one that did its work.
    if job.state == "COMPLETED":
        result += [*_cpus(job), *_memory(job), *_time(job)]
    return tuple(result)


def _gpus(job: AccountedJob, gpus: usage.Gpus) -> Iterator[str]:
    peaks = [gpu.busy_peak for gpu in gpus.each]
    known = [peak for peak in peaks if peak is not None]
    if len(known) != job.gpus or len(known) != len(peaks):
        return
    used = sum(peak > IDLE_PERCENT for peak in known)
    many = f"{job.gpus} GPUs" if job.gpus > 1 else "a GPU"
    far = " so far" if job.running else ""
    if not used:
        yield (
            f"It had {many} and used none{far}: look whether the program finds them "
            "(nvidia-smi in the job), or ask for none."
        )
    elif used < job.gpus:
        yield (
            f"It had {many} and used {used}{far}: ask for {used}, or start the program once for "
            "each GPU (torchrun, srun)."
        )
    elif (busy := usage.busy(gpus)) is not None and busy < LOW_GPU:
        yield (
            f"{'Its GPUs were' if job.gpus > 1 else 'Its GPU was'} busy {words.percent(busy)} of "
            f"the time{far}: look what the program waits for, such as reading its data "
            "(more CPUs and workers for it, larger batches)."
        )


def _cpus(job: AccountedJob) -> Iterator[str]:
    """Of a job with GPUs the CPUs may come with them."""
    if job.gpus or job.cpus < CPUS or job.cpu_s is None:
        return
    busy = job.cpu_s / job.elapsed_s
    if busy / job.cpus < LOW_CPU:
        yield (
            f"It had {job.cpus} CPUs and kept {busy:.1f} busy: ask for fewer (--ntasks, "
            "--cpus-per-task), or look whether the program starts as many threads or processes."
        )


def _memory(job: AccountedJob) -> Iterator[str]:
    used, given = job.memory_steps_bytes, job.memory_bytes
    if used is None or not given:
        return
    if used / given < LOW_MEMORY and given - used >= SPARE_MEMORY:
        # Of several nodes, one may have needed most of it.
        enough = f", such as --mem={math.ceil(1.5 * used / 2**30)}G" if len(job.nodes) == 1 else ""
        yield (
            f"It used {words.percent(used / given)} of its {words.size(given)} of memory: ask for "
            f"less{enough}."
        )


def _time(job: AccountedJob) -> Iterator[str]:
    limit = job.limit_s
    if limit is None:
        return
    if job.elapsed_s / limit < LOW_TIME and limit - job.elapsed_s >= SPARE_TIME_S:
        enough = math.ceil(2 * job.elapsed_s / 600) * 600
        yield (
            f"It ended after {words.percent(job.elapsed_s / limit)} of its time limit: jobs with a "
            f"shorter one start earlier, such as --time={words.duration(enough)}."
        )
