"""Nodes of one kind have the same software and firmware, and so have their GPUs.

What it checks   Driver, CUDA version of the driver, torch and kernel are the same on all nodes with
                 the same number of GPUs of one model. Boards of one name have the same VBIOS,
                 firmware and BAR1, within a node and over all nodes. The majority is right if it is
                 at least three.
Why it matters   A training over different nodes is as slow as the oldest of them, or fails in a way
                 that nobody can reproduce. A board with another VBIOS was replaced, or missed an
                 update.
What to do       Another value: give the named node what the others have: the package brings the
                 driver and its firmware, the server's vendor the VBIOS, and the role
                 validation_runtime torch.
                 $ ssh {node} 'nvidia-smi -q | grep -i -e "driver version" -e vbios -e gsp'
                 $ ssh {node} uname -r
"""

from collections.abc import Iterator, Sequence

from validation.checks import comparison
from validation.checks.comparison import ComparedNode, Fact, Facts, all_equal
from validation.checks.document import Document, Unusable
from validation.checks.health import GpuValues, Unanswered, answering
from validation.model import Job, Metric, Result, Threshold, Tier, When

NAME = "alike"
TIER = Tier.NODE
PAYLOAD = "health"
FEWEST_GPUS = 2

CAUSES = {"Another value": When(r", \d+ of \d+ \w+ have")}
SHARED = (comparison,)

_THRESHOLD = Threshold("=", 0, "values", "defined", "what most nodes have, if at least three agree")
_OF_BOARDS = {"vbios": "VBIOS", "gsp_firmware": "GSP firmware"}


def compare(members: Sequence[ComparedNode]) -> list[Result]:
    return all_equal(NAME, _THRESHOLD, members, _facts)


def _facts(job: Job, document: Document) -> Facts:
    gpus = answering(document)
    facts = (*_of_node(document), *(fact for gpu in gpus for fact in _of_board(gpu)))
    metrics = tuple(Metric(fact.what, fact.value) for fact in facts if fact.index is None)
    return Facts(facts, metrics=metrics)


def _of_node(document: Document) -> Iterator[Fact]:
    nvml, software = document.measured.inner("nvml"), document.measured.inner("software")
    cuda = nvml.whole("cuda")
    yield Fact(None, "driver", (), nvml.text("driver"))
    yield Fact(None, "CUDA of the driver", (), f"{cuda // 1000}.{cuda % 1000 // 10}")
    yield Fact(None, "kernel", (), software.text("kernel"))
    torch = software.maybe_text("torch")
    if torch is not None:  # `torch` says that it is missing
        yield Fact(None, "torch", (), torch)


def _of_board(gpu: GpuValues) -> Iterator[Fact]:
    try:
        name = gpu.text("name")
        for field, what in _OF_BOARDS.items():
            value = gpu.text(field)
            if value is not None:
                yield Fact(gpu.index, what, (name,), value)
        if (window := gpu.whole("bar1_total_mb")) is not None:
            yield Fact(gpu.index, "BAR1", (name,), f"{window} MiB")
    except Unanswered as problem:
        raise Unusable(f"GPU {gpu.index} {problem}") from problem
