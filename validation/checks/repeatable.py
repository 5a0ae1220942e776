"""The same product has the same result, bit for bit, every time.

What it checks   A product of seeded matrices is repeated under load. All bits are equal in every
                 repetition, for each type that the GPU supports, and the host generated the same
                 matrices for all GPUs. Whether equal GPUs agree with each other is checked by
                 `same_product`.
Why it matters   A GPU that computes wrongly now and then reports no error. Its effect is noticed
                 weeks later, in a model.
What to do       Products differ: take the GPU out of service and run the vendor's diagnostics.
                 If all GPUs differ between repetitions, the library is the cause, not the GPUs:
                 compare the versions of torch and CUDA with those of a node that passes. Other
                 numbers to multiply: the memory or the generator of random numbers of the named GPU
                 is wrong; take it out of service.
                 $ ssh {node} 'dcgmi diag -r 3'
"""

import re
from collections import Counter
from collections.abc import Sequence

from validation.checks import computed
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, When
from validation.thresholds import Rules

NAME = "repeatable"
TIER = Tier.NODE
PAYLOAD = computed.PAYLOAD

CAUSES = {
    "Products differ": When(r"one product came out"),
    "Other numbers to multiply": When(r"numbers to multiply|other numbers than"),
}

_SAME = Threshold(
    "=",
    1,
    "",
    "defined",
    "one version of cuBLAS gives equal bits on one GPU, as long as one stream is in use "
    "(https://docs.nvidia.com/cuda/cublas/#results-reproducibility)",
)
_HASH = re.compile(r"[0-9a-f]{16}")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        node = computed.read(job, document)
        report = computed.Report()
        numbers: dict[str, dict[int, str]] = {}
        for gpu in computed.started(report, node):
            rows = gpu.rows("gemm", "dtype", node.config.dtypes)
            computed.some(report, gpu, rows)
            for kind, row in rows:
                what = f"{gpu.title}, {kind}"
                if problem := computed.problem(row):
                    report.failed_to_measure(what, problem)
                elif row.maybe_text("unsupported") is None:
                    _repeated(report, what, hashes(row, what, node.config.repeats))
                    numbers.setdefault(kind, {})[gpu.index] = row.text("data")
        for kind, data in numbers.items():
            _compare(report, kind, data)
        return report.result(NAME, job, document, rules)

    return answer(NAME, job, reply, judge)


def hashes(row: Fields, what: str, repeats: int) -> Sequence[str]:
    """Of each repetition. Raises Unusable unless there is one of each."""
    digests = [item.text("hash") for item in row.items("products")]
    if len(digests) != repeats or not all(_HASH.fullmatch(item) for item in digests):
        raise Unusable(f"{what}: no hash of each of {repeats} products")
    return digests


def _repeated(report: computed.Report, what: str, products: Sequence[str]) -> None:
    value = Metric(f"{what}, different products", len(set(products)))
    report.judged.append((value, _SAME))
    if len(set(products)) == 1:
        report.metrics.append(Metric(f"{what}, product", products[0]))
        return
    report.fail(
        f"{what}: one product came out in {value.value} ways in {len(products)} repetitions",
        value,
        _SAME,
    )


def _compare(report: computed.Report, kind: str, sums: dict[int, str]) -> None:
    """The numbers that each GPU multiplied against those that most of them did."""
    counted = Counter(sums.values())
    if len(counted) < 2:
        return
    (common, most), (_, second) = counted.most_common(2)
    value = Metric(f"{kind}, different numbers to multiply", len(counted))
    if most == second:
        who = ", ".join(str(index) for index in sums)
        report.fail(f"GPUs {who} have different {kind} numbers to multiply", value, _SAME)
        return
    for index, own in sums.items():
        if own != common:
            message = f"GPU {index}, {kind}: other numbers than {most} GPUs have were multiplied"
            report.fail(message, value, _SAME)
