"""A job's command line, and the bundle of code that travels on its stdin.

There may be no filesystem that all nodes share, and nothing of this package is installed on them:
the payloads' code reaches every task as a zip archive on srun's stdin, the answer comes back on
srun's stdout. Everything here is pure but `bundle`, which reads the checkout's files and pynvml.
"""

import functools
import importlib.util
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cluster import closure
from cluster.declaration import Container, Node
from cluster.hostlist import compress
from cluster.slurm import job_reasons, node_states
from cluster.slurm.job_reasons import Cause
from validation.model import GRANT_LIMIT_S, READY_LIMIT_S, Allocation, Job, Reply
from validation.payloads import gpu_process
from validation.slurm import launcher

# So long does a launcher go on when nobody asks it any more, longer than a run tries to reach it.
LEASE_S = 600

# Runs in every task. Two lines tell the login node that the task started and that it has read its
# input (one each for a node; the launcher reads them, and the check of the clock needs both). The
# archive lies in memory, so that a task starts where /tmp is full too. What torch leaves in a
# temporary folder lies in the task's own, which goes with the task, or with the next one of this
# user when this one is killed. It ends without taking the interpreter down: seen with torch 2.6,
# Gloo's threads now and then abort a process that has already answered and left its group.
BOOTSTRAP = """\
import fcntl, os, re, shutil, sys, tempfile, time
def say(what):
    if os.environ.get("SLURM_LOCALID", "0") == "0":
        job, node = os.environ.get("SLURM_JOB_ID", "-"), os.environ.get("SLURMD_NODENAME", "-")
        line = "plumbline: %s job %s node %s time %d\\n" % (what, job, node, time.time_ns())
        os.write(2, line.encode())
def lock(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor
def folder():
    place, mine = tempfile.gettempdir(), "plumbline-%d-" % os.getuid()
    for name in os.listdir(place):
        found = re.fullmatch(mine + "([0-9]+)-.*", name)
        if found and not os.path.exists("/proc/" + found[1]):
            try:
                descriptor = lock(os.path.join(place, name))
            except OSError:
                continue
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)
            os.close(descriptor)
    path = tempfile.mkdtemp(prefix=mine + "%d-" % os.getpid(), dir=place)
    lock(path)
    os.environ["TMPDIR"] = tempfile.tempdir = path
    return path
say("started")
archive = os.fdopen(os.memfd_create("plumbline"), "w+b")
archive.write(sys.stdin.buffer.read())
archive.flush()
say("received")
try:
    temporary = folder()
except OSError:
    temporary = None
sys.path.insert(0, "/proc/self/fd/%d" % archive.fileno())
from validation.payloads.__main__ import end, main
status = main(sys.argv[1:])
if temporary:
    shutil.rmtree(temporary, ignore_errors=True)
end(status)
"""

# What runs on nodes: a task, and the process that it starts for each GPU.
PROGRAMS = (BOOTSTRAP, gpu_process.SCRIPT)


# What ranks say that did not find each other, or waited for one another in vain later: jobs after
# theirs on the same nodes would wait for the same.
WAITED = (
    "rank 0 does not answer at ",
    " did not come within ",
    "no sign of life from ",
    "; all ranks still respond",
)


Command = Callable[[str, Job, str, Sequence[str]], tuple[str, ...]]


def slurm_name(run_id: str, what: Job | Allocation) -> str:
    return f"plumbline-{run_id}-{what.name}"


def command(run_id: str, job: Job, python: str, wishes: Sequence[str] = ()) -> tuple[str, ...]:
    """The job's srun, without the payload's configuration: the launcher appends that.

    `wishes` are options of the site (account, reservation, …). They come first: srun takes the last
    of two, and what is asked about stays what the plan says.
    """
    request = (*_nodes(job, job.nodes), *_of_its_own(job))
    return ("srun", *wishes, _named(run_id, job), *request, *_task(job, python))


def local_command(
    run_id: str, job: Job, python: str, wishes: Sequence[str] = ()
) -> tuple[str, ...]:
    """The job's payload as a process of this machine, under the node's name."""
    return ("env", f"SLURMD_NODENAME={job.hosts[0]}", *_payload(job, python))


def step_command(run_id: str, job: Job, python: str, wishes: Sequence[str] = ()) -> tuple[str, ...]:
    """The same inside of an allocation, whose id the launcher puts in."""
    nodes = _nodes(job, job.nodes)
    return ("srun", *wishes, _named(run_id, job), *nodes, *_beside(job), *_task(job, python))


def _beside(job: Job) -> list[str]:
    """How a step leaves the rest of its node to others: it has all CPUs otherwise.

    One that asks for no GPU may share a CPU, where there is none left.
    """
    if job.part is None:
        return []
    return ["--exact" if job.part.gpus else "--overlap"]


def allocation_command(
    run_id: str, allocation: Allocation, wishes: Sequence[str] = ()
) -> tuple[str, ...]:
    """salloc for all nodes of the allocation, held until its command's input ends.

    A node that fails does not take it from the others.
    """
    most = max((job.whole for job in allocation.jobs), key=lambda job: job.cpus_per_task or 0)
    request = (*_nodes(most, allocation.nodes), *_of_its_own(most))
    limit = f"--time={slurm_time(allocation_limit_s(allocation))}"
    hold = ("sh", "-c", "echo plumbline: granted $SLURM_JOB_ID; exec cat")
    return ("salloc", *wishes, _named(run_id, allocation), *request, limit, "--no-kill", *hold)


def allocation_limit_s(allocation: Allocation) -> int:
    """Every step starts and runs up to its limits, and may have to wait for one before it."""
    lanes = [sum(job.start_limit_s + job.run_limit_s for job in lane) for lane in allocation.lanes]
    return max(lanes) * min(len(lanes), 2)


def _named(run_id: str, what: Job | Allocation) -> str:
    return f"--job-name={slurm_name(run_id, what)}"


def _nodes(job: Job, nodes: Sequence[Node]) -> list[str]:
    """What is asked of each of these nodes."""
    options = [
        f"--nodelist={compress(node.name for node in nodes)}",
        f"--nodes={len(nodes)}",
        f"--ntasks={job.ranks_per_node * len(nodes)}",
        f"--ntasks-per-node={job.ranks_per_node}",
    ]
    if job.gres:
        options.append(f"--gres={job.gres}")
    if job.cpus_per_task is not None:
        # srun gives a step of an exclusive job no more than it asks for, so it asks for everything.
        options += [f"--cpus-per-task={job.cpus_per_task}", "--mem=0"]
    if job.part is not None:
        options += ["--cpus-per-task=1", f"--mem={job.part.memory_mb}"]
    return options


def _of_its_own(job: Job) -> list[str]:
    """What only a job asks for. A measurement has its nodes to itself."""
    exclusive = ["--exclusive"] if job.cpus_per_task is not None else []
    return [f"--partition={job.partition}", *exclusive]


def _task(job: Job, python: str) -> list[str]:
    # Every rank may use all of its node's cores.
    unbound = ["--cpu-bind=none"] if job.cpus_per_task is not None else []
    return [
        *unbound,
        f"--time={slurm_time(job.run_limit_s)}",
        "--mpi=none",  # ranks find each other through torch; a broken MPI plugin must not matter
        "--input=all",
        "--kill-on-bad-exit=1",
        "--wait=30",
        "--chdir=/tmp",
        *_contained(job.container),
        *_payload(job, job.container.python if job.container else python),
    ]


def _contained(container: Container | None) -> list[str]:
    """Options of pyxis. Standard input, /proc, the network and Slurm's variables are the task's own
    in its containers too, so the payload reaches it as it reaches any other."""
    if container is None:
        return []
    mounts = [f"--container-mounts={container.mounts}"] if container.mounts else []
    return [f"--container-image={container.image}", *mounts]


def _payload(job: Job, python: str) -> list[str]:
    return [python, "-I", "-c", BOOTSTRAP, job.payload]


def slurm_time(seconds: int) -> str:
    """Slurm's limit: whole minutes, and one more, so that the launcher's own limit comes first."""
    return f"{-(-seconds // 60) + 1}:00"


def batch(
    run_id: str,
    lanes: Sequence[Sequence[Job]],
    python: str,
    at_once: int,
    wishes: Sequence[str] = (),
    shared: Sequence[Allocation] = (),
    how: Command = command,
    slowest_start_s: float | None = None,
) -> dict[str, object]:
    """What the launcher is to do: lanes side by side, the jobs of a lane one after another."""
    home = {job.name: allocation.name for allocation in shared for job in allocation.jobs}
    return {
        "schema": 1,
        "run": run_id,
        "at_once": at_once,
        "lease_s": LEASE_S,
        "limit_reasons": sorted(job_reasons.names(Cause.LIMIT)),
        "limit_refusals": list(job_reasons.LIMIT_REFUSALS),
        "slowest_start_s": slowest_start_s,
        "gone_states": list(node_states.GONE),
        "asleep_flags": node_states.ASLEEP,
        "waited": list(WAITED),
        "allocations": [
            {
                "name": allocation.name,
                "slurm_name": slurm_name(run_id, allocation),
                "command": list(allocation_command(run_id, allocation, wishes)),
                "nodes": [node.name for node in allocation.nodes],
                "queue_limit_s": GRANT_LIMIT_S,
                "ready_limit_s": READY_LIMIT_S,
                "run_limit_s": GRANT_LIMIT_S,
            }
            for allocation in shared
        ],
        "lanes": [
            [
                {
                    "name": job.name,
                    "slurm_name": slurm_name(run_id, job),
                    "command": list(how(run_id, job, python, wishes)),
                    "step": job.name in home
                    and {
                        "allocation": home[job.name],
                        "command": list(step_command(run_id, job, python, wishes)),
                        "start_limit_s": job.start_limit_s,
                    },
                    "config": dict(job.config),
                    "environment": dict(job.environment),
                    "munge": "munge" in job.checks,
                    "nodes": list(job.hosts),
                    "start_floor_s": job.start_floor_s,
                    "queue_limit_s": job.queue_limit_s,
                    "run_limit_s": job.run_limit_s,
                }
                for job in lane
            ]
            for lane in lanes
        ],
    }


def waited_in_vain(reply: Reply) -> bool:
    """Whether other jobs on the same nodes would wait for the same."""
    return launcher.waited_in_vain(reply.outcome.value, reply.exit_code, reply.stderr, WAITED)


@functools.cache
def bundle() -> bytes:
    """The payloads' code as a zip archive, the same bytes each time."""
    files = closure.files_of(*PROGRAMS)
    files |= _nvml_bindings()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _nvml_bindings() -> dict[str, bytes]:
    """pynvml (nvidia-ml-py: one module of pure Python) as it is installed here.

    A container needs Python and torch, and torch does not bring it
    (https://github.com/pytorch/pytorch/issues/118173). Nothing where it is not installed here
    either: then a payload takes the node's own, or says that there is none.
    """
    found = importlib.util.find_spec("pynvml")
    place = None if found is None or found.origin is None else Path(found.origin)
    if place is None or place.name != "pynvml.py":  # the package `pynvml` is somebody else's
        return {}
    return {place.name: place.read_bytes()}


def encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent=1, allow_nan=False).encode()
