#!/usr/bin/python
"""Brings several small files of a node up to date, in one go.

A task costs the control node the same whether it looks at one file or at ten, and on a thousand
nodes that is minutes.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: node_base_files
short_description: Bring several small text files up to date
options:
  files:
    description:
      - Each either as a whole, or some lines of it. Files that are owned as a whole belong to root,
        with mode 0644; the others keep owner and mode.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: Where the file is., type: path, required: true}
      outdates:
        description: Paths that get the oldest time there is before the file changes.
        type: list
        elements: path
      needs: {description: A path without which the entry does not count., type: path}
      without: {description: A path with which the entry does not count., type: path}
      content: {description: The whole file; an empty one is removed., type: str}
      block:
        description: Lines between this role's markers, at the end if there are none; empty removes them.
        type: str
      lines: {description: A regular expression; the lines that begin so., type: str}
      commented: {description: "Whether O(files[].lines) are comments, or count.", type: bool}
author: The Plumbline authors
"""  # noqa: E501 - YAML

BEGIN = "# BEGIN nodes of the cluster, managed by Ansible"
END = "# END nodes of the cluster, managed by Ansible"


def with_block(text: str, block: str) -> str:
    """A text with these lines between the markers; without lines there are no markers either."""
    lines = block.strip("\n")
    marked = f"{BEGIN}\n{lines}\n{END}\n" if lines else ""
    pattern = re.compile(rf"^{re.escape(BEGIN)}\n.*?^{re.escape(END)}\n?", re.MULTILINE | re.DOTALL)
    if pattern.search(text):
        return pattern.sub(lambda _: marked, text, count=1)
    if text and marked and not text.endswith("\n"):
        text += "\n"
    return text + marked


def with_lines(text: str, beginning: str, commented: bool) -> str:
    """A text whose lines with such a beginning are commented out, or are no longer."""

    def line_as_wanted(line: str) -> str:
        if commented:
            return f"# {line}" if re.match(beginning, line) else line
        bare = line.removeprefix("# ")
        return bare if re.match(beginning, bare) else line

    return "".join(map(line_as_wanted, text.splitlines(keepends=True)))


def desired_text(text: str | None, entry: Mapping[str, Any]) -> str | None:
    """What the file should be, from what it is; None is no file."""
    if entry["content"] is not None:
        return str(entry["content"]) or None
    if text is None and not entry["block"]:
        return None
    edited = text or ""
    if entry["lines"]:
        edited = with_lines(edited, entry["lines"], bool(entry["commented"]))
    if entry["block"] is not None:
        edited = with_block(edited, entry["block"])
    return edited


def read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None


def is_roots(path: Path) -> bool:
    status = path.stat()
    return (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 0, 0o644)


def write(module: AnsibleModule, path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, new = tempfile.mkstemp(dir=module.tmpdir)
    with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    module.atomic_move(new, str(path))  # keeps owner and mode of a file that was there


def apply(module: AnsibleModule, entry: Mapping[str, Any]) -> dict[str, str] | None:
    """Brings one file up to date; what changed as a difference, None if nothing did."""
    path = Path(entry["path"])
    if entry["needs"] and not Path(entry["needs"]).exists():
        return None
    if entry["without"] and Path(entry["without"]).exists():
        return None
    before = read(path)
    after = desired_text(before, entry)
    owned = entry["content"] is not None and after is not None
    if before == after and not (owned and not is_roots(path)):
        return None
    if not module.check_mode:
        if before != after:
            # Before: a run that is killed in between leaves what is too old, not what is too young.
            for outdated in entry.get("outdates") or ():
                with suppress(FileNotFoundError):
                    os.utime(outdated, (0, 0))
        if after is None:
            path.unlink()
        elif before != after:
            write(module, path, after)
        if owned:
            os.chown(path, 0, 0)
            path.chmod(0o644)
    return {
        "before": before or "",
        "after": after or "",
        "before_header": str(path),
        "after_header": str(path),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "outdates": {"type": "list", "elements": "path"},
                    "needs": {"type": "path"},
                    "without": {"type": "path"},
                    "content": {"type": "str"},
                    "block": {"type": "str"},
                    "lines": {"type": "str"},
                    "commented": {"type": "bool"},
                },
            }
        },
        supports_check_mode=True,
    )
    differences = [apply(module, entry) for entry in module.params["files"]]
    changes = [difference for difference in differences if difference is not None]
    module.exit_json(changed=bool(changes), diff=changes)


if __name__ == "__main__":
    main()
