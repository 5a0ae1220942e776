"""Equal GPUs compute the same result, bit for bit, on whichever node.

What it checks   For one product of seeded matrices, in each type that the GPU supports, a hash of
                 all bits is equal on all GPUs of one name with the same number of multiprocessors,
                 driver, CUDA, torch and input, within a node and over all nodes. The majority is
                 right if at least three agree.
Why it matters   A GPU that computes wrongly reports no error. Its effect is noticed weeks later, in
                 a model.
What to do       Another product: take the named GPU out of service and run the vendor's
                 diagnostics. If there is no majority, add nodes of the same kind to the run to show
                 which one is wrong.
                 $ ssh {node} 'dcgmi diag -r 3'

Under other software a product may come out otherwise without a fault: other kernels add up in
another order, and each rounds. So such GPUs are not held against each other.
"""

from collections.abc import Sequence

from validation.checks import comparison, computed, repeatable
from validation.checks.comparison import ComparedNode, Fact, Facts, all_equal
from validation.checks.document import Document, Unusable
from validation.model import Job, Result, Threshold, Tier, When

NAME = "same_product"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD
FEWEST_GPUS = 2

CAUSES = {"Another product": When(r", \d+ of \d+ \w+ have")}
SHARED = (comparison,)

_THRESHOLD = Threshold(
    "=",
    0,
    "values",
    "defined",
    "one version of cuBLAS gives equal bits on GPUs of one architecture with as many "
    "multiprocessors (https://docs.nvidia.com/cuda/cublas/#results-reproducibility)",
)


def compare(members: Sequence[ComparedNode]) -> list[Result]:
    return all_equal(NAME, _THRESHOLD, members, _facts)


def _facts(job: Job, document: Document) -> Facts:
    node = computed.read(job, document)
    if not node.real:
        raise Unusable("products of a CPU prove nothing about a GPU")
    driver = computed.driver(document)
    if driver is None:
        return Facts((), ("the version of the driver is not known, see links",))
    facts: list[Fact] = []
    lacking: list[str] = []
    for gpu in node.gpus:
        if gpu.problem is not None:
            lacking.append(f"{gpu.title} has no product, see cuda")
            continue
        software = (gpu.name, gpu.multiprocessors, driver, gpu.cuda, gpu.torch)
        for kind, row in gpu.rows("gemm", "dtype", node.config.dtypes):
            what = f"{gpu.title}, {kind}"
            if computed.problem(row) is not None:
                lacking.append(f"{what}: no product, see gemm")
            elif row.maybe_text("unsupported") is None:
                hashes = set(repeatable.hashes(row, what, node.config.repeats))
                if len(hashes) == 1:
                    equals = (*software, row.text("data"))
                    facts.append(Fact(gpu.index, f"{kind} product", equals, hashes.pop()))
                else:
                    lacking.append(f"{what}: no product of its own, see repeatable")
    return Facts(tuple(facts), tuple(lacking))
