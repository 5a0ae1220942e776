"""Tensor-parallel inference: prompts are read, and continued token by token, by all ranks together.

Ranks form as few rows of at most 16 as possible, neighbours in rank order. Each row shares every
layer of one model (see decoder.py), and continues the same prompts. In each layer the ranks of a
row add up what they computed, twice. Each keeps the keys and values of its own heads. Every rank
takes the most likely token by itself: where one takes another, its cache shows it.

The figures of each rank, in the order in which they come about:

    computed   of the prompt: its share of each sum, from what entered it, compared with the formula
    first_cache, cache
               the keys and values of its heads as they are in the end, for each place in the
               sequence: of the first layer, which only tokens enter, and the worst of all
    logits     of each new token
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from validation.payloads import training
from validation.payloads.chains import chains, meet
from validation.payloads.config import require
from validation.payloads.group import Group
from validation.payloads.pipeline import LONGEST_CHAIN

if TYPE_CHECKING:
    import torch

    from validation.payloads.decoder import Continued, Part, Seen, Weights


@dataclass(frozen=True, kw_only=True)
class Config(training.DecoderConfig):
    """How many prompts of how many tokens are continued by how many."""

    prompts: int
    prompt_tokens: int
    new_tokens: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("heads", "hidden"):
            value = getattr(self, key)
            require(value >= LONGEST_CHAIN, f"{key} is {value}, fewer than {LONGEST_CHAIN} ranks")


@dataclass(frozen=True)
class Run:
    """What a rank found: the new tokens, [prompts, new]; the logits of each; seconds."""

    tokens: torch.Tensor
    logits: list[torch.Tensor]
    prefill_s: float
    decode_s: list[float]


def measure(config: Config, group: Group) -> dict[str, Any]:
    """Collective: all ranks must call it."""
    from validation.payloads import decoder

    rows = chains(group.size, LONGEST_CHAIN)
    row = meet(group, rows)
    part, parts = row.stage_of(group.rank), len(row.ranks)
    weights = decoder.initial(config.seed, config.shape)
    group.watch.doing("continuing the prompts by formula")
    expected = reference(config)
    model = make_part(config, group, weights, part, parts, row.group)
    seen = decoder.Seen()
    ran = generate(config, group, model, expected.tokens[:, : config.prompt_tokens], seen)
    group.watch.doing("comparing")
    wanted = expected.tokens[:, config.prompt_tokens :]
    wrong = (ran.tokens != wanted).any(dim=0).nonzero().flatten().tolist()
    mine = {
        "rank": group.rank,
        "computed": computed(config, weights, part, parts, seen),
        "first_cache": cached(model, expected, 1),
        "cache": cached(model, expected, config.depth),
        "logits": [
            decoder.apart(logits, expected.whole.logits[:, config.prompt_tokens - 1 + step])
            for step, logits in enumerate(ran.logits)
        ],
        "wrong_tokens": int((ran.tokens != wanted).sum()),
        "first_wrong": wrong[0] + 1 if wrong else 0,
    }
    tokens = group.gather(ran.tokens.tolist() if part == 0 else [])
    slowest = group.slowest([ran.prefill_s, *ran.decode_s])
    decode_s = sum(slowest[1:])
    count = config.prompts * len(rows)
    return {
        "rows": [len(ranks) for ranks in rows],
        "tokens": [tokens[ranks[0]] for ranks in rows],
        "expected": wanted.tolist(),
        "margin": min(group.gather(expected.margin)),
        "ranks": group.gather(mine),
        "parameters": config.shape.parameters,
        "prefill_s": slowest[0],
        "prefill_tokens_per_s": count * config.prompt_tokens / slowest[0],
        # The first new token is the prefill's; each of the others is a step of its own.
        "decode_s": decode_s,
        "decode_tokens_per_s": count * (config.new_tokens - 1) / decode_s,
        "transport": group.transport(),
    }


def make_part(
    config: Config, group: Group, weights: Weights, part: int, parts: int, row: Any
) -> Part:
    """This rank's slices of the model."""
    import torch.distributed as dist

    from validation.payloads.decoder import Part

    def add(mine: torch.Tensor) -> torch.Tensor:
        together = mine.contiguous()
        dist.all_reduce(together, group=row)
        return together

    return Part(config.shape, weights, part, parts, group.device, add)


def generate(config: Config, group: Group, model: Part, prompts: torch.Tensor, seen: Seen) -> Run:
    """Reads the prompts and continues them, the most likely token each time. Collective."""
    import torch

    prompts = prompts.to(group.device)
    with torch.no_grad():
        model.logits(prompts)  # kernels are loaded and memory is taken: not timed
        model.logits(prompts[:, :1])
        model.clear()
        group.watch.doing("reading the prompts")
        start = group.clock()
        logits = [model.logits(prompts, seen)]
        tokens = [choose(logits[-1])]
        prefill_s, decode_s = group.clock() - start, []
        for number in range(1, config.new_tokens):
            group.watch.doing(f"new token {number + 1}")
            start = group.clock()
            logits.append(model.logits(tokens[-1]))
            tokens.append(choose(logits[-1]))
            decode_s.append(group.clock() - start)
    return Run(torch.cat(tokens, dim=1).cpu(), logits, prefill_s, decode_s)


def choose(logits: torch.Tensor) -> torch.Tensor:
    """The most likely tokens, [prompts, 1]."""
    return logits.argmax(dim=-1, keepdim=True)


def reference(config: Config) -> Continued:
    """The prompts and their continuation by formula, without the group."""
    from validation.payloads import decoder

    weights = decoder.initial(config.seed, config.shape)
    return decoder.continued(
        config.shape,
        weights,
        config.seed,
        config.prompts,
        config.prompt_tokens,
        config.new_tokens,
    )


def computed(config: Config, weights: Weights, part: int, parts: int, seen: Seen) -> float:
    """How far the rank's shares are from the formula, on the very same input."""
    from validation.payloads import decoder

    differences = []
    for number, block in enumerate(weights.blocks):
        own = decoder.cut(config.shape, block, part, parts)
        entered = [normal.double() for normal in seen.entered[2 * number : 2 * number + 2]]
        expected = (
            decoder.attention(config.shape, entered[0], own)[0],
            decoder.perceptron(entered[1], own),
        )
        shares: Sequence[torch.Tensor] = seen.shares[2 * number : 2 * number + 2]
        differences += [decoder.apart(a, b) for a, b in zip(shares, expected, strict=True)]
    return decoder.largest(differences)


def cached(model: Part, expected: Continued, layers: int) -> list[float]:
    """How far keys and values of the first layers are from the formula, at each place: the worst
    of all of them."""
    from validation.payloads import decoder

    places = expected.tokens.shape[1] - 1
    pairs = []
    for held, keys, values in zip(
        model.cache[:layers],
        expected.whole.keys[:layers],
        expected.whole.values[:layers],
        strict=True,
    ):
        assert held is not None  # the prompts were read
        pairs += [(held[0], keys[:, model.heads]), (held[1], values[:, model.heads])]
    return [
        decoder.largest([decoder.apart(a[:, :, at], b[:, :, at]) for a, b in pairs])
        for at in range(places)
    ]
