"""Which jobs share an allocation."""

from dataclasses import replace

from validation.allocations import share
from validation.tests.conftest import make_plan

FIVE = tuple((f"gpu{number}", "virtual", 2) for number in range(1, 6))


def hosts(plan):
    return frozenset(node.name for node in plan.nodes)


def node_lanes(plan):
    return [[job] for job in plan.node_jobs]


def test_nodes_that_are_asked_the_same_share_one_up_to_a_size():
    plan = make_plan(*FIVE)
    allocations = share(node_lanes(plan), hosts(plan), 2)
    names = [[job.name for job in allocation.jobs] for allocation in allocations]
    assert names == [["node-gpu1", "node-gpu2"], ["node-gpu3", "node-gpu4"]]
    assert [allocation.name for allocation in allocations] == ["steps-node-gpu1", "steps-node-gpu3"]


def test_nodes_of_other_gpus_have_another():
    """--gres holds for every node of an allocation."""
    plan = make_plan(*FIVE[:2], ("c1", "none", 0), ("c2", "none", 0))
    allocations = share(node_lanes(plan), hosts(plan), 64)
    assert [[node.name for node in item.nodes] for item in allocations] == [
        ["gpu1", "gpu2"],
        ["c1", "c2"],
    ]


def test_nodes_that_are_in_use_have_jobs_of_their_own():
    plan = make_plan(*FIVE)
    (allocation,) = share(node_lanes(plan), hosts(plan) - {"gpu2"}, 64)
    assert [node.name for node in allocation.nodes] == ["gpu1", "gpu3", "gpu4", "gpu5"]


def test_the_jobs_of_a_group_share_one():
    plan = make_plan()
    lane = list(plan.groups[0].jobs)
    (allocation,) = share([lane], hosts(plan), 64)
    assert allocation.lanes == (tuple(lane),)
    assert share([lane], hosts(plan) - {"gpu1"}, 64) == ()


def test_two_groups_do_not_share_one():
    plan = make_plan(*FIVE[:2], *(("c1", "none", 0), ("c2", "none", 0)))
    lanes = [list(group.jobs) for group in plan.groups]
    assert len(share(lanes, hosts(plan), 64)) == 2
    # Those that measure run one after another, on other nodes each.
    measured = [[lane[0] for lane in lanes]]
    assert share(measured, hosts(plan), 64) == ()


def test_one_job_needs_none():
    plan = make_plan(("gpu1", "virtual", 2))
    assert share(node_lanes(plan), hosts(plan), 64) == ()


def test_nodes_of_which_all_cpus_are_asked_share_with_their_equals_alone():
    """--cpus-per-task and --exclusive hold for every node of an allocation."""
    plan = make_plan(*FIVE[:4], suite="gpu")
    cpus = {"gpu1": 2, "gpu2": 2, "gpu3": 4, "gpu4": 1}
    lanes = [
        [replace(job, cpus_per_task=job.cpus_per_task and cpus[job.hosts[0]]) for job in lane]
        for lane in plan.node_lanes
    ]
    allocations = share(lanes, hosts(plan), 64)
    names = [[node.name for node in item.nodes] for item in allocations]
    assert names == [["gpu1", "gpu2"], ["gpu3"], ["gpu4"]]
    # A node of which nothing more than a CPU is asked is not one that has a single one.
    (mixed, *_) = share([lanes[3], lanes[0][:1], lanes[1][:1]], hosts(plan), 64)
    assert [node.name for node in mixed.nodes] == ["gpu4"]
