"""What is written of a cluster is what is read of it; what is no declaration: validation/tests."""

from __future__ import annotations

import json

import pytest

from cluster.declaration import (
    Container,
    Declaration,
    Gpus,
    Node,
    Partition,
    Submission,
    parse,
    plain,
)

NODES = (
    Node("cpu1", 4, 2000, Gpus("none", 0), "ethernet"),
    Node("gpu1", 8, 4000, Gpus("virtual", 2, nvml=True), "ethernet", (("A", "1"), ("B", "2"))),
    Node(
        *("gpu2", 8, 4000, Gpus("h100_sxm", 8, mig=(("1g.10gb", 4), ("3g.40gb", 1)))),
        *("ib_ndr400", (), ("/home", "/scratch")),
    ),
    Node("gpu3", 8, 4000, Gpus("h100_sxm", 8, gres="gpu:half:16"), "ib_ndr400"),
)
WISHES = Submission(
    account="ops", srun_options=("--comment=test",), container_image="/images/torch.sqsh"
)


@pytest.mark.parametrize("submission", [Submission(), WISHES])
def test_what_is_written_reads_back_the_same(submission: Submission) -> None:
    declared = Declaration(
        *("plumbline", ("login1",), ("ctl1", "ctl2"), "/opt/plumbline/bin/python"),
        (
            Partition("all", ("cpu1", "gpu1", "gpu2", "gpu3"), True),
            Partition("a", ("cpu1",), False),
        ),
        {node.name: node for node in NODES},
        submission,
    )
    assert parse(json.loads(json.dumps(plain(declared))), "test") == declared


def test_a_container_has_a_python_of_its_own() -> None:
    assert WISHES.container == Container("/images/torch.sqsh", None, "python3")
