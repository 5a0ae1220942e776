"""MIG: what a board can be cut into, and what the instances of a node are called.

Pure functions of the declaration. The names are those of device files that the role nvidia_mig
makes on the node, so gres.conf names them for all nodes without asking one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEVICES = "/dev/plumbline-mig"
# A profile as nvidia-smi writes it; the first number is its share of a GPU's compute slices.
PROFILE = re.compile(r"([1-7])g\.[1-9][0-9]*gb")
# Of one GPU whose profiles we do not know.
SLICES = 7

Layout = Mapping[str, int]  # profile -> instances of it in every GPU


@dataclass(frozen=True, slots=True)
class Places:
    """Where instances of a profile can begin, and how many of the memory's slices they take."""

    starts: tuple[int, ...]
    size: int


Board = Mapping[str, Places]


def _sevenths(one: int, two: int, half: int, whole: int) -> Board:
    """A board of 7 compute and 8 memory slices, by the GB that its profiles have in their names.

    The places are those that `nvidia-smi mig -lgipp` shows on A100 and H100, also in
    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/getting-started-with-mig.html.
    """
    return {
        f"1g.{one}gb": Places(tuple(range(7)), 1),
        f"1g.{two}gb": Places((0, 2, 4, 6), 2),
        f"2g.{two}gb": Places((0, 2, 4), 2),
        f"3g.{half}gb": Places((0, 4), 4),
        f"4g.{half}gb": Places((0,), 4),
        f"7g.{whole}gb": Places((0,), 8),
    }


_A30 = {
    "1g.6gb": Places((0, 1, 2, 3), 1),
    "2g.12gb": Places((0, 2), 2),
    "4g.24gb": Places((0,), 4),
}
# As `nvidia-smi mig -lgipp` shows it on a RTX PRO 6000 Blackwell Server Edition, whose memory has
# 12 slices; the profiles are those of the user guide without graphics and with their media engines.
_RTX_PRO_6000 = {
    "1g.24gb": Places((0, 3, 6, 9), 3),
    "2g.48gb": Places((0, 6), 6),
    "4g.96gb": Places((0,), 12),
}
_40, _80 = _sevenths(5, 10, 20, 40), _sevenths(10, 20, 40, 80)
_94, _96 = _sevenths(12, 24, 47, 94), _sevenths(12, 24, 48, 96)
_141, _144 = _sevenths(18, 35, 71, 141), _sevenths(18, 36, 72, 144)

# Boards that a model of the contract may be: one that is sold with several memories is several.
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html has them; the
# GH200 with 144 GB and the GB200 are in https://github.com/NVIDIA/mig-parted, deployments/systemd/
# config-default.yaml. H20 has those of GH200 and, with 141 GB, of H200 ("NVIDIA H20-3e MIG
# 4g.71gb"). What profiles of Blackwell Ultra are called depends on the driver (of a GB300 1g.35gb
# with 59x, 1g.31gb with 61x: https://github.com/NVIDIA/dgx-spark-playbooks, skill mig-configure),
# so b300 and gb300 are cut as declared, or not at all.
BOARDS: Mapping[str, tuple[Board, ...]] = {
    "a30": (_A30,),
    "a100_pcie": (_40, _80),
    "a100_sxm": (_40, _80),
    "h100_nvl": (_94,),
    "h100_pcie": (_80, _94),
    "h100_sxm": (_80, _94),
    "h200_nvl": (_141,),
    "h200_sxm": (_141,),
    "h20_sxm": (_96, _141),
    "gh200": (_96, _144),
    "b200": (_sevenths(23, 45, 90, 180),),
    "gb200": (_sevenths(24, 47, 95, 189),),
    "rtx_pro_6000": (_RTX_PRO_6000,),
}
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html does not have them.
WITHOUT = frozenset(
    (
        *("a10", "a40", "l4", "l40", "l40s", "rtx_3090", "rtx_4090", "t4"),
        *("v100_pcie", "v100_sxm", "virtual"),
    )
)


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance: the GPU is X of /dev/nvidiaX, the number counts those of its profile on it."""

    gpu: int
    profile: str
    number: int

    @property
    def name(self) -> str:
        return f"gpu{self.gpu}-{self.profile}-{self.number}"

    @property
    def devices(self) -> tuple[str, str, str]:
        """What a job on it must open: the GPU, the GPU instance, the compute instance."""
        path = f"{DEVICES}/{self.name}"
        return f"/dev/nvidia{self.gpu}", f"{path}.gi", f"{path}.ci"


def instances(count: int, layout: Layout) -> list[Instance]:
    """All instances of a node with `count` GPUs, in the order of gres.conf.

    By profile first, for Slurm numbers the GPUs of a node by the types in its Gres= (`slurmd -G`).
    """
    return [
        Instance(gpu, profile, number)
        for profile, each in layout.items()
        for gpu in range(count)
        for number in range(each)
    ]


def placed(board: Board, layout: Layout) -> list[tuple[str, int]] | None:
    """(profile, first memory slice) of each instance, the large ones first; None if none fits."""
    wanted = [profile for profile, each in layout.items() for _ in range(each)]
    wanted.sort(key=lambda profile: -board[profile].size)
    return _fitted(board, wanted, frozenset())


def _fitted(
    board: Board, profiles: Sequence[str], taken: frozenset[int]
) -> list[tuple[str, int]] | None:
    if not profiles:
        return []
    first, *rest = profiles
    for start in board[first].starts:
        slices = set(range(start, start + board[first].size))
        if slices & taken:
            continue
        if (others := _fitted(board, rest, taken | slices)) is not None:
            return [(first, start), *others]
    return None


def creation(model: str, layout: Layout) -> list[str]:
    """What `nvidia-smi mig -cgi` is given for each GPU: PROFILE:PLACE.

    The places are chosen here, for the driver's choice can leave too little room for those that
    come later; without a table it chooses, from the largest on.
    """
    for board in BOARDS.get(model, ()):
        if layout.keys() <= board.keys() and (places := placed(board, layout)) is not None:
            return [f"{profile}:{start}" for profile, start in places]
    wanted = [profile for profile, each in layout.items() for _ in range(each)]
    return sorted(wanted, key=lambda profile: -int(profile.partition("g")[0]))


def problems(model: str, layout: Layout) -> Iterator[str]:
    """What is wrong with a layout of well-formed profiles and counts: sentences without a host."""
    if not layout:
        return
    if model in WITHOUT:
        yield f"node_gpus.mig is set, and the model {model} has no MIG; leave it out."
        return
    boards = BOARDS.get(model, ())
    known = list(dict.fromkeys(profile for board in boards for profile in board))
    if boards and (strange := [profile for profile in layout if profile not in known]):
        yield (
            f"node_gpus.mig has {', '.join(strange)}, which no {model} has; it has "
            f"{', '.join(known)}."
        )
    elif boards and not any(layout.keys() <= board.keys() for board in boards):
        yield (
            f"node_gpus.mig has {', '.join(layout)}, and no {model} has all of them; take those of "
            f"one board: {' or '.join(', '.join(board) for board in boards)}."
        )
    elif boards:
        fitting = (board for board in boards if layout.keys() <= board.keys())
        if all(placed(board, layout) is None for board in fitting):
            yield (
                f"node_gpus.mig wants {listed(layout)} on every GPU, for which no {model} has "
                "room; declare fewer instances, or smaller ones."
            )
    elif (slices := sum(int(profile[0]) * each for profile, each in layout.items())) > SLICES:
        yield (
            f"node_gpus.mig takes {slices} slices of every GPU, which has {SLICES}; declare fewer "
            "instances, or smaller ones."
        )


def listed(layout: Layout) -> str:
    """As the validation says it: "2 of 3g.20gb"."""
    return ", ".join(f"{each} of {profile}" for profile, each in sorted(layout.items()))


def plan(model: str, count: int, layout: Layout) -> dict[str, Any]:
    """What the node's program reads, /etc/plumbline/mig.json."""
    return {
        "gpus": count,
        "layout": dict(layout),
        "create": creation(model, layout),
        "instances": [
            {
                "gpu": instance.gpu,
                "profile": instance.profile,
                "devices": list(instance.devices[1:]),
            }
            for instance in instances(count, layout)
        ],
    }
