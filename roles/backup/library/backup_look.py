#!/usr/bin/python
"""What a restore would replace on a host: its queue and its accounting. Reads only.

What cannot be asked counts as in use: a queue whose slurmctld is down is still somebody's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: backup_look
short_description: Tell what a restore would replace on this host
description:
  - Looks for a queue of slurmctld with jobs and for a database with records.
  - Works on a bare host, which has neither.
options:
  state:
    description: Folder of slurmctld's state; empty where it is not looked for.
    type: str
    default: ""
  database:
    description: Name of the accounting database in this host's MariaDB; empty where there is none.
    type: str
    default: ""
  cluster:
    description: Name of the cluster, of whose jobs the database has records.
    type: str
    required: true
  databases:
    description: Folder in which MariaDB has a folder for each database.
    type: path
    default: /var/lib/mysql
author: The Plumbline authors
"""

RETURN = r"""
in_use:
  description: A sentence without its end for each thing that is in use.
  type: list
  elements: str
  returned: always
release:
  description: Release of the installed Slurm, such as 24.11; empty without one.
  type: str
  returned: always
"""

# Runs a command; its exit status and standard output.
Run = Callable[[list[str]], tuple[int, str]]


def release(run: Run) -> str:
    for program in ("slurmctld", "slurmdbd"):
        status, shown = run([program, "-V"])
        if status == 0 and (found := re.search(r"\b(\d\d\.\d\d)\b", shown)):
            return found[1]
    return ""


def queue(folder: Path, run: Run) -> str:
    """ "" where there are no jobs."""
    if not (folder / "job_state").exists():
        return ""
    status, shown = run(["timeout", "20", "squeue", "--noheader", "--states=all", "--format=%A"])
    if status != 0:
        return f"{folder} has the queue of a slurmctld that does not answer"
    jobs = len(shown.split())
    return f"{folder} has a queue with {jobs} jobs" if jobs else ""


def records(name: str, cluster: str, folder: Path, run: Run) -> str:
    """ "" where there are none."""
    try:
        if not (folder / name).exists():
            return ""
    except PermissionError:
        return f"{folder} cannot be read"
    client = ["mariadb", "--batch", "--skip-column-names", "--execute"]
    status, shown = run([*client, f"SHOW TABLES FROM `{name}` LIKE '{cluster}_job_table'"])
    if status != 0:
        return f"the database {name} is there, and MariaDB does not answer"
    if not shown.split():
        return ""
    status, shown = run([*client, f"SELECT COUNT(*) FROM `{name}`.`{cluster}_job_table`"])
    if status != 0:
        return f"the jobs in the database {name} cannot be counted"
    return "" if shown.strip() == "0" else f"the database {name} has {shown.strip()} jobs"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "default": ""},
            "database": {"type": "str", "default": ""},
            "cluster": {"type": "str", "required": True},
            "databases": {"type": "path", "default": "/var/lib/mysql"},
        },
        supports_check_mode=True,
    )
    given = module.params

    def run(command: list[str]) -> tuple[int, str]:
        status, shown, _ = module.run_command(command, handle_exceptions=False)
        return status, shown

    def safely(command: list[str]) -> tuple[int, str]:
        try:
            return run(command)
        except OSError:  # there is no such program
            return 127, ""

    found = [
        queue(Path(given["state"]), safely) if given["state"] else "",
        records(given["database"], given["cluster"], Path(given["databases"]), safely)
        if given["database"]
        else "",
    ]
    module.exit_json(
        changed=False, in_use=[sentence for sentence in found if sentence], release=release(safely)
    )


if __name__ == "__main__":
    main()
