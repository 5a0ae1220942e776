"""What DOCA-OFED would change on a node, and whether the kernel runs the modules that lie there.

Pure functions over the lines of tasks/look.yml.
"""

from __future__ import annotations

from collections.abc import Iterable


def lacking(output: str, packages: Iterable[str]) -> list[str]:
    """The packages that are not installed, in their order.

    >>> lacking("package installed perftest\\n", ["doca-ofed", "perftest"])
    ['doca-ofed']
    """
    lines = [line.split() for line in output.splitlines()]
    there = {line[2] for line in lines if line[:2] == ["package", "installed"]}
    return [name for name in packages if name not in there]


def stale(output: str) -> list[str]:
    """The loaded modules whose file has another source: the next boot loads that one.

    A module tells the hash of its source (`srcversion`) where it has a version of its own, as those
    of DOCA-OFED do, or where the kernel hashes all. One that tells none has no word here, so a
    module of the kernel's own differs from DOCA-OFED's either way.

    >>> stale("module mlx5_core loaded= file=9A0F\\nmodule ib_core loaded=11 file=11\\n")
    ['mlx5_core']
    """
    lines = [line.split() for line in output.splitlines()]
    modules = {
        line[1]: dict(word.split("=", 1) for word in line[2:])
        for line in lines
        if line[:1] == ["module"]
    }
    return [name for name, has in modules.items() if has["loaded"] != has["file"]]
