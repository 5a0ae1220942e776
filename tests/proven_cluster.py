"""What every whole cluster must show, whatever its nodes and its Slurm: molecule/*/tests ask it."""

from __future__ import annotations

import re
from typing import Any

from tests.live_cluster import changed
from tests.patience import until

NODES = ("ctl1", "login1", "gpu1", "gpu2")


def jobs_run_and_are_accounted(login: Any) -> None:
    hosts = login.check_output("srun -N2 --ntasks-per-node=1 --gres=gpu:1 --job-name=new hostname")
    assert sorted(hosts.splitlines()) == ["gpu1", "gpu2"]
    query = "sacct -n -X -P --name=new -o state"
    until(lambda: set(login.check_output(query).split()) == {"COMPLETED"}, 30)


def the_quick_suite_passes(operator: Any) -> None:
    run = operator.validate("--suite", "quick")
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "PASS" in run.stdout


def tasks_that_changed(output: str) -> str:
    """Of what ansible-playbook said, each task that changed a host, with its hosts."""
    tasks = re.split(r"^(?=TASK |RUNNING HANDLER |PLAY )", output, flags=re.MULTILINE)
    return "\n".join(
        f"{task.splitlines()[0].rstrip(' *')}: {', '.join(hosts)}"
        for task in tasks
        if (hosts := re.findall(r"^changed: \[([^]]+)\]", task, re.MULTILINE))
    )


def a_second_run_changes_nothing(operator: Any, inventory: str) -> str:
    """What the playbook said, with the scenario's inventory last."""
    run = operator.playbook("slurm-cluster.yml", "-i", inventory, timeout=1800)
    assert run.returncode == 0, run.stdout[-3000:]
    by_host = changed(run.stdout)
    assert by_host.keys() >= {*NODES}
    assert set(by_host.values()) == {"0"}, tasks_that_changed(run.stdout)
    output: str = run.stdout
    return output
