"""What users read of the data sets that are there: a page for each, an index, and modulefiles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit

from ansible.module_utils.datasets_entry import Published, variable
from ansible.module_utils.published import HEAD, PAGE, amount, table

# Where Lmod finds a module for each version: a tree, and what the names in it begin with.
MODULEFILES, GROUP = ".modulefiles", "data"


def pages(root: Path, published: Iterable[Published]) -> dict[str, str]:
    """Text of each file, by its path below the root."""
    ordered = sorted(published, key=lambda one: one.dataset.place)
    sets = {name: list(ones) for name, ones in groupby(ordered, lambda one: one.dataset.name)}
    files = {PAGE: _index(root, sets)}
    for name, ones in sets.items():
        files[f"{name}/{PAGE}"] = _page(root, ones)
        for one in ones:
            files[f"{MODULEFILES}/{GROUP}/{one.dataset.place}.lua"] = _modulefile(root, one)
    return files


def _index(root: Path, sets: Mapping[str, Sequence[Published]]) -> str:
    rows = [
        (
            f"[{name}]({name}/{PAGE})",
            ", ".join(one.dataset.version for one in ones),
            amount(sum(one.bytes for one in ones)),
            _newest(ones).dataset.licence,
            _newest(ones).dataset.description,
        )
        for name, ones in sets.items()
    ]
    head = ("Data set", "Versions", "Size", "Licence", "What it is")
    return "\n".join(
        [
            HEAD,
            "# Data sets",
            "",
            f"Each version is a folder `{root}/NAME/VERSION` that never changes. "
            f"`module avail {GROUP}/` lists them in a shell.",
            "",
            *(table(head, rows) if rows else ["There are none yet."]),
            "",
        ]
    )


def _page(root: Path, ones: Sequence[Published]) -> str:
    newest = _newest(ones)
    name = newest.dataset.name
    module = f"{GROUP}/{newest.dataset.place}"
    versions = [
        (
            one.dataset.version,
            f"`{root / one.dataset.place}`",
            amount(one.bytes),
            str(one.files),
            f"the group {one.dataset.readers}" if one.dataset.readers else "everybody",
            one.date,
        )
        for one in ones
    ]
    origins = [
        (one.dataset.version, f"<{plain(file.url)}>", f"`{file.sha256}`")
        for one in ones
        for file in one.dataset.files
    ]
    terms = [(one.dataset.version, one.dataset.licence, plain(one.dataset.source)) for one in ones]
    return "\n".join(
        [
            HEAD,
            f"# {name}",
            "",
            newest.dataset.description,
            "",
            *table(("Version", "Folder", "Size", "Files", "Readers", "Published"), versions),
            "",
            "## Use it in a job",
            "",
            "```sh",
            f"sbatch --wrap='module load {module} && ls ${variable(name)}'",
            "```",
            "",
            f"The module sets `{variable(name)}` to the folder of its version. Name the version, "
            "so that your job reads the same data next year. The folders are read-only.",
            "",
            "## Licence and source",
            "",
            *table(("Version", "Licence", "Source"), terms),
            "",
            "## What was fetched",
            "",
            *table(("Version", "From", "SHA-256"), origins),
            "",
        ]
    )


def _newest(ones: Sequence[Published]) -> Published:
    """The one that was published last; of one day that with the highest name."""
    return max(ones, key=lambda one: (one.date, one.dataset.version))


def plain(url: str) -> str:
    """An address without what may be a secret in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _modulefile(root: Path, one: Published) -> str:
    dataset = one.dataset
    folder = str(root / dataset.place)
    missing = f"{GROUP}/{dataset.place} cannot be loaded on this host: there is no folder {folder}"
    return "\n".join(
        [
            "-- Managed by Ansible; changes made here are lost.",
            f"whatis({_quoted(f'Name: {dataset.name}')})",
            f"whatis({_quoted(f'Version: {dataset.version}')})",
            f"whatis({_quoted(f'Description: {dataset.description}')})",
            f"help({_quoted(f'{dataset.description} See {root / dataset.name / PAGE}.')})",
            f'if mode() == "load" and not isDir({_quoted(folder)}) then',
            f"   LmodError({_quoted(missing)})",
            "end",
            f"setenv({_quoted(variable(dataset.name))}, {_quoted(folder)})",
            "",
        ]
    )


def _quoted(text: str) -> str:
    """A string of Lua. Nothing in it ends the string, or means something else."""
    return '"' + re.sub(r'([\\"])', r"\\\1", re.sub(r"[\x00-\x1f\x7f]", " ", text)) + '"'
