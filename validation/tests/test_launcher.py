"""The launcher on a simulated Slurm: what it records, and that nothing hangs it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from validation import thresholds
from validation.checks import CHECKS
from validation.model import Outcome, Verdict
from validation.slurm import job as jobs
from validation.slurm.client import CommandLineClient, SlurmDown, parse_sinfo
from validation.tests import simulated_slurm
from validation.tests.conftest import make_plan
from validation.transport.here import Here

NODES = {
    "gpu1": ["idle", 2, 2000, "gpu:virtual:2(S:0)", "none"],
    "gpu2": ["down*", 2, 2000, "gpu:virtual:2", "Not responding | since noon"],
}
LAUNCHER = Path(jobs.__file__).parent / "launcher.py"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Installs the simulated Slurm with faults; returns a client of it."""

    def install(**faults):
        programs = simulated_slurm.install(tmp_path, NODES, faults)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        # As inside of a job's shell: our jobs must not become steps of that job.
        monkeypatch.setenv("SLURM_JOB_ID", "1")
        return CommandLineClient(Here(), f"20260101T000000Z-{os.getpid()}", sys.executable)

    return install


def short(job, queue_s=30, run_s=30):
    return replace(job, queue_limit_s=queue_s, run_limit_s=run_s)


def cluster_job(name):
    return next(job for job in make_plan().jobs if job.name == name)


@pytest.fixture
def run(slurm):
    """Runs lanes of jobs to their end; replies by name."""
    opened = []

    def go(client, *lanes):
        batch = client.prepare(lanes, 64)
        opened.append(batch)
        batch.start()
        replies = {}
        for _ in range(300):
            progress = batch.poll()
            replies.update({reply.job: reply for reply in progress.replies})
            if progress.done or progress.lost:
                assert not progress.lost
                return replies
            time.sleep(0.1)
        raise AssertionError("the batch did not end")

    yield go
    for batch in opened:
        batch.cancel()
        batch.close()
    assert not list(Path("/tmp").glob(f"plumbline-20260101T000000Z-{os.getpid()}-*"))


def test_sinfo_is_read_once_for_each_node(slurm):
    version, states = slurm().node_states()
    assert version == "24.11.5"
    assert list(states) == ["gpu1", "gpu2"]
    assert states["gpu1"].reason == ""
    assert states["gpu2"].state == "down*"
    assert states["gpu2"].reason == "Not responding | since noon"


def test_what_sinfo_cannot_mean_is_left_out():
    assert parse_sinfo("garbage\nn1|idle|2+|x|(null)|p|(null)\n")["n1"].cpus is None
    assert list(parse_sinfo("garbage\n")) == []


def test_a_controller_that_does_not_answer_is_the_clusters_fault(slurm):
    client = slurm(sinfo="slurm_load_node error: Unable to contact slurm controller")
    with pytest.raises(SlurmDown, match="Unable to contact slurm controller"):
        client.node_states()


def test_a_job_is_recorded_with_everything_that_is_known(slurm, run, tmp_path):
    job = short(cluster_job("node-gpu1"))
    reply = run(slurm(), [job])["node-gpu1"]
    assert (reply.outcome, reply.exit_code) == (Outcome.EXITED, 0)
    assert reply.job_id == "100"
    # Two streams, two threads: which line is noted first is not certain.
    for arrival in (reply.started_ns, reply.document_ns):
        assert reply.submitted_ns < arrival <= reply.ended_ns
    assert [start.host for start in reply.starts] == ["gpu1"]
    assert reply.munge.encode_error is None
    assert (reply.munge.decode_exit, reply.munge.decode_status) == (0, "Success (0)")
    document = json.loads(reply.stdout)
    assert document["measured"]["munge_decoded"] == "Success (0)"  # it got a credential
    arguments = json.loads((tmp_path / "state" / "argv.node-gpu1").read_text())
    assert arguments[-1] == '{"munge_credential": "MUNGE:login:"}'


def test_the_jobs_of_a_lane_run_one_after_another(slurm, run):
    lane = [short(cluster_job(name)) for name in ("all_reduce", "ddp", "pipeline")]
    replies = run(slurm(), lane, [short(cluster_job("node-gpu1"))])
    assert replies["all_reduce"].ended_ns <= replies["ddp"].submitted_ns
    assert replies["ddp"].ended_ns <= replies["pipeline"].submitted_ns
    assert replies["node-gpu1"].submitted_ns < replies["pipeline"].submitted_ns


@pytest.mark.parametrize("fault", ["hang", "deaf"])
def test_a_job_that_hangs_costs_only_itself(slurm, run, tmp_path, fault):
    client = slurm(**{"node-gpu2": fault})
    lanes = [[short(cluster_job(name), run_s=1)] for name in ("node-gpu1", "node-gpu2")]
    replies = run(client, *lanes)
    assert replies["node-gpu1"].outcome is Outcome.EXITED
    hung = replies["node-gpu2"]
    assert hung.outcome is Outcome.RUN_LIMIT
    assert [start.host for start in hung.starts] == ["gpu2"]
    assert hung.seconds < 15
    assert "node-gpu2" in (tmp_path / "state" / "cancelled").read_text()
    assert simulated_slurm.running(tmp_path) == []


def test_a_job_that_never_starts_is_given_up_with_slurms_reason(slurm, run, tmp_path):
    client = slurm(ddp="queue", pipeline="stuck")
    lanes = [[short(cluster_job(name), queue_s=3)] for name in ("ddp", "pipeline")]
    replies = run(client, *lanes)
    for name, reason in (("ddp", "Resources"), ("pipeline", "ReqNodeNotAvail")):
        assert replies[name].outcome is Outcome.QUEUE_LIMIT
        assert replies[name].reason == reason
        assert replies[name].started_ns is None
    assert simulated_slurm.running(tmp_path) == []


def test_a_credential_that_cannot_be_made_is_told(slurm, run):
    client = slurm(munge="munge: Error: Failed to access socket")
    reply = run(client, [short(cluster_job("node-gpu1"))])["node-gpu1"]
    assert "Failed to access socket" in reply.munge.encode_error
    assert json.loads(reply.stdout)["measured"]["munge_decoded"] is None


def test_another_key_is_noticed_on_the_login_node(slurm, run):
    change = {"answer": {"measured": {"munge_encoded": "MUNGE:other-key:"}}}
    client = slurm(**{"node-gpu1": change})
    reply = run(client, [short(cluster_job("node-gpu1"))])["node-gpu1"]
    assert (reply.munge.decode_exit, reply.munge.decode_status) == (5, "Invalid credential (5)")


def test_without_srun_a_job_is_not_submitted(slurm, run, tmp_path):
    client = slurm()
    (tmp_path / "bin" / "srun").unlink()
    reply = run(client, [short(cluster_job("ddp"))])["ddp"]
    assert reply.outcome is Outcome.NOT_SUBMITTED
    assert reply.reason == "srun: No such file or directory"


def test_cancel_ends_every_job_and_tells_what_is_known(slurm, tmp_path):
    client = slurm(ddp="hang", **{"node-gpu2": "deaf"})
    lanes = [
        [short(cluster_job("ddp")), short(cluster_job("pipeline"))],
        [short(cluster_job("node-gpu2"))],
    ]
    batch = client.prepare(lanes, 64)
    batch.start()
    for _ in range(100):
        if len(simulated_slurm.running(tmp_path)) == 2:
            break
        time.sleep(0.1)
    replies = {reply.job: reply for reply in batch.cancel().replies}
    assert {reply.outcome for reply in replies.values()} == {Outcome.CANCELLED}
    assert set(replies) == {"ddp", "pipeline", "node-gpu2"}
    assert replies["pipeline"].submitted_ns is None
    assert simulated_slurm.running(tmp_path) == []
    batch.close()


def test_a_launcher_that_died_is_noticed_and_its_jobs_are_cancelled(slurm, tmp_path):
    client = slurm(ddp="hang")
    batch = client.prepare([[short(cluster_job("ddp"))]], 64)
    batch.start()
    for _ in range(100):
        if simulated_slurm.running(tmp_path):
            break
        time.sleep(0.1)
    pid = int((Path(batch._folder) / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    for _ in range(100):
        progress = batch.poll()
        if progress.lost:
            break
        time.sleep(0.1)
    assert "the launcher on" in progress.lost
    batch.cancel()
    for _ in range(100):
        if not simulated_slurm.running(tmp_path):
            break
        time.sleep(0.1)
    assert simulated_slurm.running(tmp_path) == []
    batch.close()


def test_output_without_end_is_cut_off(slurm, run, tmp_path):
    client = slurm()
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/sh\nhead -c 3000000 /dev/zero\n")
    reply = run(client, [short(cluster_job("ddp"))])["ddp"]
    assert reply.truncated
    assert len(reply.stdout) == 1 << 20


def test_a_folder_that_is_not_its_own_is_left_alone(tmp_path):
    (tmp_path / "precious").touch()
    done = subprocess.run([sys.executable, LAUNCHER, "clean", tmp_path], check=False)
    assert done.returncode == 1
    assert (tmp_path / "precious").exists()


def test_usage():
    done = subprocess.run([sys.executable, LAUNCHER], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"launcher.py start FOLDER" in done.stderr


def test_verdicts_of_the_real_chain(slurm, run):
    """Launcher, client and check together, once without the tiers."""
    job = short(cluster_job("all_reduce"))
    reply = run(slurm(), [job])["all_reduce"]
    evaluate = CHECKS["all_reduce"].evaluate
    assert evaluate is not None
    result = evaluate(job, reply, thresholds.load("virtual"))
    assert result.verdict is Verdict.PASS
