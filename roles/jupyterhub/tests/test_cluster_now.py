"""What Slurm prints becomes partitions, GPUs that are free, and limits."""

from __future__ import annotations

import pytest

from roles.jupyterhub.files.portal import cluster_now
from roles.jupyterhub.files.portal.cluster_now import Association, Gpus, Qos

SINFO = """\
gpu* gpu1 mixed gpu:h100:8(S:0-1) gpu:h100:3(IDX:0-2) 24/40/0/64 515000 7-00:00:00
gpu* gpu2 idle gpu:h100:8(S:0-1) gpu:h100:0(IDX:N/A) 0/64/0/64 515000 7-00:00:00
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
    assert (gpu.limit, gpu.memory_mib) == (7 * 24 * 60, 515000)
    assert gpu.nodes == ("gpu1", "gpu2", "gpu3", "gpu4")


def test_instances_of_mig_are_a_type_of_their_own() -> None:
    mig = cluster_now.read(answer()).partition("mig")
    assert mig is not None
    assert mig.gpus == (Gpus("1g.10gb", 7, 0, 7, 0), Gpus("h100", 1, 0, 1, 0))
    assert mig.limit is None


def test_a_partition_without_gpus() -> None:
    cpu = cluster_now.read(answer()).partition("cpu")
    assert cpu is not None
    assert cpu.gpus == ()
    assert (cpu.free_cpus, cpu.limit) == (6, 30)  # planned for a job, and free until then


def test_accounts_limits_and_the_default_first() -> None:
    cluster = cluster_now.read(
        answer(
            associations="art||normal|||\nphysics||normal,urgent|normal|gres/gpu=4,cpu=8|02:00:00\n",
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


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("7-00:00:00", 10080),
        ("1-12", 36 * 60),
        ("1-12:30", 36 * 60 + 30),
        ("02:00:00", 120),
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


def test_gpus_without_a_type() -> None:
    assert cluster_now.gres("gpu:2,nvme:1,gpu:a:b:1") == {"": 2, "a:b": 1}
