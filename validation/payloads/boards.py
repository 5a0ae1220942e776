"""What NVML says of the boards while ranks communicate: clocks, power, heat, and new errors.

All ranks wait for a board that is hot or short of power, and a link that counts errors may be as
fast as ever. One process of each node looks at all of its GPUs; the node's first rank starts it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from validation.payloads import gpu_links
from validation.payloads.group import Group

LOAD = "communication"
# Small messages must not feel who asks: NVML takes locks of the driver and a CPU of the node.
PAUSE_S = 0.1
ASKED = (
    "uuid",
    "pci",
    "pcie_replays",
    "nvlinks",
    "temperature_slowdown_c",
    "ecc_volatile_uncorrected",
    "ecc_volatile_corrected",
    "remapped_rows",
    "retired_pages",
)
_LONGEST_S = 3600.0  # that a process looks; it ends with the rank that started it
_QUARTER = 4  # of a group's patience: NVML is asked three times before other ranks give up


def watched(
    group: Group, timeout_s: float, measure: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What was measured, and `boards` beside it: one item for each node, see _of_node.

    `boards` is None where no rank has a whole GPU: NVML does not tell the clock of an instance of
    MIG. The time that counts is what the group was at work (Group.at_work). Collective.
    """
    own = group.itself.gpu_uuid
    if own is None or own.startswith("MIG-"):
        return {**measure(), "boards": None}
    ask_s = min(gpu_links.LIMIT_S, timeout_s / _QUARTER)
    looking: list[gpu_links.Links] = []
    with ExitStack() as stack:

        def begin() -> None:
            looking.append(
                gpu_links.Links(_LONGEST_S, ask_s, asked=ASKED, loads=(LOAD,), pause_s=PAUSE_S)
            )
            stack.enter_context(looking[0].watched())

        group.watch.doing("asking NVML before the work")
        group.on_each_node("boards before", begin)
        measured = measure()
    here = [
        (rank, uuid)
        for rank, (host, uuid) in enumerate(group.gather([group.itself.host, own]))
        if host == group.itself.host
    ]
    group.watch.doing("asking NVML after the work")
    nodes = group.on_each_node("boards after", lambda: _of_node(group, looking[0], here))
    return {**measured, "boards": [node for node in nodes if node is not None]}


def _of_node(group: Group, links: gpu_links.Links, ranks: list[tuple[int, str]]) -> dict[str, Any]:
    """What NVML said on a node of the boards of its ranks.

    host     the node
    nvml     see nvml.System
    seconds  between the two questions
    work_s   how long the ranks were at work between them
    boards   of each rank: `rank`, and `index`, `before`, `after` and `loads` of gpu_links.Links.
             Of NVLinks those alone that differ before and after: with eighteen links a board the
             others would be most of a large job's answer
    """
    for number in range(len(ranks)):
        for began, ended in group.worked:
            links.loaded(number, LOAD, began, ended)
    seen = links.result([(uuid, None) for _, uuid in ranks])
    return {
        "host": group.itself.host,
        "nvml": seen["nvml"],
        "seconds": seen["seconds"],
        "work_s": round(sum(ended - began for began, ended in group.worked), 3),
        "boards": [
            {
                "rank": rank,
                "index": row["index"],
                **dict(
                    zip(("before", "after"), _differing(row["before"], row["after"]), strict=True)
                ),
                "loads": row["loads"],
            }
            for (rank, _), row in zip(ranks, seen["gpus"], strict=True)
        ],
    }


def _differing(*answers: dict[str, Any] | None) -> tuple[dict[str, Any] | None, ...]:
    """The answers without the NVLinks that say the same in each of them."""
    links = [(answer or {"values": {}})["values"].get("nvlinks") for answer in answers]
    if any(each is None for each in links):
        return answers
    first, *others = links
    same = [link for link in first if all(link in other for other in others)]
    return tuple(
        {**answer, "values": {**answer["values"], "nvlinks": [x for x in each if x not in same]}}
        for answer, each in zip(answers, links, strict=True)
        if answer is not None
    )
