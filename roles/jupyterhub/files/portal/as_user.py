"""What the portal does as one of its users: submit, ask and cancel with Slurm's own commands.

The hub has no rights of its own in Slurm. It starts this program with sudo as the user, writes one
JSON document to its standard input and reads one from its standard output. No part of a document
reaches a shell.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roles.jupyterhub.files.portal import account

SECONDS = 20
# Room that a notebook needs in the home to start: settings, history and its runtime files.
LEAST_ROOM = 20 * 1024 * 1024
REMOVE = "Remove files that you no longer need, then start again."
PATH = "/usr/local/bin:/usr/bin:/bin"

NODES = (
    "Partition:128 ,NodeList:128 ,StateLong:24 ,Gres:512 ,GresUsed:512 ,"
    "CPUsState:48 ,Memory:24 ,Time:32 "
)
JOB = "State:32;,Reason:256;,BatchHost:128;,StartTime:32;"


def run(argv: Sequence[str], home: str, **more: Any) -> dict[str, Any]:
    """The exit status and the output of one of Slurm's commands."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=SECONDS, cwd=home, check=False, **more
        )
    except subprocess.TimeoutExpired:
        return {"code": 124, "out": "", "err": f"{argv[0]} did not answer within {SECONDS} s"}
    except OSError as problem:
        return {"code": 127, "out": "", "err": f"{argv[0]}: {problem.strerror}"}
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def environment(user: account.Account) -> dict[str, str]:
    """What a job of this user starts with, as after a login."""
    return {
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": user.shell,
        "PATH": PATH,
        "LANG": "C.UTF-8",
    }


def submit(user: account.Account, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Submits `script` with the options `arguments` and the variables `environment`."""
    if problem := home_problem(user.home):
        return {"code": 1, "out": "", "err": problem}
    argv = ["sbatch", "--parsable", "--export=ALL", *map(str, asked["arguments"])]
    known = environment(user) | {str(k): str(v) for k, v in asked["environment"].items()}
    return run(argv, user.home, input=asked["script"], env=known)


def query(user: account.Account, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What Slurm says of a job: of slurmctld, or of accounting once that has forgotten it."""
    job = str(int(asked["job"]))
    live = run(
        ["squeue", "--noheader", "--states=all", f"--jobs={job}", f"--Format={JOB}"], user.home
    )
    if live["code"] == 0 and live["out"].strip():
        return live
    if live["code"] and "Invalid job id" not in live["err"]:
        return live  # slurmctld does not answer: nothing is known
    form = "--format=State,NodeList,Start"
    past = run(["sacct", "-nPX", f"--jobs={job}", form], user.home)
    fields = past["out"].strip().split("|")
    if len(fields) != 3:
        return {"code": 0, "out": "NOT_FOUND;;;;", "err": ""}
    return {"code": 0, "out": f"{fields[0]};;{fields[1]};{fields[2]};", "err": ""}


def cancel(user: account.Account, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Cancels a job; one that has ended already is none to cancel."""
    return run(["scancel", "--quiet", str(int(asked["job"]))], user.home)


def look(user: account.Account, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the form shows: nodes as they are now, what the user may use, and the user's home."""
    home = user.home if Path(user.home).is_dir() else "/"
    return {
        "nodes": run(["sinfo", "--noheader", "--Node", f"--Format={NODES}"], home),
        "associations": run(
            [
                "sacctmgr",
                "-nP",
                "show",
                "associations",
                f"user={user.name}",
                "format=account,partition,qos,defaultqos,maxtres,maxwall",
            ],
            home,
        ),
        "account": run(
            ["sacctmgr", "-nP", "show", "user", user.name, "format=defaultaccount"], home
        ),
        "qos": run(
            ["sacctmgr", "-nP", "show", "qos", "format=name,maxwall,maxtres,maxtresperuser"], home
        ),
        "home": home_problem(user.home),
    }


def home_problem(home: str) -> str:
    """Why a notebook could not start with this home; empty if it could."""
    if not Path(home).is_dir():
        return f"Your home {home} does not exist on this host. Ask your operator."
    # What quota and disk still allow is seen by writing alone: statvfs knows nothing of quotas.
    probe = Path(home, f".plumbline-portal-{os.getpid()}")
    try:
        try:
            with probe.open("xb") as file:
                file.write(b"\0" * 65536)
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
    except OSError as problem:
        return f"Nothing can be written to your home {home} ({problem.strerror}). {REMOVE}"
    if (room := _room(home)) is not None and room < LEAST_ROOM:
        return (
            f"Your home {home} has {room // 1024} KiB left, and a notebook needs "
            f"{LEAST_ROOM // 1024 // 1024} MiB. {REMOVE}"
        )
    return ""


def _room(home: str) -> int | None:
    try:
        disk = os.statvfs(home)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


ACTIONS: dict[str, Callable[[account.Account, Mapping[str, Any]], dict[str, Any]]] = {
    "submit": submit,
    "query": query,
    "cancel": cancel,
    "look": look,
}


def main(rule: account.Rule) -> int:
    """Reads the request, does it as whom sudo made this process, and writes the answer."""
    user = account.of_uid(os.getuid())
    if problem := rule.problem(user):
        print(json.dumps({"code": 1, "out": "", "err": problem}))
        return 1
    os.umask(0o077)
    asked = json.load(sys.stdin)
    print(json.dumps(ACTIONS[asked["action"]](user, asked)))
    return 0
