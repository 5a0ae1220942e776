"""Tells the journal of every node which run of which playbook its modules belong to.

Ansible's modules write what they were called with into the journal of their node. Who ran them,
from which commit and when the run began, stands before that in each line (`target_log_info`): no
task more, no call more, and nothing on the node that changes.

    $ journalctl --grep=plumbline-run
    ansible-ansible.legacy.setup[811]: plumbline-run slurm-cluster.yml by anna on admin1 from
    0f3a2b1c4d5e since 2026-11-27T08:30:12Z: Invoked with gather_subset=['min', 'hardware'] …
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

from cluster.text import printable
from cluster.version import commit

DOCUMENTATION = """
name: audit
type: aggregate
short_description: Tells the journal of every node who runs which playbook
description: Sets Ansible's C(target_log_info), behind what a site has there, and nothing else.
"""

VARIABLE = "ANSIBLE_TARGET_LOG_INFO"
MARK = "plumbline-run"


def operator(environment: Mapping[str, str]) -> str:
    """Who runs it; whoever became root with sudo is named as well."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        name = str(os.getuid())
    before = environment.get("SUDO_USER", "")
    return f"{name} ({before})" if before and before != name else name


def line(playbooks: Sequence[str], who: str, host: str, commit: str, began: datetime) -> str:
    """What stands before each line of the run: one line, whatever the names hold."""
    names = " ".join(Path(playbook).name for playbook in playbooks) or "ansible"
    since = began.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f"{MARK} {names} by {who} on {host} from {commit} since {since}:"
    return printable(text)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "audit"
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        del playbook
        said = line(
            [str(name) for name in context.CLIARGS.get("args") or ()],
            operator(os.environ),
            socket.gethostname(),
            commit(),
            datetime.now(UTC),
        )
        # A run within another's environment has a line of its own.
        sites = os.environ.get(VARIABLE, "").partition(MARK)[0].strip()
        os.environ[VARIABLE] = f"{sites} {said}".strip()
