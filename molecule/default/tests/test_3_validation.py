"""The validator against the real cluster: a true PASS, and a FAIL that names what is wrong."""

import pytest

from tests.patience import until

NODES = ["gpu1", "gpu2", "gpu3"]


def wait_until_idle(node):
    ask, idle = "sinfo -h -N -o '%N %T'", [f"{name} idle" for name in NODES]
    until(lambda: node("login1").check_output(ask).splitlines() == idle, 120)


def test_the_quick_suite_passes(node, request):
    wait_until_idle(node)
    proven = request.getfixturevalue("proven")
    assert proven.code == 0, proven.output
    assert proven.summary["verdict"] == "pass"
    for check in ("all_reduce", "ddp", "pipeline"):
        assert proven.hosts(check) == NODES
    assert proven.nodes("passing") == NODES


def test_the_jobs_are_accounted(node, proven):
    assert proven.code == 0, proven.output
    shown = node("ctl1").check_output("sacct -a -n -P --format=jobid,jobname,state,nnodes")
    rows = [line.split("|") for line in shown.splitlines()]
    done = {name.rpartition("-")[2]: (job, rest) for job, name, *rest in rows}
    ids = [done[payload] for payload in ("all_reduce", "ddp", "pipeline")]
    assert {tuple(rest) for _, rest in ids} == {("COMPLETED", "3")}, shown
    # Steps of one allocation, and that is given back as something that went well.
    (allocation,) = {job.partition(".")[0] for job, _ in ids}
    assert [rest for job, _, *rest in rows if job == allocation] == [["COMPLETED", "3"]], shown


@pytest.mark.long  # by default test_7 runs its checks, with a stand-in for NVML
def test_the_gpu_suite_runs_on_cpus_where_gpus_are_virtual(node, operator, tmp_path):
    """Each node to itself, its payloads one after another as steps of one allocation.

    No stand-in for NVML is there yet: what it answers is left out, for every node.
    """
    wait_until_idle(node)
    done = operator.prove(tmp_path / "run", "--suite", "gpu")
    assert done.code == 0, done.output
    passed, skipped = done.verdicts("pass").keys(), done.verdicts("skip").keys()
    for name in NODES:
        for check in ("gpus", "gemm", "hbm", "copies", "peers", "repeatable"):
            assert (check, name) in passed
        for check in ("driver", "cuda", "alike", "links", "same_product", "stragglers"):
            assert (check, name) in skipped
    assert len({r["proof"]["job_id"] for r in done.results if r["check"] in ("cpus", "gemm")}) == 1


def test_it_runs_on_a_login_node_with_what_was_deployed(node, operator):
    """A checkout is all that is added: PyYAML and the declaration came with the deployment."""
    login = node("login1")
    copied = operator(
        "bash",
        "-c",
        "git ls-files -z cluster validation | tar -c --null -T - | "
        f"scripts/virtual-cluster ssh --name={operator.cluster} login1 "
        "'mkdir -p here && tar -x -C here'",
    )
    assert copied.returncode == 0, copied.stderr
    only = "--suite quick --only slurm_state,munge,all_reduce"
    run = login.run(f"cd here && python3 -m validation.run --here {only} --output /tmp/here")
    assert run.rc == 0, run.stdout + run.stderr
    assert "all_reduce" in run.stdout
    assert "PASS" in run.stdout


@pytest.mark.long
def test_a_node_that_is_off_fails_the_run_and_is_named(node, operator, tmp_path):
    operator.virtual_cluster("stop", "gpu2")
    try:
        done = operator.prove(tmp_path / "run", "--suite", "quick")
        assert done.code == 1, done.output
        assert "gpu2" in done.output
        assert done.nodes("failing") == ["gpu2"]
    finally:
        assert operator.virtual_cluster("start", "gpu2").returncode == 0
    wait_until_idle(node)


def test_a_drained_node_fails_the_run_with_its_reason(node, operator, tmp_path):
    """No more is asked than that: a node that leaves later tiers is test_7's."""
    with node("ctl1").sudo():
        node("ctl1").check_output("scontrol update nodename=gpu1 state=drain reason='bad fan'")
    try:
        done = operator.prove(tmp_path / "run", "--only", "slurm_state,munge")
        assert done.code == 1, done.output
        assert "bad fan" in done.output
        assert done.nodes("failing") == ["gpu1"]
    finally:
        with node("ctl1").sudo():
            node("ctl1").check_output("scontrol update nodename=gpu1 state=resume")
    wait_until_idle(node)
