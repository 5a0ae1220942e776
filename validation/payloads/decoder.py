"""A small decoder-only transformer, tensor parallel and with a KV cache, and its formula.

    x = embedding[token] + position
    x = x + scale * output(attention(norm(x)));  x = x + scale * down(silu(up(norm(x))))
    logits = norm(x) @ head.T

`Part` is what a rank computes, with torch's own functions in float32: some heads and some hidden
units of every layer (Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3), and the keys and
values of its heads for all tokens so far. `continued` is the whole model by formula in float64 on
the CPU: without slices, without a cache, each token with all those before it computed anew.

Imports torch at the top, so import it only where torch is known to be there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

EPSILON = 1e-6
OF_BLOCK = ("query", "key", "value", "output", "up", "down")
# Of random logits the largest two lie about a third of their spread apart. What leaves less than
# this of it between them is not asked: float32 errs by a thousandth of that.
MARGIN = 0.01
CANDIDATES = 2  # prompts that are tried at once for each that is kept
MOST_TRIES = 16


@dataclass(frozen=True)
class Shape:
    """vocabulary: tokens; heads and hidden: of each of `depth` blocks of `width` units."""

    vocabulary: int
    width: int
    heads: int
    hidden: int
    depth: int

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def scale(self) -> float:
        """Of each half of a block: their sum is about as large as what enters the first."""
        return 1 / math.sqrt(2 * self.depth)

    @property
    def parameters(self) -> int:
        return self.vocabulary * self.width + self.multiplied

    @property
    def multiplied(self) -> int:
        """The parameters that every token is multiplied with: all but the embedding's."""
        block = 4 * self.width * self.width + 2 * self.width * self.hidden
        return self.vocabulary * self.width + self.depth * block


@dataclass(frozen=True)
class Weights:
    """float32 on the CPU: two of [vocabulary, width], and of each block each matrix, [out, in]."""

    embedding: torch.Tensor
    head: torch.Tensor
    blocks: tuple[dict[str, torch.Tensor], ...]


def initial(seed: int, shape: Shape) -> Weights:
    """The same on every rank."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        drawn: torch.Tensor = torch.randn(rows, columns, generator=generator) * columns**-0.5
        return drawn

    width, hidden = shape.width, shape.hidden
    sizes = {"up": (hidden, width), "down": (width, hidden)}
    # Beyond 1, or attention would hardly tell one token from another.
    embedding = torch.randn(shape.vocabulary, width, generator=generator)
    # With the embedding itself a model of random weights would repeat what it reads.
    return Weights(
        embedding,
        matrix(shape.vocabulary, width),
        tuple(
            {name: matrix(*sizes.get(name, (width, width))) for name in OF_BLOCK}
            for _ in range(shape.depth)
        ),
    )


def positions(first: int, count: int, width: int) -> torch.Tensor:
    """Sines and cosines of each place, [count, width], float64 (Vaswani et al., 2017)."""
    place = torch.arange(first, first + count, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(1e4) / width))
    return torch.stack([torch.sin(place * rate), torch.cos(place * rate)], dim=-1).flatten(1)


# --- one rank's part ------------------------------------------------------------------------------


@dataclass
class Seen:
    """What a rank noted of its first call, per half of each block: what entered it, its share."""

    entered: list[torch.Tensor] = field(default_factory=list)
    shares: list[torch.Tensor] = field(default_factory=list)


class Part:
    """One of `parts` ranks' heads and hidden units; `add` adds up what all of them computed."""

    def __init__(
        self,
        shape: Shape,
        weights: Weights,
        part: int,
        parts: int,
        device: torch.device,
        add: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self.shape, self.device, self.add = shape, device, add
        self.heads = share(shape.heads, part, parts)
        self.embedding, self.head = weights.embedding.to(device), weights.head.to(device)
        self.blocks = [
            {name: value.to(device) for name, value in cut(shape, block, part, parts).items()}
            for block in weights.blocks
        ]
        self.clear()

    def clear(self) -> None:
        """Forgets all tokens."""
        self.length = 0
        self.cache: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * self.shape.depth

    def logits(self, tokens: torch.Tensor, seen: Seen | None = None) -> torch.Tensor:
        """Of what follows the last of these tokens, [prompts, vocabulary]; tokens [prompts, n].

        They come after those of former calls. Collective.
        """
        count = tokens.shape[1]
        place = positions(self.length, count, self.shape.width).float().to(self.device)
        x = F.embedding(tokens, self.embedding) + place
        for number, block in enumerate(self.blocks):
            for half in (self._attention(number), self._perceptron(number)):
                normal = F.rms_norm(x, (self.shape.width,), eps=EPSILON)
                mine = half(normal, block)
                if seen is not None:
                    seen.entered.append(normal.detach().cpu().clone())
                    seen.shares.append(mine.detach().cpu().clone())
                x = x + self.shape.scale * self.add(mine)
        self.length += count
        last = F.rms_norm(x[:, -1], (self.shape.width,), eps=EPSILON)
        found: torch.Tensor = F.linear(last, self.head)
        return found

    def _attention(
        self, number: int
    ) -> Callable[[torch.Tensor, dict[str, torch.Tensor]], torch.Tensor]:
        def attend(normal: torch.Tensor, block: dict[str, torch.Tensor]) -> torch.Tensor:
            query, key, value = (
                F.linear(normal, block[name])
                .reshape(*normal.shape[:2], -1, self.shape.head_width)
                .transpose(1, 2)
                for name in ("query", "key", "value")
            )
            before = self.cache[number]
            if before is not None:
                key, value = torch.cat([before[0], key], 2), torch.cat([before[1], value], 2)
            self.cache[number] = (key, value)
            # Several tokens come only at the beginning, one at a time later, and sees all.
            found = F.scaled_dot_product_attention(query, key, value, is_causal=before is None)
            return F.linear(found.transpose(1, 2).flatten(2), block["output"])

        return attend

    def _perceptron(
        self, _: int
    ) -> Callable[[torch.Tensor, dict[str, torch.Tensor]], torch.Tensor]:
        return lambda normal, block: F.linear(F.silu(F.linear(normal, block["up"])), block["down"])


def share(count: int, part: int, parts: int) -> slice:
    """Which of so many a part has: as evenly as possible, the first ones one more."""
    short, longer = divmod(count, parts)
    first = short * part + min(part, longer)
    return slice(first, first + short + int(part < longer))


def cut(
    shape: Shape, block: dict[str, torch.Tensor], part: int, parts: int
) -> dict[str, torch.Tensor]:
    """A part's slices of a block: of what comes out of the first matrices and enters the second."""
    heads, units = share(shape.heads, part, parts), share(shape.hidden, part, parts)
    columns = slice(heads.start * shape.head_width, heads.stop * shape.head_width)
    return {
        **{name: block[name][columns].contiguous() for name in ("query", "key", "value")},
        "output": block["output"][:, columns].contiguous(),
        "up": block["up"][units].contiguous(),
        "down": block["down"][:, units].contiguous(),
    }


# --- by formula -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """What the formula gives for sequences of tokens, [prompts, length].

    logits   after each token, [prompts, length, vocabulary]
    keys     of each block, [prompts, heads, length, head width]; values likewise
    """

    logits: torch.Tensor
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]


def norm(x: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + EPSILON)


def attention(
    shape: Shape, normal: torch.Tensor, block: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the block's heads add, or those of a slice of it; their keys and values."""

    def split(name: str) -> torch.Tensor:
        flat = normal @ block[name].double().T
        return flat.reshape(*normal.shape[:2], -1, shape.head_width).transpose(1, 2)

    query, key, value = map(split, ("query", "key", "value"))
    scores = query @ key.transpose(2, 3) / shape.head_width**0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    found = torch.softmax(scores.masked_fill(later, -math.inf), dim=-1) @ value
    together = found.transpose(1, 2).reshape(*normal.shape[:2], -1)
    return together @ block["output"].double().T, key, value


def perceptron(normal: torch.Tensor, block: dict[str, torch.Tensor]) -> torch.Tensor:
    up = normal @ block["up"].double().T
    return (up / (1 + torch.exp(-up))) @ block["down"].double().T


def whole(shape: Shape, weights: Weights, tokens: torch.Tensor) -> Whole:
    embedding = weights.embedding.double()
    x = embedding[tokens] + positions(0, tokens.shape[1], shape.width)
    keys, values = [], []
    for block in weights.blocks:
        added, key, value = attention(shape, norm(x), block)
        keys.append(key)
        values.append(value)
        x = x + shape.scale * added
        x = x + shape.scale * perceptron(norm(x), block)
    return Whole(norm(x) @ weights.head.double().T, tuple(keys), tuple(values))


@dataclass(frozen=True)
class Continued:
    """Prompts with their greedy continuations.

    tokens   [prompts, prompt and new tokens]
    whole    of all of them but the last, which nothing follows
    margin   the least between the largest two logits of a new token, relative to their spread
    """

    tokens: torch.Tensor
    whole: Whole
    margin: float


def continued(
    shape: Shape, weights: Weights, seed: int, prompts: int, length: int, new: int
) -> Continued:
    """The first random prompts in whose continuation no two tokens are nearly as likely.

    Raises RuntimeError where there are not enough of them.
    """
    generator = torch.Generator().manual_seed(seed + 1)  # the weights have the seed itself
    kept: list[torch.Tensor] = []
    for _ in range(MOST_TRIES):
        tokens = torch.randint(
            shape.vocabulary, (CANDIDATES * prompts, length), generator=generator
        )
        for _ in range(new):
            logits = whole(shape, weights, tokens).logits[:, -1]
            fine = margins(logits) >= MARGIN
            chosen = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
            tokens = chosen[fine]
            if not len(tokens):
                break
        kept += list(tokens)
        if len(kept) >= prompts:
            found = torch.stack(kept[:prompts])
            known = whole(shape, weights, found[:, :-1])
            return Continued(found, known, float(margins(known.logits[:, length - 1 :]).min()))
    raise RuntimeError(f"only {len(kept)} of {prompts} prompts have a continuation without ties")


def margins(logits: torch.Tensor) -> torch.Tensor:
    """Between the largest two, relative to the standard deviation of all, over the last axis."""
    first, second = logits.topk(2, dim=-1).values.unbind(-1)
    return (first - second) / logits.std(dim=-1)


def apart(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """|actual - expected| / |expected|, Euclidean; nan wins."""
    a, b = actual.detach().cpu().double(), expected.double()
    return float(torch.norm(a - b) / torch.norm(b))


def largest(values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else max(values, default=0.0)
