"""The validator against the real cluster: a true PASS, and a FAIL that names what is wrong."""

import json
import time

import pytest


def wait_until_idle(node):
    deadline = time.monotonic() + 120
    shown = ""
    while time.monotonic() < deadline:
        shown = node("login1").check_output("sinfo -h -N -o '%N %T'")
        if shown.splitlines() == ["gpu1 idle", "gpu2 idle"]:
            return
        time.sleep(1)
    pytest.fail(f"the nodes did not become idle: {shown}")


def test_the_quick_suite_passes(node, operator, tmp_path):
    wait_until_idle(node)
    run = operator.validate("--suite", "quick", "--output", tmp_path / "run")
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["verdict"] == "pass"
    results = [
        json.loads(line) for line in (tmp_path / "run/results.jsonl").read_text().splitlines()
    ]
    verdicts = {(r["check"], r["verdict"]) for r in results}
    assert {("all_reduce", "pass"), ("ddp", "pass"), ("pipeline", "pass")} <= verdicts
    proof = next(r["proof"] for r in results if r["check"] == "ddp")
    assert sorted({rank["host"] for rank in proof["ranks"]}) == ["gpu1", "gpu2"]
    assert (tmp_path / "run/passing_nodes.txt").read_text().split() == ["gpu1", "gpu2"]


def test_the_jobs_are_accounted(node):
    shown = node("ctl1").check_output("sacct -a -n -P --format=jobid,jobname,state,nnodes")
    rows = [line.split("|") for line in shown.splitlines()]
    done = {name.rpartition("-")[2]: (job, rest) for job, name, *rest in rows}
    ids = [done[payload] for payload in ("all_reduce", "ddp", "pipeline")]
    assert {tuple(rest) for _, rest in ids} == {("COMPLETED", "2")}, shown
    # Steps of one allocation, and that is given back as something that went well.
    (allocation,) = {job.partition(".")[0] for job, _ in ids}
    assert [rest for job, _, *rest in rows if job == allocation] == [["COMPLETED", "2"]], shown


def test_the_gpu_suite_runs_on_cpus_where_gpus_are_virtual(node, operator, tmp_path):
    """Each node to itself, its payloads one after another as steps of one allocation."""
    wait_until_idle(node)
    run = operator.validate("--suite", "gpu", "--output", tmp_path / "run")
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    results = [
        json.loads(line) for line in (tmp_path / "run/results.jsonl").read_text().splitlines()
    ]
    verdicts = {(r["check"], r["subject"]["name"]): r["verdict"] for r in results}
    for check in ("gemm", "hbm", "copies", "peers", "repeatable"):
        assert [verdicts[check, name] for name in ("gpu1", "gpu2")] == ["pass", "pass"]
    for check in ("driver", "cuda", "alike", "links", "same_product", "stragglers"):
        assert verdicts[check, "gpu1"] == "skip"
    assert len({r["proof"]["job_id"] for r in results if r["check"] in ("cpus", "gemm")}) == 1


def test_it_runs_on_a_login_node_with_what_was_deployed(node, operator):
    """A checkout is all that is added: PyYAML and the declaration came with the deployment."""
    login = node("login1")
    copied = operator(
        "bash",
        "-c",
        "git ls-files -z validation | tar -c --null -T - | "
        f"scripts/virtual-cluster ssh --name={operator.cluster} login1 "
        "'mkdir -p here && tar -x -C here'",
    )
    assert copied.returncode == 0, copied.stderr
    run = login.run("cd here && python3 -m validation.run --here --output /tmp/here")
    assert run.rc == 0, run.stdout + run.stderr
    assert "PASS" in run.stdout


@pytest.mark.long
def test_a_node_that_is_off_fails_the_run_and_is_named(node, operator, tmp_path):
    operator.virtual_cluster("stop", "gpu2")
    try:
        run = operator.validate("--suite", "quick", "--output", tmp_path / "run")
        assert run.returncode == 1, run.stdout[-4000:] + run.stderr[-2000:]
        assert "gpu2" in run.stdout
        assert (tmp_path / "run/failing_nodes.txt").read_text().split() == ["gpu2"]
    finally:
        assert operator.virtual_cluster("start", "gpu2").returncode == 0
    wait_until_idle(node)


def test_a_drained_node_fails_the_run_with_its_reason(node, operator, tmp_path):
    with node("ctl1").sudo():
        node("ctl1").check_output("scontrol update nodename=gpu1 state=drain reason='bad fan'")
    try:
        run = operator.validate("--output", tmp_path / "run")
        assert run.returncode == 1
        assert "bad fan" in run.stdout
    finally:
        with node("ctl1").sudo():
            node("ctl1").check_output("scontrol update nodename=gpu1 state=resume")
    wait_until_idle(node)
