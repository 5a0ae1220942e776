"""What runs where: selection, ranks, groups, and the plan that an operator reads."""

import json
import re

import pytest

from cluster import declaration, hostlist
from cluster.declaration import Submission
from cluster.errors import DataError, UsageError
from validation import plan, suites
from validation.model import GRANT_LIMIT_S, Job, Tier
from validation.plan import Selection, shrink
from validation.report import plan as plan_report
from validation.report.json import plain
from validation.tests.conftest import compact, declare, make_plan, plan_of

H100 = [(f"h{number}", "h100_sxm", 8, "ib_ndr400") for number in range(1, 5)]
MIXED = (*H100[:2], ("a1", "a100_pcie", 4), ("c1", "none", 0), ("c2", "none", 0))


def cluster_jobs(run_plan):
    return {job.name: job for job in run_plan.jobs if job.tier is Tier.CLUSTER}


def skipped_of(run_plan):
    return {(c.check, c.subject.name): c.skip for c in run_plan.checks if c.skip}


def test_the_quick_plan_of_the_virtual_cluster(golden):
    run_plan = make_plan()
    golden("plan_virtual.txt", plan_report.render(run_plan))
    document = json.loads(plan_report.as_json(run_plan))
    # What they are is in their own files, with many words.
    assert document.pop("thresholds") == json.loads(json.dumps(plain(run_plan.rules)))
    golden("plan_virtual.json", compact(document) + "\n")


def test_the_quick_plan_of_a_mixed_cluster(golden):
    golden("plan_mixed.txt", plan_report.render(make_plan(*MIXED, ("x1", "tpu_v9", 4))))


def test_a_check_that_is_skipped_is_not_said_to_fail_as_well():
    nodes = (("c1", "none", 0), ("c2", "none", 0))
    text = plan_report.render(make_plan(*nodes, suite="full"))
    assert "alike on c[1-2] is skipped: no GPU is declared" in text
    assert "cannot pass" not in text
    assert "inconclusive" not in text


def test_a_lone_node_is_not_said_to_be_skipped_and_to_fail():
    text = plan_report.render(make_plan(("gpu1", "h100_sxm", 8, "ib_ndr400"), suite="full"))
    assert "cannot pass" not in text
    for check in ("alike", "same_product", "stragglers"):
        told = [line for line in text.splitlines() if line.strip().startswith(f"{check} on")]
        assert len(told) <= 1
        assert check in text


def test_the_plan_says_beforehand_what_no_threshold_can_judge():
    nodes = [(f"gpu{number}", "h100_sxm", 8, "ib_ndr400") for number in (1, 2)]
    text = plan_report.render(make_plan(*nodes))
    assert "all_reduce on h100_sxm will be inconclusive: no threshold for 2 nodes" in text
    assert "--record-baseline DIR" in text


def test_the_plan_of_a_large_cluster_is_short():
    nodes = [(f"gpu{number:03}", "h100_sxm", 8, "ib_ndr400") for number in range(1, 501)]
    text = plan_report.render(make_plan(*nodes))
    assert "gpu[001-500]" in text
    assert len(text.splitlines()) < 15


def test_real_gpus_get_a_rank_each_and_nccl():
    jobs = cluster_jobs(make_plan(*H100))
    job = jobs["all_reduce"]
    assert (job.ranks_per_node, job.ranks, job.backend) == (8, 32, "nccl")
    assert job.config["backend"] == "nccl"
    assert jobs["pipeline"].config["microbatches"] >= 16  # 1F1B needs one for each stage


@pytest.mark.parametrize("nvml", [True, False])
def test_the_driver_of_virtual_gpus_is_asked_where_a_stand_in_is_declared(nvml):
    document = declare(("g1", "virtual", 2))
    document["nodes"][0]["gpus"]["nvml"] = nvml
    run_plan = plan_of(document, suite="gpu")
    payloads = [job.payload for job in run_plan.node_jobs]
    first = ["node", "host", "host_speed"]
    beside = ["isolation"] * 3
    assert payloads == [*first, *(["health"] if nvml else []), "compute", *beside]
    (check,) = [check for check in run_plan.checks if check.check == "driver"]
    assert check.skip == (None if nvml else "virtual GPUs have no driver")
    compute = next(job for job in run_plan.node_jobs if job.payload == "compute")
    assert compute.config["device"] == "cpu"


def test_virtual_gpus_and_cpu_nodes_get_one_rank_and_gloo():
    for nodes in ((("g1", "virtual", 2), ("g2", "virtual", 2)), MIXED[-2:]):
        job = cluster_jobs(make_plan(*nodes))["ddp"]
        assert (job.ranks_per_node, job.ranks, job.backend) == (1, 2, "gloo")


def test_every_kind_of_node_is_a_group_of_its_own():
    run_plan = make_plan(*MIXED)
    assert [group.name for group in run_plan.groups] == ["h100_sxm", "a100_pcie", "cpu"]
    assert "ddp-a100_pcie" in cluster_jobs(run_plan)


def test_groups_of_one_model_are_told_apart():
    run_plan = make_plan(("a", "l4", 1), ("b", "l4", 1, "roce"), ("c", "l4", 4, "roce"))
    kinds = ["l4-x1-ethernet", "l4-x1-roce", "l4-x4-roce"]
    assert [group.name for group in run_plan.groups] == kinds


@pytest.mark.parametrize(("model", "gpus"), [("virtual", 2), ("none", 0), ("h100_sxm", 1)])
def test_the_only_node_computes_alone(model, gpus):
    run_plan = make_plan(("gpu1", model, gpus))
    jobs = cluster_jobs(run_plan)
    assert [job.ranks for job in jobs.values()] == [1, 1, 1]
    assert {job.backend for job in jobs.values()} == {"nccl" if model == "h100_sxm" else "gloo"}
    checks = [check for check in run_plan.checks if check.check in jobs]
    assert not any(check.skip or check.unproven for check in checks)


def test_large_transfers_stay_off_slow_fabrics():
    slow = make_plan(("a", "l4", 1), ("b", "l4", 1))
    fast = make_plan(("a", "l4", 1, "roce"), ("b", "l4", 1, "roce"))
    alone = make_plan(("a", "l4", 4))
    largest = [
        max(cluster_jobs(p)["all_reduce"].config["sizes_bytes"]) for p in (slow, fast, alone)
    ]
    assert largest == [64 << 20, 8 << 30, 8 << 30]


@pytest.mark.parametrize(
    ("cpus", "ranks", "share"),
    [(32, 8, 4), (128, 8, 16), (24, 8, 2), (30, 4, 6), (2, 4, 1), (3, 1, 2)],
)
def test_every_rank_asks_for_its_share_of_whole_cores(cpus, ranks, share):
    """8 ranks on 32 CPUs: 4 each, where an exact step would give them one."""
    document = declare(("a", "h100_sxm", ranks, "roce"), ("b", "h100_sxm", ranks, "roce"))
    for node in document["nodes"]:
        node["cpus"] = cpus
    for job in cluster_jobs(plan_of(document)).values():
        assert job.config["cpus_per_rank"] == share
        assert share * ranks <= max(cpus, ranks)


def test_each_job_of_each_run_has_a_nonce_of_its_own():
    declared = declaration.parse(declare(*H100), "test")
    runs = [plan.make(declared, suites.load("quick"), Selection(), "one-id") for _ in range(2)]
    nonces = [job.config["nonce"] for run_plan in runs for job in run_plan.jobs]
    assert len(set(nonces)) == len(nonces) == 2 * 11


def test_what_a_selection_leaves_out_is_said():
    assert make_plan(*H100).left_out == ()
    run_plan = make_plan(*H100, selection=Selection(skip=("ddp", "clock"), nodes="h[1-2]"))
    assert run_plan.left_out == ("checks: clock, ddp", "nodes: h[3-4]")


@pytest.mark.parametrize(
    "run_plan",
    [
        make_plan(selection=Selection(nodes="gpu1")),
        make_plan(("a", "t4", 1), ("b", "l4", 1)),
        make_plan(*MIXED[:-1]),
    ],
)
def test_one_rank_among_others_runs_and_proves_nothing_between_them(run_plan):
    checks = [check for check in run_plan.checks if check.check == "ddp" and check.unproven]
    alone = {job.subject.name for job in run_plan.jobs if job.payload == "ddp" and job.ranks == 1}
    assert {check.subject.name for check in checks} == alone != set()
    assert not any(check.skip for check in checks)


def test_groups_that_measure_take_turns():
    run_plan = make_plan(*MIXED)
    batches = plan.cluster_batches([list(group.jobs) for group in run_plan.groups])
    names = [[[job.name for job in lane] for lane in lanes] for lanes in batches]
    kinds = ("h100_sxm", "a100_pcie", "cpu")
    assert names == [
        [[f"all_reduce-{kind}" for kind in kinds]],
        [[f"ddp-{kind}", f"pipeline-{kind}"] for kind in kinds],
    ]
    assert run_plan.longest_s > sum(job.run_limit_s for job in batches[0][0])


def test_gpu_hours_are_counted_from_the_limits():
    assert make_plan().gpu_hours == 0  # virtual
    run_plan = make_plan(*H100)
    limits = {job.name: job.run_limit_s for job in run_plan.jobs}
    jobs = ("node-h1", "cuda-h1", "all_reduce", "ddp", "pipeline")
    seconds = sum(limits[name] for name in jobs)
    waited = len(jobs) * GRANT_LIMIT_S  # a step's nodes are held until it starts
    assert run_plan.gpu_hours == pytest.approx(32 * (seconds + waited) / 3600)


# --- selection -------------------------------------------------------------------------------


def test_only_and_skip_keep_slurm_state():
    run_plan = make_plan(selection=Selection(only=("ddp", "clock"), skip=("clock",)))
    assert {check.check for check in run_plan.checks} == {"slurm_state", "ddp"}
    assert [job.name for job in run_plan.jobs] == ["ddp"]


def test_nodes_and_exclude():
    run_plan = make_plan(*H100, selection=Selection(nodes="h[1-3]", exclude="h2"))
    assert [node.name for node in run_plan.nodes] == ["h1", "h3"]


def test_nodes_of_two_partitions_are_two_groups():
    """Alike in all else; a job lies in one partition."""
    names = [name for name, *_ in H100]
    halves = [
        {"name": "gpu", "nodes": names[:2], "default": True},
        {"name": "long", "nodes": names[2:], "default": False},
    ]
    run_plan = plan_of(declare(*H100, partitions=halves))
    expected = {"gpu": tuple(names[:2]), "long": tuple(names[2:])}
    groups = run_plan.groups
    assert {
        group.partition: tuple(node.name for node in group.nodes) for group in groups
    } == expected
    trained = [job for job in run_plan.jobs if job.payload == "ddp"]
    assert {job.partition: job.hosts for job in trained} == expected


def test_a_partition_limits_the_nodes_and_takes_the_jobs():
    document = declare(*H100)
    document["partitions"].append({"name": "test", "nodes": ["h4"], "default": False})
    run_plan = plan_of(document, Selection(partition="test"))
    assert [node.name for node in run_plan.nodes] == ["h4"]
    assert {job.partition for job in run_plan.jobs} == {"test"}
    assert {job.partition for job in plan_of(document).jobs} == {"gpu"}


def test_wishes_of_the_command_line_come_before_the_inventorys():
    wishes = {"account": "hpc", "qos": "low", "srun_options": ["--comment=x"]}
    selection = Selection(submission=Submission(qos="high", srun_options=("--nice=5",)))
    run_plan = plan_of(declare(*H100, submission=wishes), selection)
    assert run_plan.submission.words == ("--account=hpc", "--qos=high", "--comment=x", "--nice=5")


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"srun_options": ["--nodelist=x"]}, "srun_options[0]: --nodelist is decided by the plan"),
        ({"srun_options": ["-p gpu"]}, "'-p gpu' is no option of the form --name"),
        ({"srun_options": [7]}, "srun_options[0]: 7 is no text"),
        ({"partition": "gpu"}, "submission.partition: unknown key"),
        ({"account": ""}, "submission.account: expected a text"),
    ],
)
def test_wishes_that_cannot_be_are_refused(wishes, sentence):
    with pytest.raises(DataError, match=re.escape(sentence)):
        declaration.parse({**declare(*H100), "submission": wishes}, "test")


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        (Selection(only=("gemm",)), "--only: suite quick has no check gemm; it has slurm_state, a"),
        (Selection(skip=("nccl",)), "--skip: suite quick has no check nccl; it has"),
        (Selection(skip=("slurm_state",)), "slurm_state always runs"),
        (Selection(only=()), "leave no check"),
        (Selection(nodes="gpu[1-3]"), "--nodes: unknown gpu3; declared nodes: gpu[1-2]"),
        (Selection(nodes="gpu[1-"), "--nodes: the node list 'gpu[1-' has unbalanced brackets"),
        (Selection(exclude="gpu[1-2]"), "the selection leaves no node; declared nodes: gpu[1-2]"),
        (Selection(exclude="cpu1"), "--exclude: unknown cpu1"),
        (Selection(partition="cpu"), "--partition: unknown partition cpu; there is gpu"),
    ],
)
def test_what_does_not_exist_is_named_in_one_sentence(selection, sentence):
    with pytest.raises(UsageError) as caught:
        make_plan(selection=selection)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


# --- what is left after the node tier --------------------------------------------------------


def test_a_job_shrinks_to_the_nodes_that_are_left():
    job = cluster_jobs(make_plan(*H100))["ddp"]
    left = shrink(job, {"h1", "h2", "h4"})
    assert isinstance(left, Job)
    assert (left.hosts, left.ranks) == (("h1", "h2", "h4"), 24)
    assert left.subject.name == job.subject.name
    assert shrink(job, {"h1", "h2", "h3", "h4"}) is job


def test_one_node_is_no_substitute_for_several():
    job = cluster_jobs(make_plan(*H100))["ddp"]
    assert shrink(job, {"h1"}) is None
    alone = cluster_jobs(make_plan(H100[0]))["ddp"]
    assert shrink(alone, set()) is None
    assert shrink(alone, {"h1"}) is alone


def test_the_plan_as_json_says_what_each_job_is(golden):
    document = json.loads(plan_report.as_json(make_plan(*MIXED)))
    jobs = {job["name"]: job for job in document["jobs"]}
    assert jobs["all_reduce-h100_sxm"]["nodes"] == "h[1-2]"
    assert jobs["all_reduce-h100_sxm"]["ranks"] == 16
    assert jobs["all_reduce-h100_sxm"]["gres"] == "gpu:h100_sxm:8"
    assert document["at_most"]["gpu_hours"] > 0


def unfolded_jobs(document):
    """What each job is, out of what is the same of many."""
    for entry in document["jobs"]:
        names = hostlist.expand(entry["nodes"])
        for name in names if entry["together"] is None else [entry["together"]]:
            own = {key: values[name] for key, values in entry["config_of"].items()}
            same = {
                key: value.replace("{node}", name) if isinstance(value, str) else value
                for key, value in entry["config"].items()
            }
            yield {
                **{key: entry[key] for key in entry if key not in ("config_of", "together")},
                "name": entry["name"].replace("{node}", name),
                "subject": name,
                "nodes": [name] if entry["together"] is None else names,
                "config": {**same, **own},
            }


@pytest.mark.parametrize("suite", ["quick", "gpu", "full"])
def test_the_plan_as_json_has_every_job_node_and_check(suite):
    others = [(f"gpu{number}", "h100_sxm", 8, "ib_ndr400") for number in range(1, 12)]
    environments = {"gpu3": {"NCCL_DEBUG": "WARN"}}
    made = make_plan(*MIXED, *others, suite=suite, environments=environments, shared=["/home"])
    document = json.loads(plan_report.as_json(made))
    found = {job["name"]: job for job in unfolded_jobs(document)}
    assert len(found) == len(made.jobs)
    for job in made.jobs:
        told, is_ = found[job.name], json.loads(json.dumps(plain(job)))
        del is_["pool"]
        expected = {
            **is_,
            "subject": job.subject.name,
            "nodes": list(job.hosts),
            "ranks": job.ranks,
            "gres": job.gres,
        }
        assert {**told, "nodes": sorted(told["nodes"])} == {
            **expected,
            "nodes": sorted(expected["nodes"]),
        }
    declared = {}
    for entry in document["nodes"]:
        for name in hostlist.expand(entry.pop("nodes")):
            declared[name] = {"name": name, **entry}
    assert declared == {node.name: json.loads(json.dumps(plain(node))) for node in made.nodes}
    owed = set()
    for entry in document["checks"]:
        names = hostlist.expand(entry["nodes"])
        of = [entry["together"]] if entry["together"] else names
        owed |= {(entry["check"], entry["tier"], n, entry["skip"], entry["unproven"]) for n in of}
    assert owed == {
        (c.check, c.tier.value, c.subject.name, c.skip, c.unproven) for c in made.checks
    }


def test_the_plan_of_a_large_cluster_is_a_small_file():
    """1,024 nodes: see docs/understand/scale.md. A node more costs its neighbours' names."""
    few, more = (
        len(
            plan_report.as_json(
                make_plan(
                    *((f"gpu{n}", "h100_sxm", 8, "ib_ndr400") for n in range(100, 100 + number)),
                    suite="gpu",
                )
            )
        )
        for number in (16, 80)
    )
    assert (more - few) / 64 < 128


# --- what is declared for the payloads -----------------------------------------------------------


def test_nodes_with_another_environment_train_apart():
    """Half of them over ib0 and half over eth0 would wait for each other."""
    infiniband, ethernet = {"NCCL_SOCKET_IFNAME": "ib0"}, {"NCCL_SOCKET_IFNAME": "eth0"}
    nodes = tuple((f"gpu{number}", "virtual", 2) for number in (1, 2, 3, 4))
    declared = [infiniband, infiniband, ethernet, ethernet]
    environments = {name: own for (name, *_), own in zip(nodes, declared, strict=True)}
    run_plan = make_plan(*nodes, environments=environments)
    assert [group.name for group in run_plan.groups] == ["virtual-env1", "virtual-env2"]
    environments = {job.name: dict(job.environment) for job in run_plan.jobs}
    assert environments["node-gpu1"] == environments["ddp-virtual-env1"] == infiniband
    assert environments["node-gpu4"] == environments["ddp-virtual-env2"] == ethernet


def test_an_environment_of_something_else_than_texts_is_refused():
    with pytest.raises(DataError, match=r"environment\.NCCL_DEBUG"):
        make_plan(environments={"gpu1": {"NCCL_DEBUG": 3}})


# --- several payloads on a node ------------------------------------------------------------------


def test_a_node_has_a_job_for_each_payload_one_after_another():
    run_plan = make_plan(
        ("h1", "h100_sxm", 8), ("c1", "none", 0), ("v1", "virtual", 2), suite="gpu"
    )
    lanes = [[job.name for job in lane] for lane in run_plan.node_lanes]
    assert lanes == [
        ["node-h1", "host-h1", "host_speed-h1", "health-h1", "cuda-h1", "compute-h1"],
        ["node-c1", "host-c1", "host_speed-c1"],
        ["node-v1", "host-v1", "host_speed-v1", "compute-v1"],
    ]
    skipped = skipped_of(run_plan)
    assert skipped["gemm", "c1"] == "no GPU is declared"
    assert skipped["cuda", "c1"] == "no GPU is declared"
    assert skipped["cuda", "v1"] == "virtual GPUs have no driver"
    assert skipped["ecc", "v1"] == "virtual GPUs have no driver"
    assert ("gemm", "v1") not in skipped
    assert run_plan.groups == ()


def test_what_measures_a_node_has_it_to_itself():
    run_plan = make_plan(("h1", "h100_sxm", 8), suite="gpu")
    cpus = {job.payload: job.cpus_per_task for job in run_plan.node_jobs}
    alone = {"host_speed": 2, "cuda": 2, "compute": 2}
    shared = dict.fromkeys(("node", "host", "health", "isolation"))
    assert cpus == {**shared, **alone}
    config = {job.payload: job.config for job in run_plan.node_jobs}["compute"]
    assert (config["device"], config["gpus"]) == ("cuda", 8)


# --- what the host is asked for ------------------------------------------------------------------


def test_what_is_not_declared_of_a_host_is_skipped():
    run_plan = make_plan(("h1", "h100_sxm", 8, "ib_ndr400"), ("c1", "none", 0), suite="gpu")
    skipped = skipped_of(run_plan)
    assert skipped["shared_fs", "h1"] == "no shared filesystem is declared"
    reason = "the declared fabric ethernet is neither InfiniBand nor RoCE"
    assert skipped["infiniband", "c1"] == reason
    checks = {job.name: job.checks for job in run_plan.node_jobs}
    assert checks["host-h1"] == ("limits", "infiniband", "port_errors")
    assert checks["host-c1"] == ("limits",)


def test_declared_filesystems_reach_the_payload():
    document = declare(("gpu1", "virtual", 2), ("gpu2", "virtual", 2))
    document["nodes"][0]["shared_filesystems"] = ["/home", "/scratch"]
    configs = {job.name: job.config for job in plan_of(document, suite="gpu").node_jobs}
    assert configs["host-gpu1"]["shared_filesystems"] == ["/home", "/scratch"]
    assert "shared_filesystems" not in configs["host-gpu2"]
    only = plan_of(document, Selection(only=("limits",)), "gpu")
    assert "shared_filesystems" not in only.node_jobs[0].config


def test_only_what_was_selected_of_a_host_is_measured():
    run_plan = make_plan(suite="gpu", selection=Selection(only=("disk",)))
    config = run_plan.node_jobs[0].config
    assert (config["disk"], config["memory"]) == (True, False)


@pytest.mark.parametrize("value", ["/home", ["home"], [7], ["/home\n"]])
def test_shared_filesystems_of_something_else_than_paths_are_refused(value):
    document = declare(("gpu1", "virtual", 2))
    document["nodes"][0]["shared_filesystems"] = value
    with pytest.raises(DataError, match=r"shared_filesystems"):
        declaration.parse(document, "test")


def test_nodes_that_skip_a_check_alike_are_one_line():
    nodes = [(f"gpu{number}", "h100_sxm", 8) for number in range(1, 501)]
    text = plan_report.render(make_plan(*nodes, suite="gpu"))
    assert "shared_fs on gpu[1-500] is skipped: no shared filesystem is declared" in text
    assert len(text.splitlines()) < 20
