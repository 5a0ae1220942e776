#!/usr/bin/env python3
"""Runs on the login node: asks the port of each node's slurmd whether anybody listens there.

    look.py PATIENCE NODE...    one line of JSON: "refused" and "mute", ADDRESS:PORT by node, and
                                "boots", when each node and its slurmd were started

Slurm shows a node whose slurmd has just stopped as idle until SlurmdTimeout, five minutes as a
rule, and lets every job wait that is to start there. The node's kernel knows at once.

Standard library only, Python 3.10 or newer, one file: it is read from stdin. srun goes the same
way, so no other port has to be open. A node is `refused` where the port was closed at every try for
all of PATIENCE seconds: a slurmd that is restarted is back by then. It is `mute` where nothing came
back at all, which a firewall does too. Whatever else goes wrong says nothing of a node.
"""

import json
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 64
CONNECT_S = 3.0  # a lost packet is sent again after one second
PAUSE_S = 1.0  # between two tries of a port that is closed
# Names are cut at the width that is given.
COMMAND = ("sinfo", "--all", "-h", "-N", "-O", "NodeList:256,NodeAddr:256,Port:16")
COMMAND_TIMEOUT = 30
# Who goes on with a run that was interrupted must know that the nodes are as they were.
SHOW = ("scontrol", "--oneliner", "show", "node")
STARTED = ("BootTime", "SlurmdStartTime")

Place = tuple[str, int]


def places() -> dict[str, Place]:
    """Where Slurm itself reaches the slurmd of each node."""
    done = subprocess.run(
        COMMAND, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=True
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[0]: (row[1], int(row[2])) for row in rows if len(row) == 3 and row[2].isdigit()}


def boots() -> dict[str, str]:
    """When each node and its slurmd were started, as far as Slurm knows."""
    try:
        done = subprocess.run(
            SHOW, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}  # it only serves to go on with a run; without it that one repeats all
    found = {}
    for line in done.stdout.splitlines():
        fields = dict(re.findall(r"(?:^|\s)(NodeName|BootTime|SlurmdStartTime)=(\S+)", line))
        if "NodeName" in fields and all(fields.get(name, "None") != "None" for name in STARTED):
            found[fields["NodeName"]] = ", ".join(f"{name}={fields[name]}" for name in STARTED)
    return found


def look(place: Place, patience_s: float) -> str:
    """What the port says: answers, refused, mute or unknown."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection(place, CONNECT_S).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                return "refused"
            time.sleep(min(PAUSE_S, patience_s))
        except TimeoutError:
            return "mute"
        except socket.gaierror:
            return "unknown"
        except OSError:  # no route to host: nobody has this address, or a router says no
            return "mute"
        else:
            return "answers"


def shown(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def main(arguments: list[str]) -> int:
    patience_s, names = float(arguments[0]), arguments[1:]
    known = places()
    targets = {name: known[name] for name in names if name in known}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        kinds = pool.map(lambda place: look(place, patience_s), targets.values())
        answers = dict(zip(targets, kinds, strict=True))
    document = {
        kind: {name: shown(targets[name]) for name, answer in answers.items() if answer == kind}
        for kind in ("refused", "mute")
    }
    found = boots()
    document["boots"] = {name: found[name] for name in names if name in found}
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
