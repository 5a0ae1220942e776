"""Neighbours in rank order that work together: stages of a pipeline, the ranks of a row."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from validation.payloads.group import Group


@dataclass(frozen=True)
class Chain:
    """Consecutive ranks; `group` is torch's, None for the default group."""

    ranks: range
    group: Any = None

    def stage_of(self, rank: int) -> int:
        return rank - self.ranks.start


def chains(ranks: int, longest: int) -> list[range]:
    """The ranks in as few chains as possible, of nearly equal length, the longer ones first."""
    count = -(-ranks // longest)
    short, longer = divmod(ranks, count)
    ends = [short * i + min(i, longer) for i in range(count + 1)]
    return [range(first, end) for first, end in itertools.pairwise(ends)]


def meet(group: Group, everyone: list[range]) -> Chain:
    """This rank's chain, with its group connected. Collective."""
    import torch
    import torch.distributed as dist

    if len(everyone) == 1:
        return Chain(everyone[0])
    chain = Chain(range(0))
    for ranks in everyone:  # every rank makes all groups, in one order
        process_group = dist.new_group(list(ranks))
        if group.rank in ranks:
            chain = Chain(ranks, process_group)
    # point-to-point messages alone must not be the first thing a group does
    dist.all_reduce(torch.zeros(1, device=group.device), group=chain.group)
    return chain
