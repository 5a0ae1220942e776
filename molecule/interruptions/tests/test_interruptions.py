"""A first deployment that is killed at ten moments, on one cluster, then run to its end.

A moment is a place in the playbook's output, and for some of them a phase of dpkg on a node. The
playbook is killed with everything it started on this machine; what it started on a node goes on,
as it would, unless the moment says that it is killed there too or that the node loses power.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import processes
from tests.live_cluster import REPOSITORY, changed, under_test, virtual_cluster
from tests.patience import until

SCRATCH = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
CLUSTER = under_test()
PLAYBOOK = [
    "ansible-playbook",
    # The first is the one beside which the secrets and the hold of this cluster lie.
    f"--inventory={SCRATCH}/inventory",
    f"--inventory={REPOSITORY}/inventory/demo/groups.yml",
    "playbooks/slurm-cluster.yml",
]
ENVIRONMENT = os.environ | {
    "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
    "ANSIBLE_FORCE_COLOR": "false",
    "ANSIBLE_NOCOLOR": "true",
    # The name of a task appears when it begins, not with its first result.
    "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
    "PYTHONUNBUFFERED": "1",
}
RUN_SECONDS = 1200


@dataclass(frozen=True)
class Moment:
    """When to kill: these patterns were seen in this order, then dpkg is in `phase` on `node`."""

    name: str
    patterns: Sequence[str]
    node: str = ""
    phase: str = ""  # an argument of dpkg
    there: str = "goes on"  # what becomes of dpkg on the node: goes on, is killed, loses power


CONTROLLERS = r"PLAY \[Set up the controllers"
COMPUTE = r"PLAY \[Set up the compute"
# Slurm's files are there; its daemon is yet to be restarted, or started if it did not run.
CONFIGURED = r"(RUNNING HANDLER|TASK) \[slurm : (Restart|Reload|Service \|)"
MOMENTS = [
    Moment("packages of the base", [r"TASK \[node_base :"], "gpu1", "--unpack"),
    Moment("munge, dpkg dies", [r"TASK \[munge :"], "gpu2", "--configure", "is killed"),
    Moment("munge has another key", [r"RUNNING HANDLER \[munge :"]),
    Moment("the payloads' packages", [r"\[validation_runtime :"], "gpu1", "--unpack"),
    Moment("the database, dpkg dies", [r"\[slurm_database :"], "ctl1", "--unpack", "is killed"),
    Moment("the database has settings", [r"RUNNING HANDLER \[slurm_database :"]),
    Moment("the controller's packages", [CONTROLLERS, r"\[slurm :"], "ctl1", "--configure"),
    Moment("the controller's settings", [CONTROLLERS, CONFIGURED]),
    Moment("a node loses power", [COMPUTE, r"\[slurm :"], "gpu2", "--unpack", "loses power"),
    Moment("a node has settings", [COMPUTE, CONFIGURED]),
]


# --- processes -----------------------------------------------------------------------------------


def namespace(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


@dataclass(frozen=True)
class Node:
    """A node of the cluster, from the machine that it is a container of."""

    name: str

    @property
    def inside(self) -> str:
        """What the node's processes have in common."""
        shown = subprocess.run(
            ["podman", "inspect", "--format", "{{.State.Pid}}", f"plumbline-{CLUSTER}-{self.name}"],
            capture_output=True,
            text=True,
            check=True,
        )
        return namespace(shown.stdout.strip())

    def running(self, matches: Callable[[list[str]], bool], inside: str) -> set[int]:
        """Processes on the node by their arguments."""
        pids = set()
        for pid in processes.everything():
            try:
                arguments = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
            except OSError:
                continue
            if matches(arguments) and namespace(pid) == inside:
                pids.add(pid)
        return pids

    def run(self, command: str) -> str:
        done = virtual_cluster(CLUSTER, "ssh", self.name, f"sudo sh -c '{command}'")
        assert done.returncode == 0, f"{self.name}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout


def is_program(arguments: list[str], *names: str) -> bool:
    return Path(arguments[0]).name in names


def wait_for_dpkg(moment: Moment, run: subprocess.Popen[str]) -> bool:
    """Whether dpkg came into that phase before the playbook ended."""
    node = Node(moment.node)
    inside = node.inside
    while run.poll() is None:
        if node.running(lambda a: is_program(a, "dpkg") and moment.phase in a, inside):
            return True
        time.sleep(0.05)
    return False


# --- killing -------------------------------------------------------------------------------------


def came(moment: Moment, run: subprocess.Popen[str], log: Path) -> bool:
    """Follow a run until its moment comes; false when it ended first."""
    assert run.stdout is not None
    missing = list(moment.patterns)
    with log.open("w", encoding="utf-8") as copy:
        for line in run.stdout:
            copy.write(line)
            copy.flush()
            if missing and re.search(missing[0], line):
                del missing[0]
            if not missing:
                return not moment.phase or wait_for_dpkg(moment, run)
    return False


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name)
def test_a_run_is_killed(moment: Moment) -> None:
    log = SCRATCH / f"{MOMENTS.index(moment)}.log"
    run = subprocess.Popen(
        PLAYBOOK,
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        if not came(moment, run, log):
            tail = log.read_text(encoding="utf-8")[-4000:]
            pytest.fail(f"the run ended before its moment, with {run.wait()}; {log}:\n{tail}")
    finally:
        processes.kill(processes.descendants(run.pid))
        if run.stdout:
            run.stdout.close()
        run.wait()
    node = Node(moment.node)
    if moment.there == "is killed":
        processes.kill(node.running(lambda a: is_program(a, "apt-get", "dpkg"), node.inside))
        processes.kill(node.running(lambda a: is_program(a, "python3", "sudo"), node.inside))
    if moment.there == "loses power":
        assert virtual_cluster(CLUSTER, "stop", moment.node).returncode == 0
        assert virtual_cluster(CLUSTER, "start", moment.node).returncode == 0


# --- what must come of it ------------------------------------------------------------------------


def converge() -> str:
    done = processes.run(*PLAYBOOK, cwd=REPOSITORY, env=ENVIRONMENT, timeout=RUN_SECONDS)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_the_next_run_reaches_the_end() -> None:
    assert "All 4 hosts are done" in converge()


NODES = ("ctl1", "login1", "gpu1", "gpu2")
# What a daemon reads when it starts, on the nodes where it runs.
DAEMONS = [
    *((name, "munge", "/etc/munge/munge.key") for name in NODES),
    ("ctl1", "mariadb", "/etc/mysql/mariadb.conf.d/*"),
    ("ctl1", "slurmdbd", "/etc/slurm/slurmdbd.conf"),
]


@pytest.mark.parametrize(("name", "daemon", "files"), DAEMONS)
def test_no_daemon_was_started_before_its_files(name: str, daemon: str, files: str) -> None:
    """Asked of the clock, not of what the roles remember."""
    node = Node(name)
    shown = node.run(f"systemctl show --property=ActiveEnterTimestamp --value {daemon}")
    started = int(node.run(f'date +%s --date="{shown.strip()}"'))
    newest = max(int(line) for line in node.run(f"stat --format=%Y {files}").split())
    assert newest <= started


def test_no_daemon_runs_with_other_files_than_are_recorded() -> None:
    """Of every daemon that has a record: what it was started with is what is there now."""
    records = 0
    for name in NODES:
        node = Node(name)
        lines = node.run("cat /run/plumbline/*.started").splitlines()
        for _, digest, path in (line.split(" ", 2) for line in lines):
            if path.startswith("/"):
                records += 1
                now = node.run(f"sha256sum <{path} || echo missing").split()[0]
                assert now == digest, f"{name}: {path}"
    assert records >= 6


def test_no_package_is_left_half_installed() -> None:
    for name in NODES:
        shown = Node(name).run(
            'dpkg-query --show --showformat="\\${db:Status-Abbrev} \\${Package}\\n"'
        )
        assert [line for line in shown.splitlines() if re.match(r".[UFH]|..R", line)] == []


def test_a_credential_of_one_node_is_good_on_every_other() -> None:
    credential = Node("login1").run("munge --no-input").strip()
    for name in NODES:
        assert "Success" in Node(name).run(f"echo {credential} | unmunge")


def test_slurm_runs_what_is_in_its_file_and_takes_jobs() -> None:
    assert re.search(r"HASH_VAL\s+= Match", Node("ctl1").run("scontrol show config"))
    until(lambda: Node("login1").run("sinfo -h -N -o %T").split() == ["idle", "idle"], 120)
    job = "srun -N2 --ntasks-per-node=1 --gres=gpu:1 hostname"  # which root may not submit
    hosts = Node("login1").run(f"cd /tmp && runuser -u ada -- {job}")
    assert sorted(hosts.split()) == ["gpu1", "gpu2"]
    assert "gpu" in Node("ctl1").run(
        "sacctmgr -n -P show event || true; sacct -a -X -n -o partition"
    )


def test_a_further_run_changes_nothing() -> None:
    by_host = changed(converge())
    assert set(by_host) >= set(NODES)
    assert set(by_host.values()) == {"0"}
