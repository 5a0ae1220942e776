"""Runs of a cluster whose figures vary as real ones do, and how often a comparison is wrong.

    python -m validation.tests.noisy_runs --seeds 200

Each value is a base times what its node is always off by (1 %), what the whole run is off by
(0.3 %), and noise of its own by kind: products 0.5 %, memory 0.7 %, copies 1 %, disks 5 %, all with
heavy tails (Student's t of 4 degrees of freedom), and one value in 200 lower by up to 5 %.
"""

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Collection, Sequence

from validation.compare.judging import Outcome, Side, compare
from validation.history.runs import Figure

DAY_S = 86400.0

# Check, name, unit, base, noise; {} is the GPU's number.
FIGURES = (
    *(("gemm", f"GPU {{}}, {t}", "TFLOPS", base, 0.005) for t, base in
      (("bf16", 730.0), ("fp16", 740.0), ("tf32", 373.0), ("fp32", 50.0), ("fp8", 1300.0))),
    ("hbm", "GPU {}, copy", "GB/s", 2900.0, 0.007),
    ("hbm", "GPU {}, triad", "GB/s", 2980.0, 0.007),
    ("copies", "GPU {}, to the host", "GB/s", 52.0, 0.01),
    ("copies", "GPU {}, from the host", "GB/s", 52.0, 0.01),
    ("disk", "disk write", "GB/s", 2.1, 0.05),
    ("disk", "disk read", "GB/s", 4.2, 0.05),
    ("host_memory", "memory copy", "GB/s", 26.0, 0.01),
)  # fmt: skip
OF_ALL = (
    ("all_reduce", "busbw 8 GiB", "GB/s", 390.0, 0.01),
    ("ddp", "step time, median", "s", 0.004, 0.03),
    ("ddp", "samples per second", "1/s", 4000.0, 0.03),
)

Change = Callable[[str, str, str], float]


def unchanged(check: str, node: str, name: str) -> float:
    return 1.0


def noisy(
    seed: int,
    changes: Sequence[Change],
    nodes: int = 4,
    gpus: int = 8,
    left_out: Collection[str] = (),
) -> list[Side]:
    """One run for each change: by check, node and name, what its figures are multiplied by."""
    draw = random.Random(seed)
    names = [f"gpu{number}" for number in range(1, nodes + 1)]
    own = {(name, kind[1]): draw.gauss(1, 0.01) for name in names for kind in FIGURES}
    sides = []
    for number, change in enumerate(changes):
        figures = []
        for check, pattern, unit, base, noise in FIGURES:
            if check in left_out:
                continue
            shared = draw.gauss(1, 0.003)
            for node in names:
                for gpu in range(gpus if "{}" in pattern else 1):
                    name = pattern.format(gpu)
                    value = base * own[node, pattern] * shared * _noise(draw, noise)
                    figures.append(
                        Figure(check, node, name, unit, value * change(check, node, name))
                    )
        for check, name, unit, base, noise in OF_ALL:
            value = base * _noise(draw, noise) * change(check, "all", name)
            figures.append(Figure(check, "h100_sxm", name, unit, value))
        sides.append(Side(f"run{number}", "gpu", number * DAY_S, (), tuple(figures)))
    return sides


def _noise(draw: random.Random, scale: float) -> float:
    # Student's t of 4 degrees of freedom, with a variance of 1.
    heavy = draw.gauss(0, 1) / math.sqrt(draw.gammavariate(2, 0.5)) / math.sqrt(2)
    factor = math.exp(scale * heavy)
    if draw.random() < 1 / 200:
        factor *= 1 - draw.random() * 0.05
    return factor


def slow(factor: float, check: str, node: str = "", text: str = "") -> Change:
    def change(of_check: str, of_node: str, name: str) -> float:
        fits = of_check == check and node in ("", of_node) and text in name
        return factor if fits else 1.0

    return change


def named(before: int, after: int, seed: int, change: Change = unchanged, nodes: int = 4) -> set[
    tuple[str, str, str]
]:  # fmt: skip
    """Check, figure and place of what a comparison of such runs names."""
    sides = noisy(seed, [unchanged] * before + [change] * after, nodes)
    found = compare(sides[:before], sides[before:])
    return {(item.check, item.figure, item.where) for item in found.of(Outcome.WORSE)}


# What a comparison is asked: (runs before, runs after, nodes).
SHAPES = ((5, 5, 4), (5, 5, 16), (3, 3, 8), (8, 2, 8), (1, 1, 16), (5, 1, 16), (1, 1, 64))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, metavar="N")
    seeds = range(parser.parse_args().seeds)
    print("before  after  nodes  equal runs, something named  gpu3's bf16 at -10 %: named  only it")
    for before, after, nodes in SHAPES:
        begin = time.process_time()
        wrong = sum(bool(named(before, after, seed, nodes=nodes)) for seed in seeds)
        bad = slow(0.9, "gemm", "gpu3", "bf16")
        told = [named(before, after, seed, bad, nodes) for seed in seeds]
        right = sum(("gemm", "GPU, bf16", "gpu3") in one for one in told)
        only = sum(one == {("gemm", "GPU, bf16", "gpu3")} for one in told)
        spent = time.process_time() - begin
        print(
            f"{before:6}  {after:5}  {nodes:5}  {wrong:12} of {len(seeds)}"
            f"  {right:20} of {len(seeds)}  {only:5}  ({spent:.0f} CPU s)",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
