"""GPUs that are cut into instances of MIG: declared, planned, asked, computed on and judged."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster import declaration
from cluster.declaration import Gpus
from cluster.errors import CannotRun, DataError
from validation import thresholds
from validation.model import Verdict
from validation.payloads import compute
from validation.report import plan as plan_report
from validation.slurm import job as jobs
from validation.tests import standin, standin_compute, standin_health
from validation.tests.conftest import declare, plan_of
from validation.tests.judging import judged

NAME = "NVIDIA H100 80GB HBM3"
SEVEN = (("1g.10gb", 7),)
MIXED = (("1g.10gb", 4), ("3g.40gb", 1))


def cut(mig, count=2, **changes):
    """A declaration of two nodes with such GPUs, and one with whole ones."""
    document = declare(*((f"gpu{number}", "h100_sxm", count, "ib_ndr400") for number in (1, 2, 3)))
    for node in document["nodes"][:2]:
        node["gpus"] |= {"mig": mig, **changes}
    return document


def planned(mig=None, suite="quick"):
    return plan_of(cut(mig or dict(SEVEN)), suite=suite)


# --- declared and planned --------------------------------------------------------------------


def test_instances_are_hardware_of_their_own():
    gpus = Gpus("h100_sxm", 8, mig=MIXED)
    assert gpus.devices == 40
    assert gpus.request == "gpu:1g.10gb:32,gpu:3g.40gb:8"
    assert replace(gpus, gres="gpu:slice:40").request == "gpu:slice:40"
    whole = Gpus("h100_sxm", 8)
    assert (whole.devices, whole.request, Gpus("none", 0).request) == (8, "gpu:h100_sxm:8", "")
    kinds = [group.name for group in planned(dict(MIXED)).groups]
    assert kinds == ["h100_sxm-1g.10gb-3g.40gb", "h100_sxm"]


@pytest.mark.parametrize(
    ("mig", "changes", "sentence"),
    [
        ({"1g.10gb": 0}, {}, "mig.1g.10gb: expected a whole number"),
        ({}, {}, "expected profiles such as 1g.10gb, found none"),
        ({"1g10": 7}, {}, "expected profiles such as 1g.10gb, found ['1g10']"),
        ({"1g.10gb,gpu:9": 7}, {}, "expected profiles"),
        ({"1g.10gb": 7}, {"count": 0}, "only real GPUs can be cut"),
        ({"1g.10gb": 7}, {"model": "virtual"}, "only real GPUs can be cut"),
        ({"1g.10gb": 7}, {"gres": "gpu"}, "expected GRES such as gpu:h100_sxm:8, found 'gpu'"),
        ({"1g.10gb": 7}, {"gres": "gpu:1 --exclusive"}, "expected GRES"),
    ],
)
def test_what_cannot_be_declared(mig, changes, sentence):
    with pytest.raises(DataError) as problem:
        declaration.parse(cut(mig, **changes), "test")
    assert sentence in str(problem.value)


def test_each_node_takes_part_with_one_rank_and_asks_for_all_instances(golden):
    run_plan = planned()
    job = next(job for job in run_plan.jobs if job.name == "ddp-h100_sxm-1g.10gb")
    assert (job.ranks, job.backend) == (2, "nccl")
    assert "--gres=gpu:1g.10gb:14" in jobs.command("run", job, "python")
    golden("plan_mig.txt", plan_report.render(run_plan))


@pytest.mark.parametrize(
    ("mig", "largest"),
    [({"1g.5gb": 7}, 1 << 30), (dict(MIXED), 1 << 30), ({"3g.40gb": 2}, 8 << 30)],
)
def test_no_sum_is_larger_than_an_instance_holds(mig, largest):
    job = next(job for job in planned(mig).jobs if job.payload == "all_reduce")
    assert max(job.config["sizes_bytes"]) == largest


def test_an_instance_is_asked_for_nothing_that_only_whole_gpus_have():
    run_plan = planned(suite="gpu")
    skipped = {
        check.check for check in run_plan.checks if check.skip and check.subject.name == "gpu1"
    }
    few = {"shared_fs", "host_stragglers"}  # and few are alike
    assert skipped == {*few, "peers", "nvlink", "links", "load_clocks", "load_ecc", "isolation"}
    config = next(job for job in run_plan.jobs if job.name == "compute-gpu1").config
    assert (config["gpus"], config["mig"]) == (14, True)
    whole = next(job for job in run_plan.jobs if job.name == "compute-gpu3").config
    assert (whole["gpus"], whole["mig"]) == (2, False)


def test_whole_gpus_and_instances_are_told_apart_by_a_sites_gres():
    document = declare(("a", "l4", 2), ("b", "l4", 2))
    document["nodes"][1]["gpus"]["gres"] = "gpu:half:2"
    run_plan = plan_of(document)
    assert [group.name for group in run_plan.groups] == ["l4-gres1", "l4-gres2"]
    assert [group.jobs[0].gres for group in run_plan.groups] == ["gpu:l4:2", "gpu:half:2"]


# --- the mode and the layout -----------------------------------------------------------------


def health(*layouts, mode="on", pending="on"):
    """What NVML says of a node whose GPUs have these instances; None is a GPU without MIG."""
    measured = standin_health.measured(len(layouts))
    for gpu, layout in zip(measured["gpus"], layouts, strict=True):
        instances = [
            {"name": f"{NAME} MIG {profile}", "uuid": f"MIG-{profile}-{number}"}
            for profile, count in layout
            for number in range(count)
        ]
        gpu["values"] |= {"mig": mode, "mig_pending": pending, "mig_instances": instances}
    return measured


def judged_mig(readings, mig):
    job = standin_health.job_for(len(readings["gpus"]))
    node = replace(job.nodes[0], gpus=replace(job.nodes[0].gpus, mig=mig))
    job = replace(job, nodes=(node,))
    reply = standin_health.reply_to(job, readings)
    return judged("mig", job, reply, thresholds.of_node(node))


@pytest.mark.parametrize(
    ("readings", "verdict", "message"),
    [
        (health(SEVEN, SEVEN), Verdict.PASS, ""),
        (health(SEVEN, (("1g.10gb", 6),)), Verdict.FAIL, "GPU 1: has 6 of 1g.10gb, 7 of 1g.10gb"),
        (health(SEVEN, (("7g.80gb", 1),)), Verdict.FAIL, "GPU 1: has 1 of 7g.80gb, 7 of 1g.10gb"),
        (health((), SEVEN), Verdict.FAIL, "GPU 0: has no instance, 7 of 1g.10gb is declared"),
        (health((), (), mode="off"), Verdict.FAIL, "GPU 0, 1: MIG is off, 7 of 1g.10gb is"),
        (health(SEVEN, SEVEN, pending="off"), Verdict.WARN, "GPU 0, 1: MIG will be off after"),
    ],
)
def test_every_gpu_has_the_declared_instances(readings, verdict, message):
    result = judged_mig(readings, SEVEN)
    assert result.verdict is verdict
    assert result.message.startswith(message)


layouts = st.dictionaries(st.sampled_from(["1g.10gb", "2g.20gb", "3g.40gb"]), st.integers(1, 7))


@settings(deadline=None)
@given(
    layouts.map(lambda instances: tuple(instances.items())),
    layouts.map(lambda instances: tuple(instances.items())),
)
def test_only_the_declared_layout_passes(there, declared):
    passes = judged_mig(health(there), tuple(sorted(declared))).verdict is Verdict.PASS
    assert passes is (dict(there) == dict(declared) and bool(declared))


# --- computing -------------------------------------------------------------------------------


def computing(mig=SEVEN, count=2):
    """A job on a node's instances, and a healthy answer."""
    whole = standin_compute.job(count=count)
    node = replace(whole.nodes[0], gpus=replace(whole.nodes[0].gpus, mig=mig))
    gpus = node.gpus.devices
    job = replace(whole, nodes=(node,), config={**whole.config, "gpus": gpus, "mig": True})
    document = standin_compute.document(
        replace(job, nodes=(replace(node, gpus=Gpus("h100_sxm", gpus)),))
    )
    profiles = [profile for profile, number in node.gpus.profiles.items() for _ in range(number)]
    for number, (gpu, profile) in enumerate(
        zip(document["measured"]["gpus"], profiles, strict=True)
    ):
        gpu["start"] |= {"name": f"{NAME} MIG {profile}", "uuid": f"MIG-{number}"}
    document["measured"]["pairs"] = []
    return job, document


def judge(check, job, document, rules=None):
    rules = rules or thresholds.of_node(job.nodes[0])
    return judged(check, job, standin_compute.reply(job, document), rules)


def test_instances_compute_and_no_threshold_of_whole_gpus_judges_their_speed():
    job, document = computing()
    verdicts = {
        name: judge(name, job, document).verdict for name in ("cuda", "gemm", "hbm", "copies")
    }
    unknown = Verdict.INCONCLUSIVE
    assert verdicts == {"cuda": Verdict.PASS, "gemm": unknown, "hbm": unknown, "copies": unknown}
    assert judge("repeatable", job, document).verdict is Verdict.PASS
    result = judge("gemm", job, document)
    assert "no threshold recorded for h100_sxm-1g.10gb" in result.message
    assert "MIG instance 0, bf16" in result.message


def sites(folder, job):
    """The rules of a site that recorded something for this job's instances."""
    hardware = job.nodes[0].hardware
    (folder / f"{hardware}.yml").write_text(
        f"model: {hardware}\n"
        "memory:\n  - {operation: copy, fail_below_gbs: 1, "
        "provenance: recorded, source: here, date: '2026'}\n"
    )
    return thresholds.of_node(job.nodes[0], folder)


def test_a_sites_file_judges_them(tmp_path):
    job, document = computing()
    assert judge("hbm", job, document, sites(tmp_path, job)).verdict is Verdict.PASS


def test_profiles_are_compared_among_themselves(tmp_path):
    """A large instance is faster than a small one, and that makes none a straggler."""
    job, document = computing((("1g.10gb", 1), ("3g.40gb", 2)), count=4)
    for gpu in document["measured"]["gpus"]:
        speed = 1200.0 if gpu["start"]["name"].endswith("3g.40gb") else 300.0
        gpu["memory"] = [
            standin_compute.memory(row["operation"], dict(job.config), speed)
            for row in gpu["memory"]
        ]
    result = judge("hbm", job, document, sites(tmp_path, job))
    assert (result.verdict, result.message) == (
        Verdict.PASS,
        "not judged: triad",
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"uuid": "GPU-1"}, "GPU 0 is GPU-1, an instance of MIG is declared"),
        ({"uuid": "MIG-1"}, "the same GPU was measured twice"),
    ],
)
def test_each_worker_has_an_instance_of_its_own(changes, sentence):
    job, document = computing()
    document["measured"]["gpus"][0]["start"] |= changes
    for check in ("cuda", "repeatable"):
        result = judge(check, job, document)
        assert result.verdict is Verdict.FAIL
        assert sentence in result.message


def test_other_profiles_and_other_boards_fail():
    job, document = computing(MIXED)
    assert judge("cuda", job, document).verdict is Verdict.PASS
    document["measured"]["gpus"][0]["start"]["name"] = f"{NAME} MIG 3g.40gb"
    said = "3 instances of 3g.40gb computed, 2 are declared"
    assert said in judge("cuda", job, document).message
    document["measured"]["gpus"][0]["start"]["name"] = "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
    result = judge("cuda", job, document)
    assert result.verdict is Verdict.FAIL
    assert "MIG instance 0 is NVIDIA A100" in result.message


def test_an_instance_in_the_place_of_a_whole_gpu_fails():
    job = standin_compute.job(count=1)
    document = standin_compute.document(job)
    document["measured"]["gpus"][0]["start"]["uuid"] = "MIG-0"
    result = judge("cuda", job, document)
    assert result.verdict is Verdict.FAIL
    assert "GPU 0 is MIG-0, a whole GPU is declared" in result.message


# --- the payload -----------------------------------------------------------------------------


def seen_by_workers(config, environ, uuids, monkeypatch):
    seen = []

    class Noted(compute.GpuProcess):
        def start(self):
            seen.append(self._environ()["CUDA_VISIBLE_DEVICES"])
            return {"error": "only noted"}

    monkeypatch.setattr(compute, "GpuProcess", Noted)
    measured = compute.measure(config, environ, ["false"], instances=lambda limit_s: uuids)
    assert measured["pairs"] == []
    return sorted(seen)


def test_every_worker_is_shown_one_instance(monkeypatch):
    config = compute.Config(gpus=2, mig=True)
    environ = {"CUDA_VISIBLE_DEVICES": "MIG-b,MIG-a"}
    assert seen_by_workers(config, environ, [], monkeypatch) == ["MIG-a", "MIG-b"]
    assert seen_by_workers(config, {}, ["MIG-1", "MIG-2"], monkeypatch) == ["MIG-1", "MIG-2"]


def test_fewer_instances_than_declared_are_an_error():
    config = compute.Config(gpus=3, mig=True)
    measured = compute.measure(config, {}, ["false"], instances=lambda limit_s: ["MIG-1", "MIG-2"])
    assert "CUDA_VISIBLE_DEVICES names 2 GPUs" in measured["gpus"][2]["start"]["error"]

    def none(limit_s):
        raise CannotRun("NVML lists no instance of MIG")

    with pytest.raises(CannotRun, match="no instance"):
        compute.measure(config, {}, ["false"], instances=none)


# --- ranks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        (f"{NAME} MIG 1g.10gb", Verdict.PASS),
        (f"{NAME} MIG 2g.20gb", Verdict.FAIL),
        (NAME, Verdict.FAIL),
    ],
)
def test_ranks_are_held_against_the_declared_instances(name, verdict):
    run_plan = planned()
    job = next(job for job in run_plan.jobs if job.name == "ddp-h100_sxm-1g.10gb")
    document = standin.ddp(job.hosts, job.config, fabric=job.nodes[0].fabric)
    for rank in document["proof"]["ranks"]:
        rank["gpu"] = name
    reply = standin_compute.reply(job, document)
    result = judged("ddp", job, reply, run_plan.rules[job.nodes[0].hardware])
    assert result.verdict is verdict, result.message
