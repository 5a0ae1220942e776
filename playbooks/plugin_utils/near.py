"""Runs in Ansible's own process what speaks to no host.

Ansible forks a process for each task on each host, so that many hosts are spoken to at a time. A
task that is skipped, includes others, sets a fact, judges one, or is answered by the host's look
(looking.py) speaks to nobody, and the fork is most of what it costs. Such a task is tried here
first, on a copy of it. When it turns out to need its host, the copy is forgotten, and the task
begins anew in a process of its own, as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

from ansible._internal import _task
from ansible.executor.task_executor import TaskExecutor
from ansible.executor.task_result import _RawTaskResult
from ansible.plugins import loader

from playbooks.plugin_utils import looking

# Actions that speak to no host, whatever their arguments.
BUILTIN = (
    "assert",
    "debug",
    "fail",
    "include_role",
    "include_tasks",
    "set_fact",
    "validate_argument_spec",
)
NEAR = frozenset([*BUILTIN, *(f"ansible.builtin.{name}" for name in BUILTIN)])
# Ansible's `shell` has the project's `command` do its work, and so a look may answer it.
BY_COMMAND = frozenset({"shell", "ansible.builtin.shell"})
# What a connection does with its host.
SPEAKS = ("_connect", "exec_command", "fetch_file", "put_file", "reset")

Queue = Callable[[Any, Any, Any, dict[str, Any], Any], None]


class Far(BaseException):
    """The task has to speak to its host. No action may take this for a failure of its own."""


def _far(*_: Any, **__: Any) -> NoReturn:
    raise Far


class Sent(list[tuple[str, Any]]):
    """What is sent of the items of a loop, kept until it counts; in place of Ansible's queue."""

    def send_callback(self, method_name: str, task_result: Any) -> None:
        self.append((method_name, _as_received(task_result)))


executor: Any = TaskExecutor  # Ansible has no types


class Near(executor):  # type: ignore[misc]
    """Executes a task, and raises Far where it would speak to its host.

    One that `only_judges` does so as soon as the conditions of the task are true.
    """

    def __init__(self, *arguments: Any, only_judges: bool) -> None:
        super().__init__(*arguments)
        self._only_judges = only_judges
        if only_judges:
            # What comes next; an item of a loop has a copy without it, and ends at its connection.
            self._task.post_validate = _far

    def _get_connection(self, *arguments: Any) -> Any:
        if self._only_judges:
            raise Far
        connection = super()._get_connection(*arguments)
        for name in SPEAKS:
            setattr(connection, name, _far)
        return connection

    def _get_action_handler_with_module_context(self, *arguments: Any, **named: Any) -> Any:
        pair = super()._get_action_handler_with_module_context(*arguments, **named)
        # What works here without being named above may take its time, as a pause does.
        may = self._task.action in NEAR | BY_COMMAND or getattr(pair[0], "looks", False)
        if not may:
            raise Far
        return pair


def queued(queue: Queue) -> Queue:
    """`StrategyBase._queue_task`, which begins a process only where it is needed."""

    def queue_task(
        strategy: Any, host: Any, task: Any, task_vars: dict[str, Any], play_context: Any
    ) -> None:
        runs = not _waits(task) and (
            task.action in NEAR or (not task.delegate_to and looking.counts(task_vars))
        )
        if runs or task.when or task.loop is not None:
            sent = Sent()
            result = _tried(strategy, host, task, task_vars, play_context, sent, not runs)
            if result is not None:
                strategy._queued_task_cache[(host.name, task._uuid)] = {
                    "host": host,
                    "task": task,
                    "task_vars": task_vars,
                    "play_context": play_context,
                }
                # From here on as if a process had sent it.
                tqm = strategy._tqm
                tqm.send_callback("v2_runner_on_start", host, task)
                for method, of_item in sent:
                    tqm.send_callback(method, strategy._convert_wire_task_result_to_raw(of_item))
                with strategy._results_lock:
                    strategy._results.append(strategy._convert_wire_task_result_to_raw(result))
                strategy._pending_results += 1
                return
        queue(strategy, host, task, task_vars, play_context)

    return queue_task


def _waits(task: Any) -> bool:
    """Whether it may take its time, for which all other hosts would wait."""
    return bool(task.until or task.retries or task.async_val or task.timeout)


def _tried(
    strategy: Any,
    host: Any,
    task: Any,
    task_vars: dict[str, Any],
    play_context: Any,
    sent: Sent,
    only_judges: bool,
) -> Any:
    """The task's result; None where it needs its host."""
    copied = task.copy(exclude_parent=True, exclude_tasks=True)
    copied._parent = task._parent
    try:
        with _task.TaskContext(copied):
            result = Near(
                host,
                copied,
                dict(task_vars),
                play_context,
                strategy._loader,
                loader.get_plugin_loader_namespace(),
                sent,
                strategy._variable_manager,
                only_judges=only_judges,
            ).run()
    except Far:
        return None
    return _as_received(
        _RawTaskResult(host=host, task=copied, return_data=result, task_fields=copied.dump_attrs())
    )


def _as_received(result: Any) -> Any:
    """A result as it comes out of the queue: it shares nothing with what it was made of."""
    return ForkingPickler.loads(ForkingPickler.dumps(result.as_wire_task_result()))
