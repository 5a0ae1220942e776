"""Each check judges recorded answers: right ones pass, and each fault fails with its reason."""

import statistics
import time
from dataclasses import replace

import pytest

from cluster.declaration import Gpus, Node
from cluster.slurm import node_states
from cluster.slurm.node_states import NodeState
from validation import thresholds
from validation.checks import accounting, all_reduce, slurm_state
from validation.checks.document import Document, Fields
from validation.checks.registry import CHECKS
from validation.model import (
    Accounting,
    Metric,
    MungeReply,
    Outcome,
    Proof,
    Reply,
    Start,
    Subject,
    Threshold,
    Tier,
    Verdict,
)
from validation.tests import healthy_answers, standin
from validation.tests.conftest import make_plan
from validation.tests.healthy_answers import ANSWERED
from validation.tests.judging import changed, judged

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
NODE_CHECKS = ("hostname", "cpus", "memory", "gpus", "tmp", "munge", "clock", "torch")
CLUSTER_CHECKS = ("all_reduce", "ddp", "pipeline")
# But for schedules, which has several answers in one.
TRAININGS = ("ddp", "pipeline", "fsdp", "tensor_parallel", "expert_parallel", "mesh")
ACCEPTED = MungeReply(None, 0, "Success (0)")


def job_of(name, *nodes):
    suite = "training" if name in (*TRAININGS, "schedules") else "quick"
    return next(job for job in make_plan(*nodes, suite=suite).jobs if job.name == name)


def reply_to(job, document, **changes):
    if not isinstance(document, str) and document.get("nonce") == "":
        document = {**document, "nonce": job.config["nonce"]}  # made without the job's config
    text = document if isinstance(document, str) else standin.line(document)
    now = time.time_ns()
    reply = Reply(job.name, Outcome.EXITED, 0, "17", text, document_ns=now, munge=ACCEPTED)
    return replace(reply, **changes)


def judge(check, job, document, **changes):
    return judged(check, job, reply_to(job, document, **changes))


def assert_fails(check, answer, words, **changes):
    """The job's answer fails the check with these words; `changes` are of the reply."""
    result = judge(check, *answer, **changes)
    assert result.verdict is FAIL
    assert words in result.message
    return result


NODE = job_of("node-gpu1")
ALL_REDUCE = job_of("all_reduce")
DDP = job_of("ddp")
PIPELINE = job_of("pipeline")
HOSTS = ["gpu1", "gpu2"]
JOBS = {name: job_of(name) for name in ("all_reduce", *TRAININGS, "schedules")}


def healthy(check, **changes):
    if check in NODE_CHECKS:
        config = {**NODE.config, "munge_credential": "MUNGE:login:"}
        return NODE, standin.node("gpu1", config, **changes)
    return JOBS[check], getattr(standin, check)(HOSTS, JOBS[check].config, **changes)


@pytest.mark.parametrize("check", ANSWERED)
def test_a_healthy_answer_passes(check):
    answer = healthy_answers.healthy(check)
    result = healthy_answers.result(check, answer.job, standin.line(answer.document))
    assert (result.verdict, result.message) == (PASS, "")
    assert result.proof
    assert (result.proof.job_id, result.proof.hosts) == ("17", answer.job.hosts)


def broken(check, path, value):
    """A job, and its healthy answer with this value at the path, or without it for `...`."""
    job, document = healthy(check)
    return job, changed(document, (path, value))


# --- faults that every check must notice -----------------------------------------------------

LINE = standin.line(healthy("ddp")[1])
ENDED_BY_SRUN = """\
plumbline: started job 1 node gpu1 time 1
terminate called
srun: error: gpu1: task 0: Aborted
srun: error: gpu2: task 1: Terminated
"""
NOT_ENDED = """\
srun: First task exited 30s ago
srun: StepId=25.0 task 0: running
srun: StepId=25.0 task 1: exited
slurmstepd-gpu1: error: *** STEP 25.0 ON gpu1 CANCELLED ***
srun: error: gpu1: task 0: Killed
"""
DIAGNOSED = """\
terminate called
gpu1:4321 NCCL DIAG === NCCL Diagnostics ===
gpu1:4321 NCCL DIAG [OK]   net bw: skipped (single host or no network transport)
gpu1:4321 NCCL DIAG [INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification
gpu1:4321 NCCL DIAG NCCL diagnostics completed in 245.3 ms across 8 ranks
"""


@pytest.mark.parametrize("check", ANSWERED)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stdout": ""}, "no answer on stdout"),
        ({"exit_code": 1}, "exit status 1"),
        ({"outcome": Outcome.RUN_LIMIT, "exit_code": None}, "and was cancelled"),
    ],
)
def test_an_answer_of_a_job_that_did_not_end_well_is_none(check, changes, words):
    answer = healthy_answers.healthy(check)
    result = healthy_answers.result(check, answer.job, standin.line(answer.document), **changes)
    assert (result.verdict, result.blamed) == (FAIL, None)  # all nodes that were asked
    assert words in result.message


@pytest.mark.parametrize("check", ["munge", "ddp"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stdout": "", "stderr": "x\nKilled\n"}, "no answer on stdout; stderr ends: Killed"),
        ({"stdout": "hello\n"}, "no answer on stdout"),
        ({"stdout": LINE[: len(LINE) // 2]}, "the answer cannot be read"),
        ({"stdout": LINE * 2}, "2 answers instead of one"),
        ({"stdout": LINE * 8}, "8 answers instead of one"),
        ({"stdout": '{"plumbline":NaN}'}, "the answer cannot be read: NaN is not a number"),
        ({"stdout": '{"plumbline":1,"plumbline":1}'}, "a key is given twice"),
        ({"stdout": '{"plumbline":2}'}, "the answer has schema 2, not 1"),
        ({"stdout": '{"plumbline":1}'}, "the answer has no payload"),
        ({"stdout": '{"plumbline":1,"payload":"gemm"}'}, "the answer is of 'gemm'"),
        ({"truncated": True}, "output was cut off"),
        ({"exit_code": 143, "stderr": ENDED_BY_SRUN}, "terminate called; gpu1: task 0: Aborted"),
        (
            {"exit_code": 137, "stderr": NOT_ENDED},
            "task 0: running when other tasks had long ended; gpu1: task 0: Killed",
        ),
        (
            {"exit_code": 1, "stderr": DIAGNOSED},
            "terminate called; NCCL's diagnostics: p2p: only 52/56 GPU-to-GPU peer accesses",
        ),
        ({"outcome": Outcome.CANCELLED, "exit_code": None}, "interrupted"),
        ({"outcome": Outcome.NOT_SUBMITTED, "reason": "x"}, "could not be started: x"),
        ({"outcome": Outcome.LOST, "reason": "gone"}, "nothing is known of this job: gone"),
        ({"outcome": Outcome.QUEUE_LIMIT, "reason": "SystemFailure"}, "Slurm itself is not ready"),
    ],
)
def test_a_job_that_did_not_answer_well_fails(check, changes, reason):
    assert_fails(check, healthy(check), reason, **changes)


def test_a_job_that_waited_for_others_is_inconclusive():
    changes = {"outcome": Outcome.QUEUE_LIMIT, "busy": True, "reason": "Resources"}
    result = judge("ddp", *healthy("ddp"), **changes)
    assert result.verdict is UNKNOWN
    assert result.message == "did not start in 120 s: nodes are busy with other jobs (Resources)"


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        ("completing", UNKNOWN, "gpu2 is still completing a job that has ended"),
        # Nobody waits for one that does not answer either: seen with munged stopped on it.
        ("completing*", FAIL, "gpu2 is completing* meanwhile"),
    ],
)
def test_a_node_that_does_not_finish_is_named(text, verdict, words):
    states = (state("idle"), replace(state(text), name="gpu2"))
    reason = "ReqNodeNotAvail,_May_be_reserved_for_other_job"
    changes = {"outcome": Outcome.QUEUE_LIMIT, "busy": True, "reason": reason, "states": states}
    result = judge("ddp", *healthy("ddp"), **changes)
    assert result.verdict is verdict
    assert words in result.message
    assert result.blamed == (("gpu2",) if verdict is FAIL else ())


def test_a_timeout_names_the_nodes_that_never_started():
    reply = Reply("ddp", Outcome.RUN_LIMIT, starts=(Start("gpu1", 1, 1),))
    message = judged("ddp", DDP, reply).message
    assert message == "did not end in 120 s and was cancelled; no task started on gpu2"


def test_a_timeout_before_any_task_started_accuses_no_node():
    result = judged("ddp", DDP, Reply("ddp", Outcome.RUN_LIMIT))
    assert result.message.endswith("; no task started on gpu1, gpu2")
    assert result.blamed is None


def test_what_others_print_to_stdout_does_not_matter():
    job, document = healthy("ddp")
    text = "NCCL version 2.21.5\n{'no': json}\n" + standin.line(document) + "bye\n"
    assert judge("ddp", job, text).verdict is PASS


@pytest.mark.parametrize("check", NODE_CHECKS)
def test_an_answer_from_another_node_fails(check):
    assert_fails(check, broken(check, ["proof", "host"], "gpu2"), "gpu1 took no part")


def test_a_domain_name_is_the_same_node():
    assert judge("cpus", *broken("cpus", ["proof", "host"], "gpu1.example.org")).verdict is PASS


def test_a_short_name_that_several_nodes_have_is_none_of_theirs():
    job = job_of("ddp", ("gpu1.rack1", "virtual", 1), ("gpu1.rack2", "virtual", 1))
    document = standin.ddp(job.hosts, job.config, 1)
    assert judge("ddp", job, document).verdict is PASS
    document["proof"]["ranks"][0]["host"] = "gpu1.rack3"
    assert_fails("ddp", (job, document), "but gpu1.rack1 took no part")


# --- did the asked ranks really take part? ---------------------------------------------------


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (["proof", "world_size"], 1, "1 ranks took part, 2 were asked for"),
        (["proof", "ranks", 1, "rank"], 0, "not 0 to 1, each once"),
        (["proof", "ranks", 1, "host"], "gpu1", "2 ranks on gpu1"),
        (["proof", "ranks", 1, "local_rank"], 1, "1 ranks on gpu2 (local ranks [1])"),
        (["proof", "ranks", 1, "host"], "gpu7", "but gpu2 took no part"),
        (["proof", "ranks", 1], ..., "not 0 to 1, each once: [0]"),
        (["proof", "ranks"], "all", "proof.ranks is no list"),
        (["proof", "ranks", 1, "rank"], True, "is no whole number"),
        (["proof", "backend"], "nccl", "ran with nccl, gloo was asked for"),
        (["proof", "torch"], None, "proof.torch is no text"),
        (["measured"], ..., "the answer has no measured"),
    ],
)
def test_other_ranks_than_asked_fail(check, path, value, reason):
    assert_fails(check, broken(check, path, value), reason)


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_many_silent_single_node_runs_fail(check):
    """What srun does when ranks do not find each other: each believes it is alone."""
    job, _ = healthy(check)
    config = {**job.config, "sizes_bytes": []}
    alone = [standin.line(getattr(standin, check)([host], config)) for host in HOSTS]
    assert_fails(check, (job, "".join(alone)), "2 answers")
    assert_fails(check, (job, alone[0]), "1 ranks took part")


H100 = (("h1", "h100_sxm", 8),)


@pytest.mark.parametrize(
    ("uuid", "reason"),
    [("GPU-h1-0", "two ranks used the same GPU"), (None, "does not say which GPU")],
)
def test_every_rank_needs_a_gpu_of_its_own(uuid, reason):
    job = job_of("all_reduce", *H100)
    document = standin.all_reduce(["h1"], job.config, 8, busbw_gbs=470)
    assert judge("all_reduce", job, document).verdict is PASS
    document["proof"]["ranks"][3]["gpu_uuid"] = uuid
    assert_fails("all_reduce", (job, document), reason)


# --- node tier -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "changes", "message"),
    [
        ("hostname", {"hostname": "gpu2"}, "the host calls itself gpu2"),
        ("hostname", {"hostname": "gpu10"}, "the host calls itself gpu10"),
        ("hostname", {"hostname": "gpu"}, "the host calls itself gpu"),
        ("cpus", {"cpus": 1}, "1 CPUs found, 2 declared"),
        ("cpus", {"cpus": 4}, "4 CPUs found, 2 declared"),
        ("memory", {"memory_mb": 1999}, "1999 MB found, 2000 declared"),
        ("gpus", {"gpus": 1}, "1 GPU device nodes found, 2 declared"),
        ("gpus", {"gpus": 3}, "3 GPU device nodes found, 2 declared"),
        ("gpus", {"names": [standin.GPU] * 2}, "declared as virtual, but the driver lists 2 real"),
        ("munge", {"munge_decoded": "Invalid (5)"}, "the login node's credential: Invalid (5)"),
        (
            "munge",
            {"munge_decoded": None, "munge_decode_error": "no unmunge"},
            "the node refuses the login node's credential: no unmunge",
        ),
        (
            "munge",
            {"munge_encoded": None, "munge_encode_error": "no socket"},
            "the node could not make a credential: no socket",
        ),
        ("tmp", {"tmp": standin.folder("/tmp", error="Read-only file system")}, "/tmp: Read-only"),
        ("tmp", {"tmp": standin.folder("/tmp", free_mb=3)}, "/tmp: 3 MB are free"),
        ("tmp", {"spool": standin.folder("/var/spool/slurmd", free_mb=0)}, "slurmd: 0 MB are free"),
        ("torch", {"torch": None, "torch_error": "libcudart.so.12: no"}, "libcudart.so.12: no"),
        ("torch", {"torch": None}, "torch cannot be imported"),
        ("torch", {"torch": "2.9.0", "torch_error": "no libnccl"}, "no libnccl"),
    ],
)
def test_what_is_wrong_on_a_node_is_its_own_fault(check, changes, message):
    result = assert_fails(check, healthy(check, **changes), message)
    assert result.blamed is None


def test_more_memory_than_declared_is_fine():
    assert judge("memory", *healthy("memory", memory_mb=64000)).verdict is PASS


def test_a_cpu_node_must_have_no_gpu():
    job = job_of("node-c1", ("c1", "none", 0))
    for gpus, verdict in ((0, PASS), (1, FAIL)):
        assert judge("gpus", job, standin.node("c1", gpus=gpus)).verdict is verdict


REAL = (("h1", "h100_sxm", 2),)
STAND_IN = "Virtual GPU (stand-in for NVML)"


def with_stand_in():
    """The job of a node of virtual GPUs for which a stand-in for NVML is declared."""
    (node,) = NODE.nodes
    return replace(NODE, nodes=(replace(node, gpus=replace(node.gpus, nvml=True)),))


@pytest.mark.parametrize(
    ("names", "verdict", "message"),
    [
        (["right"] * 2, PASS, ""),
        (["right"], FAIL, "NVML answers for 1 GPUs, 2 declared"),
        ([], FAIL, "NVML answers for 0 GPUs, 2 declared: pynvml cannot be imported"),
        (["NVIDIA H200"] * 2, FAIL, "NVML says NVIDIA H200; {} is known as"),
    ],
)
@pytest.mark.parametrize(
    ("job", "model", "right"),
    [(job_of("node-h1", *REAL), "h100_sxm", standin.GPU), (with_stand_in(), "virtual", STAND_IN)],
    ids=["real", "stand-in"],
)
def test_gpus_are_counted_and_named_by_the_driver(job, model, right, names, verdict, message):
    names = [right if name == "right" else name for name in names]
    result = judge("gpus", job, standin.node(job.hosts[0], names=names))
    assert result.verdict is verdict
    assert result.message.startswith(message.format(model))


@pytest.mark.parametrize(
    ("text", "busy"),
    [
        ("mixed", True),
        ("allocated", True),
        ("completing", True),  # the last job's epilog still runs
        ("mixed-", True),
        ("idle", False),
        ("down", False),
    ],
)
def test_a_node_is_busy_as_long_as_a_job_is_on_it(text, busy):
    assert node_states.busy(state(text)) is busy


@pytest.mark.parametrize("check", ["ddp", "pipeline"])
def test_a_count_below_nothing_fails(check):
    answer = broken(check, ["measured", "parameters"], -1)
    assert_fails(check, answer, "parameters is no whole number: -1")


def test_a_gpu_that_the_driver_lists_twice_fails():
    job = job_of("node-h1", *REAL)
    document = standin.node("h1", names=[standin.GPU] * 2)
    document["measured"]["gpus"][1]["uuid"] = document["measured"]["gpus"][0]["uuid"]
    assert_fails("gpus", (job, document), "NVML lists one GPU twice")


def test_an_unknown_model_is_still_counted():
    job = job_of("node-x", ("x", "tpu_v9", 2))
    good = judge("gpus", job, standin.node("x", names=["TPU v9"] * 2))
    assert good.verdict is UNKNOWN
    assert "no thresholds file has board names of tpu_v9, found TPU v9" in good.message
    assert judge("gpus", job, standin.node("x", names=["TPU v9"])).verdict is FAIL


@pytest.mark.parametrize(
    ("munge", "reason"),
    [
        (None, "the login node made no credential"),
        (MungeReply("munged is down", 0, "Success (0)"), "munged is down"),
        (MungeReply(None, 15, "Expired credential (15)"), "the login node refuses the node's"),
        (MungeReply(None, 15, "Success (0)"), "the login node refuses the node's credential: Succ"),
        (MungeReply(None, None, "no answer in 10 s"), "was not tried on the login node: no answer"),
        (MungeReply(None, 0, None), "unmunge ended with 0"),
    ],
)
def test_the_login_nodes_half_of_munge_counts(munge, reason):
    assert_fails("munge", healthy("munge"), reason, munge=munge)


@pytest.mark.parametrize(
    ("offset_s", "verdict"),
    [
        (0.0, PASS),
        (0.49, PASS),
        (-0.49, PASS),
        (0.6, WARN),
        (-0.6, WARN),
        (1.1, FAIL),
        (-400.0, FAIL),
    ],
)
def test_a_clock_that_is_off_fails(offset_s, verdict):
    now = time.time_ns()
    document = standin.node("gpu1", time_ns=now + int(offset_s * 1e9))
    result = judge("clock", NODE, document, document_ns=now)
    assert result.verdict is verdict
    assert (result.message == "") == (verdict is PASS)
    if offset_s == -400.0:
        assert "400 s behind" in result.message


def seconds(number):
    return int(number * 1e9)


@pytest.mark.parametrize(
    ("late_s", "ahead_s", "verdict"),
    [
        (0.01, 0, PASS),
        (30, 0, UNKNOWN),  # every line came 30 s late
        (0.6, 0, PASS),
        (0.01, 1.5, FAIL),
        (0.01, -1.5, FAIL),
        (30, 1.5, UNKNOWN),
        (0.01, -0.7, WARN),
    ],
)
def test_a_clock_is_judged_by_what_both_ways_leave_open(late_s, ahead_s, verdict):
    """The login node's time t is t + ahead_s on the node; lines reach the login node late."""
    sent, ended = 100.0, 101.0
    start = Start(
        "gpu1",
        seconds(sent - 0.5 + ahead_s),
        seconds(sent - 0.5 + late_s),
        seconds(sent + 0.02 + ahead_s),
    )
    document = standin.node("gpu1", time_ns=seconds(ended + ahead_s))
    times = {"document_ns": seconds(ended + late_s), "fed_ns": seconds(sent)}
    assert judge("clock", NODE, document, **times, starts=(start,)).verdict is verdict


def test_a_clock_is_bound_by_the_earliest_receipt_of_the_input():
    """The node is 1.5 s behind; its lines are 30 s late, and one of two tasks read late too."""
    starts = (
        Start("gpu1", seconds(98), seconds(129.5), seconds(98.52)),
        Start("gpu1", seconds(98), seconds(129.5), seconds(138)),
    )
    document = standin.node("gpu1", time_ns=seconds(99.5))
    times = {"document_ns": seconds(131), "fed_ns": seconds(100)}
    assert judge("clock", NODE, document, **times, starts=starts).verdict is FAIL


def test_a_slow_line_does_not_make_a_clock_wrong():
    """The answer took 3 s through srun, the line at the start took none."""
    now = time.time_ns()
    document = standin.node("gpu1", time_ns=now)
    s = 10**9
    for node_ns, arrival_ns, verdict in ((now - s, now - s, PASS), (now + 5 * s, now, FAIL)):
        starts = (Start("gpu1", node_ns, arrival_ns),)
        late = judge("clock", NODE, document, document_ns=now + 3 * s, starts=starts)
        assert late.verdict is verdict


STRESS = {"pid": 4711, "user": "ada", "command": "stress-ng", "cpus": 0.6}
TOLD = "processes outside of Slurm ask for {:g} of 2 CPUs and have 0.6, for 3 s: pid 4711, ada, "


@pytest.mark.parametrize(
    ("asked", "verdict", "words"),
    [
        (0.9, PASS, ""),
        (1.0, WARN, f"{TOLD.format(1.0)}stress-ng, 1 CPUs"),
        (1.4, WARN, TOLD.format(1.4)),
        (2.0, FAIL, f"{TOLD.format(2.0)}stress-ng, 2 CPUs"),
        (-1.0, FAIL, "0.6 CPUs are used outside of Slurm, -1 asked for"),
    ],
)
def test_what_runs_outside_of_slurm_is_told(asked, verdict, words):
    processes = [{**STRESS, "asked": asked}]
    outside = {"cpus": 0.6, "asked": asked, "seconds": 3.0, "processes": processes}
    result = judge("cpus", *healthy("cpus", outside=outside))
    assert result.verdict is verdict
    assert result.message.startswith(words)
    assert bool(result.message) == bool(words)
    if verdict is FAIL and asked > 0:
        assert (result.value.value, result.threshold.value) == (1.0, 0.5)


def test_a_clock_without_an_arrival_time_fails():
    assert judge("clock", *healthy("clock"), document_ns=None).verdict is FAIL


# --- all_reduce ------------------------------------------------------------------------------

SIZES = ["measured", "sizes"]


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ([*SIZES, 1, "wrong_by_rank"], [0, 3], "3 elements of the sum over 1 MiB are wrong, on"),
        ([*SIZES, 1, "wrong_by_rank"], [0], "no count for each of 2 ranks"),
        ([*SIZES, 1, "wrong_by_rank"], [1, -1], "no count for each of 2 ranks"),
        ([*SIZES, 1, "wrong_by_rank"], [0, 0.5], "no count for each of 2 ranks"),
        ([*SIZES, 1, "wrong_by_rank"], 0, "wrong_by_rank is no list"),
        ([*SIZES, 0, "calls_checked"], 2, "2 of 6 calls were checked"),
        ([*SIZES, 0, "calls_checked"], 7, "7 of 6 calls were checked"),
        ([*SIZES, 0, "dtype"], "bfloat16", "summed bfloat16, float32 was asked for"),
        ([*SIZES, 2, "time_s_median"], "nan", "time_s_median is nan"),
        ([*SIZES, 2, "time_s_median"], "inf", "time_s_median is inf"),
        ([*SIZES, 2, "time_s_median"], 1e999, "cannot be read: Infinity is not a number"),
        ([*SIZES, 2, "time_s_median"], 0.0, "impossible times"),
        ([*SIZES, 2, "time_s_max"], 0.0, "impossible times"),
        ([*SIZES, 2, "time_s_max"], 10**400, "is inf"),
        ([*SIZES, 2, "busbw_gbs"], 99.0, "the payload claims 99 GB/s for 4 MiB"),
        ([*SIZES, 2, "calls_s"], [0.007] * 5, "its calls give 0.007, 0.007, 0.007"),
        ([*SIZES, 2, "calls_s"], [0.007] * 4, "4 calls were timed, 5 asked for"),
        ([*SIZES, 2, "calls_s"], [0.007] * 4 + [0.0], "impossible times of calls"),
        ([*SIZES, 2, "calls_s"], [0.007] * 4 + [1e6], "impossible times of calls"),
        ([*SIZES, 2, "work_s_by_rank"], [0.007], "work_s_by_rank is of 1 ranks"),
        ([*SIZES, 2, "work_s_by_rank"], [0.007, -1.0], "impossible times of work"),
        ([*SIZES, 2, "elements"], 1, "1 elements are not 4194304 bytes"),
        ([*SIZES, 2], ..., "measured sizes [65536, 1048576], asked for"),
        ([*SIZES, 2, "bytes"], 4, "asked for"),
        (SIZES, [], "measured sizes []"),
    ],
)
def test_a_wrong_all_reduce_fails(path, value, reason):
    assert_fails("all_reduce", broken("all_reduce", path, value), reason)


def summed(nodes, **changes):
    """The job of a sum on these nodes, and an answer."""
    job = job_of("all_reduce", *nodes)
    return job, standin.all_reduce(job.hosts, job.config, job.ranks_per_node, **changes)


TWO = (("gpu1", "virtual", 2), ("gpu2", "virtual", 2))
UNKNOWN_MODEL = (("x1", "tpu_v9", 8),)


@pytest.mark.parametrize(
    ("nodes", "busbw_gbs", "verdict"),
    [
        (TWO, 0.049, FAIL),
        (TWO, 0.051, PASS),
        ((("n1", "none", 0), ("n2", "none", 0)), 0.049, FAIL),
        (H100, 459.9, FAIL),
        (H100, 460.1, PASS),
        ((("b1", "b200", 8),), 711.0, FAIL),
        ((("b1", "b200", 8),), 712.5, WARN),
        ((("b1", "b200", 8),), 838.0, PASS),
        ((("h1", "h100_sxm", 4),), 460.1, UNKNOWN),
        ((("h1", "h100_sxm", 8), ("h2", "h100_sxm", 8)), 460.1, UNKNOWN),
        ((("l1", "l40s", 4),), 20.0, UNKNOWN),
        (UNKNOWN_MODEL, 999.0, UNKNOWN),
    ],
)
def test_the_bandwidth_is_judged_by_the_rule_that_fits(nodes, busbw_gbs, verdict):
    job, document = summed(nodes, busbw_gbs=busbw_gbs)
    known = thresholds.load(job.nodes[0].hardware).model
    if known is not None:
        for rank in document["proof"]["ranks"]:
            rank["gpu"] = rank["gpu"] and known.nvml_names[0]
    result = judge("all_reduce", job, document)
    assert result.verdict is verdict
    assert result.value == Metric(result.value.name, busbw_gbs, "GB/s")
    if verdict is UNKNOWN:
        assert f"measured {busbw_gbs} GB/s; record a baseline" in result.message
        assert result.threshold is None


def test_the_largest_size_is_judged_and_not_the_best():
    job, document = healthy("all_reduce")
    last = document["measured"]["sizes"][-1]
    for name in ("time_s_min", "time_s_median", "time_s_max"):
        last[name] *= 100
    last["calls_s"] = [seconds * 100 for seconds in last["calls_s"]]
    last["busbw_gbs"] /= 100
    result = judge("all_reduce", job, document)
    assert result.verdict is FAIL
    assert result.value.name == "busbw 4 MiB"


@pytest.mark.parametrize(
    ("nodes", "busbw_gbs"),
    [
        (TWO, 1e9),
        (TWO, 401.0),
        (H100, 1e9),
        (UNKNOWN_MODEL, 2001.0),  # also where nothing else is known
    ],
)
def test_more_than_hardware_carries_is_no_measurement(nodes, busbw_gbs):
    assert_fails("all_reduce", summed(nodes, busbw_gbs=busbw_gbs), "more than any link carries")


def test_a_models_own_ceiling_counts_too(tmp_path):
    rule = (
        "{operation: all_reduce, dtype: float32, nodes: 1, ranks_per_node: 8, links: any, "
        "fabric: any, backend: nccl, min_bytes: 4, fail_below_gbs: 460, fail_above_gbs: 900, "
        "provenance: datasheet, source: test, date: 2026-05-01}"
    )
    (tmp_path / "h100_sxm.yml").write_text(f"model: h100_sxm\ncollectives: [{rule}]\n")
    rules = thresholds.load("h100_sxm", tmp_path)
    for busbw_gbs, verdict in ((899.0, PASS), (901.0, FAIL)):
        job, document = summed(H100, busbw_gbs=busbw_gbs)
        assert judged("all_reduce", job, reply_to(job, document), rules).verdict is verdict


def test_a_wrong_sum_fails_even_where_no_threshold_is_known():
    assert judge("all_reduce", *summed(UNKNOWN_MODEL, wrong=1)).verdict is FAIL


@pytest.mark.parametrize(
    ("wrong", "blamed", "words"),
    [
        ([0, 7], ("gpu2",), "on rank 1 on gpu2"),
        ([7, 0], ("gpu1",), "on rank 0 on gpu1"),
        ([7, 7], None, "on all 2 ranks"),
    ],
)
def test_a_wrong_sum_is_blamed_on_the_node_that_alone_has_it(wrong, blamed, words):
    answer = broken("all_reduce", [*SIZES, 0, "wrong_by_rank"], wrong)
    result = assert_fails("all_reduce", answer, words)
    assert (result.blamed, result.value.value) == (blamed, sum(wrong))


# --- training --------------------------------------------------------------------------------

CURVE = ["measured", "curves", 0]
ROW = ["measured", "ranks", 1]


@pytest.mark.parametrize("check", TRAININGS)
@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ([*CURVE, "steps", 2, "loss"], "nan", "loss difference is not finite"),
        ([*CURVE, "steps", 2, "loss"], 5.0, "loss difference is"),
        ([*CURVE, "steps", 2, "loss"], None, "loss is no"),
        ([*CURVE, "steps", 2, "loss"], 1e308, "loss difference is not finite"),
        ([*CURVE, "steps", 2, "reference"], 1e308, "reference is 1e+308, which nothing measures"),
        ([*CURVE, "steps", 4], ..., "not every model has its losses of the 5 steps"),
        ([*CURVE, "ranks"], 1, "[1] ranks trained together, [2] were asked for"),
        (["measured", "curves"], [], "[] ranks trained together"),
        (["measured", "steps"], 4, "4 steps were trained, 5 were asked for"),
        ([*ROW, "first_step", "computed"], "nan", "first-step difference is not finite"),
        ([*ROW, "first_step", "computed"], 1.1e-5, "difference is 1.1e-05, at most 1e-05"),
        ([*ROW, "first_step", "exchanged"], 0.1, "first-step difference is 0.1"),
        ([*ROW, "first_step", "exchanged"], -1.0, "a difference of -1"),
        ([*ROW, "first_step", "exchanged"], ..., "has no measured.ranks[1].first_step.exchanged"),
        ([*ROW, "steps", 4, "parameters"], 1.1e-4, "difference is 0.00011, at most 0.0001"),
        ([*ROW, "steps", 4, "parameters"], "inf", "parameter difference is not finite"),
        ([*ROW, "steps", 4], ..., "not compared after each of the 5 steps"),
        ([*ROW, "movement"], "nan", "movement is nan"),
        ([*ROW, "rank"], 0, "figures of the ranks [0, 0], asked for 0 to 1"),
        (ROW, ..., "figures of the ranks [0], asked for 0 to 1"),
        (["measured", "parameters"], 0, "no parameters were compared"),
        (["measured", "samples_per_s"], 0, "the training took no time"),
        (["measured", "step_time_s_median"], None, "is no number"),
    ],
)
def test_a_training_that_went_wrong_fails(check, path, value, reason):
    assert_fails(check, broken(check, path, value), reason)


@pytest.mark.parametrize("check", TRAININGS)
def test_a_difference_within_the_tolerance_passes_and_is_shown(check):
    result = judge(check, *broken(check, [*ROW, "steps", 4, "parameters"], 9e-5))
    assert result.verdict is PASS
    assert result.value == Metric("parameter difference", 9e-5)
    assert Metric("reference's movement", 0.1) in result.metrics


@pytest.mark.parametrize("check", TRAININGS)
@pytest.mark.parametrize(
    "still",
    [
        lambda measured: measured["ranks"][1].update(movement=8e-5),  # as the suite once had it
        lambda measured: [
            step.update(loss=1 - 1e-5 * i, reference=1 - 1e-5 * i)
            for i, step in enumerate(measured["curves"][0]["steps"])
        ],
        lambda measured: [
            step.update(loss=0.0, reference=0.0) for step in measured["curves"][0]["steps"]
        ],
    ],
    ids=["parameters", "losses", "no loss"],
)
def test_a_reference_that_hardly_moves_proves_nothing(check, still):
    job, document = healthy(check)
    still(document["measured"])
    result = judge(check, job, document)
    assert result.verdict is UNKNOWN
    assert "at least 0.01 is needed for a comparison" in result.message


FOUR = tuple((f"n{i}", "virtual", 1) for i in range(4))


def four(check, change):
    """What is said when four ranks on as many nodes have other figures; `change` gets the rows."""
    job = job_of(check, *FOUR)
    document = getattr(standin, check)(job.hosts, job.config)
    change(document["measured"]["ranks"])
    result = judge(check, job, document)
    assert result.verdict is FAIL
    return result.blamed, result.message.partition("; it began with ")[2]


def off(name, *ranks):
    def change(rows):
        for rank in ranks:
            rows[rank]["first_step"][name] = 0.5
        for row in rows:  # and from there it spreads
            for step in row["steps"]:
                step["parameters"] = 0.5

    return change


def drifted(step, *ranks):
    def change(rows):
        for rank, row in enumerate(rows):
            for number in range(step + (rank not in ranks), len(row["steps"])):
                row["steps"][number]["parameters"] = 0.5

    return change


def held(step, rank):
    """A rank's own weights are off before a step, and so all have them from there."""

    def change(rows):
        for row in rows:
            row["steps"][step].update(weights=0.5, owner=rank)
        rows[rank]["steps"][step]["own"] = 0.5

    return change


def gathered(step, rank, owner):
    """What one rank has of another's weights is off, which are right where they are held."""
    return lambda rows: rows[rank]["steps"][step].update(weights=0.5, owner=owner)


def came(name, rank, partner):
    return lambda rows: rows[rank]["first_step"].update({name: 0.5, f"{name}_from": partner})


@pytest.mark.parametrize(
    ("check", "change", "blamed", "words"),
    [
        ("ddp", off("computed", 2), ("n2",), "what was computed by rank 2 on n2"),
        ("ddp", off("computed", 1, 2), ("n1", "n2"), "what was computed by rank 1 on n1 and rank"),
        ("ddp", off("exchanged", 0, 1, 2, 3), None, "the averaged gradient of rank 0 on n0"),
        ("ddp", off("exchanged", 3), ("n3",), "the averaged gradient of rank 3 on n3"),
        ("ddp", drifted(0, 1), ("n1",), "the parameters after step 1 of rank 1 on n1"),
        ("ddp", drifted(0, 0, 1, 2, 3), ("n0", "n1", "n2", "n3"), "the parameters after step 1"),
        ("ddp", drifted(2, 1, 3), None, "the parameters after step 3 of rank 1 on n1 and rank 3"),
        ("pipeline", off("computed", 2), ("n2",), "what was computed by rank 2 on n2"),
        ("pipeline", off("received", 2, 3), None, "what went from rank 1 on n1 and rank 2 on n2"),
        ("pipeline", off("exchanged", 3), ("n3",), "the gradient of rank 3 on n3"),
        ("pipeline", off("exchanged", 0, 1), None, "what came back between rank 1 on n1 and rank"),
        ("pipeline", drifted(0, 0), ("n0",), "the parameters after step 1 of rank 0 on n0"),
        ("fsdp", off("computed", 2), ("n2",), "what was computed by rank 2 on n2"),
        ("fsdp", off("exchanged", 3), None, "the averaged gradient of rank 3 on n3"),
        ("fsdp", held(0, 1), ("n1",), "the weights for step 1 that were held by rank 1 on n1"),
        ("fsdp", held(2, 1), ("n1",), "the weights for step 3 that were held by rank 1 on n1"),
        (
            "fsdp",
            gathered(1, 2, 0),
            None,
            "the weights for step 2 that went between rank 0 on n0 a",
        ),
        ("fsdp", drifted(0, 1), ("n1",), "the parameters after step 1 of rank 1 on n1"),
        ("tensor_parallel", held(0, 3), ("n3",), "the weights for step 1 that were held by rank 3"),
        ("tensor_parallel", off("received", 1), None, "the sums that came to rank 1 on n1"),
        (
            "mesh",
            off("received", 0, 1, 2, 3),
            None,
            "the sums that came to rank 0 on n0 and rank 1",
        ),
        ("expert_parallel", off("computed", 2), ("n2",), "what was computed by rank 2 on n2"),
        (
            "expert_parallel",
            came("received", 2, 0),
            None,
            "the tokens that went from rank 0 on n0 a",
        ),
        (
            "expert_parallel",
            came("returned", 1, 3),
            None,
            "the tokens that came from rank 3 on n3 a",
        ),
        ("expert_parallel", off("exchanged", 0, 1, 2, 3), None, "the averaged gradient of rank 0"),
        ("expert_parallel", off("experts", 3), None, "the gradient of the experts of rank 3 on n3"),
    ],
)
def test_a_training_says_where_it_began_to_go_wrong(check, change, blamed, words):
    accused, began_with = four(check, change)
    assert accused == blamed
    assert began_with.startswith(words)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["rows"], [1, 1], "the ranks stood in 1, 1 rows, 2 were asked for"),
        (["columns"], [2], "the ranks stood in 2 columns, 1 were asked for"),
        (["ranks", 0, "steps", 1, "owner"], 2, "owner is rank 2, there are 2"),
        (["ranks", 0, "steps", 1, "weights"], "inf", "parameter difference is not finite"),
    ],
)
def test_a_model_that_was_split_another_way_than_asked_fails(path, value, words):
    assert_fails("fsdp", broken("fsdp", ["measured", *path], value), words)


def test_the_mesh_says_its_shape():
    assert Metric("mesh", "2 data × 1 tensor") in judge("mesh", *healthy("mesh")).metrics
    job = job_of("mesh", *FOUR)
    result = judge("mesh", job, standin.mesh(job.hosts, job.config))
    assert Metric("mesh", "2 data × 2 tensor") in result.metrics


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: parts.pop(), "gpipe, 1f1b ran, gpipe, 1f1b, interleaved were asked for"),
        (lambda parts: parts.clear(), "no schedule ran"),
        (lambda parts: parts.reverse(), "interleaved, 1f1b, gpipe ran"),
        (
            lambda parts: parts[2]["ranks"].pop(),
            "figures of the ranks [0, 1, 0], asked for [0, 1, ",
        ),
        (lambda parts: parts[1]["curves"][0]["steps"][1].update(loss=9.0), "1f1b: loss difference"),
    ],
)
def test_every_schedule_must_have_run_and_be_right(change, words):
    job, document = healthy("schedules")
    change(document["measured"]["schedules"])
    assert_fails("schedules", (job, document), words)


def test_the_way_back_to_the_first_rank_is_named():
    """Of four ranks with two stages each, the fifth stage gets what the fourth rank sends."""
    job = job_of("schedules", *FOUR)
    document = standin.schedules(job.hosts, job.config)
    assert [row["rank"] for row in document["measured"]["schedules"][2]["ranks"]] == [
        0,
        1,
        2,
        3,
    ] * 2
    document["measured"]["schedules"][2]["ranks"][4]["first_step"]["received"] = 0.5
    result = judge("schedules", job, document)
    assert result.blamed is None
    assert "interleaved: " in result.message
    assert "what went from rank 3 on n3 and rank 0 on n0" in result.message


@pytest.mark.parametrize("check", TRAININGS)
@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([1e4] * 5, "step time / reference's is 2e+04, at most 5e+03 expected"),
        ([1, 1, 1e3, 1, 1], "slowest step / median is 1e+03, at most 5e+02 expected"),
        ([1e3, 1, 1, 1, 1], None),  # libraries set themselves up
        ([1, 1, 100, 1, 1], None),  # a machine that was busy with something else
        ([100] * 5, None),
    ],
)
def test_steps_that_take_too_long_are_seen(check, factors, words):
    times = [0.004 * factor for factor in factors]
    changes = {"step_times_s": times, "step_time_s_median": statistics.median(times)}
    answer = healthy(check, **changes)
    if words is None:
        assert judge(check, *answer).verdict is PASS
    else:
        assert assert_fails(check, answer, words).blamed is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step_times_s": [0.004] * 4}, "not each of the 5 steps took its time"),
        ({"step_times_s": [0.004] * 4 + [0]}, "not each of the 5 steps took its time"),
        ({"step_time_s_median": 0.001}, "the median of the steps' times is another"),
        ({"reference_step_s": 0}, "the reference took no time"),
    ],
)
def test_times_that_do_not_fit_together_fail(changes, words):
    assert_fails("ddp", healthy("ddp", **changes), words)


def test_a_reference_of_no_length_makes_no_step_slow():
    assert judge("ddp", *healthy("ddp", reference_step_s=1e-9)).verdict is PASS


def test_many_ranks_train_in_several_chains():
    nodes = tuple((f"n{i}", "virtual", 1) for i in range(40))
    job = job_of("pipeline", *nodes)
    assert job.config["microbatches"] == 16
    document = standin.pipeline(job.hosts, job.config)
    assert [curve["ranks"] for curve in document["measured"]["curves"]] == [14, 13, 13]
    assert judge("pipeline", job, document).verdict is PASS
    document["measured"]["ranks"][13]["first_step"]["exchanged"] = 1.0  # the first chain's last
    assert judge("pipeline", job, document).blamed == ("n13",)
    document["measured"]["ranks"][14]["first_step"]["received"] = 1.0  # the second one's first
    assert judge("pipeline", job, document).blamed == ("n14",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"microbatches": 1}, "1 microbatches ran, 16 were asked for"),
        ({"bubble_fraction_ideal": 0.5}, "the payload claims a bubble of 0.5"),
    ],
)
def test_another_pipeline_than_asked_fails(changes, reason):
    assert_fails("pipeline", healthy("pipeline", **changes), reason)


# --- what else a node must have --------------------------------------------------------------


def test_a_node_without_a_spool_that_can_be_found_is_judged_by_tmp_alone():
    assert judge("tmp", *healthy("tmp", spool=None)).verdict is PASS


def test_the_host_name_is_the_one_that_slurm_uses():
    """NodeName and NodeHostname may differ, on purpose."""
    answer = healthy("hostname", hostname="rack7-12.example.org")
    states = (NodeState("gpu1", "idle", hostname="rack7-12"),)
    assert judge("hostname", *answer, states=states).verdict is PASS
    assert judge("hostname", *answer).verdict is FAIL


@pytest.mark.parametrize(
    ("answer", "verdict", "value"),
    [
        (Accounting("accounting_storage/slurmdbd"), PASS, "answers"),
        (Accounting("(null)", configured=False), PASS, "none configured"),
        (Accounting("x", error="no slurmdbd"), FAIL, "does not answer"),
    ],
)
def test_accounting_is_nobodys_fault(answer, verdict, value):
    result = accounting.evaluate(Subject("slurm", ("gpu1", "gpu2")), answer)
    assert result.value is not None
    assert (result.verdict, result.value.value, result.blamed) == (verdict, value, ())


def test_nodes_of_one_name_in_two_domains_are_two_nodes():
    job = job_of("ddp", ("n1.a", "virtual", 2), ("n1.b", "virtual", 2))
    document = standin.ddp(["n1.a", "n1.b"], job.config)
    assert judge("ddp", job, document).verdict is PASS
    for rank in document["proof"]["ranks"]:
        rank["host"] = "n1.a"
    assert judge("ddp", job, document).verdict is FAIL
    silent = Reply("ddp", Outcome.RUN_LIMIT, starts=(Start("n1.a", 1, 1),))
    result = judged("ddp", job, silent)
    assert (result.blamed, "started on n1.b" in result.message) == (("n1.b",), True)


@pytest.mark.parametrize("check", ANSWERED)
def test_an_answer_of_another_job_of_this_run_is_refused(check):
    answer = healthy_answers.healthy(check)
    nonce = "20260102T030405Z-ab12-0123456789abcdef-other"
    text = standin.line({**answer.document, "nonce": nonce})
    assert healthy_answers.verdict(check, answer.job, text) is FAIL


# --- Slurm's own view ------------------------------------------------------------------------

GPU1 = Node("gpu1", 2, 2000, Gpus("virtual", 2), "ethernet")


def state(text, **changes):
    return replace(NodeState("gpu1", text, 2, 2000, "gpu:virtual:2(S:0)"), **changes)


@pytest.mark.parametrize(
    "text",
    # The last two are powered down, and woken by the job.
    ["idle", "mixed", "allocated", "completing", "mixed-", "planned", "idle~", "idle#"],
)
def test_a_node_that_takes_jobs_passes(text):
    assert slurm_state.evaluate(GPU1, state(text)).verdict is PASS


@pytest.mark.parametrize(
    ("text", "verdict", "message"),
    [
        ("down", FAIL, "Slurm says down (no network)"),
        ("down*", FAIL, "Slurm says down* (no network)"),
        ("drained", FAIL, "Slurm says drained (no network)"),
        ("draining@", UNKNOWN, "the node is drained and is about to reboot"),
        ("reboot^", UNKNOWN, "the node is rebooting"),
        ("external", UNKNOWN, "the node has no slurmd (State=EXTERNAL)"),
        ("down$", UNKNOWN, "the node is in a maintenance reservation"),
        ("inval", FAIL, "Slurm says inval"),
        ("unknown", FAIL, "Slurm says unknown"),
        ("fail", FAIL, "Slurm says fail"),
        ("idle*", FAIL, "the node does not answer (no network)"),
        ("idle*~", FAIL, "the node does not answer (no network)"),
        ("maint*", UNKNOWN, "the node is in a maintenance reservation"),
        ("idle?", FAIL, "the node has the flag ?"),
        ("IDLE+DRAIN", FAIL, "the node has the flag +"),
        ("", FAIL, "Slurm says "),
        # What passes or was meant so is no fault.
        ("reserved", UNKNOWN, "the node is in a reservation"),
        ("maint", UNKNOWN, "the node is in a reservation"),
        ("mixed$", UNKNOWN, "the node is in a maintenance reservation"),
        ("idle%", UNKNOWN, "the node is powering down"),
        ("idle!", UNKNOWN, "the node is about to be powered down"),
        ("idle@", UNKNOWN, "the node is about to reboot"),
        ("idle^", UNKNOWN, "the node is rebooting"),
    ],
)
def test_a_node_that_takes_no_jobs_says_why(text, verdict, message):
    result = slurm_state.evaluate(GPU1, state(text, reason="no network"))
    assert result.verdict is verdict
    assert result.message.startswith(message)
    assert (result.blamed == ()) is (verdict is UNKNOWN)


@pytest.mark.parametrize("text", ["reserved", "maint", "mixed$", "idle"])
def test_inside_of_a_reservation_its_nodes_are_in_service(text):
    assert slurm_state.evaluate(GPU1, state(text), reserved=True).verdict is PASS
    drained = slurm_state.evaluate(GPU1, state("drained$"), reserved=True)
    assert drained.verdict is FAIL


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpus": 1}, "Slurm counts 1 CPUs, 2 are declared"),
        ({"cpus": 3}, "Slurm counts 3 CPUs, 2 are declared"),
        ({"memory_mb": 1999}, "Slurm counts 1999 MB, 2000 are declared"),
        ({"memory_mb": None}, "Slurm counts None MB, 2000 are declared"),
        ({"gres": ""}, "Slurm counts 0 GPUs, 2 GPUs are declared"),
        ({"gres": "gpu:4"}, "Slurm counts 4 GPUs, 2 GPUs are declared"),
        ({"gres": "gpu:2"}, "Slurm has gpu:2, gpu:virtual:2 is declared"),
        ({"gres": "gpu:virtua1:2"}, "Slurm has gpu:virtua1:2, gpu:virtual:2 is declared"),
        ({"gres": "gpu:virtual:1,gpu:half:1"}, "Slurm has gpu:half:1,gpu:virtual:1, gpu:virtual:2"),
    ],
)
def test_slurm_must_know_the_node_as_declared(changes, message):
    result = slurm_state.evaluate(GPU1, state("idle", **changes))
    assert result.verdict is FAIL
    assert message in result.message


def test_a_node_that_slurm_does_not_know_fails():
    result = slurm_state.evaluate(GPU1, None)
    assert (result.verdict, result.message) == (FAIL, "Slurm does not know this node")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("", {}),
        ("gpu:8", {"": 8}),
        ("gpu", {"": 1}),
        ("gpu:t4", {"t4": 1}),
        ("gpu:h100_sxm:8(S:0-1)", {"h100_sxm": 8}),
        ("gpu:a100:4(S:0,1),gpu:1g.5gb:8,gpu:a100:2,shard:16", {"a100": 6, "1g.5gb": 8}),
        ("shard:gpu:4", {}),
    ],
)
def test_gpus_in_a_gres_string(gres, gpus):
    assert slurm_state.gpus_of(gres) == gpus


@pytest.mark.parametrize(
    ("gres", "slurm", "green"),
    [
        ("gpu:half:4", "gpu:half:4(S:0)", True),
        ("gpu:half:4", "gpu:virtual:4", False),
        ("gpu:2", "gpu:any:2", True),  # asked for without a type, every type will do
        ("gpu:2", "gpu:4", False),
    ],
)
def test_a_site_may_give_slurm_another_type(gres, slurm, green):
    node = replace(GPU1, gpus=replace(GPU1.gpus, gres=gres))
    assert slurm_state.evaluate(node, state("idle", gres=slurm)).verdict.green is green


# --- documentation ---------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.info.name)
def test_every_check_says_what_why_and_what_to_do(check):
    info = check.info
    assert CHECKS[info.name] is check
    for text in (info.summary, info.what, info.why, info.advice):
        assert len(text) > 20
    # What the cluster tier finds needs the commands that fit the finding: the report has them.
    # Pairs name the node or the link, and a training that is resumed the file.
    named = info.name in ("pairs", "checkpoint", "resume")
    assert bool(info.commands) == (info.tier is Tier.NODE or check.payload is None or named)
    assert all(command.format(node="gpu1") for command in info.commands)


# --- the environment of the ranks ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"NCCL_SOCKET_IFNAME": "ib0"}, ""),
        ({"NCCL_SOCKET_IFNAME": "ib0", "NCCL_DEBUG": "INFO"}, ""),  # a TaskProlog's own
        ({"NCCL_SOCKET_IFNAME": "eth0"}, "is declared as 'ib0', and was 'eth0' in the ranks"),
        ({}, "is declared as 'ib0', and did not reach the ranks"),
        ({"NCCL_SOCKET_IFNAME": 0}, "proof.environment is no mapping of texts"),
        ([], "proof.environment is no mapping of texts"),
    ],
)
def test_ranks_that_saw_another_environment_than_declared_prove_nothing(environment, words):
    job, document = healthy("ddp")
    job = replace(job, environment=(("NCCL_SOCKET_IFNAME", "ib0"),))
    document["proof"]["environment"] = environment
    result = judge("ddp", job, document)
    assert result.verdict is (FAIL if words else PASS)
    assert words in result.message
    if not words:
        assert result.proof is not None
        assert dict(result.proof.environment) == environment


# --- over what the ranks spoke -------------------------------------------------------------------

NETWORKED = (("h1", "h100_sxm", 2, "ib_ndr400"), ("h2", "h100_sxm", 2, "ib_ndr400"))


def networked(check, fabric="ib_ndr400", **changes):
    """A job of four ranks where InfiniBand is declared, and an answer of one that ran over this."""
    job = job_of(check, *NETWORKED)
    more = {"busbw_gbs": 300.0} if check == "all_reduce" else {}
    return job, getattr(standin, check)(
        job.hosts, job.config, job.ranks_per_node, fabric=fabric, **more, **changes
    )


def over(check, fabric, **changes):
    return judge(check, *networked(check, fabric, **changes))


def test_a_declared_fabric_that_was_used_changes_nothing():
    result = over("all_reduce", "ib_ndr400")
    assert result.verdict is UNKNOWN  # no bandwidth is recorded for two nodes
    assert "no threshold recorded" in result.message
    for check in ("ddp", "pipeline"):
        assert over(check, "ib_ndr400").verdict is PASS


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_infiniband_that_ran_over_sockets_fails(check):
    said = "NCCL ran over sockets on h1, h2, ib_ndr400 is declared"
    result = assert_fails(check, networked(check, "ethernet"), said)
    assert result.blamed == ("h1", "h2")


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_a_rank_on_sockets_beside_others_on_infiniband_fails_its_node(check):
    _, sockets = networked(check, "ethernet")
    job, document = networked(check)
    document["measured"]["transport"][3] = sockets["measured"]["transport"][3]
    result = judge(check, job, document)
    assert (result.verdict, result.blamed) == (FAIL, ("h2",))


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
@pytest.mark.parametrize("logs", [None, [], [{}] * 4, "NET/IB", [1, 2, 3, 4]])
def test_ranks_that_do_not_show_their_way_prove_nothing(check, logs):
    assert over(check, "ib_ndr400", transport=logs).verdict is FAIL


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_a_training_over_sockets_hides_no_failure_of_its_own(check):
    job, document = networked(check, "ethernet")
    document["measured"].pop("sizes" if check == "all_reduce" else "ranks")
    assert_fails(check, (job, document), "the answer has no")


def test_what_does_not_show_its_way_is_nothing_to_take_a_baseline_from():
    assert len(over("all_reduce", "ib_ndr400").unjudged) == 1
    job, document = summed(NETWORKED, fabric="ib_ndr400")
    for log in document["measured"]["transport"]:
        log["transports"] = []
    result = judge("all_reduce", job, document)
    assert (result.verdict, result.unjudged) == (UNKNOWN, ())


def test_a_failure_is_told_without_what_nccl_only_does_not_show():
    job, document = summed(NETWORKED, fabric="ib_ndr400", wrong=1)
    alone = judge("all_reduce", job, document)
    assert alone.verdict is FAIL
    for log in document["measured"]["transport"]:
        log["transports"] = []
    result = judge("all_reduce", job, document)
    assert (result.verdict, result.blamed) == (FAIL, alone.blamed)
    assert result.message.partition("; NCCL's")[0] == alone.message.partition("; NCCL's")[0]
    assert "does not show" not in result.message


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_a_failure_tells_what_nccl_warned_of_and_over_what_it_ran(check):
    job, document = networked(check, "ethernet")
    for log in document["measured"]["transport"]:
        log["warnings"] = ["first", "NET/IB : No device found."]
    document["measured"]["transport"][3]["bootstrap"] = ["docker0"]
    result = judge(check, job, document)
    assert result.verdict is FAIL
    assert "NCCL ran over sockets on h1, h2, ib_ndr400 is declared" in result.message
    assert result.message.endswith(
        "; NCCL warned: NET/IB : No device found.; NCCL's network: Socket;"
        " the ranks met over eth0 on 3 ranks; docker0 on rank 3 on h2"
    )


@pytest.mark.parametrize(("version", "told"), [("2.99.1+cuda13.0", True), ("2.32.3", False)])
def test_a_release_of_nccl_that_is_newer_than_all_known_is_said(version, told):
    job, document = networked("ddp")
    for log in document["measured"]["transport"]:
        log["version"] = version
        log["devices"][0]["mbps"] = 400000
    result = judge("ddp", job, document)
    said = [metric.value for metric in result.metrics if metric.name == "NCCL's release"]
    words = f"{version} is newer than 2.32.3, the newest whose log is known"
    assert said == ([words] if told else [])
    assert result.verdict is PASS
    for log in document["measured"]["transport"]:
        log["transports"] = []
    unproven = judge("ddp", job, document)
    assert unproven.verdict is UNKNOWN
    assert (words in unproven.message) is told


def test_what_nccls_diagnostics_find_stands_beside_the_numbers():
    job, document = networked("ddp")
    result = judge("ddp", job, document, stderr=DIAGNOSED)
    assert result.verdict is PASS
    (metric,) = [m for m in result.metrics if m.name == "NCCL's diagnostics"]
    assert metric.value == "p2p: only 52/56 GPU-to-GPU peer accesses passed verification"


@pytest.mark.parametrize(
    ("algorithm", "verdict"),
    [("NVLS", PASS), ("COLLNET_DIRECT", PASS), ("RING", FAIL)],
)
def test_what_switches_add_up_is_not_held_against_a_wire(algorithm, verdict):
    value = Metric("busbw 8 GiB", 700, "GB/s")
    job, document = summed((("h1", "h100_sxm", 8),), busbw_gbs=700)
    choices = [
        {
            "function": "AllReduce",
            "algorithm": algorithm,
            "protocol": "SIMPLE",
            "least_bytes": 4,
            "most_bytes": 8 << 30,
            "channels": None,
        }
    ]
    document["measured"]["transport"][0]["choices"] = choices
    read = Document(Proof(("h1",)), Fields(document["measured"]))
    ceiling = Threshold("≤", 450, "GB/s", "datasheet", "NVLink 4, one way")
    rules = thresholds.load("h100_sxm")
    assert rules.model is not None
    limited = replace(rules.model.collectives[0], ceiling=ceiling)
    added = all_reduce.in_switches(job, read, "AllReduce", 8 << 30)
    found = list(all_reduce.too_fast(job, rules, value, 700, limited, in_switches=added))
    assert [item.verdict for item in found] == ([FAIL] if verdict is FAIL else [])


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_on_cpus_nothing_is_asked_of_nccl(check):
    job, document = healthy(check)
    assert document["measured"]["transport"] is None
    result = judge(check, job, document)
    assert (result.verdict, result.message) == (PASS, "")


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("torch", "2.9.0", "different versions of torch: 2.6.0 on h1, h2; 2.9.0 on h2"),
        ("torch", None, "torch is no text"),
        ("nccl", "2.27.5", "different versions of NCCL: 2.21.5 on h1, h2; 2.27.5 on h2"),
        ("nccl", None, "a rank does not say which NCCL it used"),
        ("gpu_uuid", "GPU-h1-0", "two ranks used the same GPU"),
        ("gpu", None, "a rank does not say which GPU it used"),
        ("device", "cpu", "a rank does not say which GPU it used"),
    ],
)
def test_what_the_ranks_run_on_is_compared(check, field, value, reason):
    job, document = networked(check)
    document["proof"]["ranks"][3][field] = value
    assert assert_fails(check, (job, document), reason).blamed is None
