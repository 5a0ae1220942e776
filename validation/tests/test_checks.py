"""Each check judges recorded answers: right ones pass, and each fault fails with its reason."""

import json
import time
from dataclasses import replace

import pytest

from cluster.declaration import Gpus, Node
from cluster.slurm import node_states
from cluster.slurm.node_states import NodeState
from validation import thresholds
from validation.checks import accounting, slurm_state
from validation.checks.registry import CHECKS
from validation.model import (
    Accounting,
    Metric,
    MungeReply,
    Outcome,
    Reply,
    Start,
    Subject,
    Tier,
    Verdict,
)
from validation.tests import standin
from validation.tests.conftest import make_plan

NODE_CHECKS = ("hostname", "cpus", "memory", "gpus", "tmp", "munge", "clock", "torch")
CLUSTER_CHECKS = ("all_reduce", "ddp", "pipeline")
ACCEPTED = MungeReply(None, 0, "Success (0)")


def job_of(name, *nodes):
    return next(job for job in make_plan(*nodes).jobs if job.name == name)


def reply_to(job, document, **changes):
    if not isinstance(document, str) and document.get("nonce") == "":
        document = {**document, "nonce": job.config["nonce"]}  # made without the job's config
    text = document if isinstance(document, str) else standin.line(document)
    now = time.time_ns()
    reply = Reply(job.name, Outcome.EXITED, 0, "17", text, document_ns=now, munge=ACCEPTED)
    return replace(reply, **changes)


def judge(check, job, reply, hardware=None):
    rules = thresholds.load(hardware or job.nodes[0].hardware)
    evaluate = CHECKS[check].evaluate
    assert evaluate is not None
    result = evaluate(job, reply, rules)
    assert result.check == check
    assert "\n" not in result.message
    assert len(result.message) <= 320
    return result


NODE = job_of("node-gpu1")
ALL_REDUCE = job_of("all_reduce")
DDP = job_of("ddp")
PIPELINE = job_of("pipeline")
HOSTS = ["gpu1", "gpu2"]
JOBS = {"all_reduce": ALL_REDUCE, "ddp": DDP, "pipeline": PIPELINE}


def healthy(check, **changes):
    if check in NODE_CHECKS:
        config = {**NODE.config, "munge_credential": "MUNGE:login:"}
        return NODE, standin.node("gpu1", config, **changes)
    return JOBS[check], getattr(standin, check)(HOSTS, JOBS[check].config, **changes)


@pytest.mark.parametrize("check", [*NODE_CHECKS, *CLUSTER_CHECKS])
def test_a_healthy_answer_passes(check):
    job, document = healthy(check)
    result = judge(check, job, reply_to(job, document))
    assert (result.verdict, result.message) == (Verdict.PASS, "")
    assert result.value is not None
    assert result.proof.job_id == "17"


def broken(document, path, value):
    """A copy of the document with the field at the path changed, or removed for `...`."""
    copy = json.loads(json.dumps(document))
    *above, last = path
    place = copy
    for key in above:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return copy


# --- faults that every check must notice -----------------------------------------------------

LINE = standin.line(healthy("ddp")[1])


@pytest.mark.parametrize("check", ["munge", "ddp"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stdout": ""}, "no answer on stdout"),
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
        ({"exit_code": 1}, "exit status 1"),
        (
            {
                "exit_code": 143,
                "stderr": "plumbline: started job 1 node gpu1 time 1\n"
                "terminate called\nsrun: error: gpu1: task 0: Aborted\n"
                "srun: error: gpu2: task 1: Terminated\n",
            },
            "terminate called; gpu1: task 0: Aborted",
        ),
        (
            {
                "exit_code": 137,
                "stderr": "srun: First task exited 30s ago\n"
                "srun: StepId=25.0 task 0: running\n"
                "srun: StepId=25.0 task 1: exited\n"
                "slurmstepd-gpu1: error: *** STEP 25.0 ON gpu1 CANCELLED ***\n"
                "srun: error: gpu1: task 0: Killed\n",
            },
            "task 0: running when other tasks had long ended; gpu1: task 0: Killed",
        ),
        ({"outcome": Outcome.RUN_LIMIT, "exit_code": None}, "and was cancelled"),
        ({"outcome": Outcome.CANCELLED, "exit_code": None}, "interrupted"),
        (
            {"outcome": Outcome.NOT_SUBMITTED, "reason": "srun: no"},
            "could not be started: srun: no",
        ),
        ({"outcome": Outcome.LOST, "reason": "gone"}, "nothing is known of this job: gone"),
        ({"outcome": Outcome.QUEUE_LIMIT, "reason": "SystemFailure"}, "Slurm itself is not ready"),
    ],
)
def test_a_job_that_did_not_answer_well_fails(check, changes, reason):
    job, document = healthy(check)
    result = judge(check, job, reply_to(job, document, **changes))
    assert result.verdict is Verdict.FAIL
    assert reason in result.message


def test_a_job_that_waited_for_others_is_inconclusive():
    job, document = healthy("ddp")
    changes = {"outcome": Outcome.QUEUE_LIMIT, "busy": True, "reason": "Resources"}
    result = judge("ddp", job, reply_to(job, document, **changes))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.message == "did not start in 120 s: nodes are busy with other jobs (Resources)"


@pytest.mark.parametrize(
    ("text", "verdict", "said"),
    [
        ("completing", Verdict.INCONCLUSIVE, "gpu2 is still completing a job that has ended"),
        # Nobody waits for one that does not answer either: seen with munged stopped on it.
        ("completing*", Verdict.FAIL, "gpu2 is completing* meanwhile"),
    ],
)
def test_a_node_that_does_not_finish_is_named(text, verdict, said):
    job, document = healthy("ddp")
    states = (state("idle"), replace(state(text), name="gpu2"))
    reason = "ReqNodeNotAvail,_May_be_reserved_for_other_job"
    changes = {"outcome": Outcome.QUEUE_LIMIT, "busy": True, "reason": reason, "states": states}
    result = judge("ddp", job, reply_to(job, document, **changes))
    assert result.verdict is verdict
    assert said in result.message
    assert result.blamed == (("gpu2",) if verdict is Verdict.FAIL else ())


def test_a_timeout_names_the_nodes_that_never_started():
    job, _ = healthy("ddp")
    reply = Reply("ddp", Outcome.RUN_LIMIT, starts=(Start("gpu1", 1, 1),))
    message = judge("ddp", job, reply).message
    assert message == "did not end in 120 s and was cancelled; no task started on gpu2"


def test_what_others_print_to_stdout_does_not_matter():
    job, document = healthy("ddp")
    text = "NCCL version 2.21.5\n{'no': json}\n" + standin.line(document) + "bye\n"
    assert judge("ddp", job, reply_to(job, text)).verdict is Verdict.PASS


@pytest.mark.parametrize("check", NODE_CHECKS)
def test_an_answer_from_another_node_fails(check):
    job, document = healthy(check)
    result = judge(check, job, reply_to(job, broken(document, ["proof", "host"], "gpu2")))
    assert result.verdict is Verdict.FAIL
    assert "gpu1 took no part" in result.message


def test_a_domain_name_is_the_same_node():
    job, document = healthy("cpus")
    answer = broken(document, ["proof", "host"], "gpu1.example.org")
    assert judge("cpus", job, reply_to(job, answer)).verdict is Verdict.PASS


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
    job, document = healthy(check)
    result = judge(check, job, reply_to(job, broken(document, path, value)))
    assert result.verdict is Verdict.FAIL
    assert reason in result.message


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_many_silent_single_node_runs_fail(check):
    """What srun does when ranks do not find each other: each believes it is alone."""
    job, _ = healthy(check)
    config = {**job.config, "sizes_bytes": []}
    alone = [standin.line(getattr(standin, check)([host], config)) for host in HOSTS]
    result = judge(check, job, reply_to(job, "".join(alone)))
    assert (result.verdict, "2 answers" in result.message) == (Verdict.FAIL, True)
    result = judge(check, job, reply_to(job, alone[0]))
    assert (result.verdict, "1 ranks took part" in result.message) == (Verdict.FAIL, True)


H100 = (("h1", "h100_sxm", 8),)


@pytest.mark.parametrize(
    ("uuid", "reason"),
    [("GPU-h1-0", "two ranks used the same GPU"), (None, "does not say which GPU")],
)
def test_every_rank_needs_a_gpu_of_its_own(uuid, reason):
    job = job_of("all_reduce", *H100)
    document = standin.all_reduce(["h1"], job.config, 8, busbw_gbs=470)
    assert judge("all_reduce", job, reply_to(job, document)).verdict is Verdict.PASS
    document["proof"]["ranks"][3]["gpu_uuid"] = uuid
    result = judge("all_reduce", job, reply_to(job, document))
    assert result.verdict is Verdict.FAIL
    assert reason in result.message


# --- node tier -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "changes", "message"),
    [
        ("cpus", {"cpus": 1}, "1 CPUs found, 2 declared"),
        ("cpus", {"cpus": 4}, "4 CPUs found, 2 declared"),
        ("cpus", {"cpus": "2"}, "cpus is no whole number: '2'"),
        ("memory", {"memory_mb": 1999}, "1999 MB found, 2000 declared"),
        ("gpus", {"gpus": 1}, "1 GPU device nodes found, 2 declared"),
        ("gpus", {"gpus": 3}, "3 GPU device nodes found, 2 declared"),
        (
            "munge",
            {"munge_decoded": "Invalid credential (5)"},
            "the node refuses the login node's credential: Invalid credential (5)",
        ),
        (
            "munge",
            {"munge_decoded": None, "munge_decode_error": "unmunge ended with exit status 2"},
            "the node refuses the login node's credential: unmunge ended with exit status 2",
        ),
        (
            "munge",
            {"munge_encoded": None, "munge_encode_error": "no socket"},
            "the node could not make a credential: no socket",
        ),
    ],
)
def test_a_node_that_is_not_as_declared_fails(check, changes, message):
    job = NODE
    document = standin.node("gpu1", {"munge_credential": "x"}, **changes)
    result = judge(check, job, reply_to(job, document))
    assert result.verdict is Verdict.FAIL
    assert message in result.message


def test_more_memory_than_declared_is_fine():
    document = standin.node("gpu1", memory_mb=64000)
    assert judge("memory", NODE, reply_to(NODE, document)).verdict is Verdict.PASS


def test_a_cpu_node_must_have_no_gpu():
    job = job_of("node-c1", ("c1", "none", 0))
    for gpus, verdict in ((0, Verdict.PASS), (1, Verdict.FAIL)):
        document = standin.node("c1", gpus=gpus)
        assert judge("gpus", job, reply_to(job, document)).verdict is verdict


REAL = (("h1", "h100_sxm", 2),)


@pytest.mark.parametrize(
    ("names", "changes", "verdict", "message"),
    [
        ([standin.GPU] * 2, {}, Verdict.PASS, ""),
        ([standin.GPU], {}, Verdict.FAIL, "NVML answers for 1 GPUs, 2 declared"),
        ([], {"nvml": "no driver"}, Verdict.FAIL, "NVML answers for 0 GPUs, 2 declared: no driver"),
        (["NVIDIA H200"] * 2, {}, Verdict.FAIL, "NVML says NVIDIA H200; h100_sxm is known as"),
    ],
)
def test_real_gpus_are_counted_and_named_by_the_driver(names, changes, verdict, message):
    job = job_of("node-h1", *REAL)
    result = judge("gpus", job, reply_to(job, standin.node("h1", names=names, **changes)))
    assert result.verdict is verdict
    assert result.message.startswith(message)


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
    job, document = healthy(check)
    result = judge(check, job, reply_to(job, broken(document, ["measured", "parameters"], -1)))
    assert result.verdict is Verdict.FAIL
    assert "parameters is no whole number: -1" in result.message


def test_a_gpu_that_the_driver_lists_twice_fails():
    job = job_of("node-h1", *REAL)
    document = standin.node("h1", names=[standin.GPU] * 2)
    document["measured"]["gpus"][1]["uuid"] = document["measured"]["gpus"][0]["uuid"]
    result = judge("gpus", job, reply_to(job, document))
    assert (result.verdict, result.message) == (Verdict.FAIL, "NVML lists one GPU twice")


STAND_IN = "Virtual GPU (stand-in for NVML)"


@pytest.mark.parametrize(
    ("names", "verdict", "message"),
    [
        ([STAND_IN] * 2, Verdict.PASS, ""),
        ([STAND_IN], Verdict.FAIL, "NVML answers for 1 GPUs, 2 declared"),
        ([], Verdict.FAIL, "NVML answers for 0 GPUs, 2 declared: pynvml cannot be imported"),
        ([standin.GPU] * 2, Verdict.FAIL, f"NVML says {standin.GPU}; virtual is known as"),
    ],
)
def test_virtual_gpus_are_counted_where_a_stand_in_for_nvml_is_declared(names, verdict, message):
    job = job_of("node-gpu1", ("gpu1", "virtual", 2))
    (node,) = job.nodes
    job = replace(job, nodes=(replace(node, gpus=replace(node.gpus, nvml=True)),))
    result = judge("gpus", job, reply_to(job, standin.node("gpu1", names=names)))
    assert result.verdict is verdict
    assert result.message.startswith(message)


def test_an_unknown_model_is_still_counted():
    job = job_of("node-x", ("x", "tpu_v9", 2))
    good = judge("gpus", job, reply_to(job, standin.node("x", names=["TPU v9"] * 2)))
    assert good.verdict is Verdict.INCONCLUSIVE
    assert "no thresholds file has board names of tpu_v9, found TPU v9" in good.message
    bad = judge("gpus", job, reply_to(job, standin.node("x", names=["TPU v9"])))
    assert bad.verdict is Verdict.FAIL


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
    job, document = healthy("munge")
    result = judge("munge", job, reply_to(job, document, munge=munge))
    assert result.verdict is Verdict.FAIL
    assert reason in result.message


@pytest.mark.parametrize(
    ("offset_s", "verdict"),
    [
        (0.0, Verdict.PASS),
        (0.49, Verdict.PASS),
        (-0.49, Verdict.PASS),
        (0.6, Verdict.WARN),
        (-0.6, Verdict.WARN),
        (1.1, Verdict.FAIL),
        (-400.0, Verdict.FAIL),
    ],
)
def test_a_clock_that_is_off_fails(offset_s, verdict):
    now = time.time_ns()
    document = standin.node("gpu1", time_ns=now + int(offset_s * 1e9))
    result = judge("clock", NODE, reply_to(NODE, document, document_ns=now))
    assert result.verdict is verdict
    assert (result.message == "") == (verdict is Verdict.PASS)
    if offset_s == -400.0:
        assert "400 s behind" in result.message


def seconds(number):
    return int(number * 1e9)


@pytest.mark.parametrize(
    ("late_s", "ahead_s", "verdict"),
    [
        (0.01, 0, Verdict.PASS),
        (30, 0, Verdict.INCONCLUSIVE),  # every line came 30 s late
        (0.6, 0, Verdict.PASS),
        (0.01, 1.5, Verdict.FAIL),
        (0.01, -1.5, Verdict.FAIL),
        (30, 1.5, Verdict.INCONCLUSIVE),
        (0.01, -0.7, Verdict.WARN),
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
    reply = reply_to(
        NODE,
        document,
        document_ns=seconds(ended + late_s),
        fed_ns=seconds(sent),
        starts=(start,),
    )
    assert judge("clock", NODE, reply).verdict is verdict


def test_a_slow_line_does_not_make_a_clock_wrong():
    """The answer took 3 s through srun, the line at the start took none."""
    now = time.time_ns()
    document = standin.node("gpu1", time_ns=now)
    starts = (Start("gpu1", now - 10**9, now - 10**9),)
    late = reply_to(NODE, document, document_ns=now + 3 * 10**9, starts=starts)
    assert judge("clock", NODE, late).verdict is Verdict.PASS
    ahead = replace(late, starts=(Start("gpu1", now + 5 * 10**9, now),))
    assert judge("clock", NODE, ahead).verdict is Verdict.FAIL


def test_a_clock_without_an_arrival_time_fails():
    job, document = healthy("clock")
    assert judge("clock", job, reply_to(job, document, document_ns=None)).verdict is Verdict.FAIL


# --- all_reduce ------------------------------------------------------------------------------

SIZES = ["measured", "sizes"]


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (
            [*SIZES, 1, "wrong_by_rank"],
            [0, 3],
            "3 elements of the sum over 1 MiB are wrong, on rank",
        ),
        ([*SIZES, 1, "wrong_by_rank"], [0], "no count for each of 2 ranks"),
        ([*SIZES, 1, "wrong_by_rank"], [1, -1], "no count for each of 2 ranks"),
        ([*SIZES, 1, "wrong_by_rank"], [0, 0.5], "no count for each of 2 ranks"),
        ([*SIZES, 0, "calls_checked"], 2, "2 of 6 calls were checked"),
        ([*SIZES, 0, "dtype"], "bfloat16", "summed bfloat16, float32 was asked for"),
        ([*SIZES, 2, "time_s_median"], "nan", "time_s_median is nan"),
        ([*SIZES, 2, "time_s_median"], "inf", "time_s_median is inf"),
        ([*SIZES, 2, "time_s_median"], 1e999, "cannot be read: Infinity is not a number"),
        ([*SIZES, 2, "time_s_median"], 0.0, "impossible times"),
        ([*SIZES, 2, "time_s_max"], 0.0, "impossible times"),
        ([*SIZES, 2, "busbw_gbs"], 99.0, "the payload claims 99 GB/s for 4 MiB"),
        ([*SIZES, 2, "elements"], 1, "1 elements are not 4194304 bytes"),
        ([*SIZES, 2], ..., "measured sizes [65536, 1048576], asked for"),
        ([*SIZES, 2, "bytes"], 4, "asked for"),
        (SIZES, [], "measured sizes []"),
    ],
)
def test_a_wrong_all_reduce_fails(path, value, reason):
    job, document = healthy("all_reduce")
    result = judge("all_reduce", job, reply_to(job, broken(document, path, value)))
    assert result.verdict is Verdict.FAIL
    assert reason in result.message


def test_a_number_too_large_for_a_float_fails():
    job, document = healthy("all_reduce")
    answer = broken(document, [*SIZES, 2, "time_s_max"], 10**400)
    assert "is inf" in judge("all_reduce", job, reply_to(job, answer)).message


@pytest.mark.parametrize(
    ("nodes", "busbw_gbs", "verdict"),
    [
        ((("gpu1", "virtual", 2), ("gpu2", "virtual", 2)), 0.049, Verdict.FAIL),
        ((("gpu1", "virtual", 2), ("gpu2", "virtual", 2)), 0.051, Verdict.PASS),
        ((("n1", "none", 0), ("n2", "none", 0)), 0.049, Verdict.FAIL),
        ((("h1", "h100_sxm", 8),), 459.9, Verdict.FAIL),
        ((("h1", "h100_sxm", 8),), 460.1, Verdict.PASS),
        ((("b1", "b200", 8),), 711.0, Verdict.FAIL),
        ((("b1", "b200", 8),), 712.5, Verdict.WARN),
        ((("b1", "b200", 8),), 838.0, Verdict.PASS),
        ((("h1", "h100_sxm", 4),), 460.1, Verdict.INCONCLUSIVE),
        ((("h1", "h100_sxm", 8), ("h2", "h100_sxm", 8)), 460.1, Verdict.INCONCLUSIVE),
        ((("l1", "l40s", 4),), 20.0, Verdict.INCONCLUSIVE),
        ((("x1", "tpu_v9", 8),), 999.0, Verdict.INCONCLUSIVE),
    ],
)
def test_the_bandwidth_is_judged_by_the_rule_that_fits(nodes, busbw_gbs, verdict):
    job = job_of("all_reduce", *nodes)
    hosts = [name for name, *_ in nodes]
    document = standin.all_reduce(hosts, job.config, job.ranks_per_node, busbw_gbs=busbw_gbs)
    known = thresholds.load(job.nodes[0].hardware).model
    if known is not None:
        for rank in document["proof"]["ranks"]:
            rank["gpu"] = rank["gpu"] and known.nvml_names[0]
    result = judge("all_reduce", job, reply_to(job, document))
    assert result.verdict is verdict
    assert result.value == Metric(result.value.name, busbw_gbs, "GB/s")
    if verdict is Verdict.INCONCLUSIVE:
        assert f"measured {busbw_gbs} GB/s; record a baseline" in result.message
        assert result.threshold is None


def test_the_largest_size_is_judged_and_not_the_best():
    job, document = healthy("all_reduce")
    last = document["measured"]["sizes"][-1]
    for name in ("time_s_min", "time_s_median", "time_s_max"):
        last[name] *= 100
    last["busbw_gbs"] /= 100
    result = judge("all_reduce", job, reply_to(job, document))
    assert result.verdict is Verdict.FAIL
    assert result.value.name == "busbw 4 MiB"


@pytest.mark.parametrize(
    ("nodes", "busbw_gbs"),
    [
        ((("gpu1", "virtual", 2), ("gpu2", "virtual", 2)), 1e9),
        ((("gpu1", "virtual", 2), ("gpu2", "virtual", 2)), 401.0),
        ((("h1", "h100_sxm", 8),), 1e9),
        ((("x1", "tpu_v9", 8),), 2001.0),  # also where nothing else is known
    ],
)
def test_more_than_hardware_carries_is_no_measurement(nodes, busbw_gbs):
    job = job_of("all_reduce", *nodes)
    hosts = [name for name, *_ in nodes]
    document = standin.all_reduce(hosts, job.config, job.ranks_per_node, busbw_gbs=busbw_gbs)
    result = judge("all_reduce", job, reply_to(job, document))
    assert result.verdict is Verdict.FAIL
    assert "more than any link carries" in result.message


def test_a_models_own_ceiling_counts_too(tmp_path):
    rule = (
        "{operation: all_reduce, dtype: float32, nodes: 1, ranks_per_node: 8, links: any, "
        "fabric: any, backend: nccl, min_bytes: 4, fail_below_gbs: 460, fail_above_gbs: 900, "
        "provenance: datasheet, source: test, date: 2026-05-01}"
    )
    (tmp_path / "h100_sxm.yml").write_text(f"model: h100_sxm\ncollectives: [{rule}]\n")
    job = job_of("all_reduce", ("h1", "h100_sxm", 8))
    evaluate = CHECKS["all_reduce"].evaluate
    assert evaluate is not None
    for busbw_gbs, verdict in ((899.0, Verdict.PASS), (901.0, Verdict.FAIL)):
        document = standin.all_reduce(["h1"], job.config, 8, busbw_gbs=busbw_gbs)
        rules = thresholds.load("h100_sxm", tmp_path)
        assert evaluate(job, reply_to(job, document), rules).verdict is verdict


def test_a_wrong_sum_fails_even_where_no_threshold_is_known():
    job = job_of("all_reduce", ("x1", "tpu_v9", 8))
    document = standin.all_reduce(["x1"], job.config, 8, wrong=1)
    assert judge("all_reduce", job, reply_to(job, document)).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("wrong", "blamed", "said"),
    [
        ([0, 7], ("gpu2",), "on rank 1 on gpu2"),
        ([7, 0], ("gpu1",), "on rank 0 on gpu1"),
        ([7, 7], None, "on all 2 ranks"),
    ],
)
def test_a_wrong_sum_is_blamed_on_the_node_that_alone_has_it(wrong, blamed, said):
    job, document = healthy("all_reduce")
    document["measured"]["sizes"][0]["wrong_by_rank"] = wrong
    result = judge("all_reduce", job, reply_to(job, document))
    assert result.verdict is Verdict.FAIL
    assert (result.blamed, result.value.value) == (blamed, sum(wrong))
    assert said in result.message


# --- training --------------------------------------------------------------------------------

CURVE = ["measured", "curves", 0]
ROW = ["measured", "ranks", 1]


@pytest.mark.parametrize("check", ["ddp", "pipeline"])
@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ([*CURVE, "steps", 2, "loss"], "nan", "loss difference is not finite"),
        ([*CURVE, "steps", 2, "loss"], 5.0, "loss difference is"),
        ([*CURVE, "steps", 2, "loss"], None, "loss is no"),
        ([*CURVE, "steps", 4], ..., "not every model has its losses of the 5 steps"),
        ([*CURVE, "ranks"], 1, "[1] ranks trained together, [2] were asked for"),
        (["measured", "curves"], [], "[] ranks trained together"),
        (["measured", "steps"], 4, "4 steps were trained, 5 were asked for"),
        ([*ROW, "first_step", "computed"], "nan", "first-step difference is not finite"),
        (
            [*ROW, "first_step", "computed"],
            1.1e-5,
            "first-step difference is 1.1e-05, at most 1e-05",
        ),
        ([*ROW, "first_step", "exchanged"], 0.1, "first-step difference is 0.1"),
        ([*ROW, "first_step", "exchanged"], -1.0, "a difference of -1"),
        ([*ROW, "first_step", "exchanged"], ..., "has no measured.ranks[1].first_step.exchanged"),
        (
            [*ROW, "steps", 4, "parameters"],
            1.1e-4,
            "parameter difference is 0.00011, at most 0.0001",
        ),
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
    job, document = healthy(check)
    result = judge(check, job, reply_to(job, broken(document, path, value)))
    assert result.verdict is Verdict.FAIL
    assert reason in result.message


@pytest.mark.parametrize("check", ["ddp", "pipeline"])
def test_a_difference_within_the_tolerance_passes_and_is_shown(check):
    job, document = healthy(check)
    answer = broken(document, [*ROW, "steps", 4, "parameters"], 9e-5)
    result = judge(check, job, reply_to(job, answer))
    assert result.verdict is Verdict.PASS
    assert result.value == Metric("parameter difference", 9e-5)
    assert Metric("reference's movement", 0.1) in result.metrics


@pytest.mark.parametrize("check", ["ddp", "pipeline"])
@pytest.mark.parametrize(
    "still",
    [
        lambda measured: measured["ranks"][1].update(movement=8e-5),  # as the suite once had it
        lambda measured: [
            step.update(loss=1 - 1e-5 * i, reference=1 - 1e-5 * i)
            for i, step in enumerate(measured["curves"][0]["steps"])
        ],
    ],
    ids=["parameters", "losses"],
)
def test_a_reference_that_hardly_moves_proves_nothing(check, still):
    job, document = healthy(check)
    still(document["measured"])
    result = judge(check, job, reply_to(job, document))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "at least 0.01 is needed for a comparison" in result.message


FOUR = tuple((f"n{i}", "virtual", 1) for i in range(4))


def four(check, change):
    """What is said when four ranks on as many nodes have other figures; `change` gets the rows."""
    job = job_of(check, *FOUR)
    document = getattr(standin, check)(job.hosts, job.config)
    change(document["measured"]["ranks"])
    result = judge(check, job, reply_to(job, document))
    assert result.verdict is Verdict.FAIL
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


@pytest.mark.parametrize(
    ("check", "change", "blamed", "said"),
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
        (
            "pipeline",
            off("exchanged", 0, 1),
            None,
            "what came back between rank 1 on n1 and rank 2",
        ),
        ("pipeline", drifted(0, 0), ("n0",), "the parameters after step 1 of rank 0 on n0"),
    ],
)
def test_a_training_says_where_it_began_to_go_wrong(check, change, blamed, said):
    assert four(check, change) == (blamed, four(check, change)[1])
    assert four(check, change)[1].startswith(said)


def test_many_ranks_train_in_several_chains():
    nodes = tuple((f"n{i}", "virtual", 1) for i in range(40))
    job = job_of("pipeline", *nodes)
    assert job.config["microbatches"] == 16
    document = standin.pipeline(job.hosts, job.config)
    assert [curve["ranks"] for curve in document["measured"]["curves"]] == [14, 13, 13]
    assert judge("pipeline", job, reply_to(job, document)).verdict is Verdict.PASS
    document["measured"]["ranks"][13]["first_step"]["exchanged"] = 1.0  # the first chain's last
    result = judge("pipeline", job, reply_to(job, document))
    assert result.blamed == ("n13",)
    document["measured"]["ranks"][14]["first_step"]["received"] = 1.0  # the second one's first
    result = judge("pipeline", job, reply_to(job, document))
    assert result.blamed == ("n14",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"microbatches": 1}, "1 microbatches ran, 16 were asked for"),
        ({"bubble_fraction_ideal": 0.5}, "the payload claims a bubble of 0.5"),
    ],
)
def test_another_pipeline_than_asked_fails(changes, reason):
    job, document = healthy("pipeline", **changes)
    result = judge("pipeline", job, reply_to(job, document))
    assert result.verdict is Verdict.FAIL
    assert reason in result.message


# --- what else a node must have --------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "changes", "message"),
    [
        ("hostname", {"hostname": "gpu2"}, "the host calls itself gpu2"),
        ("tmp", {"tmp": standin.folder("/tmp", error="Read-only file system")}, "/tmp: Read-only"),
        ("tmp", {"tmp": standin.folder("/tmp", free_mb=3)}, "/tmp: 3 MB are free"),
        ("tmp", {"spool": standin.folder("/var/spool/slurmd", free_mb=0)}, "slurmd: 0 MB are free"),
        ("torch", {"torch": None, "torch_error": "libcudart.so.12: no"}, "libcudart.so.12: no"),
        ("torch", {"torch": None}, "torch cannot be imported"),
        ("gpus", {"names": [standin.GPU] * 2}, "declared as virtual, but the driver lists 2 real"),
    ],
)
def test_what_is_wrong_on_a_node_is_its_own_fault(check, changes, message):
    result = judge(check, NODE, reply_to(NODE, standin.node("gpu1", **changes)))
    assert result.verdict is Verdict.FAIL
    assert result.blamed is None
    assert message in result.message


def test_a_node_without_a_spool_that_can_be_found_is_judged_by_tmp_alone():
    document = standin.node("gpu1", spool=None)
    assert judge("tmp", NODE, reply_to(NODE, document)).verdict is Verdict.PASS


def test_the_host_name_is_the_one_that_slurm_uses():
    """NodeName and NodeHostname may differ, on purpose."""
    document = standin.node("gpu1", hostname="rack7-12.example.org")
    states = (NodeState("gpu1", "idle", hostname="rack7-12"),)
    reply = reply_to(NODE, document, states=states)
    assert judge("hostname", NODE, reply).verdict is Verdict.PASS
    assert judge("hostname", NODE, reply_to(NODE, document)).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("found", "verdict", "said"),
    [
        (Accounting("accounting_storage/slurmdbd"), Verdict.PASS, "answers"),
        (Accounting("(null)", configured=False), Verdict.PASS, "none configured"),
        (Accounting("x", error="no slurmdbd"), Verdict.FAIL, "does not answer"),
    ],
)
def test_accounting_is_nobodys_fault(found, verdict, said):
    result = accounting.evaluate(Subject("slurm", ("gpu1", "gpu2")), found)
    assert result.value is not None
    assert (result.verdict, result.value.value, result.blamed) == (verdict, said, ())


def test_nodes_of_one_name_in_two_domains_are_two_nodes():
    job = job_of("ddp", ("n1.a", "virtual", 2), ("n1.b", "virtual", 2))
    document = standin.ddp(["n1.a", "n1.b"], job.config)
    assert judge("ddp", job, reply_to(job, document)).verdict is Verdict.PASS
    for rank in document["proof"]["ranks"]:
        rank["host"] = "n1.a"
    assert judge("ddp", job, reply_to(job, document)).verdict is Verdict.FAIL
    silent = Reply("ddp", Outcome.RUN_LIMIT, starts=(Start("n1.a", 1, 1),))
    result = judge("ddp", job, silent)
    assert (result.blamed, "started on n1.b" in result.message) == (("n1.b",), True)


@pytest.mark.parametrize("check", [*NODE_CHECKS, *CLUSTER_CHECKS])
@pytest.mark.parametrize("nonce", [..., None, "", "20260102T030405Z-ab12-0123456789abcdef-other"])
def test_an_answer_without_this_jobs_nonce_is_refused(check, nonce):
    job, document = healthy(check)
    text = standin.line(broken(document, ["nonce"], nonce))
    assert judge(check, job, reply_to(job, text)).verdict is Verdict.FAIL


# --- Slurm's own view ------------------------------------------------------------------------

GPU1 = Node("gpu1", 2, 2000, Gpus("virtual", 2), "ethernet")


def state(text, **changes):
    return replace(NodeState("gpu1", text, 2, 2000, "gpu:virtual:2(S:0)"), **changes)


@pytest.mark.parametrize("text", ["idle", "mixed", "allocated", "completing", "mixed-", "planned"])
def test_a_node_that_takes_jobs_passes(text):
    assert slurm_state.evaluate(GPU1, state(text)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("down", "Slurm says down (no network)"),
        ("down*", "Slurm says down* (no network)"),
        ("drained", "Slurm says drained (no network)"),
        ("draining@", "Slurm says draining@"),
        ("inval", "Slurm says inval"),
        ("unknown", "Slurm says unknown"),
        ("fail", "Slurm says fail"),
        ("idle*", "the node does not answer (no network)"),
        ("idle*~", "the node does not answer (no network)"),
        ("maint*", "Slurm says maint* (no network)"),
        ("idle?", "the node has the flag ?"),
        ("IDLE+DRAIN", "the node has the flag +"),
        ("", "Slurm says "),
    ],
)
def test_a_node_that_takes_no_jobs_fails(text, message):
    result = slurm_state.evaluate(GPU1, state(text, reason="no network"))
    assert result.verdict is Verdict.FAIL
    assert result.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reserved", "the node is in a reservation"),
        ("maint", "the node is in a reservation"),
        ("mixed$", "the node is in a maintenance reservation"),
        ("idle%", "the node is powering down"),
        ("idle!", "the node is about to be powered down"),
        ("idle@", "the node is about to reboot"),
        ("idle^", "the node is rebooting"),
    ],
)
def test_what_passes_or_was_meant_so_is_no_fault(text, message):
    result = slurm_state.evaluate(GPU1, state(text))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.blamed == ()
    assert result.message.startswith(message)


@pytest.mark.parametrize("text", ["idle~", "idle#"])
def test_a_node_that_is_powered_down_is_woken_by_its_job(text):
    assert slurm_state.evaluate(GPU1, state(text)).verdict is Verdict.PASS


@pytest.mark.parametrize("text", ["reserved", "maint", "mixed$", "idle"])
def test_inside_of_a_reservation_its_nodes_are_in_service(text):
    assert slurm_state.evaluate(GPU1, state(text), reserved=True).verdict is Verdict.PASS
    drained = slurm_state.evaluate(GPU1, state("drained$"), reserved=True)
    assert drained.verdict is Verdict.FAIL


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
    assert result.verdict is Verdict.FAIL
    assert message in result.message


def test_a_node_that_slurm_does_not_know_fails():
    result = slurm_state.evaluate(GPU1, None)
    assert (result.verdict, result.message) == (Verdict.FAIL, "Slurm does not know this node")


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
    for text in (info.summary, info.what, info.why, info.advice):
        assert len(text) > 20
    # What the cluster tier finds needs the commands that fit the finding: the report has them.
    assert bool(info.commands) == (info.tier is Tier.NODE or check.payload is None)
    assert all(command.format(node="gpu1") for command in info.commands)


# --- the environment of the ranks ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"NCCL_SOCKET_IFNAME": "ib0"}, ""),
        ({"NCCL_SOCKET_IFNAME": "ib0", "NCCL_DEBUG": "INFO"}, ""),  # a TaskProlog's own
        ({"NCCL_SOCKET_IFNAME": "eth0"}, "is declared as 'ib0', and was 'eth0' in the ranks"),
        ({}, "is declared as 'ib0', and did not reach the ranks"),
        ({"NCCL_SOCKET_IFNAME": 0}, "proof.environment is no mapping of texts"),
        ([], "proof.environment is no mapping of texts"),
    ],
)
def test_ranks_that_saw_another_environment_than_declared_prove_nothing(seen, said):
    job, document = healthy("ddp")
    job = replace(job, environment=(("NCCL_SOCKET_IFNAME", "ib0"),))
    document["proof"]["environment"] = seen
    result = judge("ddp", job, reply_to(job, document))
    assert result.verdict is (Verdict.FAIL if said else Verdict.PASS)
    assert said in result.message
    if not said:
        assert result.proof is not None
        assert dict(result.proof.environment) == seen


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
    job, document = networked(check, fabric, **changes)
    return judge(check, job, reply_to(job, document))


def test_a_declared_fabric_that_was_used_changes_nothing():
    result = over("all_reduce", "ib_ndr400")
    assert result.verdict is Verdict.INCONCLUSIVE  # no bandwidth is recorded for two nodes
    assert "no threshold recorded" in result.message
    for check in ("ddp", "pipeline"):
        assert over(check, "ib_ndr400").verdict is Verdict.PASS


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_infiniband_that_ran_over_sockets_fails(check):
    result = over(check, "ethernet")
    assert result.verdict is Verdict.FAIL
    assert "NCCL ran over sockets on h1, h2, ib_ndr400 is declared" in result.message
    assert result.blamed == ("h1", "h2")


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_a_rank_on_sockets_beside_others_on_infiniband_fails_its_node(check):
    _, sockets = networked(check, "ethernet")
    job, document = networked(check)
    document["measured"]["transport"][3] = sockets["measured"]["transport"][3]
    result = judge(check, job, reply_to(job, document))
    assert (result.verdict, result.blamed) == (Verdict.FAIL, ("h2",))


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
@pytest.mark.parametrize("logs", [None, [], [{}] * 4, "NET/IB", [1, 2, 3, 4]])
def test_ranks_that_do_not_show_their_way_prove_nothing(check, logs):
    assert over(check, "ib_ndr400", transport=logs).verdict is Verdict.FAIL


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_a_training_over_sockets_hides_no_failure_of_its_own(check):
    job, document = networked(check, "ethernet")
    document["measured"].pop("sizes" if check == "all_reduce" else "ranks")
    result = judge(check, job, reply_to(job, document))
    assert (result.verdict, "the answer has no" in result.message) == (Verdict.FAIL, True)


def test_what_does_not_show_its_way_is_nothing_to_take_a_baseline_from():
    assert len(over("all_reduce", "ib_ndr400").unjudged) == 1
    job = job_of("all_reduce", *NETWORKED)
    document = standin.all_reduce(job.hosts, job.config, job.ranks_per_node, fabric="ib_ndr400")
    for log in document["measured"]["transport"]:
        log["transports"] = []
    result = judge("all_reduce", job, reply_to(job, document))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.unjudged == ()


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
def test_on_cpus_nothing_is_asked_of_nccl(check):
    job, document = healthy(check)
    assert document["measured"]["transport"] is None
    assert judge(check, job, reply_to(job, document)).verdict is Verdict.PASS


@pytest.mark.parametrize("check", CLUSTER_CHECKS)
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("torch", "2.9.0", "different versions of torch: 2.6.0 on h1, h2; 2.9.0 on h2"),
        ("torch", None, "torch is no text"),
        ("nccl", "2.27.5", "different versions of NCCL: 2.21.5 on h1, h2; 2.27.5 on h2"),
        ("nccl", None, "a rank does not say which NCCL it used"),
        ("gpu_uuid", "GPU-h1-0", "two ranks used the same GPU"),
    ],
)
def test_what_the_ranks_run_on_is_compared(check, field, value, reason):
    job, document = networked(check)
    document["proof"]["ranks"][3][field] = value
    result = judge(check, job, reply_to(job, document))
    assert (result.verdict, result.blamed) == (Verdict.FAIL, None)
    assert reason in result.message
