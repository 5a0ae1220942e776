"""The modulefile of a version, for Lmod."""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils.user_libraries_entry import REQUIREMENTS, Built


def modulefile(root: Path, built: Built) -> str:
    folder = root / built.place
    missing = f"{built.place} cannot be loaded on this host: there is no environment in {folder}"
    # What of it is the same on all hosts, so that all have the same file.
    described = f"{built.description.rstrip('.')}. " if built.description else ""
    came = (
        f"{described}Python {built.python} with {built.packages} packages, in the "
        f"versions and with the hashes of {folder / REQUIREMENTS}. The same on every node: "
        f"content sha256 {built.content}. It never changes; another version is another module."
    )
    return "\n".join(
        [
            "-- Managed by Ansible; changes made here are lost.",
            _call("whatis", f"Name: {built.name}"),
            _call("whatis", f"Version: {built.version}"),
            _call("whatis", f"Description: {built.description or built.title}"),
            _call("help", came),
            f"local root = {_quoted(str(folder))}",
            'if mode() == "load" and not isFile(pathJoin(root, "bin/python")) then',
            f"   {_call('LmodError', missing)}",
            "end",
            'prepend_path("PATH", pathJoin(root, "bin"))',
            'setenv("VIRTUAL_ENV", root)',
            'unsetenv("PYTHONHOME")',
            "",
        ]
    )


def _call(function: str, text: str) -> str:
    return f"{function}({_quoted(text)})"


def _quoted(text: str) -> str:
    """A string of Lua. Nothing in it ends the string, or means something else."""
    return '"' + re.sub(r'([\\"])', r"\\\1", re.sub(r"[\x00-\x1f\x7f]", " ", text)) + '"'
