"""The same product comes out the same, bit by bit, every time and on every equal GPU.

What it checks   a product of seeded matrices, repeated under load: all its bits are equal in every
                 repetition, in each type that the GPU has, and on all GPUs of the node that have
                 the same name and as many multiprocessors; the host drew the same numbers for all
Why it matters   a GPU that computes wrongly now and then raises no error; what it spoils is noticed
                 weeks later, in a model
What to do       Take the GPU that is named out of service and run the vendor's diagnostics on it.
                 Where all differ from one repetition to the next it is the library, not the GPUs:
                 compare versions of torch and CUDA with those of a node that passes.
                 $ ssh {node} 'dcgmi diag -r 3'
"""

import re
from collections import Counter
from collections.abc import Sequence

from validation.checks import computed
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier
from validation.thresholds import Rules

NAME = "repeatable"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

_SAME = Threshold(
    "=",
    1,
    "",
    "defined",
    "one version of cuBLAS gives equal bits on GPUs of one architecture with as many "
    "multiprocessors (https://docs.nvidia.com/cuda/cublas/#results-reproducibility)",
)
_HASH = re.compile(r"[0-9a-f]{16}")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        report = computed.Report()
        products: dict[tuple[str, object], dict[int, str]] = {}
        numbers: dict[str, dict[int, str]] = {}
        for gpu in computed.started(report, node):
            rows = gpu.rows("gemm", "dtype", node.asked.dtypes)
            computed.some(report, gpu, rows)
            for kind, row in rows:
                what = f"{gpu.title}, {kind}"
                if problem := computed.problem(row):
                    report.failed_to_measure(what, problem)
                elif row.maybe_text("unsupported") is None:
                    product = _repeated(report, what, _hashes(row, what, node.asked.repeats))
                    numbers.setdefault(kind, {})[gpu.index] = row.text("data")
                    equal = (gpu.name, gpu.multiprocessors, gpu.torch, gpu.cuda)
                    # CPUs choose their ways by what memory they were given: no equals there.
                    if product is not None and node.real:
                        products.setdefault((kind, equal), {})[gpu.index] = product
        words = ("other numbers", "were multiplied", "numbers to multiply")
        unlike = {kind for kind, found in numbers.items() if _compare(report, kind, found, *words)}
        for (kind, _), alike in products.items():
            if kind not in unlike:  # other numbers have another product
                _compare(report, kind, alike, "another product", "", "products")
        return report.result(NAME, job, document, rules)

    return answer(NAME, job, reply, judge)


def _hashes(row: Fields, what: str, repeats: int) -> Sequence[str]:
    found = [item.text("hash") for item in row.items("products")]
    if len(found) != repeats or not all(_HASH.fullmatch(item) for item in found):
        raise Unusable(f"{what}: no hash of each of {repeats} products")
    return found


def _repeated(report: computed.Report, what: str, hashes: Sequence[str]) -> str | None:
    """The product's hash, when there is only one."""
    value = Metric(f"{what}, different products", len(set(hashes)))
    report.judged.append((value, _SAME))
    if len(set(hashes)) == 1:
        report.metrics.append(Metric(f"{what}, product", hashes[0]))
        return hashes[0]
    report.fail(
        f"{what}: one product came out in {value.value} ways in {len(hashes)} repetitions",
        value,
        _SAME,
    )
    return None


def _compare(
    report: computed.Report, kind: str, found: dict[int, str], other: str, done: str, all_of: str
) -> bool:
    """Each GPU against what most of them have, in the words for that; whether they differ."""
    counted = Counter(found.values())
    if len(counted) < 2:
        return False
    (common, most), (_, second) = counted.most_common(2)
    value = Metric(f"{kind}, different {all_of}", len(counted))
    if most == second:
        who = ", ".join(str(index) for index in found)
        report.fail(f"GPUs {who} have different {kind} {all_of}", value, _SAME)
        return True
    for index, own in found.items():
        if own != common:
            said = f"GPU {index}, {kind}: {other} than {most} GPUs have {done}".rstrip()
            report.fail(said, value, _SAME)
    return True
