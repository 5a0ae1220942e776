"""The launcher on a simulated Slurm: what it records, and that nothing hangs it."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.slurm import node_states
from cluster.slurm.node_states import NodeState
from validation import allocations, model
from validation.errors import Unreachable
from validation.model import Outcome, Reply, Verdict
from validation.slurm import client, launcher, look
from validation.slurm import job as jobs
from validation.slurm.client import CommandLineClient, SlurmDown, parse_sinfo
from validation.tests import simulated_slurm
from validation.tests.conftest import make_plan
from validation.tests.judging import judged
from validation.tests.processes import runs, wait_for
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


def planned(name, **limits):
    """A job of two nodes' plan, with short limits."""
    return short(next(job for job in make_plan().jobs if job.name == name), **limits)


def begun(client, folder, lanes, running=1, **more):
    """A batch of which so many jobs run."""
    batch = client.prepare(lanes, 64, **more)
    batch.start()
    wait_for(lambda: len(simulated_slurm.running(folder)) == running)
    return batch


def kill(batch):
    """Kills its launcher."""
    os.kill(int((Path(batch._folder) / "pid").read_text()), signal.SIGKILL)


def nothing_runs(folder):
    return simulated_slurm.running(folder) == []


def assert_all_well(replies):
    assert {(reply.outcome, reply.exit_code) for reply in replies.values()} == {(Outcome.EXITED, 0)}


@pytest.fixture
def run(slurm):
    """Runs lanes of jobs to their end; replies by name."""
    opened = []

    def go(client, *lanes, shared=()):
        batch = client.prepare(lanes, 64, shared)
        opened.append(batch)
        batch.start()
        replies: dict[str, Reply] = {}
        for _ in range(300):
            progress = batch.poll()
            new = {reply.job: reply for reply in progress.replies}
            assert not new.keys() & replies.keys(), "a reply is handed over once"
            replies.update(new)
            if progress.done or progress.lost:
                assert not progress.lost
                assert batch.poll().replies == ()
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
    assert parse_sinfo("garbage\nn1|n1|idle|2+|x|(null)|p|(null)\n")["n1"].cpus is None
    assert list(parse_sinfo("garbage\n")) == []


def test_a_controller_that_does_not_answer_is_the_clusters_fault(slurm):
    client = slurm(sinfo="slurm_load_node error: Unable to contact slurm controller")
    with pytest.raises(SlurmDown, match="Unable to contact slurm controller"):
        client.node_states()


def test_a_job_is_recorded_with_everything_that_is_known(slurm, run, tmp_path):
    job = planned("node-gpu1")
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
    config = json.loads(arguments[-1])
    assert config["munge_credential"] == "MUNGE:login:"
    assert config["nonce"] == job.config["nonce"] != ""


def test_the_jobs_of_a_lane_run_one_after_another(slurm, run):
    lane = [planned(name) for name in ("all_reduce", "ddp", "pipeline")]
    replies = run(slurm(), lane, [planned("node-gpu1")])
    assert replies["all_reduce"].ended_ns <= replies["ddp"].submitted_ns
    assert replies["ddp"].ended_ns <= replies["pipeline"].submitted_ns
    assert replies["node-gpu1"].submitted_ns < replies["pipeline"].ended_ns


@pytest.mark.sample(1)
@pytest.mark.parametrize("fault", ["hang", "deaf"])
def test_a_job_that_hangs_costs_only_itself(slurm, run, tmp_path, fault):
    client = slurm(**{"node-gpu2": fault})
    lanes = [[planned(name, run_s=1)] for name in ("node-gpu1", "node-gpu2")]
    replies = run(client, *lanes)
    assert replies["node-gpu1"].outcome is Outcome.EXITED
    hung = replies["node-gpu2"]
    assert hung.outcome is Outcome.RUN_LIMIT
    assert [start.host for start in hung.starts] == ["gpu2"]
    assert hung.seconds < 15
    assert "node-gpu2" in (tmp_path / "state" / "cancelled").read_text()
    assert nothing_runs(tmp_path)


def test_a_job_that_never_starts_is_given_up_with_slurms_reason(slurm, run, tmp_path):
    client = slurm(ddp="queue", pipeline="stuck")
    lanes = [[planned(name, queue_s=3)] for name in ("ddp", "pipeline")]
    replies = run(client, *lanes)
    for name, reason in (("ddp", "Resources"), ("pipeline", "ReqNodeNotAvail")):
        assert replies[name].outcome is Outcome.QUEUE_LIMIT
        assert replies[name].reason == reason
        assert replies[name].started_ns is None
    assert nothing_runs(tmp_path)


def test_a_credential_that_cannot_be_made_is_told(slurm, run):
    client = slurm(munge="munge: Error: Failed to access socket")
    reply = run(client, [planned("node-gpu1")])["node-gpu1"]
    assert "Failed to access socket" in reply.munge.encode_error
    assert json.loads(reply.stdout)["measured"]["munge_decoded"] is None


def test_another_key_is_noticed_on_the_login_node(slurm, run):
    change = {"answer": {"measured": {"munge_encoded": "MUNGE:other-key:"}}}
    client = slurm(**{"node-gpu1": change})
    reply = run(client, [planned("node-gpu1")])["node-gpu1"]
    assert (reply.munge.decode_exit, reply.munge.decode_status) == (5, "Invalid credential (5)")


def test_without_srun_a_job_is_not_submitted(slurm, run, tmp_path):
    client = slurm()
    (tmp_path / "bin" / "srun").unlink()
    reply = run(client, [planned("ddp")])["ddp"]
    assert reply.outcome is Outcome.NOT_SUBMITTED
    assert reply.reason == "srun: No such file or directory"


def test_cancel_ends_every_job_and_tells_what_is_known(slurm, tmp_path):
    client = slurm(ddp="hang", **{"node-gpu2": "deaf"})
    lanes = [
        [planned("ddp"), planned("pipeline")],
        [planned("node-gpu2")],
    ]
    batch = begun(client, tmp_path, lanes, running=2)
    replies = {reply.job: reply for reply in batch.cancel().replies}
    assert {reply.outcome for reply in replies.values()} == {Outcome.CANCELLED}
    assert set(replies) == {"ddp", "pipeline", "node-gpu2"}
    assert replies["pipeline"].submitted_ns is None
    assert nothing_runs(tmp_path)
    batch.close()


def test_a_launcher_that_died_is_noticed_and_its_jobs_are_cancelled(slurm, tmp_path):
    batch = begun(slurm(ddp="hang"), tmp_path, [[planned("ddp")]])
    kill(batch)
    wait_for(lambda: "the launcher on" in batch.poll().lost)
    batch.cancel()
    wait_for(lambda: nothing_runs(tmp_path))
    batch.close()


def test_a_launcher_that_nobody_asks_any_more_ends_its_jobs_and_itself(
    slurm, tmp_path, monkeypatch
):
    """The validator was killed."""
    monkeypatch.setattr(jobs, "LEASE_S", 2)
    batch = begun(slurm(ddp="hang"), tmp_path, [[planned("ddp")]])
    wait_for(lambda: not Path(batch._folder).exists())
    assert nothing_runs(tmp_path)


def test_what_a_killed_launcher_left_is_cleared_by_the_next(slurm, run, tmp_path):
    client = slurm(ddp="hang")
    batch = begun(client, tmp_path, [[planned("ddp")]])
    folder = Path(batch._folder)
    kill(batch)
    wait_for(lambda: batch.poll().lost)
    another = client.prepare([[planned("node-gpu1")]], 64)
    another.start()
    assert folder.exists()  # somebody may still ask
    another.cancel()
    another.close()
    os.utime(folder / "seen", (0, 0))
    run(client, [planned("node-gpu1")])
    assert not folder.exists()
    wait_for(lambda: nothing_runs(tmp_path))


class Lost:
    """A login node that went away after its jobs were started."""

    via, notes = "login1", ()

    def run(self, script, stdin=b"", timeout_s=60):
        if "launcher.py start" in script:
            return Here().run(script, stdin, timeout_s)
        raise Unreachable("login1 is unreachable")

    def elsewhere(self):
        return Here()


def test_jobs_of_a_lost_login_node_are_cancelled_from_another(slurm, tmp_path):
    slurm(ddp="hang")
    client = CommandLineClient(Lost(), f"20260101T000000Z-{os.getpid()}", sys.executable)
    batch = begun(client, tmp_path, [[planned("ddp")]])
    with pytest.raises(Unreachable):
        batch.cancel()
    wait_for(lambda: nothing_runs(tmp_path))
    folder = Path(batch._folder)
    wait_for(lambda: json.loads((folder / "progress.json").read_text())["state"] == "done")
    wait_for(
        lambda: (
            subprocess.run([sys.executable, LAUNCHER, "clean", folder], check=False).returncode == 0
        )
    )


def test_a_login_node_with_an_old_python_is_told_in_a_sentence(tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.6.8 && exit\nexit 1\n')
    old.chmod(0o755)
    done = Here().run(f"p={old}\n{client._RIGHT_PYTHON}")
    assert done.status == 1
    assert done.stderr == "its Python 3.6.8 is too old, 3.10 or newer is needed\n"


def test_both_ways_of_a_job_are_timed_for_the_clock(slurm, run):
    reply = run(slurm(), [planned("node-gpu1")])["node-gpu1"]
    (start,) = reply.starts
    assert reply.submitted_ns < start.node_ns < start.arrival_ns < reply.fed_ns + 10**9
    assert start.arrival_ns <= reply.fed_ns <= start.received_ns


def test_a_step_of_the_login_nodes_clock_moves_no_time_of_a_run():
    wall, steady = 1_800_000_000 * 10**9, 7 * 10**9
    clock = launcher.Clock(lambda: wall, lambda: steady)
    before = clock()
    wall, steady = wall + 5 * 10**9 + 10, steady + 10  # ten nanoseconds, and a step of 5 s
    assert clock() - before == 10
    assert abs(launcher.now_ns() - time.time_ns()) < 10**9


def test_a_limit_of_submitted_jobs_narrows_what_runs_at_once(slurm, run, tmp_path):
    lanes = node_lanes(5)
    faults = {job.name: "limit" for (job,) in lanes}
    replies = run(slurm(**faults), *lanes)
    assert_all_well(replies)


@pytest.mark.long
def test_jobs_that_a_limit_holds_are_taken_back_until_there_is_room(slurm, run, tmp_path):
    """They would wait with a credential that expires, and longer than for anybody else."""
    lanes = node_lanes(4, queue_s=5)
    replies = run(slurm(**{job.name: "wait" for (job,) in lanes}), *lanes)
    assert_all_well(replies)
    assert len((tmp_path / "state" / "cancelled").read_text().splitlines()) >= 2


def test_a_refusal_counts_only_of_a_job_that_was_alone():
    """Slurm says no while the other is there; that it has gone when we look changes nothing."""
    gate = launcher.Gate(2)
    other, refused = gate.enter(), gate.enter()
    gate.leave(other)
    assert gate.refused(refused)
    assert gate.capacity == 1


def test_a_refusal_right_after_another_job_ended_is_no_last_word(monkeypatch):
    gate = launcher.Gate(1)
    gate.leave(gate.enter())
    assert gate.refused(gate.enter())
    monkeypatch.setattr(launcher, "SETTLE", 0)
    assert not gate.refused(gate.enter())


def test_jobs_that_were_all_refused_are_no_reason_for_each_other():
    gate = launcher.Gate(2)
    for ticket in (gate.enter(), gate.enter()):
        assert gate.refused(ticket)
    assert not gate.refused(gate.enter())


def test_a_limit_that_lets_nothing_through_is_told_once(slurm, run, tmp_path):
    client = slurm(ddp="never")
    reply = run(client, [planned("ddp")])["ddp"]
    assert (reply.outcome, reply.exit_code) == (Outcome.EXITED, 1)
    assert "violates accounting/QOS policy" in reply.stderr


def test_the_environment_of_a_payload_is_the_declared_one(slurm, run, tmp_path, monkeypatch):
    """Not that of whoever starts the run."""
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "docker0")
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    monkeypatch.setenv("LD_PRELOAD", "")
    declared = (("NCCL_DEBUG", "WARN"), ("NCCL_SOCKET_IFNAME", "ib0"))
    job = replace(planned("ddp"), environment=declared)
    replies = run(slurm(ddp="environment"), [job])
    seen = json.loads((tmp_path / "state" / "environment").read_text())
    assert [name for name in seen if name.startswith(("NCCL_", "LD_PRE"))] == [
        "NCCL_DEBUG",
        "NCCL_SOCKET_IFNAME",
    ]
    assert replies["ddp"].exit_code == 0


# --- steps of one allocation ---------------------------------------------------------------------


def node_lanes(count, **limits):
    plan = make_plan(*((f"gpu{number}", "virtual", 2) for number in range(1, count + 1)))
    return [[short(job, **limits)] for job in plan.node_jobs]


def shared(lanes):
    hosts = frozenset(host for lane in lanes for job in lane for host in job.hosts)
    return allocations.share(lanes, hosts, 64)


def asked_of_salloc(tmp_path):
    path = tmp_path / "state" / "allocated"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def asked_of_srun(tmp_path, job):
    return json.loads((tmp_path / "state" / f"argv.{job}").read_text())


def test_jobs_on_free_nodes_are_steps_of_one_allocation(slurm, run, tmp_path):
    lanes = node_lanes(3)
    replies = run(slurm(), *lanes, shared=shared(lanes))
    assert_all_well(replies)
    (options,) = asked_of_salloc(tmp_path)
    assert "--nodelist=gpu[1-3]" in options
    (job_id,) = {reply.job_id for reply in replies.values()}
    for number in (1, 2, 3):
        assert f"--jobid={job_id}" in asked_of_srun(tmp_path, f"node-gpu{number}")
    assert nothing_runs(tmp_path)  # given back


def test_a_step_that_hangs_is_ended_alone(slurm, run, tmp_path):
    lanes = node_lanes(2)
    lanes[1] = [short(lanes[1][0], run_s=1)]
    replies = run(slurm(**{"node-gpu2": "hang"}), *lanes, shared=shared(lanes))
    assert replies["node-gpu1"].exit_code == 0
    assert replies["node-gpu2"].outcome is Outcome.RUN_LIMIT
    (step,) = (tmp_path / "state" / "cancelled").read_text().splitlines()
    assert step.partition(".")[0] == replies["node-gpu2"].job_id
    assert nothing_runs(tmp_path)


@pytest.mark.sample(2)
@pytest.mark.parametrize("fault", ["refused", "never", "queue", "stuck"])
def test_without_an_allocation_every_step_is_a_job(slurm, run, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(jobs, "GRANT_LIMIT_S", 1)
    lanes = node_lanes(2)
    client = slurm(**{"steps-node-gpu1": fault})
    replies = run(client, *lanes, shared=shared(lanes))
    assert_all_well(replies)
    assert len({reply.job_id for reply in replies.values()}) == 2
    assert not any(word.startswith("--jobid") for word in asked_of_srun(tmp_path, "node-gpu1"))
    assert nothing_runs(tmp_path)


def test_where_salloc_is_missing_every_step_is_a_job(slurm, run, tmp_path):
    client = slurm()
    (tmp_path / "bin" / "salloc").unlink()
    lanes = node_lanes(2)
    replies = run(client, *lanes, shared=shared(lanes))
    assert_all_well(replies)


def test_an_allocation_that_is_taken_back_accuses_nobody(slurm, run, tmp_path):
    """An administrator's scancel, a preemption: the steps end badly, the nodes are well."""
    lanes = [[planned(name) for name in ("all_reduce", "ddp", "pipeline")]]
    client = slurm(**{"steps-all_reduce": "revoked"})
    replies = run(client, *lanes, shared=shared(lanes))
    assert_all_well(replies)
    assert len({reply.job_id for reply in replies.values()}) == 3
    assert replies["all_reduce"].ended_ns <= replies["ddp"].submitted_ns


def test_a_step_whose_tasks_do_not_start_is_judged_as_a_job_of_its_own(
    slurm, run, tmp_path, monkeypatch
):
    monkeypatch.setattr(model, "GRANT_LIMIT_S", 1)
    lanes = node_lanes(2)
    replies = run(slurm(**{"node-gpu2": "stepless"}), *lanes, shared=shared(lanes))
    assert_all_well(replies)
    assert replies["node-gpu1"].job_id != replies["node-gpu2"].job_id


def test_a_payload_that_fails_in_a_step_is_not_tried_again(slurm, run, tmp_path):
    lanes = [[planned(name) for name in ("ddp", "pipeline")]]
    replies = run(slurm(ddp="crash"), *lanes, shared=shared(lanes))
    assert (replies["ddp"].exit_code, replies["pipeline"].exit_code) == (1, 0)
    assert replies["ddp"].job_id == replies["pipeline"].job_id
    assert len(asked_of_salloc(tmp_path)) == 1


def test_allocations_wait_for_each_other_under_a_limit(slurm, run, tmp_path):
    """64 nodes each: the user may have one job, and the second allocation comes after the first."""
    lanes = node_lanes(4)
    two = [*shared(lanes[:2]), *shared(lanes[2:])]
    client = slurm(**{allocation.name: "limit" for allocation in two})
    replies = run(client, *lanes, shared=two)
    assert {reply.exit_code for reply in replies.values()} == {0}
    assert len({reply.job_id for reply in replies.values()}) == 2


def test_a_cancelled_run_gives_its_allocation_back(slurm, tmp_path):
    lanes = node_lanes(2)
    client = slurm(**{"node-gpu1": "hang", "node-gpu2": "hang"})
    batch = begun(client, tmp_path, lanes, running=3, shared=shared(lanes))
    replies = batch.cancel().replies
    assert {reply.outcome for reply in replies} == {Outcome.CANCELLED}
    assert nothing_runs(tmp_path)
    batch.close()


def test_the_allocation_of_a_launcher_that_died_is_given_back(slurm, tmp_path):
    """At once, before anybody asks: the nodes are others' again."""
    lanes = node_lanes(2)
    client = slurm(**{"node-gpu1": "hang", "node-gpu2": "hang"})
    batch = begun(client, tmp_path, lanes, running=3, shared=shared(lanes))
    kill(batch)
    wait_for(lambda: not list((tmp_path / "state" / "allocations").iterdir()))
    wait_for(lambda: batch.poll().lost)
    batch.cancel()
    wait_for(lambda: nothing_runs(tmp_path))
    batch.close()


# --- what waits in vain --------------------------------------------------------------------------


def test_a_node_on_which_no_slurmd_listens_is_known_at_once(slurm, monkeypatch):
    monkeypatch.setattr(client, "PATIENCE_S", 0.2)
    contact = slurm(slurmd={"gpu2": "stopped"}).contact(["gpu1", "gpu2", "gpu99"])
    assert contact.refused == {"gpu2": f"127.0.0.1:{simulated_slurm.CLOSED}"}
    assert contact.mute == {}


def test_a_slurmd_that_is_restarted_meanwhile_is_well():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
    again = []

    def restart():
        again.append(socket.create_server(place))

    timer = threading.Timer(1.0, restart)
    timer.start()
    try:
        assert look.look(place, 10) == "answers"
    finally:
        timer.join()
        again[0].close()


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (TimeoutError("timed out"), "mute"),
        (OSError(113, "No route to host"), "mute"),
        (socket.gaierror(-2, "Name or service not known"), "unknown"),
    ],
)
def test_a_port_that_is_silent_proves_nothing(monkeypatch, error, state):
    def fail(*_):
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    assert look.look(("gpu2", 6818), 0) == state


def test_where_the_ports_cannot_be_looked_at_no_node_is_accused(slurm):
    assert slurm(sinfo="sinfo: error: Invalid field").contact(["gpu1"]) == model.Contact()


@pytest.mark.long
def test_what_waits_for_a_node_that_slurm_gives_up_is_not_waited_for(slurm, run, tmp_path):
    lanes = node_lanes(2)
    client = slurm(slurmd={"gpu2": "hung"})
    begin = time.monotonic()
    replies = run(client, *lanes, shared=shared(lanes))
    assert replies["node-gpu1"].exit_code == 0
    assert replies["node-gpu2"].outcome is Outcome.QUEUE_LIMIT
    assert replies["node-gpu2"].started_ns is None
    assert time.monotonic() - begin < 29  # and not the 30 s that each of them may wait
    assert nothing_runs(tmp_path)


def test_a_job_that_has_its_nodes_is_waited_for_as_long_as_others_needed(
    slurm, run, tmp_path, monkeypatch
):
    monkeypatch.setattr(model, "START_FLOOR_S", 1)
    client = slurm(slurmd={"gpu2": "hung"}, star_s=600)
    begin = time.monotonic()
    replies = run(client, *node_lanes(2, queue_s=90, run_s=90))
    assert replies["node-gpu1"].exit_code == 0
    reply = replies["node-gpu2"]
    assert (reply.outcome, reply.reason) == (Outcome.QUEUE_LIMIT, "Prolog")
    assert time.monotonic() - begin < 60


def test_the_limit_follows_from_the_slowest_start():
    pace = launcher.Pace()
    assert pace.limit_s(150, 30) == 150  # nothing was measured: all that it may
    pace.started(1)
    assert pace.limit_s(150, 30) == 30
    pace.started(8)
    pace.started(2)
    assert pace.limit_s(150, 30) == 80
    pace.started(60)  # on a slow cluster nothing is cut short
    assert pace.limit_s(150, 30) == 150


@pytest.mark.parametrize(
    ("states", "gone"),
    [
        ("idle idle idle", False),
        ("idle* idle* idle*", True),
        ("down down down", True),
        ("completing* completing* completing*", True),
        ("drained drained drained", True),
        ("idle* idle idle*", False),  # a busy node that now and then answers late
        ("idle~ idle# idle#", False),
        ("down~ down# down#", False),
        ("draining draining mixed", False),
        ("mixed allocated allocated+", False),
    ],
)
def test_a_node_is_given_up_when_slurm_says_so_for_a_while(states, gone):
    watch = launcher.NodeWatch(list(node_states.GONE), node_states.ASLEEP)
    for at, state in zip((0, 8, 16), states.split(), strict=True):
        watch.see({"gpu1": "idle", "gpu2": state}, at)
    assert watch.gone(["gpu1", "gpu2"], 16) is gone
    assert not watch.gone(["gpu1"], 16)


def test_what_is_given_up_is_out_of_service_for_the_verdict_too():
    for state in [*node_states.GONE, "idle*", "completing*"]:
        assert node_states.out_of_service(NodeState("gpu2", state)), state


def cluster_lane(**limits):
    return [planned(name, **limits) for name in ("all_reduce", "ddp", "pipeline")]


def test_jobs_that_would_wait_for_the_same_are_skipped(slurm, run, tmp_path):
    others = [planned("node-gpu1")]
    replies = run(slurm(all_reduce="stuck"), cluster_lane(queue_s=3), others)
    assert replies["all_reduce"].outcome is Outcome.QUEUE_LIMIT
    for name in ("ddp", "pipeline"):
        assert (replies[name].outcome, replies[name].reason) == (Outcome.SKIPPED, "all_reduce")
        assert not (tmp_path / "state" / f"argv.{name}").exists()
    assert replies["node-gpu1"].exit_code == 0  # on other nodes


MEETING = "plumbline: all_reduce, rank 1 on gpu2: rank 0 does not answer at gpu1:20001: timed out"


SILENT = "plumbline: rank 0 on gpu1: no sign of life from rank 1 on gpu2: no progress for 60 s"
STUCK = "plumbline: rank 0 on gpu1: no progress for 60 s (while timing); all ranks still respond"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("allocated", "stderr"), [(False, MEETING), (True, MEETING), (True, SILENT), (True, STUCK)]
)
def test_ranks_that_wait_for_each_other_wait_once(slurm, run, tmp_path, allocated, stderr):
    lane = cluster_lane()
    client = slurm(all_reduce={"stderr": stderr})
    replies = run(client, lane, shared=shared([lane]) if allocated else ())
    assert replies["all_reduce"].exit_code == 1
    assert [replies[name].outcome for name in ("ddp", "pipeline")] == [Outcome.SKIPPED] * 2


def test_a_job_that_failed_for_a_cause_of_its_own_stops_no_other(slurm, run):
    stderr = f"{MEETING}\nplumbline: all_reduce, rank 0 on gpu1: torch cannot be imported: x"
    replies = run(slurm(all_reduce={"stderr": stderr}), cluster_lane())
    assert replies["all_reduce"].exit_code == 1
    assert [replies[name].exit_code for name in ("ddp", "pipeline")] == [0, 0]


# --- odds and ends -------------------------------------------------------------------------------


def test_output_without_end_is_cut_off(slurm, run, tmp_path):
    client = slurm()
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/sh\nhead -c 9000000 /dev/zero\n")
    reply = run(client, [planned("ddp")])["ddp"]
    assert reply.truncated
    assert len(reply.stdout) == launcher.OUTPUT_LIMIT < 9_000_000


def alone(folder):
    order = {"name": "ddp", "slurm_name": "x"}
    return launcher.JobSubmission(order, folder, launcher.Limits([], []), launcher.Pace())


def test_a_node_that_still_boots_has_not_started_the_job(tmp_path):
    job = alone(tmp_path)
    job.heard("7", "CONFIGURING", "None")
    assert (job.job_id, job.started_ns) == ("7", None)
    job.heard("7", "RUNNING", "Prolog")  # and its slurmd may be dead
    assert (job.started_ns, job.has_nodes, job.reason) == (None, True, "Prolog")
    job.heard("7", "RUNNING", "None")
    assert job.started_ns


def test_what_srun_started_ends_with_it(tmp_path, monkeypatch):
    """srun has children, which would keep a job's input and output open for ever."""
    monkeypatch.setattr(launcher, "KILL_AFTER", 0.1)
    monkeypatch.setattr(launcher, "call", lambda command: (0, "", ""))  # scancel helps nothing
    job = alone(tmp_path)
    command = ["bash", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as srun:
        assert srun.stdout
        child = int(srun.stdout.readline())
        job._end(srun)
    wait_for(lambda: not runs(child), seconds=5)


def test_a_line_that_is_still_being_written_is_left_for_the_next_poll(tmp_path):
    def poll(offset):
        command = [sys.executable, str(LAUNCHER), "poll", str(tmp_path), str(offset), "0"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        return answer["finished"], answer["offset"]

    whole, torn = b'{"name": "ddp"}\n', b'{"name": "pipe'
    (tmp_path / "finished.jsonl").write_bytes(whole + torn)
    assert poll(0) == ([{"name": "ddp"}], len(whole))
    (tmp_path / "finished.jsonl").write_bytes(whole + torn + b'line"}\n')
    assert poll(len(whole))[0] == [{"name": "pipeline"}]


@pytest.mark.parametrize("news", ["an end", "a beginning", "nothing"])
def test_a_poll_waits_until_there_is_something_to_tell(tmp_path, news):
    """With a launcher that works: it holds the lock."""

    def progress(state):
        text = json.dumps({"state": "running", "jobs": [{"name": "ddp", "state": state}]})
        (tmp_path / "progress.json.new").write_text(text)
        os.replace(tmp_path / "progress.json.new", tmp_path / "progress.json")

    progress("queued")
    patience = 1 if news == "nothing" else 60
    command = [sys.executable, str(LAUNCHER), "poll", str(tmp_path), "0", str(patience)]
    with open(tmp_path / "lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begin = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as polling:
            wait_for((tmp_path / "seen").exists)
            if news == "nothing":
                (tmp_path / "progress.json").touch()
            else:
                assert polling.poll() is None
            if news == "an end":
                (tmp_path / "finished.jsonl").write_text('{"name": "ddp"}\n')
            if news == "a beginning":
                progress("running")
            answer = json.loads(polling.communicate(timeout=30)[0])
        took = time.monotonic() - begin
    assert answer["finished"] == ([{"name": "ddp"}] if news == "an end" else [])
    assert answer["jobs"][0]["state"] == ("running" if news == "a beginning" else "queued")
    assert took >= patience if news == "nothing" else took < 30


def test_of_a_launcher_that_is_gone_or_done_a_poll_waits_for_nothing(tmp_path):
    command = [sys.executable, str(LAUNCHER), "poll", str(tmp_path), "0", "60"]
    assert not json.loads(subprocess.check_output(command, timeout=30))["alive"]
    (tmp_path / "progress.json").write_text('{"state": "done", "jobs": []}')
    with open(tmp_path / "lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert json.loads(subprocess.check_output(command, timeout=30))["state"] == "done"


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
    job = planned("all_reduce")
    reply = run(slurm(), [job])["all_reduce"]
    assert judged("all_reduce", job, reply).verdict is Verdict.PASS
