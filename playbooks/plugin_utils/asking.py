"""A task of a role, run from within an action as Ansible runs it by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import add_all_plugin_dirs

NORMAL = "ansible.legacy.normal"  # the action of all modules that have none of their own


def add_roles(folder: Path, questions: Iterable[Mapping[str, Any]]) -> None:
    """Lets Ansible find the modules and actions of the roles that ask."""
    for role in dict.fromkeys(str(question["number"]).partition(".")[0] for question in questions):
        add_all_plugin_dirs(str(folder / role))


def needs_no_host(action: ActionBase, name: str) -> bool:
    """Whether an action of this name works on the control node alone."""
    loader = action._shared_loader_obj.action_loader
    plugin = loader.get(name, class_only=True) if loader.has_plugin(name) else None
    return plugin is not None and not getattr(plugin, "_requires_connection", True)


def answer(
    action: ActionBase, question: Mapping[str, Any], task_vars: Mapping[str, Any]
) -> dict[str, Any]:
    """What the task of a question returns. Raises AnsibleConnectionFailure."""
    name = str(question["action"])
    task: Any = action._task.copy()
    task.action = name
    task.args = dict(question["arguments"])
    task.environment = [question["environment"]] if question.get("environment") else []
    # By these a look knows what it may answer, and what is no file's to remember.
    reads = question.get("changed_when") == [False] and question.get("check_mode") is False
    task._ds = {"changed_when": False, "check_mode": False} if reads else {}
    task.no_log = bool(question.get("no_log"))
    if question.get("check_mode") is not None:
        task.check_mode = question["check_mode"]
    loader = action._shared_loader_obj.action_loader
    connection: Any = action._connection  # whose types know of no host without `become`
    become = connection.become
    if question.get("become") is False:
        connection.set_become_plugin(None)
    try:
        handler = loader.get(
            name if loader.has_plugin(name) else NORMAL,
            task=task,
            connection=connection,
            play_context=action._play_context,
            loader=action._loader,
            templar=action._templar,
            shared_loader_obj=action._shared_loader_obj,
        )
        return dict(handler.run(task_vars=dict(task_vars)))
    except AnsibleConnectionFailure:
        raise
    except AnsibleError as error:
        return {**getattr(error, "result", {}), "failed": True, "msg": str(error)}
    finally:
        connection.set_become_plugin(become)
