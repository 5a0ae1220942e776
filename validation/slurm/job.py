"""A job's command line, and the bundle of code that travels on its stdin.

There may be no filesystem that all nodes share, and nothing of this package is installed on them:
the payloads' code reaches every task as a zip archive on srun's stdin, the answer comes back on
srun's stdout. Everything here is pure but `bundle`, which reads the package's own files.
"""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from validation.model import Job, Tier
from validation.nodelist import compress

_PACKAGE = Path(__file__).parent.parent

# Runs in every task. It tells the login node that the task started (one line for each node; the
# launcher reads it), takes the archive from stdin, and calls the payload in it. It leaves without
# taking the interpreter down: seen with torch 2.6, Gloo's threads now and then abort a process that
# has already answered and left its group.
BOOTSTRAP = """\
import os, sys, tempfile, time
if os.environ.get("SLURM_LOCALID", "0") == "0":
    job, node = os.environ.get("SLURM_JOB_ID", "-"), os.environ.get("SLURMD_NODENAME", "-")
    line = "plumbline: started job %s node %s time %d\\n" % (job, node, time.time_ns())
    os.write(2, line.encode())
with tempfile.NamedTemporaryFile(suffix=".zip") as archive:
    archive.write(sys.stdin.buffer.read())
    archive.flush()
    sys.path.insert(0, archive.name)
    from validation.payloads.__main__ import end, main
    try:
        status = main(sys.argv[1:])
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
end(status)
"""


def slurm_name(run_id: str, job: Job) -> str:
    return f"plumbline-{run_id}-{job.name}"


def command(run_id: str, job: Job, python: str) -> tuple[str, ...]:
    """The job's srun, without the payload's configuration: the launcher appends that."""
    hosts = compress(job.hosts)
    options = [
        f"--job-name={slurm_name(run_id, job)}",
        f"--partition={job.partition}",
        f"--nodelist={hosts}",
        f"--nodes={len(job.nodes)}",
        f"--ntasks={job.ranks}",
        f"--ntasks-per-node={job.ranks_per_node}",
    ]
    if job.gpus_per_node:
        options.append(f"--gres=gpu:{job.gpus_per_node}")
    if job.tier is Tier.CLUSTER:
        # A measurement has its nodes to itself, and every rank all their cores for its threads.
        options += ["--exclusive", "--cpu-bind=none"]
    options += [
        f"--time={slurm_time(job.run_limit_s)}",
        "--mpi=none",  # ranks find each other through torch; a broken MPI plugin must not matter
        "--input=all",
        "--kill-on-bad-exit=1",
        "--wait=30",
        "--chdir=/tmp",
    ]
    return ("srun", *options, python, "-I", "-c", BOOTSTRAP, job.payload)


def slurm_time(seconds: int) -> str:
    """Slurm's limit: whole minutes, and one more, so that the launcher's own limit comes first."""
    return f"{-(-seconds // 60) + 1}:00"


def batch(
    run_id: str, lanes: Sequence[Sequence[Job]], python: str, at_once: int
) -> dict[str, object]:
    """What the launcher is to do: lanes side by side, the jobs of a lane one after another."""
    return {
        "schema": 1,
        "run": run_id,
        "at_once": at_once,
        "lanes": [
            [
                {
                    "name": job.name,
                    "slurm_name": slurm_name(run_id, job),
                    "command": list(command(run_id, job, python)),
                    "config": dict(job.config),
                    "munge": "munge" in job.checks,
                    "queue_limit_s": job.queue_limit_s,
                    "run_limit_s": job.run_limit_s,
                }
                for job in lane
            ]
            for lane in lanes
        ],
    }


def bundle() -> bytes:
    """The payloads' code as a zip archive, the same bytes each time."""
    files = [_PACKAGE / "__init__.py", _PACKAGE / "nodelist.py"]
    files += sorted((_PACKAGE / "payloads").glob("*.py"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            name = f"validation/{path.relative_to(_PACKAGE).as_posix()}"
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent=1, allow_nan=False).encode()
