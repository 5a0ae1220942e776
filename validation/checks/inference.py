"""Prompts are continued by all ranks together, token for token as by the formula.

What it checks   Rows of at most 16 ranks share every layer of a transformer (tensor parallel). They
                 read prompts and continue them with a KV cache, taking the most likely token each
                 time. Every token of every rank equals the one that the whole model gives by
                 formula, in float64 and without a cache. No two tokens are nearly as likely. What
                 each rank computed, its cached keys and values, and the logits equal the formula
                 within the tolerance. Tokens per second are reported, not judged.
Why it matters   A wrong cache or sum gives wrong answers without any error. Each new token waits
                 for several small all_reduce, one after another, on all ranks.
What to do       The message says what was wrong first. What a rank computed: its own numbers or its
                 cache are wrong, so its node is at fault; take it out of service until GPUs and
                 memory are tested. The logits: if these of one rank alone are wrong, its node is at
                 fault; otherwise the last sum is. What ranks added up: run all_reduce on these
                 nodes alone (`--nodes`), and repair what it finds. Equally likely tokens: no node
                 is at fault; the model of your own suite leaves too little between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from validation.checks import commands, together, training, transport
from validation.checks.document import Document, Fields, Unusable
from validation.checks.pipeline import LONGEST_CHAIN
from validation.checks.restart import difference
from validation.checks.together import Judged, answer, of_each
from validation.checks.training import finite
from validation.model import Job, Metric, Rank, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "inference"
TIER = Tier.CLUSTER
PAYLOAD = "inference"

CAUSES = {
    "What a rank computed": When(r"computed differs|the KV cache of", (commands.KERNEL,)),
    "The logits": When(r"the logits of", (commands.KERNEL, commands.COUNTERS)),
    "What ranks added up": When(r"added up is wrong", (commands.PACKETS, commands.COUNTERS)),
    "Equally likely tokens": When(r"nearly as likely", (commands.TORCH,)),
}
SHARED = (transport,)

# Less of the logits' spread between the largest two, and rounding could choose (payloads/decoder).
MARGIN = 0.01
_SAME = Threshold("=", 0, "tokens", "defined", "the whole model by formula, in float64")


@dataclass(frozen=True, slots=True)
class RankFigures:
    """One rank's differences from the formula; inf for what is not a number."""

    rank: Rank
    row: int
    computed: float
    first_cache: tuple[float, ...]  # of the first layer, at each place in the sequence
    cache: tuple[float, ...]  # of all layers
    logits: tuple[float, ...]  # of each new token
    wrong_tokens: int
    first_wrong: int  # counted from 1; 0 where all are right

    @property
    def worst(self) -> float:
        return max(self.computed, *self.first_cache, *self.cache, *self.logits)

    def first_place(self, limit: float) -> int | None:
        """The first place of the cache that is off."""
        pairs = zip(self.first_cache, self.cache, strict=True)
        return next((place for place, off in enumerate(pairs) if max(off) > limit), None)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Judged:
        measured = document.measured
        ranks = _read(job, document)
        wrong = sum(rank.wrong_tokens for rank in ranks)
        margin = measured.number("margin")
        if margin < MARGIN:
            raise Unusable(
                f"two tokens are nearly as likely ({margin:.2g}): nothing can be compared"
            )
        limit = rules.common.training[job.backend or ""].first_step
        worst = max(rank.worst for rank in ranks)
        shown = Metric("largest difference", finite(worst))
        tokens = Metric("wrong tokens", wrong, "tokens")
        value, threshold = (tokens, _SAME) if wrong else (shown, limit)
        verdict = threshold.judge(value.value)
        message, blamed = "", None
        if verdict is Verdict.FAIL:
            message, blamed = _what(ranks, float(limit.value))
        metrics = (tokens, shown, *_metrics(measured))
        return Judged(verdict, message, value, threshold, blamed, metrics)

    return answer(NAME, job, reply, judge)


def _read(job: Job, document: Document) -> list[RankFigures]:
    measured, config = document.measured, job.config
    rows = training.chains(job.ranks, LONGEST_CHAIN)
    if list(measured.numbers("rows")) != rows:
        raise Unusable(f"rows of {measured.values['rows']} ranks ran, {rows} were asked for")
    prompts, new = config["prompts"], config["new_tokens"]
    expected = measured.values.get("expected")
    if _sizes(expected) != [new] * int(str(prompts)):
        raise Unusable(f"not {prompts} prompts were continued by {new} tokens")
    tokens = measured.values.get("tokens")
    if not isinstance(tokens, list) or len(tokens) != len(rows):
        raise Unusable(f"there are no tokens of each of the {len(rows)} rows")
    row_of = [number for number, count in enumerate(rows) for _ in range(count)]
    each = of_each(document, measured.items("ranks"), range(job.ranks))
    ranks = [_figures(job, item, rank, row_of[rank.rank]) for rank, item in each]
    for number, of_row in enumerate(tokens):
        first = next(rank for rank in ranks if rank.row == number)
        if (of_row == expected) is not (first.wrong_tokens == 0):
            raise Unusable(f"rank {first.rank.rank} counts {first.wrong_tokens} wrong tokens")
    return ranks


def _figures(job: Job, item: Fields, rank: Rank, row: int) -> RankFigures:
    config = job.config
    figures = RankFigures(
        rank,
        row,
        difference(item.values.get("computed")),
        _differences(item, "first_cache"),
        _differences(item, "cache"),
        _differences(item, "logits"),
        item.whole("wrong_tokens"),
        item.whole("first_wrong"),
    )
    new, read = int(str(config["new_tokens"])), int(str(config["prompt_tokens"]))
    places = {len(figures.first_cache), len(figures.cache)}
    if len(figures.logits) != new or places != {read + new - 1}:
        raise Unusable(f"rank {rank.rank} did not compare {new} new tokens after {read}")
    if (figures.wrong_tokens == 0) is not (figures.first_wrong == 0) or figures.first_wrong > new:
        raise Unusable(f"rank {rank.rank} does not say which tokens were wrong")
    return figures


def _sizes(lists: object) -> list[object]:
    if not isinstance(lists, list) or not all(isinstance(item, list) for item in lists):
        raise Unusable("the answer has no tokens")
    return [len(item) for item in lists]


def _differences(item: Fields, name: str) -> tuple[float, ...]:
    values = item.values.get(name)
    if not isinstance(values, list):
        raise Unusable(f"{name} is no list")
    return tuple(map(difference, values))


def _metrics(measured: Fields) -> list[Metric]:
    speeds = []
    for name, what in (("prefill", "prompt tokens"), ("decode", "new tokens")):
        speed = measured.number(f"{name}_tokens_per_s")
        if speed <= 0 or measured.number(f"{name}_s") <= 0:
            raise Unusable("reading and continuing the prompts took no time")
        speeds.append(Metric(f"{what} per second", round(speed, 1), "1/s"))
    parameters = measured.whole("parameters")
    if parameters == 0:
        raise Unusable("the model has no parameters")
    return [*speeds, Metric("parameters", parameters)]


def _what(ranks: Sequence[RankFigures], limit: float) -> tuple[str, tuple[str, ...] | None]:
    """What was wrong first, and whose fault that is, where it is known.

    What a rank computed of what entered it, no other can have spoiled, nor the first layer of its
    cache, which only the tokens enter that it chose. A cache that is off on some ranks of a row, at
    a place where the others' are right, went wrong there: what is added up together spoils all of a
    row alike.
    """
    if own := [rank for rank in ranks if rank.computed > limit]:
        return f"what {_named(own)} computed differs by {own[0].computed:.2g}", _hosts(own)
    for row in dict.fromkeys(rank.row for rank in ranks):
        of_row = [rank for rank in ranks if rank.row == row]
        places = {rank.rank.rank: rank.first_place(limit) for rank in of_row}
        found = [place for place in places.values() if place is not None]
        if found:
            place = min(found)
            own = [rank for rank in of_row if rank.first_cache[place] > limit] or [
                rank for rank in of_row if places[rank.rank.rank] == place
            ]
            if len(own) < len(of_row) or len(of_row) == 1:
                return f"the KV cache of {_named(own)} is wrong at place {place + 1}", _hosts(own)
            return f"from place {place + 1} on, what {_named(own)} added up is wrong", None
    off = [rank for rank in ranks if rank.wrong_tokens or max(rank.logits) > limit]
    first = min((rank.first_wrong for rank in off if rank.first_wrong), default=0)
    token = f"; new token {first} is the first wrong one" if first else ""
    alone = len(off) < len(ranks) or len(ranks) == 1
    return f"the logits of {_named(off)} are wrong{token}", _hosts(off) if alone else None


def _hosts(ranks: Sequence[RankFigures]) -> tuple[str, ...]:
    return together.hosts([rank.rank for rank in ranks])


def _named(ranks: Sequence[RankFigures]) -> str:
    return together.named([rank.rank for rank in ranks])
