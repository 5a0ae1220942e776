#!/usr/bin/python
"""Tries a SPANK plugin in a Slurm of its own, before the cluster's Slurm gets to load it.

A plugin that cannot be loaded is skipped by Slurm where its line says `optional`; one that crashes
takes slurmd, slurmstepd and every srun with it, whatever its line says. So it is loaded here first,
as `required`: by srun, and with `job` by slurmd and slurmstepd too, which run one job on the
loopback address, with files, ports and state of their own. No job of the cluster waits for it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.refused import Refused

DOCUMENTATION = r"""
module: pyxis_trial
short_description: Try a SPANK plugin in a Slurm of its own
description:
  - Fails with one sentence that has Slurm's words; changes nothing, in check mode neither.
options:
  library:
    description: The plugin.
    type: path
    required: true
  options:
    description: Its options, as plugstack.conf has them.
    type: list
    elements: str
    default: []
  shows:
    description: An option that C(srun --help) must have then.
    type: str
    required: true
  job:
    description: Run a job through it as well, which needs slurmctld and slurmd.
    type: bool
    default: false
  programs:
    description: Folders in which slurmctld, slurmd and slurmstepd are looked for, the first first.
    type: list
    elements: path
    default: [/usr/sbin, /usr/local/sbin]
  timeout:
    description: Seconds that the job may take.
    type: int
    default: 30
author: The Plumbline authors
"""

# A node of its own on the loopback address: nothing of it is the cluster's, nor a cgroup.
CONF = """\
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={slurmctld_port}
SlurmdPort={slurmd_port}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
NodeName=trial NodeHostname={host} NodeAddr=127.0.0.1 CPUs=1
PartitionName=trial Nodes=trial Default=YES MaxTime=5
"""
# No plugin of the trial wants a cgroup. An older Slurm has no word for that; its cgroup/v1 makes
# none until it is asked for one, whatever kind the host has.
CGROUP_CONF = "CgroupPlugin={plugin}\n"


def plugstack(library: str, options: Sequence[str], runtime: str) -> str:
    """The plugin as `required`, so that nothing of it is skipped in silence.

    Its runtime folder is the trial's own; pyxis takes the last of two values.
    """
    return " ".join(["required", library, *options, f"runtime_path={runtime}"]) + "\n"


def words(*texts: str) -> str:
    """What Slurm said of a failure: its errors, each once, without times and numbers of daemons."""
    errors: dict[str, None] = {}
    for line in "\n".join(texts).splitlines():
        match = re.search(r"\b(?:error|fatal): (.+)", line)
        # MPI plugins whose libraries are not installed are no reason.
        if match and not re.search("pmix|mpi", match[1], re.IGNORECASE):
            errors[match[1].strip().rstrip(".")] = None
    return " / ".join(list(errors)[:4])


def ended(status: int) -> str:
    """How a process ended, from the value that subprocess gives."""
    if status < 0:
        return f"was killed by signal {-status} ({signal.Signals(-status).name})"
    return f"ended with status {status}"


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def program(name: str, folders: Sequence[str], here: Path) -> str:
    """A daemon under its own name, by which it knows what it is; Debian's has a longer one."""
    for folder in folders:
        for spelt in (name, f"{name}-wlm"):
            path = Path(folder) / spelt
            if path.exists():
                (here / name).symlink_to(path)
                return str(here / name)
    raise Refused(
        f"pyxis cannot be tried with a job: there is no {name} in {', '.join(folders)}; "
        "name the package that has it in pyxis_slurm_packages"
    )


def run(argv: Sequence[str], conf: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """A command of Slurm's, with the trial's configuration and nothing of a job around it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    environment = {**clean, "SLURM_CONF": str(conf), "LC_ALL": "C"}
    try:
        return subprocess.run(
            argv,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
    except FileNotFoundError as error:
        raise Refused(f"pyxis cannot be tried: there is no {argv[0]} on this host") from error
    except subprocess.TimeoutExpired as error:
        stderr = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else ""
        return subprocess.CompletedProcess(argv, 124, "", stderr)


def no_cgroups(conf: Path) -> str:
    """What CgroupPlugin must be for slurmd to leave cgroups alone."""
    match = re.search(r"(\d+)\.(\d+)", run(["srun", "--version"], conf, 10).stdout)
    version = tuple(map(int, match.groups())) if match else (0, 0)
    return "disabled" if version >= (23, 11) else "cgroup/v1"


def loads(conf: Path, library: str, shows: str) -> None:
    """srun loads it and has its option. Raises Refused."""
    done = run(["srun", "--help"], conf, 30)
    if done.returncode or f"--{shows}" not in done.stdout:
        why = words(done.stderr) or (
            f"it does not offer --{shows}"
            if not done.returncode
            else f"srun {ended(done.returncode)}"
        )
        raise Refused(f"Slurm cannot use {library}: {why}")


class Daemon:
    """A daemon of the trial, with what it says in a file."""

    def __init__(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.name = Path(argv[0]).name
        self.log = folder / f"{self.name}.out"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                argv,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=dict(environment),
                start_new_session=True,
                cwd="/",
            )

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)


def runs_a_job(
    conf: Path, folder: Path, library: str, programs: Sequence[str], timeout: int
) -> None:
    """slurmd and slurmstepd load it, and a job ends well. Raises Refused."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "SLURM_CONF": str(conf)}
    controller = [program("slurmctld", programs, folder), "-D", "-f", str(conf)]
    node = [program("slurmd", programs, folder), "-D", "-f", str(conf), "-N", "trial"]
    node += ["-d", program("slurmstepd", programs, folder)]
    daemons: list[Daemon] = []
    try:
        daemons += [Daemon(controller, folder, environment), Daemon(node, folder, environment)]
        until = time.monotonic() + timeout
        while True:
            dead = next((each for each in daemons if each.process.poll() is not None), None)
            if dead is not None:
                how = ended(dead.process.returncode)
                raise Refused(
                    f"Slurm cannot use {library}: in the trial {dead.name} {how}: "
                    f"{words(dead.log_text()) or 'it said nothing'}"
                )
            idle = run(["sinfo", "--noheader", "--format=%T"], conf, 10)
            if idle.stdout.strip() in ("idle", "mixed", "allocated"):
                break
            if time.monotonic() > until:
                errors = words(idle.stderr, *(each.log_text() for each in daemons))
                raise Refused(
                    "pyxis cannot be tried: slurmd does not register with the slurmctld of the "
                    f"trial: {errors or 'no error is told'}"
                )
            time.sleep(0.2)
        done = run(["srun", "--ntasks=1", "--chdir=/", "true"], conf, timeout)
        if done.returncode:
            errors = words(done.stderr, daemons[1].log_text())
            how = (
                f"did not end within {timeout} s"
                if done.returncode == 124
                else ended(done.returncode)
            )
            raise Refused(
                f"Slurm cannot use {library}: a job with it {how}: {errors or 'no error is told'}"
            )
    finally:
        for each in reversed(daemons):
            each.stop()


def tried(
    library: str,
    options: Sequence[str],
    shows: str,
    job: bool,
    programs: Sequence[str],
    timeout: int,
) -> None:
    """Raises Refused with one sentence, when the plugin must not be left in place."""
    folder = Path(tempfile.mkdtemp(prefix="plumbline-pyxis-trial-"))
    try:
        ports = free_ports(2)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        conf = folder / "slurm.conf"
        conf.write_text(
            CONF.format(
                folder=folder,
                host=socket.gethostname().split(".")[0],
                slurmctld_port=ports[0],
                slurmd_port=ports[1],
            )
        )
        (folder / "plugstack.conf").write_text(plugstack(library, options, f"{folder}/runtime"))
        loads(conf, library, shows)
        if job:
            (folder / "cgroup.conf").write_text(CGROUP_CONF.format(plugin=no_cgroups(conf)))
            runs_a_job(conf, folder, library, programs, timeout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "library": {"type": "path", "required": True},
            "options": {"type": "list", "elements": "str", "default": []},
            "shows": {"type": "str", "required": True},
            "job": {"type": "bool", "default": False},
            "programs": {
                "type": "list",
                "elements": "path",
                "default": ["/usr/sbin", "/usr/local/sbin"],
            },
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    names = ("library", "options", "shows", "job", "programs", "timeout")
    try:
        tried(**{name: module.params[name] for name in names})
    except Refused as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
