"""Products and attentions come out the same, bit for bit, in every round and on every equal GPU.

What it checks   Under load, each GPU repeats a product of large matrices and an attention of seeded
                 numbers. All bits of the results are equal over all rounds of a burn-in, and on all
                 GPUs of one model with the same software. Where GPUs differ, the majority is right.
Why it matters   This is how silent corruption is found: a GPU that computes wrongly once in hours
                 reports no error, and a training that uses it goes wrong without a trace.
What to do       Other bits in one round: take the named GPU out of service and run the vendor's
                 diagnostics. If all GPUs differ between rounds, the library is the cause, so
                 compare the versions of torch and CUDA with those of a node that passes. Other bits
                 than equal GPUs: take the named GPU out of service and run the vendor's
                 diagnostics. No majority: compare one more node like these; then the one that is
                 wrong has a name.
                 $ ssh {node} 'dcgmi diag -r 3'
"""

from collections import Counter
from collections.abc import Sequence

from cluster.majority import most
from cluster.text import printable
from validation.checks import soaked
from validation.checks.soaked import NodeOverTime, Stretch
from validation.model import Metric, Result, Threshold, Tier, Verdict, When

NAME = "same_bits"
TIER = Tier.NODE
PAYLOAD = soaked.PAYLOAD

CAUSES = {
    "Other bits in one round": When(r"came out in \d+ ways"),
    "Other bits than equal GPUs": When(r"than most equal GPUs have"),
    "No majority": When(r"equal GPUs have different results"),
}

_SAME = Threshold(
    "=",
    1,
    "results",
    "defined",
    "one version of cuBLAS gives equal bits on GPUs of one architecture with the same number of "
    "multiprocessors (https://docs.nvidia.com/cuda/cublas/#results-reproducibility)",
)

Key = tuple[str, tuple[str, ...]]


def judge(nodes: Sequence[NodeOverTime]) -> list[Result]:
    right = _right(nodes)
    return [_result(node, right) for node in nodes]


compare = soaked.comparing(NAME, judge)
over_time = judge


def _right(nodes: Sequence[NodeOverTime]) -> dict[Key, str | None]:
    """By kind of work and of GPU, the result of most GPUs; None where no result is that of most.

    A GPU counts once, with the result of its first round.
    """
    firsts: dict[Key, list[str]] = {}
    for node in nodes:
        for stretches in node.by_gpu.values():
            for kind in soaked.KINDS:
                firsts.setdefault((kind, stretches[0].alike), []).append(
                    stretches[0].hashes[kind][0]
                )
    return {
        key: values[0] if len(set(values)) == 1 else most(values) for key, values in firsts.items()
    }


def _result(node: NodeOverTime, right: dict[Key, str | None]) -> Result:
    texts: list[str] = []
    metrics: list[Metric] = []
    most, own_fault = 1, False
    for stretches in node.by_gpu.values():
        for kind in soaked.KINDS:
            title, found = stretches[0].title, _hashes(stretches, kind)
            expected = right[kind, stretches[0].alike]
            if len(found) > 1:
                text = f"{title}: one {kind} came out in {len(found)} ways"
                texts.append(f"{text} in {len(stretches)} rounds")
                most, own_fault = max(most, len(found)), True
            elif expected is None:
                texts.append(f"{title}: equal GPUs have different results of one {kind}")
                most = max(most, 2)
            elif expected not in found:
                texts.append(f"{title}: another result of one {kind} than most equal GPUs have")
                most, own_fault = max(most, 2), True
            else:
                metrics.append(Metric(f"{title} {kind}", expected))
    return Result(
        NAME,
        TIER,
        node.job.subject,
        Verdict.FAIL if texts else Verdict.PASS,
        printable("; ".join(texts), 300),
        Metric("different results", most, "results"),
        _SAME,
        tuple(metrics),
        node.proof,
        None if own_fault or not texts else (),
    )


def _hashes(stretches: Sequence[Stretch], kind: str) -> Counter[str]:
    return Counter(digest for stretch in stretches for digest in stretch.hashes[kind])
