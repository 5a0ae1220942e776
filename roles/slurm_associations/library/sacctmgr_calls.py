#!/usr/bin/python
"""Runs commands one after the other, up to the first that fails, in one visit to the host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: sacctmgr_calls
short_description: Run commands one after the other, up to the first that fails
description:
  - For the action M(slurm_associations), which gives it nothing but questions in check mode.
options:
  calls:
    description: The commands, each a list of words.
    type: list
    elements: list
    required: true
  timeout:
    description: Seconds that one command has.
    type: int
    default: 300
author: The Plumbline authors
"""

RETURN = r"""
results:
  description: Of each command that ran, C(rc), C(stdout) and C(stderr).
  type: list
  elements: dict
  returned: always
"""


def run(calls: Sequence[Sequence[str]], timeout: int) -> Iterator[dict[str, object]]:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    for call in calls:
        try:
            done = subprocess.run(
                call,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                env=environment,
                timeout=timeout,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            yield {"rc": 127, "stdout": "", "stderr": str(error)}
            return
        yield {
            "rc": done.returncode,
            "stdout": done.stdout.decode(errors="replace"),
            "stderr": done.stderr.decode(errors="replace"),
        }
        if done.returncode:
            return


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "calls": {"type": "list", "elements": "list", "required": True},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    calls = [[str(word) for word in call] for call in module.params["calls"]]
    results = list(run(calls, module.params["timeout"]))
    module.exit_json(changed=False, results=results)


if __name__ == "__main__":
    main()
