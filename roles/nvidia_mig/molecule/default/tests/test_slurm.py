"""Jobs on instances: real Slurm, whose gres.conf is made from the declaration alone."""

import time

import pytest

from tests.mig_live import JOB, SHOW, opened

# Slurm is deployed for them, which takes minutes.
pytestmark = pytest.mark.long

HALVES = {"3g.20gb": 2}


def test_the_node_gives_out_what_is_declared(host, slurm):
    assert len(slurm(HALVES)) == 4
    assert host.check_output("sinfo -h -o '%T %G'") == "idle gpu:3g.20gb:4"


def test_a_job_gets_its_own_instance_and_no_other(host, slurm):
    names = slurm(HALVES)
    assert opened(host, "--gres=gpu:3g.20gb:1", names) == {
        "gpu0-3g.20gb-0.gi",
        "gpu0-3g.20gb-0.ci",
        "nvidia0",
    }
    shown = host.check_output(f"{JOB} --gres=gpu:3g.20gb:1 {SHOW}")
    assert shown == names["gpu0-3g.20gb-0"]
    assert opened(host, "", names) == set()
    assert host.check_output(f"{JOB} {SHOW}") == ""


def test_two_jobs_have_two_instances(host, slurm):
    names = slurm(HALVES)
    first = host.check_output(
        "sbatch --parsable --gres=gpu:3g.20gb:1 --output=/tmp/first.out --wrap "
        '\'echo $CUDA_VISIBLE_DEVICES; srun sh -c "echo \\$CUDA_VISIBLE_DEVICES"; '
        "srun --gres=none true && echo fine; sleep 20'"
    )
    deadline = time.monotonic() + 20
    while "fine" not in host.run("cat /tmp/first.out").stdout and time.monotonic() < deadline:
        time.sleep(0.5)
    own = names["gpu0-3g.20gb-0"]
    assert host.check_output("cat /tmp/first.out").splitlines() == [own, own, "fine"]
    assert opened(host, "--gres=gpu:3g.20gb:1", names) == {
        "gpu0-3g.20gb-1.gi",
        "gpu0-3g.20gb-1.ci",
        "nvidia0",
    }
    assert host.check_output(f"{JOB} --gres=gpu:3g.20gb:1 {SHOW}") == names["gpu0-3g.20gb-1"]
    host.check_output(f"scancel {first}")


def test_all_instances_of_a_node_are_shown_in_the_order_of_their_names(host, slurm):
    names = slurm(HALVES)
    shown = host.check_output(f"{JOB} --gres=gpu:3g.20gb:4 {SHOW}")
    assert shown == ",".join(names[name] for name in sorted(names))


def test_each_task_is_shown_the_instance_it_is_bound_to(host, slurm):
    names = slurm(HALVES)
    # Slurm 22.05 binds no second task to an instance of a named type ("Not enough gpus to bind").
    old = host.check_output("sinfo --version").startswith("slurm-wlm 22.")
    each = "1" if old else "3g.20gb:1"
    shown = host.check_output(f"{JOB} --ntasks=2 --gpus-per-task={each} {SHOW}")
    assert sorted(shown.splitlines()) == sorted(
        names[f"gpu0-3g.20gb-{number}"] for number in (0, 1)
    )
