"""The newest Slurm that Debian has: deployed, asked, and proven by the validation."""

import re

from tests.web_listener import until


def test_it_is_the_newest_slurm(node):
    said = node("login1").check_output("sinfo --version")
    assert tuple(map(int, re.findall(r"\d+", said)[:2])) >= (26, 5), said


def test_jobs_run_on_all_nodes_and_are_accounted(node):
    login = node("login1")
    hosts = login.check_output("srun -N2 --ntasks-per-node=1 --gres=gpu:1 --job-name=new hostname")
    assert sorted(hosts.splitlines()) == ["gpu1", "gpu2"]
    asked = "sacct -n -X -P --name=new -o state"
    until(lambda: login.check_output(asked) == "COMPLETED", 30)


def test_the_quick_suite_passes(operator):
    run = operator.validate("--suite", "quick")
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "PASS" in run.stdout


def test_a_second_run_changes_nothing(operator):
    own = ("-i", "molecule/unstable/inventory/hosts.yml")
    run = operator.playbook("slurm-cluster.yml", *own, timeout=1800)
    assert run.returncode == 0, run.stdout[-3000:]
    changed = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", run.stdout, re.MULTILINE)
    assert {name for name, _ in changed} >= {"ctl1", "login1", "gpu1", "gpu2"}
    assert {number for _, number in changed} == {"0"}
