"""A Slurm of a few small programs, so that the real launcher and client can be tried.

    simulated_slurm.py PROGRAM STATE ARGUMENT…

PROGRAM is one of Slurm's or MUNGE's. STATE is a folder: `nodes.json` says what sinfo prints,
`faults.json` what goes wrong, `running/` has a file for each srun, `allocations/` one for each
that was granted. `install` writes the programs; the rest runs in a process of its own, standard
library only.

`slurmd` among the faults: by node, "stopped" or "hung". Slurm takes such a node for idle, gives it
to jobs, waits for its prolog, and puts a star behind its state after `star_s` seconds (4), counted
from the first job that wanted it. Nobody listens on the port of one that is stopped.

`pyxis` among the faults: srun has its options; `without_pyxis`: nodes that lack it all the same.

Faults, by the job's name, such as "node-gpu1" or "ddp":
    hang         starts, never answers, ends when it is cancelled
    deaf         as hang, and scancel does not end it
    queue        never starts; squeue says "Resources"
    stuck        never starts; squeue says "ReqNodeNotAvail"
    silent       ends well without an answer
    cut          ends well in the middle of its answer
    twice        answers twice, as two separate runs do
    crash        answers, then ends with status 1
    noise        prints other lines too, and answers rightly
    refused      srun itself ends with an error: the partition is wrong
    gres         the same: no node has such a GRES
    limit        refused as long as another job is there: a limit of the user
    never        refused by a limit of the user, whatever else runs
    wait         waits as long as another such job runs: squeue says "QOSMaxJobsPerUserLimit"
    environment  notes which variables of Slurm's it sees, and answers rightly
    late         its lines come 3 s late through srun
An allocation, such as "steps-node-gpu1", can be refused, limited, queue or stuck, or
    revoked      granted, and taken back as soon as a step of it started
A step can also be
    stepless     never starts as a step; does as a job of its own
or an object: {"answer": {…}} changes the answer's fields, {"arguments": {…}} how it is made,
{"real": true} runs the command that srun was given, {"stderr": "…"} makes it end with that and 1.
"""

import contextlib
import functools
import importlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

# Started by itself with -I, it is of the checkout that it lies in, be it a copy with a fault.
if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from validation.tests import standin

PROGRAMS = (
    *("sinfo", "salloc", "srun", "squeue", "scancel", "scontrol", "sacctmgr"),
    *("munge", "unmunge"),
)


CLOSED = 1  # a port of this machine on which nobody listens
LISTENERS: list[socket.socket] = []


def install(folder, nodes, faults=None):
    """Programs in folder/bin, for PATH. nodes: name → (state, CPUs, MB, GRES, reason)."""
    programs, state = folder / "bin", folder / "state"
    programs.mkdir()
    (state / "running").mkdir(parents=True)
    (state / "allocations").mkdir()
    for name in PROGRAMS:
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -I {__file__} {name} {state} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (state / "nodes.json").write_text(json.dumps(nodes))
    (state / "faults.json").write_text(json.dumps(faults or {}))
    (state / "port").write_text(str(listen()))
    return programs


@functools.cache
def listen():
    """The port of every slurmd that is well. It lives as long as the process of the tests."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    LISTENERS.append(listener)
    return listener.getsockname()[1]


def running(folder):
    """Names of the jobs whose srun is still there, and of allocations that are still held."""
    state = folder / "state"
    held = []
    for path in (state / "allocations").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
            held.append(allocated(state, path.name)["name"])
    return sorted([*(path.name for path in (state / "running").iterdir()), *held])


# --- in a process of its own -----------------------------------------------------------------


def faults_of(state):
    return json.loads((state / "faults.json").read_text())


def nodes_of(state):
    return json.loads((state / "nodes.json").read_text())


def complain(words):
    print(words, file=sys.stderr)
    return 1


def sinfo(state, arguments):
    faults = faults_of(state)
    if "sinfo" in faults:
        return complain(faults["sinfo"])
    if arguments == ["--version"]:
        print("slurm-wlm 24.11.5")
        return 0
    if arguments[:4] == ["--all", "-h", "-N", "-O"]:
        for name in nodes_of(state):
            stopped = faults.get("slurmd", {}).get(name) == "stopped"
            print(name, "127.0.0.1", CLOSED if stopped else (state / "port").read_text())
        return 0
    if arguments[:4] == ["--all", "-h", "-N", "-n"]:
        (state / "asked_of_nodes").touch()
        nodes = nodes_of(state)
        for name in arguments[4].split(","):
            print(f"{name}|{node_state(state, name, nodes[name][0])}")
        return 0
    assert arguments == ["--all", "-h", "-N", "-o", "%N|%n|%T|%c|%m|%G|%P|%E"], arguments
    assert not [name for name in os.environ if name.startswith("SINFO_")]
    for name, fields in nodes_of(state).items():
        shown_state, cpus, memory, gres, reason = fields
        shown_state = node_state(state, name, shown_state)
        for partition in ("gpu*", "all"):  # a node stands in the output once for each partition
            print(f"{name}|{name}|{shown_state}|{cpus}|{memory}|{gres}|{partition}|{reason}")
    return 0


def node_state(state, name, word):
    """What Slurm says of a node: it notices late that one does not answer."""
    star_s = faults_of(state).get("star_s", 4)
    wanted = state / f"wanted.{name}"
    if wanted.exists() and time.time() - wanted.stat().st_mtime > star_s:
        return f"{word}*"
    return word


def unready(state, hosts, fault):
    """The fault of a job one of whose nodes has no slurmd that answers."""
    dead = faults_of(state).get("slurmd", {})
    for host in hosts:
        if host in dead:
            with contextlib.suppress(FileExistsError):
                (state / f"wanted.{host}").touch(exist_ok=False)
            return "unready"
    return fault


def srun(state, arguments):
    if arguments == ["--help"]:
        print("Usage: srun [OPTIONS(0)... [executable(0) [args(0)...]]]")
        if faults_of(state).get("pyxis"):
            print("      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH")
        return 0
    options = dict(a[2:].partition("=")[::2] for a in arguments if a.startswith("--"))
    command = arguments[len(options) :]
    *_, payload, config = command
    config = json.loads(config)
    hosts = expand(options["nodelist"])
    name, job, fault = job_and_fault(state, options)
    fault = unready(state, hosts, fault)
    if fault == "environment":
        (state / "environment").write_text(json.dumps(sorted(os.environ)))
    if refused(state, "srun", fault) or without_gres(state, "srun", hosts, options):
        return 1
    allocation = options.get("jobid")
    number = allocation or new_number(state)
    if allocation and not (state / "allocations" / allocation).exists():
        return complain(f"srun: error: Unable to create step for job {allocation}: {ENDED}")
    (state / f"argv.{job}").write_text(json.dumps(arguments))
    mark = state / "running" / name
    known = f"{allocation}.{new_number(state)}" if allocation else number
    whole = state / f"mark.{os.getpid()}"
    whole.write_text(json.dumps({"pid": os.getpid(), "id": known, "fault": fault}))
    whole.rename(mark)
    slot = None
    try:
        if fault == "stepless" and allocation:
            time.sleep(600)
        if allocation and allocated(state, allocation)["revoked"]:
            (state / "allocations" / allocation).unlink()
            for host in hosts:
                say("started", number, host)
            print("srun: error: Job step aborted: allocation revoked", file=sys.stderr)
            return 143
        if fault == "wait":
            slot = wait_for_the_others(state, mark)
        return task(fault, number, hosts, payload, config, options, command, state)
    except Cancelled:
        print(f"srun: error: {hosts[0]}: task 0: Terminated", file=sys.stderr)
        return 143
    finally:
        mark.unlink(missing_ok=True)
        if slot:
            slot.rmdir()


def salloc(state, arguments):
    options = dict(a[2:].partition("=")[::2] for a in arguments if a.startswith("--"))
    name, _, fault = job_and_fault(state, options)
    fault = unready(state, expand(options["nodelist"]), fault)
    hosts = expand(options["nodelist"])
    if refused(state, "salloc", fault) or without_gres(state, "salloc", hosts, options):
        return 1
    number = new_number(state)
    mark = state / "running" / name
    mark.write_text(json.dumps({"pid": os.getpid(), "id": number, "fault": fault}))
    try:
        if fault in ("queue", "stuck", "unready"):
            time.sleep(600)
    except Cancelled:
        return 1
    finally:
        mark.unlink(missing_ok=True)
    allocation = {"pid": os.getpid(), "name": name, "revoked": fault == "revoked"}
    whole = state / f"allocation.{number}"  # others read the folder at any time
    whole.write_text(json.dumps(allocation))
    whole.rename(state / "allocations" / number)
    with open(state / "allocated", "a") as file:
        file.write(json.dumps(arguments) + "\n")
    print(f"salloc: Granted job allocation {number}", file=sys.stderr)
    command = arguments[len(options) :]
    with contextlib.suppress(Cancelled):
        subprocess.run(command, env={**os.environ, "SLURM_JOB_ID": number}, check=False)
    (state / "allocations" / number).unlink(missing_ok=True)
    return 0


def allocated(state, number):
    return json.loads((state / "allocations" / number).read_text())


def job_and_fault(state, options):
    """Slurm's name of the job, ours, and its fault."""
    name = options["job-name"]
    job = name.split("-", 3)[-1]
    return name, job, faults_of(state).get(job)


def refused(state, program, fault):
    present = [*(state / "running").iterdir(), *(state / "allocations").iterdir()]
    limited = fault == "never" or (fault == "limit" and present)
    if fault in ("refused", "gres") or limited:
        why = INVALID_GRES if fault == "gres" else "Invalid partition name specified"
        why = LIMIT if limited else why
        return complain(f"{program}: error: Unable to allocate resources: {why}")
    return 0


def has(entries, kind, count):
    """Whether one of "gpu:h100:8" and so on is of the kind, and as many at least."""
    split = (entry.rpartition(":") for entry in entries)
    return any(of == kind and int(number) >= int(count) for of, _, number in split if of)


def without_gres(state, program, hosts, options):
    """As slurmctld refuses a type that no node has, and one that these nodes have not."""
    had = {
        name: {item.split("(")[0] for item in fields[3].split(",")}
        for name, fields in nodes_of(state).items()
    }
    for item in filter(None, options.get("gres", "").removeprefix("none").split(",")):
        kind, _, count = item.rpartition(":")
        if not any(entry.startswith(f"{kind}:") for each in had.values() for entry in each):
            why = INVALID_GRES
        elif not all(has(had[host], kind, count) for host in hosts if host in had):
            why = "Requested node configuration is not available"
        else:
            continue
        return complain(f"{program}: error: Unable to allocate resources: {why}")
    return 0


def new_number(state):
    while True:
        number = str(100 + len(list(state.glob("job.*"))))
        try:
            (state / f"job.{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return number


def wait_for_the_others(state, mark):
    """One job at once may run."""
    slot = state / "slot"
    while True:
        try:
            slot.mkdir()
            break
        except FileExistsError:
            time.sleep(0.1)
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "fault": None}))
    return slot


def task(fault, number, hosts, payload, config, options, command, state):
    if fault in ("queue", "stuck", "unready"):
        time.sleep(600)
    # How far the nodes' clocks are ahead of the login node's.
    skew = faults_of(state).get("clocks_s", 0)
    if isinstance(fault, dict) and fault.get("real"):
        return real_task(number, hosts, command)
    late = skew - 3 if fault == "late" else skew
    for host in hosts:
        say("started", number, host, late)
    if fault in ("hang", "deaf"):
        time.sleep(600)
    if fault == "wait":
        time.sleep(2)
    archive = sys.stdin.buffer.read()
    assert archive.startswith(b"PK"), "no zip archive on stdin"
    for host in hosts:
        say("received", number, host, skew)
    change = fault if isinstance(fault, dict) else {}
    document = answer(payload, hosts, config, options, change.get("arguments", {}))
    document = where_it_ran(document, options, state)
    if payload == "node":
        document["measured"]["time_ns"] += int(late * 1e9)
    for part, fields in change.get("answer", {}).items():
        document[part].update(fields)
    text = with_own_gpus(standin.line(document), hosts)
    if fault == "noise":
        print("NCCL version 2.21.5\n{'a': 1}")
    if fault == "cut":
        text = text[: len(text) // 2]
    if fault != "silent":
        sys.stdout.write(text * (2 if fault == "twice" else 1))
        sys.stdout.flush()
    if fault == "crash" or "stderr" in change:
        message = f"plumbline: {payload}, rank 1 on {hosts[-1]}: out of luck"
        print(change.get("stderr", message), file=sys.stderr)
        return complain(f"srun: error: {hosts[-1]}: task 1: Exited with exit code 1")
    return 0


def with_own_gpus(text, hosts):
    """The GPUs of a stand-in are gpu1's, and no two nodes have the same."""
    return text.replace("GPU-gpu1-", f"GPU-{hosts[0]}-") if len(hosts) == 1 else text


def answer(payload, hosts, config, options, arguments):
    if payload == "node":
        return standin.node(hosts[0], config, **arguments)
    if payload == "cuda":
        return standin.cuda(hosts[0], config, **arguments)
    if payload == "look":
        return standin.look(hosts[0], config, **arguments)
    if payload in ("health", "compute"):
        return of_gpus(payload, hosts[0], config, **arguments)
    if payload == "isolation":
        standin_isolation = importlib.import_module("validation.tests.standin_isolation")
        return standin.of_node(payload, hosts[0], standin_isolation.measured(config), config)
    ranks_per_node = int(options["ntasks-per-node"])
    return getattr(standin, payload)(hosts, config, ranks_per_node, **arguments)


def where_it_ran(document, options, state):
    """The answer out of a container, except from nodes that start tasks on the host."""
    if "container-image" not in options:
        return document
    faults = faults_of(state)
    return standin.contained(document, without=faults.get("without_pyxis", []))


def of_gpus(payload, host, config, model="h100_sxm", **arguments):
    """What a node says of its GPUs. The figures are an H100's; `model` decides their name."""
    # Not imported above: it needs more than the standard library, and time.
    if payload == "health":
        standin_health = importlib.import_module("validation.tests.standin_health")
        return standin.of_node(payload, host, standin_health.measured(2), config)
    standin_compute = importlib.import_module("validation.tests.standin_compute")
    job = standin_compute.job(model, config["gpus"], **config)
    measured = standin_compute.document(job, **arguments)["measured"]
    return standin.of_node(payload, host, measured, config)


def real_task(number, hosts, command):
    environment = {
        **os.environ,
        "SLURM_JOB_ID": number,
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "1",
        "SLURM_STEP_NODELIST": hosts[0],
        "SLURMD_NODENAME": hosts[0],
    }
    return subprocess.run(command, env=environment, check=False).returncode


INVALID_GRES = "Invalid generic resource (gres) specification"
ENDED = "Job/step already completing or completed"
LIMIT = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


def say(what, number, host, skew_s=0.0):
    line = f"plumbline: {what} job {number} node {host} time {time.time_ns() + int(skew_s * 1e9)}"
    print(line, file=sys.stderr, flush=True)


# How scontrol writes what sinfo has as one word.
WORDS = {"idle": "IDLE", "drained": "IDLE+DRAIN", "maint": "IDLE+MAINTENANCE", "down*": "DOWN*"}


def changed(state, arguments):
    """What an operator tells Slurm, and what becomes of the nodes."""
    with (state / "told").open("a") as told:
        told.write(json.dumps(arguments) + "\n")
    verb, *_ = arguments
    given = dict(word.partition("=")[::2] for word in arguments if "=" in word)
    nodes = nodes_of(state)
    kept = state / "reserved"
    reserved = kept.read_text().split() if kept.exists() else []
    if verb == "create":
        kept.write_text(" ".join(expand(given["Nodes"])))
    elif verb == "delete":
        kept.unlink()
        for name in reserved:
            nodes[name][0] = "idle" if nodes[name][0] == "maint" else nodes[name][0]
    elif given["State"] == "DRAIN":
        nodes[given["NodeName"]][0] = "drained"
        nodes[given["NodeName"]][-1] = given["Reason"]
    else:
        assert given["State"] == "RESUME"
        nodes[given["NodeName"]][0] = "maint" if given["NodeName"] in reserved else "idle"
        nodes[given["NodeName"]][-1] = "none"
    (state / "nodes.new").write_text(json.dumps(nodes))
    (state / "nodes.new").rename(state / "nodes.json")
    return 0


def scontrol(state, arguments):
    faults = faults_of(state)
    if arguments[0] in ("update", "create", "delete"):
        return complain(faults["scontrol"]) if "scontrol" in faults else changed(state, arguments)
    if arguments[-1] == "--json":
        return complain("scontrol: unrecognized option '--json'")
    if arguments == ["show", "config"]:
        print(f"PreemptType = {faults.get('preempt', 'preempt/qos')}")
        kind = faults.get("accounting_kind", "accounting_storage/slurmdbd")
        print(f"Configuration data\nAccountingStorageType   = {kind}\nAuthType = auth/munge")
        print("ClusterName = hpc1\nSLURM_VERSION = 24.11.5\nSlurmctldHost[0] = ctl1(192.0.2.1)")
        return 0
    if arguments == ["--oneliner", "show", "node"]:
        for name in nodes_of(state):
            boot = faults.get("boots", {}).get(name, "2026-01-02T03:04:05")
            print(f"NodeName={name} Arch=x86_64 BootTime={boot} SlurmdStartTime={boot} Extra=x y=z")
        return 0
    nodes = nodes_of(state)
    assert arguments[:3] == ["-a", "-o", "show"]
    if arguments[3] == "partitions":
        names = ",".join(nodes)
        print(f"PartitionName=all AllowGroups=ALL Default=NO Hidden=NO Nodes={names} State=UP")
        print(f"PartitionName=gpu AllowGroups=ALL Default=YES Hidden=NO Nodes={names} State=UP")
        return 0
    for name in expand(arguments[4]) if arguments[3] == "node" else nodes:
        word, cpus, memory, gres, reason = nodes[name]
        signed = "" if reason == "none" else f" Reason={reason} [root@2026-11-26T08:00:00]"
        shown = f"State={WORDS.get(word, word)} ThreadsPerCore=1 Partitions=gpu,all{signed}"
        print(f"NodeName={name} CPUTot={cpus} Gres={gres} RealMemory={memory} {shown}")
    return 0


def sacctmgr(state, arguments):
    faults = faults_of(state)
    if "accounting" in faults:
        return complain(faults["accounting"])
    if "qos" in arguments:
        print("normal|scavenger\nscavenger|")
        return 0
    print("plumbline")
    return 0


def squeue(state, arguments):
    reasons = {
        "queue": ("PENDING", "Resources"),
        "stuck": ("PENDING", "ReqNodeNotAvail"),
        "unready": ("RUNNING", "Prolog"),
        "wait": ("PENDING", "QOSMaxJobsPerUserLimit"),
    }
    marks = {path.name: json.loads(path.read_text()) for path in (state / "running").iterdir()}
    of = next((a.removeprefix("--jobs=") for a in arguments if a.startswith("--jobs=")), None)
    if of and "--steps" not in arguments:
        if not (state / "allocations" / of).exists():
            return complain("slurm_load_jobs error: Invalid job id specified")
        print("RUNNING")
        return 0
    if of:
        for name, step in marks.items():
            if step["id"].startswith(f"{of}."):
                print(f"{step['id']}|{name}")
        return 0
    if "--states=PENDING" in arguments:
        print("\n".join(f"{900 + job}" for job in range(faults_of(state).get("pending", 0))))
        return 0
    assert f"--user={os.getuid()}" in arguments
    for name, job in marks.items():
        if "." in job["id"]:
            continue
        known = job["fault"] if isinstance(job["fault"], str) else ""
        status, reason = reasons.get(known, ("RUNNING", "None"))
        print(f"{job['id']}|{status}|{reason}|{name}")
    return 0


def scancel(state, arguments):
    wanted = arguments[0].removeprefix("--name=")
    with open(state / "cancelled", "a") as file:
        file.write(wanted + "\n")
    for path in (state / "allocations").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if (allocation := json.loads(path.read_text()))["name"] == wanted:
                os.kill(allocation["pid"], signal.SIGTERM)
    for path in (state / "running").iterdir():
        # One that ends meanwhile must not keep those after it alive.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            job = json.loads(path.read_text())
            if wanted not in (path.name, job["id"]):
                continue
            if job["fault"] == "deaf":
                path.unlink()
            else:
                os.kill(job["pid"], signal.SIGTERM)
    return 0


def munge(state, arguments):
    assert arguments == ["-n"]
    faults = faults_of(state)
    if "munge" in faults:
        return complain(faults["munge"])
    print("MUNGE:login:")
    return 0


def unmunge(state, arguments):
    credential = sys.stdin.read().strip()
    good = credential.startswith("MUNGE:") and "other-key" not in credential
    print(f"STATUS:          {'Success (0)' if good else 'Invalid credential (5)'}")
    return 0 if good else 5


def expand(nodelist):
    """gpu[1-3,5] and gpu1,gpu2; enough for these tests."""
    if "[" not in nodelist:
        return nodelist.split(",")
    prefix, _, rest = nodelist.partition("[")
    names = []
    for part in rest.rstrip("]").split(","):
        low, _, high = part.partition("-")
        names += [f"{prefix}{number}" for number in range(int(low), int(high or low) + 1)]
    return names


class Cancelled(BaseException):
    pass


def cancelled(*_):
    raise Cancelled


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, cancelled)
    _, program, folder, *rest = sys.argv
    sys.exit(globals()[program](Path(folder), rest))
