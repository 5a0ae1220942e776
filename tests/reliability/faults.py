"""The faults: what each breaks, what must hold while it is broken, and how it is mended.

A fault is a generator: it breaks something, yields while the cluster is broken, and mends it. What
it asserts before it yields is what users and operators must be able to count on meanwhile.
`scripts/test faults NAME` runs one.
"""

from __future__ import annotations

import itertools
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import live_cluster
from tests.patience import until
from tests.reliability.cluster import (
    COMPUTE,
    CONTROLLER,
    LOGIN,
    NODES,
    RUN_SECONDS,
    Cluster,
    kill_all,
)

Steps = Iterator[None]


@dataclass(frozen=True)
class Fault:
    """`alert` has the labels of the alert that tells of it; `requeues` the nodes that lose jobs.

    With `forgets`, a daemon dies with what it last learned: slurmctld with what it has not written
    yet, at most five seconds, and slurmd with the job whose prolog it runs. Such a job is not on
    its node, as with a node that was lost, and begins again.
    """

    name: str
    what: str
    steps: Callable[[Cluster], Steps]
    alert: Mapping[str, str] = field(default_factory=dict)
    requeues: tuple[str, ...] = ()
    forgets: bool = False

    def put_in(self, cluster: Cluster) -> AbstractContextManager[None]:
        """The cluster is broken inside of it, and mended after it."""
        return contextmanager(self.steps)(cluster)


FAULTS: dict[str, Fault] = {}
JOB_SECONDS = 120


def fault(
    what: str,
    *,
    alert: str = "",
    node: str = "",
    requeues: tuple[str, ...] = (),
    forgets: bool = False,
    **labels: str,
) -> Callable[[Callable[[Cluster], Steps]], Callable[[Cluster], Steps]]:
    """Adds a generator to FAULTS, by its name with dashes."""

    def add(steps: Callable[[Cluster], Steps]) -> Callable[[Cluster], Steps]:
        name = steps.__name__.replace("_", "-")
        wanted = {"alertname": alert, "node": node, **labels} if alert else {}
        FAULTS[name] = Fault(name, what, steps, wanted, requeues, forgets)
        return steps

    return add


def jobs_start(cluster: Cluster) -> None:
    """A user's job starts and ends, on a cluster whose nodes may all have jobs."""
    step = "srun --quiet -n1 --mem=10 echo started"
    assert until(lambda: cluster.asks(step, seconds=JOB_SECONDS), 2 * JOB_SECONDS) == "started"


def is_active(cluster: Cluster, node: str, unit: str) -> bool:
    return cluster.tried(node, f"systemctl is-active {unit}").stdout.strip() == "active"


def main_process(cluster: Cluster, node: str, unit: str) -> str:
    return cluster.on(node, f"systemctl show --property=MainPID --value {unit}")


def comes_back_by_itself(cluster: Cluster, node: str, unit: str, end: str) -> None:
    """Ends a daemon's process as a crash does; systemd must start another."""
    before = main_process(cluster, node, unit)
    cluster.on(node, end.format(pid=before))

    def another() -> bool:
        now = main_process(cluster, node, unit)
        return now not in {"0", before} and is_active(cluster, node, unit)

    until(another, 120)


NODES_TELL, *RELEASE = live_cluster.after_a_crash()


def nodes_tell(cluster: Cluster) -> None:
    """Nodes report which jobs they have, and nothing of the crash stays behind."""
    until(lambda: cluster.tried(CONTROLLER, NODES_TELL).returncode == 0, 120)
    release(cluster)


def release(cluster: Cluster) -> None:
    for command in RELEASE:
        cluster.on(CONTROLLER, command)


# In a container a mount does not reach the mount namespace of a service that runs already.
SEES_MOUNTS = "systemctl try-restart prometheus-node-exporter"

# --- Slurm's daemons and what they need ----------------------------------------------------------


@fault("slurmctld is killed under load", forgets=True)
def slurmctld_killed(cluster: Cluster) -> Steps:
    comes_back_by_itself(cluster, CONTROLLER, "slurmctld", "kill -KILL {pid}")
    yield
    nodes_tell(cluster)


@fault("slurmctld has no memory left", forgets=True)
def slurmctld_without_memory(cluster: Cluster) -> Steps:
    """The kernel kills it at the next page that it asks for, in a cgroup that has no more."""
    group = "c=$(ls -d /sys/fs/cgroup/memory 2>&- || echo /sys/fs/cgroup)/without-memory"
    limit = "for f in memory.limit_in_bytes memory.max; do [ ! -e $c/$f ] || echo 64K >$c/$f; done"
    ask = (
        "for i in $(seq 30); do kill -0 {pid} 2>&- || break; timeout 5 squeue >/dev/null 2>&1; done"
    )
    starve = f"{group}; mkdir -p $c; {limit}; echo {{pid}} >$c/cgroup.procs; {ask}; rmdir $c"
    comes_back_by_itself(cluster, CONTROLLER, "slurmctld", starve)
    yield
    nodes_tell(cluster)


@fault("the controller's host is off for half a minute", forgets=True)
def controller_off(cluster: Cluster) -> Steps:
    cluster.power("stop", CONTROLLER)
    time.sleep(10)
    assert not cluster.states()
    yield
    cluster.power("start", CONTROLLER)
    nodes_tell(cluster)


@fault("slurmdbd is gone", alert="SlurmdbdDown", node=CONTROLLER)
def slurmdbd_gone(cluster: Cluster) -> Steps:
    cluster.on(CONTROLLER, "systemctl stop slurmdbd")
    jobs_start(cluster)
    yield
    cluster.on(CONTROLLER, "systemctl start slurmdbd")


@fault("the accounting database is gone", alert="AccountingDatabaseDown", node=CONTROLLER)
def database_gone(cluster: Cluster) -> Steps:
    cluster.on(CONTROLLER, "systemctl stop mariadb")
    jobs_start(cluster)
    yield
    cluster.on(CONTROLLER, "systemctl start mariadb")


@fault(
    "the filesystem of slurmctld's state is full",
    alert="CriticalFilesystemLow",
    node=CONTROLLER,
    mountpoint="/var/lib/slurm/slurmctld",
    forgets=True,
)
def state_disk_full(cluster: Cluster) -> Steps:
    """It fills, slurmctld dies, and the next one must find the queue again."""
    state = "/var/lib/slurm/slurmctld"
    cluster.on(
        CONTROLLER,
        f"systemctl stop slurmctld && cp -a {state} {state}.kept"
        f" && mount -t tmpfs -o size=24m,mode=0700 tmpfs {state}"
        f" && cp -a {state}.kept/. {state}/ && chown --reference={state}.kept {state}"
        f" && systemctl start slurmctld && {SEES_MOUNTS}",
    )
    until(cluster.states, 60)
    before = cluster.asks("squeue -h -r -o %i")
    cluster.tried(CONTROLLER, f"head -c 32M /dev/zero >{state}/fills-it")
    yield
    cluster.on(CONTROLLER, f"rm {state}/fills-it")
    # Time for slurmctld to write what it could not.
    time.sleep(10)
    comes_back_by_itself(cluster, CONTROLLER, "slurmctld", "kill -KILL {pid}")
    nodes_tell(cluster)
    known = set(cluster.asks("sacct -a -n -P -X --array -S now-1day -o jobid").split())
    assert set(before.split()) <= known | set(cluster.asks("squeue -h -r -o %i").split())
    cluster.on(
        CONTROLLER,
        f"systemctl stop slurmctld && rm -rf {state}.kept && cp -a {state} {state}.kept"
        f" && umount {state} && cp -a {state}.kept/. {state}/ && rm -rf {state}.kept"
        f" && systemctl start slurmctld && {SEES_MOUNTS}",
    )


@fault("scontrol reconfigure, ten times under load")
def reconfigured_under_load(cluster: Cluster) -> Steps:
    for _ in range(10):
        nodes_tell(cluster)
    yield


# --- compute nodes -------------------------------------------------------------------------------


def other_key(cluster: Cluster, node: str) -> None:
    cluster.on(
        node,
        "cp -p /etc/munge/munge.key /root/munge.key"
        " && head -c 1024 /dev/urandom >/etc/munge/munge.key"
        " && systemctl restart munge",
    )


@fault("one node has another MUNGE key", alert="SlurmNodeDown", node="gpu3", requeues=("gpu3",))
def munge_key_wrong(cluster: Cluster) -> Steps:
    other_key(cluster, "gpu3")
    until(lambda: "down" in cluster.states().get("gpu3", ""), 180)
    jobs_start(cluster)
    yield
    cluster.on("gpu3", "mv /root/munge.key /etc/munge/munge.key && systemctl restart munge slurmd")


CLOCK = "/run/systemd/system/munge.service.d/clock.conf"
FAKED = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


@fault(
    "the clock of one node steps by ten minutes",
    alert="SlurmNodeDown",
    node="gpu3",
    requeues=("gpu3",),
)
def clock_steps(cluster: Cluster) -> Steps:
    """Of what munged sees there: containers have the clock of their machine."""
    cluster.on(
        "gpu3",
        "apt-get install -y -qq --no-install-recommends libfaketime >/dev/null 2>&1"
        f" && mkdir -p $(dirname {CLOCK})"
        f" && printf '[Service]\\nEnvironment=LD_PRELOAD={FAKED} FAKETIME=+10m\\n' >{CLOCK}"
        " && systemctl daemon-reload && systemctl restart munge",
    )
    until(lambda: "down" in cluster.states().get("gpu3", ""), 180)
    jobs_start(cluster)
    yield
    cluster.on("gpu3", f"rm {CLOCK}; systemctl daemon-reload && systemctl restart munge slurmd")
    cluster.on("gpu3", "apt-get purge -y -qq libfaketime >/dev/null 2>&1")


@fault("a node with jobs loses power", alert="SlurmNodeDown", node="gpu2", requeues=("gpu2",))
def node_lost(cluster: Cluster) -> Steps:
    cluster.power("stop", "gpu2")
    until(lambda: "down" in cluster.states().get("gpu2", ""), 180)
    jobs_start(cluster)
    yield
    cluster.power("start", "gpu2")


@fault("a node with jobs reboots by itself", requeues=("gpu2",))
def node_reboots(cluster: Cluster) -> Steps:
    cluster.power("stop", "gpu2")
    cluster.power("start", "gpu2")
    yield


@fault("slurmd of a node is killed", forgets=True)
def slurmd_killed(cluster: Cluster) -> Steps:
    """Running steps are not its children: they go on."""
    comes_back_by_itself(cluster, "gpu1", "slurmd", "kill -KILL {pid}")
    yield


@fault("the network of a node flaps")
def node_flaps(cluster: Cluster) -> Steps:
    """Three times eight seconds: shorter than SlurmdTimeout, so Slurm must lose nothing."""
    others = [node for node in NODES if node != "gpu1"]
    for _ in range(3):
        with cluster.cut_off("gpu1", *others):
            time.sleep(8)
        time.sleep(4)
    yield


@fault(
    "the network is split: one node is alone for longer than SlurmdTimeout",
    alert="SlurmNodeDown",
    node="gpu1",
    requeues=("gpu1",),
)
def network_split(cluster: Cluster) -> Steps:
    with cluster.cut_off("gpu1", *(node for node in NODES if node != "gpu1")):
        until(lambda: "down" in cluster.states().get("gpu1", ""), 240)
        jobs_start(cluster)
        yield
    # Slurm starts a job again on the node on which its first run has not ended, and drains that.
    until(lambda: "down" not in cluster.states().get("gpu1", "down"), 120)
    time.sleep(10)
    release(cluster)


@fault("the disk of a node is full", alert="SlurmNodeDrained", node="gpu3", requeues=("gpu3",))
def disk_full_on_a_node(cluster: Cluster) -> Steps:
    """/var/tmp, where its health check looks, also before a job: that one begins elsewhere."""
    cluster.on("gpu3", "mount -t tmpfs -o size=8m,mode=1777 tmpfs /var/tmp")
    until(lambda: "dra" in cluster.states().get("gpu3", ""), 120)
    jobs_start(cluster)
    yield
    cluster.on("gpu3", "umount /var/tmp")


DESCRIPTION = "/etc/plumbline-fake-nvml.conf"
LOST = "gpu.1.error.* = GPU_IS_LOST"


@fault("a GPU falls off the bus", alert="SlurmNodeDrained", node="gpu2")
def gpu_lost(cluster: Cluster) -> Steps:
    cluster.on("gpu2", f"echo '{LOST}' >>{DESCRIPTION}")
    until(lambda: "dra" in cluster.states().get("gpu2", ""), 120)
    reason = cluster.on(CONTROLLER, "sinfo -h -N -n gpu2 -o %E | head -n1")
    assert "GPU 1" in reason, reason
    yield
    cluster.on("gpu2", f"sed -i '$d' {DESCRIPTION}")


# --- jobs ----------------------------------------------------------------------------------------

# Two ranks over Gloo. The second is slow for a while: it comes six times as late as a round of the
# watcher lasts, all in all. Then both go on until somebody ends them.
TRAINING = """\
import os, pathlib, sys, time
import torch, torch.distributed as dist
sys.path.append("/usr/local/lib/plumbline/python")
import plumbline_watch
rank = int(os.environ["SLURM_PROCID"])
folder = pathlib.Path(os.environ["PLUMBLINE_WATCH"]).parent
(folder / "pid").write_text(str(os.getpid()))
dist.init_process_group("gloo", rank=rank, world_size=2)
assert plumbline_watch.start()
for step in range(100_000):
    time.sleep(10 if rank == 1 and 3 < step < 7 else 0.2)
    dist.all_reduce(torch.ones(8))
    if step == 7:
        (folder / "slow-no-more").touch()
"""
BATCH = """\
#!/bin/bash -l
module load pytorch
export MASTER_ADDR=$(scontrol show hostnames | head -n 1) MASTER_PORT=29531
exec srun python3 -c {program}
"""
FOLDERS = "/run/plumbline_nccl"
OF_NCCL = "cat /var/lib/prometheus/node-exporter/nccl.prom"


@fault("a rank of a job stands still in a collective", alert="JobHangs", node="gpu1")
def rank_stands_still(cluster: Cluster) -> Steps:
    """A rank that is only slow is none that hangs; one that is stopped is, and it is named."""
    script = BATCH.format(program=shlex.quote(TRAINING))
    options = "--parsable --output=/dev/null -w gpu1,gpu2 -n2 -N2 --mem=700 --time=10"
    job = cluster.asks(f"printf %s {shlex.quote(script)} | sbatch {options}")
    assert job.isdecimal(), job
    until(lambda: f'nccl_job_watched{{hpc_job="{job}"' in cluster.on("gpu1", OF_NCCL), 120)

    ended = f"test -e {FOLDERS}/{job}/slow-no-more"
    hanging = f'nccl_job_hanging{{hpc_job="{job}"}}'
    while cluster.tried("gpu1", ended).returncode:
        assert f"{hanging} 1" not in cluster.on("gpu1", OF_NCCL)
        assert cluster.asks(f"squeue -h -j {job} -o %T") == "RUNNING"
        time.sleep(2)
    assert f"{hanging} 0" in cluster.on("gpu1", OF_NCCL)

    pid = cluster.on("gpu2", f"cat {FOLDERS}/{job}/pid")
    cluster.on("gpu2", f"kill -STOP {pid}")
    yield
    odd = f'nccl_job_odd_rank_info{{hpc_job="{job}",place="gpu2",rank="1"}} 1'
    assert odd in cluster.on("gpu1", OF_NCCL)
    # Nobody who is not the first node says anything of it.
    assert "nccl_job_hanging{" not in cluster.on("gpu2", OF_NCCL)
    log = "journalctl --unit=plumbline-nccl-inspector --output=cat"
    told = cluster.on("gpu1", log)
    assert f"job {job} hangs" in told, told
    assert "rank 1 on gpu2 does not answer" in told, told
    cluster.on("gpu2", f"kill -CONT {pid}")
    until(lambda: f"job {job} goes on" in cluster.on("gpu1", log), 60)
    cluster.asks(f"scancel {job}")
    for node in ("gpu1", "gpu2"):
        until(lambda node=node: not cluster.on(node, f"ls {FOLDERS}"), 60)


# --- what all share ------------------------------------------------------------------------------


@fault("no name server answers on any node")
def dns_gone(cluster: Cluster) -> Steps:
    """Nodes know each other by /etc/hosts. podman mounts the file, so it is written in place."""
    for node in NODES:
        cluster.on(
            node,
            "cp /etc/resolv.conf /root/resolv.conf; echo nameserver 192.0.2.1 >/etc/resolv.conf",
        )
    assert cluster.tried(LOGIN, "timeout 3 getent hosts example.org").returncode
    jobs_start(cluster)
    yield
    for node in NODES:
        cluster.on(node, "cat /root/resolv.conf >/etc/resolv.conf; rm /root/resolv.conf")


@fault(
    "the login node's disk is full",
    alert="CriticalFilesystemLow",
    node=LOGIN,
    mountpoint="/var/tmp",
)
def disk_full_on_the_login_node(cluster: Cluster) -> Steps:
    cluster.on(LOGIN, f"mount -t tmpfs -o size=8m,mode=1777 tmpfs /var/tmp && {SEES_MOUNTS}")
    cluster.tried(LOGIN, "head -c 9M /dev/zero >/var/tmp/fills-it")
    jobs_start(cluster)
    yield
    cluster.on(LOGIN, f"umount /var/tmp && {SEES_MOUNTS}")


# --- monitoring ----------------------------------------------------------------------------------


def listens(cluster: Cluster, node: str, port: int) -> bool:
    return bool(cluster.tried(node, f"ss -ltnH 'sport = :{port}'").stdout.strip())


def largest_gap(cluster: Cluster, seconds: int) -> float:
    """The longest time between two scrapes of gpu1 in the last seconds."""
    (series,) = cluster.prometheus.query(f'up{{node="gpu1",job="node"}}[{seconds}s]')
    times = [float(moment) for moment, _ in series["values"]]
    return max(after - before for before, after in itertools.pairwise(times))


# Alerts that wait at all wait for longer (`for` in roles/prometheus/files): a gap resets none.
SHORTEST_FOR = 60


@fault("Prometheus is killed")
def prometheus_killed(cluster: Cluster) -> Steps:
    comes_back_by_itself(cluster, CONTROLLER, "prometheus", "kill -KILL {pid}")
    until(lambda: listens(cluster, CONTROLLER, 9090), 60)
    yield
    time.sleep(15)
    gap = largest_gap(cluster, 120)
    assert gap < SHORTEST_FOR, f"{gap:.0f} s without a scrape"


@fault("a certificate has expired", alert="TargetDown", node="gpu1", job="node")
def certificate_expired(cluster: Cluster) -> Steps:
    """CertificateExpired tells it days before; then the host cannot be asked. A run renews it."""
    tls = "/etc/plumbline/tls"
    cluster.on(
        "gpu1",
        f"openssl req -x509 -new -key {tls}/host.key"
        f" -subj /CN=gpu1 -addext subjectAltName=DNS:gpu1 -not_before 20200101000000Z"
        f" -not_after 20200201000000Z -out {tls}/host.crt 2>/dev/null"
        " && systemctl try-restart prometheus-node-exporter",
    )
    jobs_start(cluster)
    yield
    done = cluster.playbook("monitoring.yml", "--limit=gpu1")
    assert done.code == 0, done.output[-3000:]
    cluster.on("gpu1", f"openssl x509 -noout -checkend 86400 -in {tls}/host.crt")


# --- operators -----------------------------------------------------------------------------------

DAEMONS = {
    CONTROLLER: ("slurmctld", "slurmdbd", "mariadb", "munge", "prometheus"),
    LOGIN: ("munge",),
    **dict.fromkeys(COMPUTE, ("slurmd", "munge")),
}


def started(cluster: Cluster) -> dict[str, str]:
    """By node, when its daemons were started."""
    show = "systemctl show --property=Id,ActiveEnterTimestampMonotonic"
    return {node: cluster.on(node, f"{show} {' '.join(units)}") for node, units in DAEMONS.items()}


@fault("the playbook runs again while jobs run")
def run_again(cluster: Cluster) -> Steps:
    before = started(cluster)
    done = cluster.playbook("slurm-cluster.yml")
    assert done.code == 0, done.output[-3000:]
    assert set(done.changed.values()) == {"0"}, done.changed
    assert started(cluster) == before
    yield


@fault("a wrong value in the inventory")
def bad_inventory(cluster: Cluster) -> Steps:
    """Refused before any node is touched: no file is newer than the run."""
    for node in NODES:
        cluster.on(node, "touch /run/before")
    done = cluster.playbook("slurm-cluster.yml", "-e", "slurm_slurmd_timeout=never")
    assert done.code != 0
    assert "slurm_slurmd_timeout" in done.output, done.output[-2000:]
    for node in NODES:
        newer = cluster.on(
            node,
            "find /etc /usr/local -newer /run/before -type f",
        )
        assert newer == "", f"{node}: {newer}"
    yield


def holds(cluster: Cluster) -> bool:
    return (cluster.inventory / ".plumbline-hold").exists() and bool(
        (cluster.inventory / ".plumbline-hold").read_text().strip()
    )


@fault("two operators run the playbook at once")
def two_operators(cluster: Cluster) -> Steps:
    log = Path(tempfile.mkdtemp()) / "first.log"
    with cluster.playbook_beside(log, "slurm-cluster.yml") as first:
        until(lambda: holds(cluster), RUN_SECONDS)
        second = cluster.playbook("slurm-cluster.yml")
        assert second.code != 0
        assert re.search(r"This inventory is held by \S+ on \S+ since", second.output), (
            second.output[-2000:]
        )
        assert first.wait(timeout=RUN_SECONDS) == 0, log.read_text()[-3000:]
    yield


PATIENCE = ("-e", "slurm_slurmd_timeout=31")


@fault("the control node dies in the middle of a run")
def control_node_dies(cluster: Cluster) -> Steps:
    """While it changes slurm.conf: the next run completes it, and one more takes it back."""
    log = Path(tempfile.mkdtemp()) / "killed.log"
    with cluster.playbook_beside(log, "slurm.yml", *PATIENCE) as run:
        until(
            lambda: (
                re.search(r"\[slurm : (Restart|Reload|Service)", log.read_text())
                or run.poll() is not None
            ),
            RUN_SECONDS,
        )
        assert run.poll() is None, f"it ended before its moment: {log.read_text()[-3000:]}"
        kill_all(run)
    jobs_start(cluster)
    yield
    for arguments, seconds in ((PATIENCE, 31), ((), 30)):
        done = cluster.playbook("slurm.yml", *arguments)
        assert done.code == 0, done.output[-3000:]
        shown = cluster.on(CONTROLLER, "scontrol show config | grep '^SlurmdTimeout'")
        assert f"= {seconds} sec" in shown, shown


@fault("dpkg is locked on one node, and a package is missing there")
def dpkg_locked(cluster: Cluster) -> Steps:
    """For half a minute, as by unattended-upgrades; the run waits and goes on."""
    hold = (
        "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w');"
        " fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(30)"
    )
    cluster.on(LOGIN, "apt-get purge -y -qq jq >/dev/null 2>&1")
    cluster.on(LOGIN, f"systemd-run --quiet --unit=locks-dpkg python3 -c {shlex.quote(hold)}")
    done = cluster.playbook("nodes.yml", "--limit", LOGIN)
    assert done.code == 0, done.output[-3000:]
    cluster.on(LOGIN, "command -v jq")
    yield


@fault("a download is not what was declared")
def download_wrong(cluster: Cluster) -> Steps:
    """The file that is there stays; nothing else is written."""
    cluster.on(
        LOGIN,
        "mkdir -p /root/served /root/kept"
        " && echo good >/root/kept/tool && echo bad >/root/served/tool"
        " && systemd-run --quiet --unit=serves"
        " python3 -m http.server 8999 --bind 127.0.0.1 -d /root/served",
    )
    wanted = f"url=http://127.0.0.1:8999/tool dest=/root/kept/tool sha256={'0' * 64}"
    done = cluster.ad_hoc(LOGIN, "release_file", wanted)
    assert done.code != 0
    assert "SHA-256" in done.output, done.output[-1000:]
    assert cluster.on(LOGIN, "cat /root/kept/tool; ls -A /root/kept") == "good\ntool"
    yield
    cluster.on(LOGIN, "systemctl stop serves; rm -r /root/served /root/kept")
