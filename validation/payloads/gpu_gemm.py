"""Matrix products: how fast, how right, and whether they come out the same again.

C = A B with A and B of n x n numbers, drawn from a normal distribution: zeros and other regular
data switch fewer transistors, draw less power and so run at higher clocks than real work does. The
numbers are drawn on the CPU from a seed, so that every GPU multiplies the same ones and the
reference does not depend on the GPU that it judges.

Speed is 2 n^3 operations over the median time. A GPU that is cold runs faster than one that has
worked for a while and has come to its limit of power or heat, so the first way to multiply is timed
twice: in its first second, and again after some seconds of the same load. The later figure is the
one to judge by; the ways to multiply that follow meet a GPU that is warm already. A, B and C are
each far larger than any L2 cache at the sizes of the suites, so nothing is flushed between
repetitions.

The product is held against float64 on the CPU at a grid of elements: one row of each stripe of
rows by one column of each stripe of columns. With 64 by 64 elements of 8192 by 8192 every tile of
128 by 128, the work of about one multiprocessor, has an element in it. The error of an element is
told in units of what rounding may do to it, see `rounding`.

That the whole product is the same in every repetition, and on every equal GPU, is told by a hash of
all its bits. cuBLAS promises equal bits for one version of it on GPUs of one architecture with the
same number of multiprocessors, as long as one stream is in use (cuBLAS, "Results reproducibility",
https://docs.nvidia.com/cuda/cublas/#results-reproducibility).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from validation.payloads import gpu_timing
from validation.payloads.gpu_device import Device

if TYPE_CHECKING:
    import torch

GRID = 64  # rows and columns that are held against float64
_WORDS_AT_ONCE = 1 << 22  # of the hash: 32 MiB of its own memory


@dataclass(frozen=True)
class Kind:
    """One way to multiply.

    stored     the type of A and B, as torch calls it
    out        the type of C
    needs      the compute capability whose hardware does it; one without would emulate it
    out_unit   half the distance between two numbers near 1: what rounding C once may do
    in_unit    what the hardware may do to each element of A and B; 0 where it takes them as stored
    sum_unit   what one addition may do, in units of the sum
    """

    stored: str
    out: str
    needs: tuple[int, int]
    out_unit: float
    in_unit: float
    sum_unit: float


# Tensor cores add up in float32, and cut bits off where a CPU would round: two bits are allowed
# for that. For fp8 with fast accumulation Hopper keeps about 14 bits of the sum (DeepSeek-V3,
# section 3.3.2, https://arxiv.org/abs/2412.19437); of these too two are allowed. TF32 has 11 bits
# of a number, and nothing says whether the others are rounded or cut off.
KINDS = {
    "bf16": Kind("bfloat16", "bfloat16", (8, 0), 2**-8, 0.0, 2**-22),
    "fp16": Kind("float16", "float16", (7, 0), 2**-11, 0.0, 2**-22),
    "tf32": Kind("float32", "float32", (8, 0), 2**-24, 2**-10, 2**-22),
    "fp32": Kind("float32", "float32", (0, 0), 2**-24, 0.0, 2**-24),
    "fp8": Kind("float8_e4m3fn", "bfloat16", (8, 9), 2**-8, 0.0, 2**-12),
}


@dataclass(frozen=True)
class Operands:
    """A and B in float32 on the device, and the sampled rows of A and columns of B on the CPU.

    rows, columns   their numbers
    data            a hash of what was sampled: equal GPUs that multiplied other numbers, because
                    two CPUs draw other ones, cannot be compared
    """

    a: torch.Tensor
    b: torch.Tensor
    a_rows: torch.Tensor
    b_columns: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    data: str


def unsupported(kind: str, device: Device) -> str | None:
    """Why this device does not have this way to multiply; None when it has."""
    import torch

    needs = KINDS[kind].needs
    if device.capability is None:
        return "a CPU has no TF32" if kind == "tf32" else _missing_in_torch(kind)
    if not in_hardware(kind, device):
        has = ".".join(map(str, device.capability))
        return f"compute capability {has} has no {kind}, {needs[0]}.{needs[1]} has"
    if torch.version.cuda is None:
        return "this torch is not built for CUDA"
    return _missing_in_torch(kind)


def in_hardware(kind: str, device: Device) -> bool:
    """Whether the GPU itself has this way to multiply, whatever the torch that drives it."""
    return device.capability is None or device.capability >= KINDS[kind].needs


def _missing_in_torch(kind: str) -> str | None:
    import torch

    version = torch.__version__
    has = hasattr(torch, KINDS[kind].stored)
    if kind == "fp8":
        # Before 2.5 it returned a pair and took its scales elsewhere.
        number = re.match(r"(\d+)\.(\d+)", version)
        new = number is not None and (int(number[1]), int(number[2])) >= (2, 5)
        has = has and new and hasattr(torch, "_scaled_mm")
    return None if has else f"torch {version} has no {kind}"


def draw(device: Device, size: int, seed: int) -> Operands:
    """The same operands everywhere, for one seed and size; see Operands."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    grid = min(GRID, size)
    stripe = size // grid
    rows, columns = (
        torch.arange(grid) * stripe + torch.randint(stripe, (grid,), generator=generator)
        for _ in range(2)
    )
    # One at a time: the host holds no more than one of the two.
    host = torch.randn(size, size, generator=generator)
    a, a_rows = host.to(device.torch, copy=True), host[rows].clone()
    host = torch.randn(size, size, generator=generator)
    b, b_columns = host.to(device.torch, copy=True), host[:, columns].clone()
    return Operands(a, b, a_rows, b_columns, rows, columns, bits(a_rows) + bits(b_columns))


def measure(
    kind: str,
    device: Device,
    operands: Operands,
    *,
    seconds: float,
    sustain_s: float,
    least: int,
    warmup: int,
    repeats: int,
    begin: Callable[[], None],
) -> dict[str, Any]:
    """One way to multiply; `begin` returns when all GPUs of the node are ready.

    dtype, m, n, k   what was multiplied
    times            see gpu_timing.Times
    tflops           2 m n k over the median time, 1e12 operations per second
    first            times and tflops of the first `seconds` of a load of `sustain_s`, after which
                     the others were taken; None without such a load
    began, ended     of the load, by time.monotonic()
    checked          elements that were held against float64
    rounding_error   the largest difference among them in units of rounding, see `rounding`
    row, column      where that one is
    products         of each repetition after the timed ones its `hash`, see `bits`
    data             see Operands
    """
    import torch

    multiply, product = prepare(kind, device, operands)
    multiply()  # the first one chooses kernels
    device.watch.synchronize()
    begin()
    began = time.monotonic()
    single_s = gpu_timing.warmed_up(multiply, warmup, device.watch)
    count = gpu_timing.enough(seconds, single_s, least)
    first = None
    if sustain_s:
        first = gpu_timing.time_each(multiply, count, device.watch)
        gpu_timing.kept_busy(multiply, sustain_s, first.time_s_median, device.watch)
    product.fill_(math.nan)  # what is not written must not look like an earlier product
    times = gpu_timing.time_each(multiply, count, device.watch)
    ended = time.monotonic()
    error, row, column = difference(KINDS[kind], operands, product)
    products = []
    for _ in range(repeats):
        product.fill_(math.nan)
        multiply()
        products.append({"hash": bits(product)})
    size = operands.a.shape[0]
    torch.set_float32_matmul_precision("highest")
    return {
        "dtype": kind,
        "m": size,
        "n": size,
        "k": size,
        **_speed(size, times),
        "first": None if first is None else _speed(size, first),
        "began": began,
        "ended": ended,
        "checked": operands.rows.numel() * operands.columns.numel(),
        "rounding_error": error,
        "row": row,
        "column": column,
        "products": products,
        "data": operands.data,
    }


def _speed(size: int, times: gpu_timing.Times) -> dict[str, Any]:
    median_s = times.time_s_median
    return {
        **asdict(times),
        "tflops": 2 * size**3 / median_s / 1e12 if median_s > 0 else math.inf,
    }


def prepare(
    kind: str, device: Device, operands: Operands
) -> tuple[Callable[[], object], torch.Tensor]:
    """What multiplies once, and where it leaves the product."""
    import torch

    stored, out = (getattr(torch, name) for name in (KINDS[kind].stored, KINDS[kind].out))
    size = operands.a.shape[0]
    # "high" is TF32 for float32 on GPUs that have it, "highest" is float32 itself.
    torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    product = torch.empty(size, size, dtype=out, device=device.torch)
    a = operands.a.to(stored)
    if kind != "fp8":
        b = operands.b.to(stored)
        return lambda: torch.mm(a, b, out=product), product
    # cuBLASLt takes the second factor of fp8 column by column only.
    b = operands.b.to(stored).t().contiguous().t()
    scale = torch.ones((), device=device.torch)

    def multiply() -> object:
        return torch._scaled_mm(
            a, b, scale_a=scale, scale_b=scale, out_dtype=out, use_fast_accum=True, out=product
        )

    return multiply, product


def rounding(kind: Kind, a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far rounding alone may take each element of a b, [rows, columns], in float64.

    The result is rounded once, by out_unit of itself. Each of the K additions may be off by
    sum_unit of the sum so far, which is of the size |a||b| / sqrt(K) for random numbers; K errors
    that are independent add up to sqrt(K) of one: sum_unit |a||b| (Higham and Mary, "A new approach
    to probabilistic rounding error analysis", 2019, https://doi.org/10.1137/18M1226312). What the
    hardware does to each input adds its own part of every term: if it is independent, in_unit of
    |a||b| / sqrt(K), and if all are cut off alike, twice in_unit of the result.
    """
    inner = a.shape[1]
    scale = a.norm(dim=1)[:, None] * b.norm(dim=0)[None, :]
    allowed = (kind.out_unit + 2 * kind.in_unit) * exact.abs()
    allowed += (kind.sum_unit + kind.in_unit / math.sqrt(inner)) * scale
    return allowed


def difference(kind: Kind, operands: Operands, product: torch.Tensor) -> tuple[float, int, int]:
    """The largest error of a sampled element, in units of rounding, and its row and column.

    nan where one of them is not a number.
    """
    import torch

    stored = getattr(torch, kind.stored)
    a, b = (part.to(stored).double() for part in (operands.a_rows, operands.b_columns))
    exact = a @ b
    rows, columns = (part.to(product.device) for part in (operands.rows, operands.columns))
    values = product[rows[:, None], columns[None, :]].cpu().double()
    apart = ((values - exact).abs() / rounding(kind, a, b, exact)).flatten()
    broken = torch.isnan(apart)
    place = int(broken.nonzero()[0]) if bool(broken.any()) else int(apart.argmax())
    row, column = divmod(place, exact.shape[1])
    return float(apart[place]), int(operands.rows[row]), int(operands.columns[column])


def bits(product: torch.Tensor) -> str:
    """A hash of every bit: the sum of all 64-bit words, each times its own odd number, mod 2^64.

    Whole numbers add up the same in any order, so it is computed on the device itself: a copy of
    every product to the host would take longer than the products. A word that differs changes the
    sum, because an odd number has no divisor in common with 2^64; several that differ cancel out
    once in 2^64.
    """
    import torch

    words = product.contiguous().view(-1).view(torch.int64)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for first in range(0, words.numel(), _WORDS_AT_ONCE):
        part = words[first : first + _WORDS_AT_ONCE]
        place = torch.arange(first, first + part.numel(), dtype=torch.int64, device=words.device)
        total += (part * (_spread(place) | 1)).sum()
    return f"{int(total) & 2**64 - 1:016x}"


def _spread(value: torch.Tensor) -> torch.Tensor:
    """Another number for each, over all 64 bits (the multipliers of splitmix64)."""
    value = (value + 1) * -7046029254386353131
    value = (value ^ (value >> 30 & 2**34 - 1)) * -4658895280553007687
    return value ^ (value >> 27 & 2**37 - 1)
