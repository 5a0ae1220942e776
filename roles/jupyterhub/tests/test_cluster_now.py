"""What Slurm prints becomes partitions, GPUs that are free, and limits."""

from __future__ import annotations

import pytest

from roles.jupyterhub.files.portal import cluster_now
from roles.jupyterhub.files.portal.cluster_now import Association, Gpus, Qos

SINFO = """\
gpu* gpu1 mixed gpu:h100:8(S:0-1) gpu:h100:3(IDX:0-2) 24/40/0/64 515000 7-00:00:00
gpu* gpu2 idle gpu:h100:8(S:0-1) gpu:h100:0(IDX:N/A) 0/64/0/64 515000 7-00:00:00

a line that no release prints
gpu* gpu3 drained gpu:h100:8(S:0-1) gpu:h100:0(IDX:N/A) 0/0/64/64 515000 7-00:00:00
gpu* gpu4 idle* gpu:h100:8 gpu:h100:0 0/64/0/64 515000 7-00:00:00
mig g5 allocated gpu:1g.10gb:7,gpu:h100:1 gpu:1g.10gb:7(IDX:0-6),gpu:h100:1 4/0/0/4 9 infinite
cpu cpu1 mixed- (null) (null) 2/6/0/8 64000 30:00
"""


def answer(**texts: str) -> dict[str, object]:
    known = {"nodes": SINFO, "associations": "", "account": "", "qos": ""} | texts
    said = {name: {"code": 0, "out": text, "err": ""} for name, text in known.items()}
    return {**said, "home": ""}


def test_partitions_with_what_is_free_now() -> None:
    cluster = cluster_now.read(answer())
    assert [each.name for each in cluster.partitions] == ["gpu", "cpu", "mig"]  # the default first
    gpu = cluster.partition("gpu")
    assert gpu is not None
    assert gpu.default
    # Neither a drained node nor one that does not answer has anything free.
    assert gpu.gpus == (Gpus("h100", per_node=8, free=13, total=32, free_on_one=8),)
    assert (gpu.idle_nodes, gpu.free_cpus, gpu.cpus_per_node) == (1, 104, 64)
    assert gpu.limit == 7 * 24 * 60
    assert (gpu.limit, gpu.memory_mib) == (7 * 24 * 60, 515000)
    assert gpu.nodes == ("gpu1", "gpu2", "gpu3", "gpu4")


def test_instances_of_mig_are_a_type_of_their_own() -> None:
    mig = cluster_now.read(answer()).partition("mig")
    assert mig is not None
    assert mig.gpus == (Gpus("1g.10gb", 7, 0, 7, 0), Gpus("h100", 1, 0, 1, 0))
    assert mig.limit is None


def test_nodes_that_are_not_alike_give_what_the_largest_has() -> None:
    nodes = """\
all n1 idle gpu:h100:2 gpu:h100:0 0/8/0/8 1000 infinite
all n2 idle gpu:h100:8,gpu:a100:1 gpu:h100:7,gpu:a100:0 0/64/0/64 9000 infinite
"""
    both = cluster_now.read(answer(nodes=nodes)).partition("all")
    assert both is not None
    assert (both.cpus_per_node, both.memory_mib) == (64, 9000)
    assert both.gpus == (Gpus("a100", 1, 1, 1, 1), Gpus("h100", 8, 3, 10, 2))


def test_a_partition_without_gpus() -> None:
    cpu = cluster_now.read(answer()).partition("cpu")
    assert cpu is not None
    assert cpu.gpus == ()
    assert (cpu.free_cpus, cpu.limit) == (6, 30)  # planned for a job, and free until then


def test_accounts_limits_and_the_default_first() -> None:
    cluster = cluster_now.read(
        answer(
            associations="art||normal|||\nphysics||normal,,urgent|normal|gres/gpu=4,cpu=8|02:00:00\n||normal|||\n",
            account="physics\n",
            qos="normal|||\nurgent|01:00:00|gres/gpu=8|gres/gpu=2\n",
        )
    )
    assert cluster.accounts == ("physics", "art")
    assert cluster.associations[1] == Association(
        "physics", "", ("normal", "urgent"), "normal", limit=120, gpus=4
    )
    assert cluster.qos == {"normal": Qos("normal"), "urgent": Qos("urgent", 60, 2)}


def test_what_does_not_answer_is_a_sentence() -> None:
    broken = answer()
    broken["nodes"] = {"code": 1, "out": "", "err": "slurm_load_node: Unable to\n contact"}
    cluster = cluster_now.read(broken)
    assert cluster.partitions == ()
    assert cluster.problems == (
        "Slurm does not say which nodes there are (slurm_load_node: Unable to contact)",
    )
    broken["nodes"] = {"code": 1, "out": "", "err": "x" * 300}
    assert cluster_now.read(broken).problems[0].endswith(f" are ({'x' * 200})")


def test_a_home_that_is_full_is_a_problem() -> None:
    assert cluster_now.read(answer() | {"home": "Your home is full."}).problems == (
        "Your home is full.",
    )


def test_a_short_line_of_sacctmgr_is_read_as_far_as_it_goes() -> None:
    cluster = cluster_now.read(answer(associations="physics\n", qos="normal\n"))
    assert cluster.associations == (Association("physics", "", (), ""),)
    assert cluster.qos == {"normal": Qos("normal")}


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("7-00:00:00", 10080),
        ("1-12", 36 * 60),
        ("1-12:30", 36 * 60 + 30),
        ("02:30:59", 150),
        ("30:00", 30),
        ("30", 30),
        ("infinite", None),
        ("UNLIMITED", None),
        ("n/a", None),
        ("", None),
    ],
)
def test_times_of_slurm(text: str, minutes: int | None) -> None:
    assert cluster_now.minutes(text) == minutes


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=8,gres/gpu=2", 2),
        (" gres/gpu = 2 ", 2),
        ("cpu=8", None),
        ("gres/gpu=", None),
        ("gres/gpu:h100=2", None),
        ("", None),
    ],
)
def test_limits_of_gpus(tres: str, gpus: int | None) -> None:
    assert cluster_now.gpus_of(tres) == gpus


def test_gpus_without_a_type() -> None:
    assert cluster_now.gres("gpu:2,nvme:1,gpu:a:b:1") == {"": 2, "a:b": 1}
