"""Which packages of DCGM 4 go with a driver."""

from __future__ import annotations

# The first driver branch of each CUDA major version, newest first: CUDA Toolkit release notes,
# https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ (minimum driver for minor-version
# compatibility). DCGM has plugins for these three.
_FIRST_BRANCH = {13: 580, 12: 525, 11: 450}

_NAME = "datacenter-gpu-manager-4"


def cuda_major(branch: int) -> int:
    """The CUDA major version that a driver of this branch brings; 0 for one that is too old."""
    return next((major for major, first in _FIRST_BRANCH.items() if branch >= first), 0)


def packages(branch: int, diagnostics: bool) -> list[str]:
    """The packages for a driver branch, none for one that is too old.

    The plugins of the diagnostic's higher levels are packages of their own, `proprietary`.
    """
    major = cuda_major(branch)
    if not major:
        return []
    names = [f"{_NAME}-core", f"{_NAME}-cuda{major}"]
    if diagnostics:
        names += [f"{_NAME}-proprietary", f"{_NAME}-proprietary-cuda{major}"]
    return names


def of_other_drivers(branch: int) -> list[str]:
    """The plugins for other CUDA versions: held, they would keep DCGM's core at their version."""
    others = [major for major in _FIRST_BRANCH if major != cuda_major(branch)]
    return [f"{_NAME}-{kind}{major}" for major in others for kind in ("cuda", "proprietary-cuda")]
