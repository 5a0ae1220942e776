"""Nodes of one kind have one software and one firmware, and so have their GPUs.

What it checks   driver, CUDA of the driver, torch and kernel are of one version on all nodes with
                 as many GPUs of one model; boards of one name have one VBIOS and one firmware,
                 within a node and over all of them. What three or more have, and more than half, is
                 right
Why it matters   a training over nodes that differ is as slow as the oldest of them, or fails in a
                 way that nobody can repeat; a board with another VBIOS was replaced, or was missed
                 by an update
What to do       Bring the node that is named to what the others have: the driver and its firmware
                 come with the package, VBIOS from the vendor of the server, torch from the role
                 validation_runtime. Where none is that of most, an update was left half-way.
                 $ ssh {node} 'nvidia-smi -q | grep -i -e "driver version" -e vbios -e gsp'
                 $ ssh {node} uname -r
"""

from collections.abc import Iterator, Sequence

from validation.checks.comparison import Asked, Fact, Facts, all_equal
from validation.checks.document import Document, Unusable
from validation.checks.health import Gpu, Unanswered, answering
from validation.model import Job, Metric, Result, Threshold, Tier

NAME = "alike"
TIER = Tier.NODE
PAYLOAD = "health"
FEWEST_GPUS = 2

_THRESHOLD = Threshold("=", 0, "values", "defined", "what three or more have, and more than half")
_OF_BOARDS = {"vbios": "VBIOS", "gsp_firmware": "GSP firmware"}


def compare(asked: Sequence[Asked]) -> list[Result]:
    return all_equal(NAME, _THRESHOLD, asked, _facts)


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


def _of_board(gpu: Gpu) -> Iterator[Fact]:
    try:
        name = gpu.text("name")
        for asked, what in _OF_BOARDS.items():
            value = gpu.text(asked)
            if value is not None:
                yield Fact(gpu.index, what, (name,), value)
    except Unanswered as problem:
        raise Unusable(f"GPU {gpu.index} {problem}") from problem
