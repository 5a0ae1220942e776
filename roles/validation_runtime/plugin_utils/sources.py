"""Where pip takes packages from: its options. Pure functions."""

from __future__ import annotations

import hashlib

from playbooks.filter_plugins.pip_options import pip_index

# What PyTorch's own address has in place of the build.
BUILD = "{build}"
# C libraries that a wheel may be made for, oldest first (PEP 600): the systems that we support have
# 2.35 or newer, torch asks for 2.28.
GLIBC = range(5, 36)


def indexes(index: str, extra: str, torch: str, build: str) -> list[str]:
    """pip's options for its indexes. `torch` is an address with {build}; empty means there is none.

    The index of torch's builds stands beside the others, for it lacks other packages. That is safe:
    the package index takes no version with a label (PEP 440), so `+cu126` comes from there alone.
    """
    others = (extra, torch.replace(BUILD, build) if build else "")
    options = pip_index(index)
    for other in others:
        options += pip_index(other, "--extra-index-url")
    return options


def platform(machine: str, python: str) -> list[str]:
    """pip's options to collect wheels for nodes of another kind than the one it runs on.

    `machine` is as `uname -m` says, `python` a version such as 3.12. pip reads markers, such as
    `; python_version < "3.12"`, by the Python it runs on: what only the node needs is then not
    there, and the node's pip says so.
    """
    tags = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC] + [f"manylinux2014_{machine}"]
    options = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    for tag in tags:
        options += ["--platform", tag]
    return options


def kind(machine: str, python: str, text: str, options: list[str]) -> str:
    """The name of the folder with the wheels that nodes of one kind share."""
    digest = hashlib.sha256("\n".join([text, *options]).encode()).hexdigest()
    return f"{machine}-python{python}-{digest[:12]}"
