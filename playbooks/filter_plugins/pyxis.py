"""pyxis' line in plugstack.conf, and which host builds it for which others.

plugstack.conf is Slurm's, so the line is made here and not in the role that installs the plugin.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# Where Slurm finds the plugin: upstream's own place, a link to the one that was tried.
LIBRARY = "/usr/local/lib/slurm/spank_pyxis.so"
IMPORTER = "/usr/local/libexec/plumbline/pyxis-importer"

# Options of plugstack.conf, the first version that has each, and what it takes. An option that it
# does not know ends pyxis, https://github.com/NVIDIA/pyxis/blob/2ca2427d/config.c; enroot load and
# the importer came with 0.21, squashfuse with 0.24, nebius/slurm-deb-packages#176.
OPTIONS = {
    "runtime_path": ((0, 7), "path"),
    "execute_entrypoint": ((0, 9), "bool"),
    "container_scope": ((0, 11), "scope"),
    "sbatch_support": ((0, 12), "bool"),
    "use_enroot_load": ((0, 21), "bool"),
    "importer": ((0, 21), "path"),
    "use_squashfuse": ((0, 24), "bool"),
}
SCOPES = ("global", "job")
WORDS = {
    "bool": "true or false",
    "path": "an absolute path without blanks",
    "scope": "global or job",
}


def is_a(kind: str, value: Any) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "scope":
        return value in SCOPES
    return isinstance(value, str) and re.fullmatch(r"/[^\s#]*", value) is not None


def pyxis_option_problems(options: Mapping[str, Any], version: str = "") -> list[str]:
    """What pyxis would not take of its options, as sentences; without a version all are known."""
    has = tuple(map(int, re.findall(r"\d+", version)))
    problems = []
    for name, value in options.items():
        if name not in OPTIONS:
            known = ", ".join(OPTIONS)
            problems.append(f"pyxis_options has {name}, which pyxis does not know; it has {known}.")
            continue
        since, kind = OPTIONS[name]
        if has and has < since:
            first = ".".join(map(str, since))
            problems.append(
                f"pyxis_options has {name}, which came with pyxis {first}; remove it, or raise "
                f"pyxis_version, which is {version}."
            )
        elif not is_a(kind, value):
            problems.append(f"pyxis_options.{name} is {value!r}; set it to {WORDS[kind]}.")
    return problems


def pyxis_options_line(options: Mapping[str, Any], cache: str = "none") -> list[str]:
    """The options as plugstack.conf has them; with an import cache its importer is one of them."""
    named = {"importer": IMPORTER} if cache != "none" else {}
    return [
        f"{name}={int(value) if isinstance(value, bool) else value}"
        for name, value in sorted({**named, **options}.items())
    ]


def pyxis_plugstack(options: Mapping[str, Any], cache: str = "none") -> str:
    """The line of plugstack.conf. `optional`: a plugin that is missing stops no job."""
    return " ".join(["optional", LIBRARY, *pyxis_options_line(options, cache)])


def pyxis_kind(inputs: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that change when a plugin must be made anew."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def pyxis_seen(answer: str) -> dict[str, Any]:
    """What tasks/look.yml prints: Slurm's version, the plugin's SHA-1 and its stamp."""
    lines = dict(line.partition("=")[::2] for line in answer.splitlines() if "=" in line)
    version = re.search(r"\d+\.\d+\.\d+", lines.get("slurm", ""))
    try:
        stamp = json.loads(lines.get("stamp", ""))
    except json.JSONDecodeError:
        stamp = {}
    return {
        "slurm": version[0] if version else "",
        "library": lines.get("library", ""),
        # Without one the shell leaves the pattern as it is.
        "brought": re.findall(r"(pyxis-[0-9a-f]+)/", lines.get("brought", "")),
        "offered": lines.get("offered", ""),
        "stamp": stamp if isinstance(stamp, dict) else {},
    }


def pyxis_lacking(installed: Mapping[str, Any], kind: str) -> bool:
    """Whether the plugin that is there is not the one that should be, or not as it was brought."""
    stamp = installed["stamp"]
    return (
        stamp.get("kind") != kind
        or not installed["library"]
        or stamp.get("library") != installed["library"]
    )


def pyxis_builders(hosts: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Kind -> the first host that lacks it, of (host, kind, lacking)."""
    builders: dict[str, str] = {}
    for host, kind, lacking in hosts:
        if lacking:
            builders.setdefault(kind, host)
    return builders


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "pyxis_option_problems": pyxis_option_problems,
            "pyxis_options_line": pyxis_options_line,
            "pyxis_plugstack": pyxis_plugstack,
            "pyxis_kind": pyxis_kind,
            "pyxis_seen": pyxis_seen,
            "pyxis_lacking": pyxis_lacking,
            "pyxis_builders": pyxis_builders,
        }
