"""Each check judges recorded answers: right ones pass, and each fault fails with its reason."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from validation import thresholds
from validation.checks import CHECKS, slurm_state
from validation.model import (
    Gpus,
    Metric,
    MungeReply,
    Node,
    NodeState,
    Outcome,
    Reply,
    Start,
    Tier,
    Verdict,
)
from validation.tests import standin
from validation.tests.conftest import make_plan

DOCS = Path(__file__).parents[2] / "docs" / "validation.md"

NODE_CHECKS = ("cpus", "memory", "gpus", "munge", "clock")
CLUSTER_CHECKS = ("all_reduce", "ddp", "pipeline")
ACCEPTED = MungeReply(None, 0, "Success (0)")


def job_of(name, *nodes):
    return next(job for job in make_plan(*nodes).jobs if job.name == name)


def reply_to(job, document, **changes):
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
        config = {"munge_credential": "MUNGE:login:"}
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
            "exit status 143: terminate called; gpu1: task 0: Aborted",
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
        ({"outcome": Outcome.QUEUE_LIMIT, "reason": "Reboot"}, "Slurm says Reboot"),
        ({"outcome": Outcome.QUEUE_LIMIT}, "Slurm gives no reason"),
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
            {"munge_decoded": None, "munge_decode_error": "unmunge is not installed"},
            "the node refuses the login node's credential: unmunge is not installed",
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
        ([standin.GPU], {}, Verdict.FAIL, "NVML counts 1 GPUs, 2 declared"),
        ([], {"nvml": "no driver"}, Verdict.FAIL, "NVML counts 0 GPUs, 2 declared: no driver"),
        (["NVIDIA H200"] * 2, {}, Verdict.FAIL, "NVML says NVIDIA H200; h100_sxm is known as"),
    ],
)
def test_real_gpus_are_counted_and_named_by_the_driver(names, changes, verdict, message):
    job = job_of("node-h1", *REAL)
    result = judge("gpus", job, reply_to(job, standin.node("h1", names=names, **changes)))
    assert result.verdict is verdict
    assert result.message.startswith(message)


def test_an_unknown_model_is_still_counted():
    job = job_of("node-x", ("x", "tpu_v9", 2))
    good = judge("gpus", job, reply_to(job, standin.node("x", names=["TPU v9"] * 2)))
    assert good.verdict is Verdict.PASS
    assert "no thresholds file names tpu_v9, found TPU v9" in good.message
    bad = judge("gpus", job, reply_to(job, standin.node("x", names=["TPU v9"])))
    assert bad.verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("munge", "reason"),
    [
        (None, "the login node made no credential"),
        (MungeReply("munged is down", 0, "Success (0)"), "munged is down"),
        (MungeReply(None, 15, "Expired credential (15)"), "the login node refuses the node's"),
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
        ([*SIZES, 1, "wrong"], 3, "3 elements of the sum over 1 MiB are wrong"),
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
    result = judge("all_reduce", job, reply_to(job, document))
    assert result.verdict is verdict
    assert result.value == Metric(result.value.name, busbw_gbs, "GB/s")
    if verdict is Verdict.INCONCLUSIVE:
        assert f"measured {busbw_gbs} GB/s; record a baseline" in result.message
        assert result.threshold is None


def test_a_wrong_sum_fails_even_where_no_threshold_is_known():
    job = job_of("all_reduce", ("x1", "tpu_v9", 8))
    document = standin.all_reduce(["x1"], job.config, 8, wrong=1)
    assert judge("all_reduce", job, reply_to(job, document)).verdict is Verdict.FAIL


# --- training --------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["ddp", "pipeline"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"losses": [1.0, 0.9, "nan", 0.7, 0.6]}, "losses[2] is nan"),
        ({"losses": [1.0, 0.9]}, "2 losses and 5 references for 5 steps"),
        ({"losses": [1.0] * 5, "reference_losses": [1.0] * 5}, "nothing was trained"),
        ({"losses": [9.0, 8.0, 7.0, 6.0, 5.0]}, "the payload claims a loss difference of 0"),
        ({"steps": 4}, "4 steps were trained, 5 were asked for"),
        ({"max_loss_difference": "inf"}, "max_loss_difference is inf"),
        ({"max_loss_difference": 1.1e-6}, "loss difference to the single-process reference"),
        ({"max_parameter_difference": 0.5}, "parameter difference to the single-process"),
        ({"max_parameter_difference": -1.0}, "no parameters were compared"),
        ({"parameters": 0}, "no parameters were compared"),
        ({"samples_per_s": 0}, "the training took no time"),
        ({"step_time_s_median": None}, "is no number"),
    ],
)
def test_a_training_that_went_wrong_fails(check, changes, reason):
    job, document = healthy(check, **changes)
    result = judge(check, job, reply_to(job, document))
    assert result.verdict is Verdict.FAIL
    assert reason in result.message


@pytest.mark.parametrize("check", ["ddp", "pipeline"])
def test_a_difference_within_the_tolerance_passes_and_is_shown(check):
    job, document = healthy(check, max_loss_difference=9e-7, max_parameter_difference=1e-8)
    result = judge(check, job, reply_to(job, document))
    assert result.verdict is Verdict.PASS
    assert result.value == Metric("loss difference", 9e-7)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stages": 1}, "the pipeline had 1 stages, 2 were asked for"),
        ({"microbatches": 1}, "1 microbatches ran, 4 were asked for"),
        ({"bubble_fraction_ideal": 0.5}, "the payload claims a bubble of 0.5"),
    ],
)
def test_another_pipeline_than_asked_fails(changes, reason):
    job, document = healthy("pipeline", **changes)
    result = judge("pipeline", job, reply_to(job, document))
    assert result.verdict is Verdict.FAIL
    assert reason in result.message


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
        ("reserved", "Slurm says reserved"),
        ("idle*", "the node does not answer (no network)"),
        ("idle~", "the node is powered down"),
        ("mixed$", "the node is in a maintenance reservation"),
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
    ("changes", "message"),
    [
        ({"cpus": 1}, "Slurm counts 1 CPUs, 2 are declared"),
        ({"memory_mb": None}, "Slurm counts None MB, 2000 are declared"),
        ({"gres": ""}, "Slurm counts 0 GPUs, 2 are declared"),
        ({"gres": "gpu:4"}, "Slurm counts 4 GPUs, 2 are declared"),
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
        ("", 0),
        ("gpu:8", 8),
        ("gpu", 1),
        ("gpu:h100_sxm:8(S:0-1)", 8),
        ("gpu:a100:4(S:0,1),gpu:a100_mig:8,shard:16", 12),
        ("shard:gpu:4", 0),
    ],
)
def test_gpus_in_a_gres_string(gres, gpus):
    assert slurm_state.count_gpus(gres) == gpus


# --- documentation ---------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.info.name)
def test_every_check_says_what_why_and_what_to_do(check):
    info = check.info
    for text in (info.summary, info.what, info.why, info.advice):
        assert len(text) > 20
    assert (info.tier is Tier.NODE) == bool(info.commands)
    assert all(command.format(node="gpu1") for command in info.commands)


def test_the_operators_page_says_the_same():
    """docs/validation.md repeats the checks' own words."""
    text = " ".join(DOCS.read_text(encoding="utf-8").split())
    for check in CHECKS.values():
        info = check.info
        commands = [command.format(node="NODE") for command in info.commands]
        for words in (info.summary, info.what, info.why, info.advice, *commands):
            assert words in text
