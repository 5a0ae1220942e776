#!/usr/bin/python
"""Writes the files of a daemon's configuration, once its own checker has accepted all of them.

They are first written to a folder beside the daemon's own, where the checks run. What is refused
there is named in one sentence, and nothing that the daemon reads has changed: not one file of it.
So a name inside a file must be relative, or be that of something else.
"""

from __future__ import annotations

import grp
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import Access, NoPlace, differs, place, surplus, write

DOCUMENTATION = r"""
module: checked_files
short_description: Write files of a daemon's configuration that its checker accepts
description:
  - Writes all of the files or none. The order in which they take their names is that of the text.
  - In check mode the checks run, and nothing is written.
options:
  folder:
    description: Where the files belong; an absolute path of a folder that exists.
    type: path
    required: true
  files:
    description: Text of each file, by its path below O(folder).
    type: dict
    required: true
  owned:
    description: >-
      Patterns of paths below O(folder), in which C(**) is any number of folders. A file that
      matches and is not in O(files) is removed.
    type: list
    elements: str
    default: []
  checks:
    description: >-
      Commands, each a list of words, that run in a copy of O(files) and must end with 0. Their
      output is the reason of a refusal.
    type: list
    elements: list
    default: []
  owner:
    description: Owner of the files and of folders below O(folder).
    type: str
    default: root
  group:
    description: Group of the files and of folders below O(folder), who may read them.
    type: str
    default: root
  mode:
    description: Mode of the files, for a daemon that takes no other.
    type: str
    default: "0640"
author: The Plumbline authors
"""

RETURN = r"""
changed_files:
  description: Paths below the folder that were written or removed.
  type: list
  elements: str
  returned: success
"""

FOLDER_MODE = 0o750
PATIENCE_S = 120  # for one check
LONGEST = 400  # characters of a reason


def reason(output: str, folder: str) -> str:
    """What a checker said, as part of a sentence: without what is fine, and the copy's own path."""
    lines = [" ".join(line.replace(f"{folder}/", "").split()) for line in output.splitlines()]
    lines = [line.removeprefix("FAILED:").strip() for line in lines if "SUCCESS" not in line]
    messages = dict.fromkeys(line for line in lines if line and not line.startswith("Checking "))
    text = "; ".join(messages).replace(":; ", ": ") or "it said nothing"
    return text if len(text) <= LONGEST else f"…{text[-LONGEST:]}"


def check(folder: Path, checks: Sequence[Sequence[str]]) -> None:
    """Runs the checks in a folder. Raises Refused with the reason of the first that fails."""
    for command in checks:
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=PATIENCE_S,
            )
        except OSError as error:
            raise Refused(f"{words[0]} cannot be started: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise Refused(f"{words[0]} gave no answer in {PATIENCE_S} s") from None
        if done.returncode:
            raise Refused(f"{Path(words[0]).name} refuses it: {reason(done.stdout, str(folder))}")


def run(
    folder: Path,
    files: Mapping[str, str],
    owned: Sequence[str],
    checks: Sequence[Sequence[str]],
    access: Access,
    check_mode: bool,
) -> dict[str, Any]:
    """The module's result. Raises Refused, and then nothing has changed, and OSError."""
    texts = {str(place(name)): text for name, text in files.items()}
    folders = replace(access, mode=FOLDER_MODE)
    if checks:
        copy = Path(tempfile.mkdtemp(prefix=".checked-", dir=folder))
        try:
            for name, text in texts.items():
                write(copy / name, text, access, folders)
            check(copy, checks)
        finally:
            shutil.rmtree(copy)
    written = [name for name, text in texts.items() if differs(folder / name, text, access)]
    removed = surplus(folder, texts, owned)
    if not check_mode:
        for name in written:
            write(folder / name, texts[name], access, folders)
        for name in removed:
            (folder / name).unlink()
    return {"changed": bool(written or removed), "changed_files": sorted(written + removed)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            # A configuration may have secrets in it; what a checker says is shown all the same.
            "files": {"type": "dict", "required": True, "no_log": True},
            "owned": {"type": "list", "elements": "str", "default": []},
            "checks": {"type": "list", "elements": "list", "default": []},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "root"},
            "mode": {"type": "str", "default": "0640"},
        },
        supports_check_mode=True,
    )
    options = module.params
    folder = options["folder"]
    try:
        access = Access(
            int(options["mode"], 8),
            pwd.getpwnam(options["owner"]).pw_uid,
            grp.getgrnam(options["group"]).gr_gid,
        )
        result = run(
            Path(folder),
            {name: str(text) for name, text in options["files"].items()},
            options["owned"],
            options["checks"],
            access,
            module.check_mode,
        )
    except KeyError:
        module.fail_json(
            msg=f"checked_files: there is no user {options['owner']} "
            f"or no group {options['group']}."
        )
    except (NoPlace, Refused) as problem:
        module.fail_json(msg=f"{folder} stays as it was: {problem}.")
    except OSError as error:
        module.fail_json(msg=f"checked_files: {error.filename}: {error.strerror}.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
