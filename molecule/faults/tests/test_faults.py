"""The validator against faults of a running cluster: verdict, exit code, and the node it names.

A fault is put into one node, or into the way to it, just before or in the middle of a run, and
taken out again. What every run made of its fault is written to .cache/test/live-faults.md.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live_cluster import PLAIN, REPOSITORY, sources, virtual_cluster

CLUSTER = os.environ.get("PLUMBLINE_ON", "test-cluster-faults")
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
TABLE = REPOSITORY / ".cache/test/live-faults.md"
RUN_SECONDS = 900

VALIDATE = [
    *(sys.executable, "-m", "validation.run", "--suite", "quick"),
    *sources(INVENTORY),
]
# Where the distribution's Python looks, also with -I: code that each start of it runs.
SITE = "/usr/lib/python3/dist-packages"


# --- the cluster ---------------------------------------------------------------------------------


def on(node: str, command: str) -> str:
    """What a command of root's prints on a node."""
    done = virtual_cluster(CLUSTER, "ssh", node, f"sudo bash -c {shlex.quote(command)}")
    assert done.returncode == 0, f"{node}: {command}\n{done.stdout}{done.stderr}"
    return done.stdout


def wait_until(what: str, condition, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(AssertionError):
            if condition():
                return
        time.sleep(1)
    pytest.fail(f"{what} did not come within {seconds:.0f} s")


def idle() -> bool:
    """Both nodes are idle and nobody has a job: what a run must leave behind."""
    shown = on("ctl1", "sinfo -h -N -o '%N %T'; squeue -h").split("\n")
    return shown == ["gpu1 idle", "gpu2 idle", ""]


@dataclass(frozen=True)
class Run:
    """What a run of the validator came to."""

    code: int
    output: str
    folder: Path

    def nodes(self, standing: str) -> list[str]:
        path = self.folder / f"{standing}_nodes.txt"
        return path.read_text().split() if path.exists() else []

    def fails(self, *nodes: str) -> None:
        """These nodes, and for them alone."""
        assert self.code == 1, self.output[-4000:]
        assert self.nodes("failing") == list(nodes)

    def write_row(self, fault: str) -> None:
        words = [", ".join(self.nodes(s)) or "–" for s in ("failing", "suspect", "passing")]
        head = "| fault | exit | failing | suspects | passing |\n|---|---|---|---|---|\n"
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        text = TABLE.read_text() if TABLE.exists() else head
        TABLE.write_text(f"{text}| {fault} | {self.code} | {' | '.join(words)} |\n")


@dataclass(frozen=True)
class Started:
    process: subprocess.Popen[str]
    folder: Path

    def end(self) -> Run:
        output, _ = self.process.communicate(timeout=RUN_SECONDS)
        return Run(self.process.returncode, output, self.folder)


def start(folder: Path, *arguments: str) -> Started:
    process = subprocess.Popen(
        [*VALIDATE, "--output", str(folder), *arguments],
        cwd=REPOSITORY,
        env=os.environ | PLAIN,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Started(process, folder)


@pytest.fixture
def run(request, tmp_path):
    """A function that validates and writes the run's row; afterwards the cluster must be idle."""

    def whole(*arguments: str) -> Run:
        return written(start(tmp_path / "run", *arguments).end())

    def written(done: Run) -> Run:
        params = getattr(request.node, "callspec", None)
        name = params.id if params else request.node.name.removeprefix("test_").replace("_", " ")
        done.write_row(name)
        return done

    whole.written = written
    yield whole
    wait_until("an idle cluster", idle)


@contextlib.contextmanager
def fault(node: str, put_in: str, take_out: str) -> Iterator[None]:
    on(node, put_in)
    try:
        yield
    finally:
        on(node, take_out)


def when_a_payload_runs(node: str, payload: str, then: str) -> subprocess.Popen[str]:
    """Waits on the node for a payload's process, whose number `then` has as $p."""
    words = f"'[{payload[0]}]{payload[1:]} [{{]\"'"
    loop = (
        f"for i in $(seq 3000); do if p=$(pgrep -f {words}); then {then}; exit; fi; "
        "sleep 0.05; done; exit 9"
    )
    wait = f"sudo bash -c {shlex.quote(loop)}"
    return subprocess.Popen(
        ["scripts/virtual-cluster", "ssh", f"--name={CLUSTER}", node, wait],
        cwd=REPOSITORY,
        text=True,
    )


@contextlib.contextmanager
def in_the_payload(nodes: tuple[str, ...], payload: str, code: str) -> Iterator[None]:
    """Code that runs in each process of a payload before the payload does."""
    module = f"import sys\nif {payload!r} in sys.orig_argv:\n" + textwrap.indent(
        textwrap.dedent(code), "    "
    )
    for node in nodes:
        on(
            node,
            f"cat > {SITE}/plumbline_fault.py <<'END'\n{module}\nEND\n"
            f"echo 'import plumbline_fault' > {SITE}/plumbline_fault.pth",
        )
    try:
        yield
    finally:
        for node in nodes:
            on(node, f"rm {SITE}/plumbline_fault.*")


# --- a healthy cluster ----------------------------------------------------------------------------


def test_no_fault_at_all(run):
    before = [on(node, "ls -A /tmp") for node in ("gpu1", "gpu2", "login1")]
    done = run()
    assert done.code == 0, done.output[-4000:]
    assert done.nodes("passing") == ["gpu1", "gpu2"]
    assert done.nodes("failing") == done.nodes("suspect") == done.nodes("unproven") == []
    # A healthy run leaves nothing on any node.
    assert [on(node, "ls -A /tmp") for node in ("gpu1", "gpu2", "login1")] == before


# --- ranks ----------------------------------------------------------------------------------------


def test_a_rank_freezes(run, tmp_path):
    started = start(tmp_path / "run")
    frozen = when_a_payload_runs("gpu2", "ddp", "kill -STOP $p")
    done = run.written(started.end())
    assert frozen.wait() == 0
    done.fails("gpu2")


def test_a_wrong_sum_on_one_rank(run):
    code = """
    import torch.distributed as dist
    right = dist.all_reduce
    def wrong(tensor, *arguments, **options):
        work = right(tensor, *arguments, **options)
        if tensor.numel() > 1000:
            tensor.view(-1)[7] += 1
        return work
    dist.all_reduce = wrong
    """
    with in_the_payload(("gpu2",), "all_reduce", code):
        done = run()
    done.fails("gpu2")


def test_gradients_that_are_not_synchronised(run):
    code = """
    from torch.nn.parallel import DistributedDataParallel as Ddp
    made = Ddp.__init__
    def init(self, *arguments, **options):
        made(self, *arguments, **options)
        self.require_backward_grad_sync = False
    Ddp.__init__ = init
    """
    with in_the_payload(("gpu1", "gpu2"), "ddp", code):
        done = run()
    assert done.code == 1, done.output[-4000:]
    assert "ddp" in done.output
    assert done.nodes("passing") == []


def test_a_library_is_broken_on_one_node(run):
    with in_the_payload(("gpu2",), "ddp", "sys.modules['torch'] = None  # cannot be imported"):
        done = run()
    done.fails("gpu2")


# --- nodes ----------------------------------------------------------------------------------------


def test_slurmd_dies_in_the_middle_of_a_job(run, tmp_path):
    started = start(tmp_path / "run")
    then = "systemctl stop slurmd; pkill -KILL slurmstepd; pkill -KILL -f '[d]dp [{]'"
    killed = when_a_payload_runs("gpu2", "ddp", then)
    done = run.written(started.end())
    assert killed.wait() == 0
    on("gpu2", "systemctl start slurmd")
    on("ctl1", "scontrol update nodename=gpu2 state=resume || true")
    done.fails("gpu2")


def test_a_link_between_two_nodes_is_cut(run):
    address = on("gpu1", "hostname -I").split()[0]
    with fault(
        "gpu2", f"ip route add blackhole {address}/32", f"ip route del blackhole {address}/32"
    ):
        done = run()
    done.fails()
    assert done.nodes("suspect") == ["gpu1", "gpu2"]
    assert "firewall" in done.output


FULL = "mount -t tmpfs -o size=64k,mode=1777 none /tmp; dd if=/dev/zero of=/tmp/x bs=1k || true"


@pytest.mark.parametrize(
    ("put_in", "take_out"),
    [
        pytest.param("hostname mail7", "hostname gpu2", id="a host has another name"),
        pytest.param("mount -t tmpfs -o ro none /tmp", "umount -l /tmp", id="tmp is read only"),
        pytest.param(FULL, "umount -l /tmp", id="tmp is full"),
    ],
)
def test_one_node_is_at_fault(run, put_in, take_out):
    with fault("gpu2", put_in, take_out):
        run().fails("gpu2")


def test_munge_is_stopped(run):
    with fault("gpu2", "systemctl stop munge", "systemctl start munge; systemctl restart slurmd"):
        done = run()
    on("ctl1", "scontrol update nodename=gpu2 state=resume || true")
    done.fails("gpu2")


def test_answers_of_an_earlier_run_are_replayed(run, tmp_path):
    python = "/opt/plumbline/bin/python"
    record = f"""
        mv {python} {python}.real
        cat > {python} <<'END'
        #!/bin/bash
        payload="${{@: -2:1}}"
        exec {python}.real "$@" > >(tee /var/tmp/plumbline.$payload)
        END
        chmod 755 {python}; chmod 1777 /var/tmp
    """
    replay = f"""
        cat > {python} <<'END'
        #!/bin/bash
        payload="${{@: -2:1}}"
        [ -f /var/tmp/plumbline.$payload ] || exec {python}.real "$@"
        echo "plumbline: started job $SLURM_JOB_ID node $SLURMD_NODENAME time $(date +%s%N)" >&2
        cat > /dev/null
        cat /var/tmp/plumbline.$payload
        END
    """
    try:
        for node in ("gpu1", "gpu2"):
            on(node, textwrap.dedent(record))
        assert start(tmp_path / "recorded").end().code == 0
        for node in ("gpu1", "gpu2"):
            on(node, textwrap.dedent(replay))
        done = run()
    finally:
        for node in ("gpu1", "gpu2"):
            on(node, f"mv {python}.real {python}; rm -f /var/tmp/plumbline.*")
    assert done.code == 1, done.output[-4000:]
    assert done.nodes("passing") == []


# --- Slurm, its users, the login node ------------------------------------------------------------


def test_a_partition_is_drained(run):
    with fault(
        "ctl1",
        "scontrol update partitionname=gpu state=drain",
        "scontrol update partitionname=gpu state=up",
    ):
        done = run()
    assert done.code in (2, 3), done.output[-4000:]
    assert done.nodes("failing") == done.nodes("suspect") == []


def test_a_colleague_has_a_job_on_a_node(run):
    on("login1", "id colleague || useradd -m colleague")
    for node in ("ctl1", "gpu1", "gpu2"):
        on(node, "id colleague || useradd -m colleague")
    on("ctl1", "sacctmgr -i add user colleague account=research || true")  # there it is already
    job = (
        "runuser -u colleague -- sbatch --chdir=/tmp -w gpu2 --exclusive -t 20 --wrap 'sleep 1200'"
    )
    on("login1", job)
    wait_until("the job", lambda: "gpu2" in on("ctl1", "squeue -h -t R -o %N"))
    try:
        done = run()
    finally:
        on("ctl1", "scancel -u colleague")
    assert done.code == 3, done.output[-4000:]
    assert done.nodes("failing") == done.nodes("suspect") == []


def test_slurmctld_is_stopped(run):
    with fault("ctl1", "systemctl stop slurmctld", "systemctl start slurmctld"):
        done = run()
    done.fails()
    assert done.nodes("suspect") == []
    assert "state=drain" not in done.output


def test_slurmdbd_is_stopped(run):
    with fault("ctl1", "systemctl stop slurmdbd", "systemctl start slurmdbd"):
        done = run()
    done.fails()
    assert done.nodes("suspect") == []


def test_the_login_node_goes_away(run, tmp_path):
    started = start(tmp_path / "run")
    there = "squeue -h -o %j | grep -q all_reduce"
    wait_until("the cluster tier", lambda: on("ctl1", there) == "", 120)
    virtual_cluster(CLUSTER, "stop", "login1")
    try:
        done = run.written(started.end())
        # Its jobs end by themselves, at the latest at their time limit.
        wait_until("no job", lambda: on("ctl1", "squeue -h") == "", 420)
    finally:
        assert virtual_cluster(CLUSTER, "start", "login1").returncode == 0
    assert done.code in (1, 2), done.output[-4000:]
    assert done.nodes("failing") == done.nodes("suspect") == []
