"""Which Plumbline this is: `plumbline 0.1.0`, and the commit where the checkout is no release.

    python3 -m cluster.version

The version is said here alone: pyproject.toml and scripts/release read it.
"""

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VERSION = "0.1.0"

ROOT = Path(__file__).resolve().parent.parent


def line(root: Path = ROOT) -> str:
    """`plumbline VERSION`; of a git checkout that is not the tagged release, with its commit.

    An archive, an installed package and a packed file have no history, and so no commit.
    """
    commit = _commit(root) if (root / ".git").exists() else ""
    return f"plumbline {VERSION}" + (f" (commit {commit})" if commit else "")


def commit(root: Path = ROOT) -> str:
    """What a log calls this checkout: its commit, or its release where there is no other."""
    found = _commit(root) if (root / ".git").exists() else ""
    return found or f"v{VERSION}"


def _commit(root: Path) -> str:
    """The commit, `-dirty` where files differ from it; empty for an unchanged tagged release."""
    try:
        commit = _git(root, "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty")
        tags = _git(root, "tag", "--points-at", "HEAD").split()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    released = f"v{VERSION}" in tags and not commit.endswith("-dirty")
    return "" if released else commit


def _git(root: Path, *arguments: str) -> str:
    # Who asks for a version may be another user, and changes nothing.
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class _Print(argparse.Action):
    """Like argparse's own `version`, but git is asked only when somebody asks."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **more)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(line())
        parser.exit()


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option `--version`, for every program of Plumbline."""
    parser.add_argument("--version", action=_Print, help="print the version and exit")


if __name__ == "__main__":
    print(line())
