"""What the modules of this role share: how they ask programs, refuse, fail and answer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.refused import Refused


class Failed(Exception):
    """One sentence: a program that did not do what it was asked."""


def program(command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What a program of the distribution answers, in English. Raises Failed if it cannot start."""
    try:
        return subprocess.run(
            command,
            env={**os.environ, "LC_ALL": "C"},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise Failed(f"{command[0]} cannot be started: {error.strerror}") from None


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a program failed, on one line."""
    return " ".join(done.stderr.split()) or "it said nothing"


def answer(module: AnsibleModule, work: Callable[[], dict[str, Any]]) -> NoReturn:
    """Ends the module with what `work` returns, whose `warnings` are told, or with one sentence.

    What the module was given is not sent back: a thousand users would be half a megabyte each time.
    """
    quiet: dict[str, Any] = {"invocation": {}}
    try:
        result = work()
    except Refused as problem:
        module.fail_json(msg=f"cluster_users: {problem}.", refused=problem.sentences, **quiet)
    except Failed as problem:
        module.fail_json(msg=f"cluster_users: {problem}.", **quiet)
    except OSError as error:
        module.fail_json(msg=f"cluster_users: {error.filename}: {error.strerror}.", **quiet)
    for warning in result.pop("warnings"):
        module.warn(warning)
    module.exit_json(**result, **quiet)
