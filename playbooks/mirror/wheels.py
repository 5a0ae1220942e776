"""Wheels, as pip chooses them for the nodes' Python, and indexes that pip reads (PEP 503).

All wheels of a mirror lie in `wheels/`, beside the folders of hosts. `wheels/simple/` is the index
of what came from the package index, and `wheels/BUILD/` of what came from an index of torch's
builds. A page links to the wheels with their hashes.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from playbooks.mirror.store import MirrorError, Store

# What the mirror itself writes has this address in its manifest.
OWN: Final = "http://wheels"
SIMPLE: Final = "simple"
# C libraries that a wheel may be made for, newest last (PEP 600): all supported systems have 2.35.
_GLIBC: Final = range(5, 36)


def platform_options(machine: str, python: str) -> list[str]:
    """pip's options to choose wheels for nodes of another kind than the machine it runs on."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    tags += [f"manylinux{of}_{machine}" for of in ("1", "2010", "2014")]
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    return [*options, *(f"--platform={tag}" for tag in tags)]


def index_of(url: str, options: Sequence[str]) -> str:
    """The index that nodes find a wheel in: torch's builds have each their own.

    >>> index_of("https://download.pytorch.org/whl/cu130/torch-2.13.0-cp313.whl",
    ...          ["--extra-index-url", "https://download.pytorch.org/whl/cu130"])
    'cu130'
    >>> index_of("https://files.example.org/torch-2.13.0-cp313.whl", [])
    'simple'
    """
    for before, address in pairwise(options):
        if before == "--extra-index-url" and url.startswith(f"{address.rstrip('/')}/"):
            return Path(urlsplit(address).path).name
    return SIMPLE


def for_nodes(requirements: str, machine: str, python: str) -> str:
    """The requirements that hold on nodes, without their markers.

    pip chooses wheels for another Python, and evaluates markers for the one that it runs with. The
    markers of what the requirements need in turn stay pip's. Raises MirrorError.

    >>> for_nodes('six==1 ; python_version < "3.13"', "x86_64", "3.12")
    'six==1'
    """
    there = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
    }
    lines = []
    for line in re.sub(r"\s*\\\n\s*", " ", requirements).splitlines():
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        what, dashes, options = text.partition(" --")
        if not what or what.startswith("-"):
            lines += [text] if text else []
            continue
        try:
            requirement = Requirement(what)
        except InvalidRequirement as error:
            raise MirrorError(f"{what} is no requirement of pip: {error}.") from None
        if requirement.marker is None or requirement.marker.evaluate(there):
            requirement.marker = None
            lines.append(f"{requirement}{dashes}{options}")
    return "\n".join(lines)


def collect(
    store: Store, machine: str, python: str, wanted: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """Brings wheels into the store: SHA-256 by file, by index. Raises MirrorError."""
    options = [str(option) for option in wanted["options"]]
    with tempfile.TemporaryDirectory(prefix="plumbline-mirror-") as folder:
        report = Path(folder) / "report.json"
        text = Path(folder) / "requirements.txt"
        held = for_nodes(str(wanted["requirements"]), machine, python)
        text.write_text(f"{held}\n", encoding="utf-8")
        # What is pinned by hashes is complete, and made for the nodes' Python. pip would miss what
        # the Python that it runs with wants beside it, and refuse what that one cannot have.
        locked = "--require-hashes" in options
        complete = ["--no-deps", "--ignore-requires-python"] if locked else []
        # pip chooses and says what it would install; nothing is installed. `--target` is what it
        # wants to have with another platform than its own.
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"),
                *("--quiet", "--disable-pip-version-check", "--no-input"),
                *(f"--report={report}", f"--target={folder}/none", f"--requirement={text}"),
                *options,
                *complete,
                *platform_options(machine, python),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise MirrorError(
                f"pip finds no wheels for Python {python} on {machine}: "
                f"{' '.join(lines[-2:]) or done.stderr.strip()[-300:]}"
            )
        chosen = json.loads(report.read_text(encoding="utf-8"))["install"]
    indexes: dict[str, dict[str, str]] = defaultdict(dict)
    for each in chosen:
        url = str(each["download_info"]["url"])
        sha256 = str(each["download_info"]["archive_info"]["hashes"]["sha256"])
        name = unquote(Path(urlsplit(url).path).name)
        if urlsplit(url).scheme == "file":
            store.put(f"{OWN}/files/{name}", Path(unquote(urlsplit(url).path)).read_bytes())
            indexes[SIMPLE][f"../../files/{name}"] = sha256
        else:
            path = store.fetch(url.partition("#")[0], sha256)
            link = path.relative_to(store.folder)
            indexes[index_of(url, options)][f"../../../{link}"] = sha256
    return indexes


def write_indexes(store: Store, indexes: Mapping[str, Mapping[str, str]]) -> None:
    """One page for each project of each index."""
    for index, links in indexes.items():
        by_project: dict[str, list[str]] = defaultdict(list)
        for link, sha256 in sorted(links.items()):
            name = Path(link).name
            project = re.sub(r"[-_.]+", "-", name.partition("-")[0]).lower()
            by_project[project].append(
                f'<a href="{html.escape(link)}#sha256={sha256}">{html.escape(name)}</a><br>\n'
            )
        for project, lines in by_project.items():
            page = f"<!DOCTYPE html>\n<title>{project}</title>\n{''.join(lines)}"
            store.put(f"{OWN}/{index}/{project}/index.html", page.encode())
