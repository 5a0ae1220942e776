"""Loads plugins once, before the first task forks.

Ansible runs each task on each host in a process of its own, forked from the one that reads the
playbooks. A plugin that the parent has not loaded is loaded by every child that needs it, from its
source, and forgotten when the child ends: more than half of what a task costs the control node.

The folders of all roles are named at once: a folder that is added later clears what Ansible has
loaded. What is loaded then counts as permanent for the garbage collector, which otherwise touches
all of it in each child and so copies the memory that parent and child share.
"""

from __future__ import annotations

import gc
import importlib.util
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins import loader
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: load_once
type: aggregate
short_description: Loads plugins once, before the first task forks
description: Makes runs cheaper for the control node, and changes nothing else about them.
"""

ROOT = Path(__file__).resolve().parents[2]


def own_packages(root: Path) -> str:
    """Why this Python does not import the packages of the checkout at `root`; empty if it does.

    Another checkout's .venv has that one's packages, and would deploy what they say.
    """
    spec = importlib.util.find_spec("validation")
    if spec and spec.origin and Path(spec.origin).resolve().is_relative_to(root):
        return ""
    return (
        f"Ansible does not run with the Python of {root}/.venv: run scripts/setup there, then "
        f"source {root}/.venv/bin/activate"
    )


# Before Ansible passes over, with a warning each, the plugins that it cannot load.
if problem := own_packages(ROOT):
    raise SystemExit(f"ERROR: {problem}")

# What every run on real nodes connects with.
CONNECTIONS = ("ssh", "local")
BECOME = ("sudo",)
SHELLS = ("sh",)


def name_roles_folders() -> None:
    ansibles: Any = constants  # which makes its names as it is loaded
    for folder in ansibles.DEFAULT_ROLES_PATH:
        for role in sorted(Path(folder).glob("*/")):
            loader.add_all_plugin_dirs(str(role))


def load_plugins() -> None:
    """What is loaded already costs nothing."""
    for each in (loader.action_loader, loader.lookup_loader):
        list(each.all(class_only=True))
    # A role that lies elsewhere was added: what templates call is loaded anew.
    for each in (loader.filter_loader, loader.test_loader):
        list(each.all())
    for names, each in (
        (CONNECTIONS, loader.connection_loader),
        (BECOME, loader.become_loader),
        (SHELLS, loader.shell_loader),
    ):
        for name in names:
            each.get(name, class_only=True)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "load_once"
    # It lies among our playbooks and belongs to them: whatever else a user enables, it runs.
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        name_roles_folders()
        load_plugins()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        load_plugins()
        gc.collect()
        gc.freeze()
