"""The role's filters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+.-]*(/[A-Za-z0-9_+.-]+)*")

Kernel = Mapping[str, Any]


def kernel_problems(kernels: Sequence[Kernel]) -> list[str]:
    """A sentence for each kernel that cannot be written."""
    return list(_problems(kernels))


def _problems(kernels: Sequence[Kernel]) -> Iterator[str]:
    names = [str(kernel["name"]) for kernel in kernels]
    for number, kernel in enumerate(kernels):
        where, name = f"notebook_runtime_kernels[{number}]", names[number]
        if not _NAME.fullmatch(name):
            yield f"{where}.name is {name!r}; use lower-case letters, digits, dots and hyphens."
        if names.index(name) != number:
            yield f"{where}.name is {name!r}, as that of another kernel; give each its own."
        for module in kernel["modules"]:
            if not _MODULE.fullmatch(str(module)):
                yield f"{where}.modules has {module!r}; name what users load, such as pytorch/2.6."


def kernels(listed: Sequence[Kernel], prefix: str) -> dict[str, str]:
    """Files of kernels, by path below the prefix: each loads its modules and runs their Python."""
    return {
        f"share/jupyter/kernels/{kernel['name']}/kernel.json": _spec(kernel, prefix)
        for kernel in listed
    }


def _spec(kernel: Kernel, prefix: str) -> str:
    program = f"{prefix}/program/roles/notebook_runtime/files/notebook/kernel.py"
    # A login shell, for `module` is a function of shells. $1 is the connection file.
    script = f'module load {" ".join(kernel["modules"])} && exec python3 {program} {prefix} -f "$1"'
    spec = {
        "argv": ["bash", "-lc", script, "bash", "{connection_file}"],
        "display_name": str(kernel.get("description") or " ".join(kernel["modules"])),
        "language": "python",
        "metadata": {"debugger": False},
    }
    return json.dumps(spec, indent=2) + "\n"


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "notebook_runtime_kernels": kernels,
            "notebook_runtime_kernel_problems": kernel_problems,
        }
