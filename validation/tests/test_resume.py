"""A run that was interrupted goes on: what was judged is not asked again, and one report is made of
both parts. Where the cluster is not the same any more, it says so and asks nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import UsageError
from validation import run, tiers
from validation.execution import journal
from validation.execution.folder import RunFolder
from validation.execution.journal import Earlier, NotTheSame
from validation.model import JobReport, Outcome, Reply, Verdict
from validation.tests import simulated_slurm, standin
from validation.tests.conftest import make_plan
from validation.tests.fake_slurm import FakeSlurm, Silent
from validation.tests.processes import wait_for
from validation.tests.simulated_cluster import FILES

ROOT = Path(run.__file__).parent.parent
BOOTS = {"gpu1": "BootTime=1, SlurmdStartTime=1", "gpu2": "BootTime=1, SlurmdStartTime=1"}


def submitted(cluster):
    """Jobs whose srun was started, each as often as it was."""
    return sorted(path.name for path in (cluster.path / "state").glob("argv.*"))


def faults(cluster, **changes):
    (cluster.path / "state" / "faults.json").write_text(json.dumps(changes))


def interrupted(cluster, number, job, answers):
    """A run that is ended by a signal while this job runs, after the answers of so many others."""
    process = subprocess.Popen(
        [sys.executable, "-m", "validation.run", *cluster.arguments()],
        cwd=cluster.path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    known = cluster.output / "jobs.jsonl"
    wait_for((cluster.path / "state" / f"argv.{job}").exists, seconds=60)
    wait_for(lambda: len(known.read_text().splitlines()) == answers, seconds=60)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    for path in (cluster.path / "state").glob("argv.*"):
        path.unlink()
    return process.returncode, out, err


def resumed(cluster, *more):
    status = run.main(["--resume", str(cluster.output), *more])
    return status, *cluster.capsys.readouterr()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL]
)
def test_what_was_judged_is_not_repeated(cluster, monkeypatch, number):
    cluster.install(ddp="hang")
    status, out, _ = interrupted(cluster, number, "ddp", 3)
    if number == signal.SIGINT:
        assert status == 1
        assert f"go on: python -m validation.run --resume {cluster.output}\n" in out
    else:
        assert not (cluster.output / "summary.json").exists()
    faults(cluster)
    monkeypatch.chdir(cluster.path)
    status, out, err = resumed(cluster)
    assert status == 0, err
    # The look at each node shows that it is the same; all_reduce was judged.
    assert submitted(cluster) == ["argv.ddp", "argv.node-gpu1", "argv.node-gpu2", "argv.pipeline"]
    assert "PASS  24 pass, 2 skip · exit 0" in out
    assert "note: part 2 of a run that was interrupted" in out
    assert {path.name for path in cluster.output.iterdir()} == FILES
    assert len(cluster.lines("results.jsonl")) == 26
    summary = cluster.summary()
    assert (summary["interrupted"], summary["resume"]) == (False, "")
    names = [job["name"] for job in summary["jobs"]]
    assert sorted(names) == ["all_reduce", "ddp", "node-gpu1", "node-gpu2", "pipeline"]
    # Nothing of either part is left, on nodes or on the login node.
    assert simulated_slurm.running(cluster.path) == []
    assert not list(Path("/tmp").glob(f"plumbline-{summary['run']}*"))
    # And it is over.
    status, _, err = resumed(cluster)
    assert (status, "nothing of it is left to do" in err) == (2, True)


@pytest.fixture
def broken_off(cluster, monkeypatch):
    """A run that was killed, as it lies there. One for all tests would be shared by processes."""
    cluster.install(all_reduce="hang")
    interrupted(cluster, signal.SIGKILL, "all_reduce", 2)
    monkeypatch.chdir(cluster.path)
    return cluster


def test_it_is_refused_where_something_changed(broken_off, tmp_path):
    """Each in one sentence, with nothing asked of the cluster and nothing lost of the run."""
    cluster = broken_off
    before = (cluster.output / "jobs.jsonl").read_bytes()

    def refusal(*more):
        status, out, err = resumed(cluster, *more)
        assert (status, out) == (2, "")
        assert submitted(cluster) == []
        return err.splitlines()[-1]

    assert "leave out --only" in refusal("--only", "ddp")
    declared = cluster.path / "cluster.json"
    document = json.loads(declared.read_text())
    document["nodes"][0]["fabric"] = "roce"
    whole = declared.read_text()
    declared.write_text(json.dumps(document))
    assert "the declaration has changed since" in refusal()
    declared.write_text(whole)

    faults(cluster, boots={"gpu2": "2026-05-05T05:05:05"})
    assert "gpu2 was started again since the run began" in refusal()
    faults(cluster)

    file = cluster.output / "run.json"
    text = file.read_text()
    digest = json.loads(text)["follows_from"]
    for what in ("the suite", "the thresholds", "plumbline"):
        file.write_text(json.dumps({**json.loads(text), "follows_from": {**digest, what: "0"}}))
        assert f"{what} " in refusal()
    file.write_text(text.replace(str(cluster.path), "/elsewhere"))
    assert "resume it there (cd /elsewhere" in refusal()
    file.write_text("{}")
    assert "is not what this version writes" in refusal()
    file.write_text(text)
    lock = journal.Lock(cluster.output)
    assert "belongs to a run that is not over yet" in refusal()
    lock.release()
    assert (cluster.output / "jobs.jsonl").read_bytes() == before
    status, _, err = resumed(cluster)
    assert status == 0, err
    with pytest.raises(UsageError, match="there is no run 'nowhere'"):
        journal.folder_of("nowhere")


# --- what is kept ----------------------------------------------------------------------------


def kept_of(plan, tmp_path, **changes):
    """What a complete walk of the plan leaves, with other answers of some jobs."""
    folder = RunFolder(tmp_path / "run")
    folder.prepare(plan)
    slurm = FakeSlurm(plan, replies=changes)
    walk = tiers.walk(plan, slurm, Silent(), interval_s=0)
    for item in walk.jobs:
        folder.job(item)
    return folder.path / "jobs.jsonl", walk


def gone_on(plan, earlier, boots=BOOTS, **changes):
    slurm = FakeSlurm(plan, replies=changes)
    slurm.contacts = type(slurm.contacts)(boots=boots)
    walk = tiers.walk(plan, slurm, Silent(), interval_s=0, earlier=earlier)
    return slurm, walk


def test_the_answers_of_a_whole_run_give_its_results_again(tmp_path):
    plan = make_plan()
    path, before = kept_of(plan, tmp_path, pipeline=None)
    earlier = journal.read_lines(path)
    slurm, walk = gone_on(plan, replace(earlier, boots=BOOTS))
    assert slurm.started[0] == ["node-gpu1", "node-gpu2"]
    again = {r.key: r.verdict for r in walk.results}
    assert {r.key: again[r.key] for r in before.results if r.check != "pipeline"} == {
        r.key: r.verdict for r in before.results if r.check != "pipeline"
    }


def test_a_failure_before_the_interruption_stays_one(tmp_path):
    plan = make_plan()
    path, _ = kept_of(plan, tmp_path, all_reduce={"wrong": 9})
    slurm, walk = gone_on(plan, replace(journal.read_lines(path), boots=BOOTS))
    assert slurm.started == [["node-gpu1", "node-gpu2"]]
    (failed,) = [result for result in walk.results if result.verdict is Verdict.FAIL]
    assert (failed.check, "of the sum" in failed.message) == ("all_reduce", True)


@pytest.mark.parametrize(
    "boots",
    [{}, {"gpu1": BOOTS["gpu1"]}],
    ids=["Slurm does not say when nodes were started", "not of one of them"],
)
def test_what_is_not_known_for_certain_is_asked_again(tmp_path, boots):
    plan = make_plan()
    path, _ = kept_of(plan, tmp_path)
    slurm, _ = gone_on(plan, replace(journal.read_lines(path), boots=BOOTS), boots=boots)
    assert slurm.started == [["node-gpu1", "node-gpu2"], ["all_reduce", "ddp", "pipeline"]]


def test_an_answer_of_another_run_does_not_count(tmp_path):
    """The nonce of a job is of its run: the question is another one, and is asked."""
    path, _ = kept_of(make_plan(), tmp_path)
    other = make_plan(selection=None)
    jobs = [
        replace(job, config={**job.config, "nonce": "of another run"})
        for job in other.groups[0].jobs
    ]
    other = replace(other, groups=(replace(other.groups[0], jobs=tuple(jobs)),))
    slurm, _ = gone_on(other, replace(journal.read_lines(path), boots=BOOTS))
    assert slurm.started[1] == ["all_reduce", "ddp", "pipeline"]


@pytest.mark.parametrize("what", ["boot_id", "kernel", "driver"])
def test_a_node_with_another_driver_or_kernel_ends_it(tmp_path, what):
    plan = make_plan()
    path, _ = kept_of(plan, tmp_path)
    system = {"boot_id": "boot-gpu2", "kernel": "6.12.0", "driver": None, what: "other"}
    earlier = replace(journal.read_lines(path), boots=BOOTS)
    with pytest.raises(NotTheSame, match=r"gpu2 has another .*, now other\): start a new run"):
        gone_on(plan, earlier, **{"node-gpu2": {"system": system}})


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_what_came_to_its_end_is_kept(tmp_path, outcome):
    plan = make_plan()
    job = plan.groups[0].jobs[0]
    path = tmp_path / "jobs.jsonl"
    path.write_text(journal.line(JobReport(job, Reply(job.name, outcome, 0)), 5.0))
    earlier = replace(journal.read_lines(path), boots=BOOTS)
    asked_again = outcome not in (Outcome.EXITED, Outcome.RUN_LIMIT)
    assert (earlier.reply(job, BOOTS) is None) is asked_again
    assert earlier.seconds == 5


def test_a_torn_last_line_is_one_job_more_to_ask_and_another_one_is_refused(tmp_path):
    plan = make_plan()
    job = plan.groups[0].jobs[0]
    reply = Reply(job.name, Outcome.EXITED, 0, stdout="\ud800 half a character", states=())
    line = journal.line(JobReport(job, reply), 5.0)
    path = tmp_path / "jobs.jsonl"
    for torn in ("", line[:40], line[:-1]):
        path.write_text(line + torn)
        earlier = journal.read_lines(path)
        assert list(earlier.replies.values()) == [reply]
        assert earlier.lines == (line,)
    path.write_text(line[:40] + "\n" + line)
    with pytest.raises(UsageError, match="line 1 cannot be read"):
        journal.read_lines(path)


def test_a_run_that_was_just_started_knows_nothing():
    plan = make_plan()
    assert all(Earlier().reply(job, BOOTS) is None for job in plan.jobs)
    Earlier().held_against(BOOTS)
    job = plan.node_jobs[0]
    text = standin.line(standin.node("gpu1", job.config))
    Earlier().held_against_look(job, Reply(job.name, Outcome.EXITED, 0, stdout=text))


def test_two_runs_do_not_write_to_one_folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.prepare(make_plan())
    with pytest.raises(UsageError, match="belongs to a run that is not over yet"):
        RunFolder(tmp_path / "run").prepare(make_plan())
    shutil.rmtree(folder.path)


def test_pairs_of_nodes_that_were_judged_are_not_paired_again(tmp_path):
    """Their jobs are not in the plan: each round follows from the one before."""
    names = [f"gpu{number}" for number in range(1, 6)]
    plan = make_plan(*((name, "virtual", 2) for name in names), suite="network")
    boots = dict.fromkeys(names, "BootTime=1, SlurmdStartTime=1")
    path, before = kept_of(plan, tmp_path)
    earlier = replace(journal.read_lines(path), boots=boots)
    slurm, walk = gone_on(plan, earlier, boots=boots)
    assert slurm.started == [[f"node-{name}" for name in names]]
    assert {r.key: r.verdict for r in walk.results} == {r.key: r.verdict for r in before.results}
