"""Whether a node has to reboot for what was installed: pure functions from what it says."""

from __future__ import annotations

import re
from collections.abc import Iterable

KERNELS, ASKED, MODULES = "-- kernels --", "-- asked --", "-- modules --"
NAMED = 5


def reboot_due(output: str) -> str:
    """Why, as the end of a sentence; "" where it need not.

    Raises ValueError when the text is not an answer: nothing said is not `no reboot`.
    """
    running, _, rest = output.partition(KERNELS)
    kernels, _, rest = rest.partition(ASKED)
    asked, separator, modules = rest.partition(MODULES)
    running = running.strip()
    if not separator or not running:
        raise ValueError("the node was asked for its kernel, and the answer is cut off")
    if (newest := newest_of(kernels.split(), running)) != running:
        return f"kernel {newest} is installed, and {running} runs"
    if packages := list(dict.fromkeys(asked.split())):
        more = f" and {len(packages) - NAMED} more" if len(packages) > NAMED else ""
        return f"{', '.join(packages[:NAMED])}{more} ask for it"
    for line in modules.strip().splitlines():
        name, *versions = line.split()
        if len(set(versions)) > 1:
            return f"another build of the module {name} is installed than is loaded"
    return ""


def newest_of(kernels: Iterable[str], running: str) -> str:
    """The newest installed kernel of the running one's kind; that one itself where none is newer.

    A kernel of another kind is not what the boot loader takes by itself. In a container, which has
    its host's, none is installed.
    """
    alike = [kernel for kernel in kernels if _kind(kernel) == _kind(running)]
    return max([running, *alike], key=_numbers)


def _kind(release: str) -> str:
    """What follows the numbers of a release.

    >>> _kind("6.12.57+deb13-amd64")
    '-amd64'
    """
    match = re.search(r"-[a-z][a-z0-9-]*$", release)
    return match[0] if match else ""


def _numbers(release: str) -> tuple[int, ...]:
    kind = _kind(release)
    return tuple(map(int, re.findall(r"\d+", release.removesuffix(kind))))
