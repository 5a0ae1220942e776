"""Actions that ask a node only what its look does not answer.

`Looking` is mixed into those of Ansible's own actions that run modules (action_plugins/normal.py,
copy.py, template.py, command.py): Ansible lets a project put its own in their place. It changes
where an unchanged answer comes from, and nothing else.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.module_utils.common.json import Direction, get_module_encoder
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from cluster.files import write_whole
from playbooks.plugin_utils import look, look_files, module_archive, node_reader, packed
from playbooks.plugin_utils.look import Question, Remembered
from playbooks.plugin_utils.look_files import Run, Taken

# Switches it on: group_vars do for the cluster's playbooks, and nothing does for a role alone.
SWITCH = "cluster_one_look"
READER = node_reader.Reader(does="answers what a run asks", mark="look", main="")
LIBRARIES = (packed.ROOT / "playbooks" / "library", packed.ROOT / "roles")

display = Display()


class Looking(ActionBase):
    """Mixed in before an action that runs modules."""

    # By this near.py knows what may need no host.
    looks = True
    _answered_before = False

    def _execute_module(
        self,
        module_name: str | None = None,
        module_args: dict[str, Any] | None = None,
        tmp: Any = None,
        task_vars: dict[str, Any] | None = None,
        persist_files: bool = False,
        delete_remote_tmp: Any = None,
        wrap_async: bool = False,
        ignore_unknown_opts: bool = False,
    ) -> dict[str, Any]:
        action: Any = self
        variables = task_vars or {}
        question = None
        if not wrap_async and may_ask(action, variables):
            arguments = action._task.args if module_args is None else module_args
            question = question_of(action, module_name or action._task.action, arguments)
            if question and ignore_unknown_opts:
                question = question.lenient()
        # Asked again, as `until` does, it is asked anew.
        if question and not self._answered_before:
            answer = answered(action, question, variables)
            if answer is not None:
                self._answered_before = bool(action._task.until)
                return answer
        result = self._execute_unanswered(
            module_name=module_name,
            module_args=module_args,
            tmp=tmp,
            task_vars=task_vars,
            persist_files=persist_files,
            delete_remote_tmp=delete_remote_tmp,
            wrap_async=wrap_async,
            ignore_unknown_opts=ignore_unknown_opts,
        )
        if question and not _is_secret(action, question, result):
            this_run().note_asked(variables["inventory_hostname"], question)
        return result

    def _read(self, command: str, variables: dict[str, Any]) -> str:
        """What a line of shell prints that changes nothing; its end does not count."""
        action: Any = self
        question = None
        if may_ask(action, variables):
            question = Question(look.COMMAND, look.shell_arguments(command), reads=True)
            answer = answered(action, question, variables)
            if answer is not None:
                return str(answer.get("stdout", ""))
        result = action._low_level_execute_command(command, sudoable=False)
        if question:
            this_run().note_asked(variables["inventory_hostname"], question)
        printed: str = to_text(result["stdout"])
        return printed

    def _execute_unanswered(self, **arguments: Any) -> dict[str, Any]:
        """The call, as Ansible makes it."""
        ansibles: Any = super()
        result: dict[str, Any] = ansibles._execute_module(**arguments)
        return result


def this_run() -> Run:
    ansibles: Any = constants  # which makes its names as it is loaded
    return Run.of(ansibles.DEFAULT_LOCAL_TMP)


def may_ask(action: Any, variables: dict[str, Any]) -> bool:
    """Whether this task is one that a look may speak for: as root, on its own host, as it is."""
    task = action._task
    return (
        boolean(variables.get(SWITCH, False), strict=False)
        and not task.delegate_to
        and not task.async_val
        and not any(task.environment or ())
        and bool(action._connection.become)
        and not action._is_become_unprivileged()
    )


def question_of(action: Any, name: str, arguments: dict[str, Any]) -> Question | None:
    """The question that this call of a module is; None for one that no look answers."""
    collection, _, module = name.rpartition(".")
    if collection not in ("", "ansible.builtin", "ansible.legacy"):
        return None
    reads = module == look.COMMAND and only_reads(action._task)
    compares = module in look.COMPARING or look.has_condition(module, arguments)
    if not (reads or compares or (not collection and _is_ours(action, module))):
        return None
    own = look.own_arguments(module, arguments)
    try:
        encoder = get_module_encoder(module_archive.PROFILE, Direction.CONTROLLER_TO_MODULE)
        return Question(module, json.dumps(own, cls=encoder, sort_keys=True), reads)
    except (TypeError, ValueError):
        return None


def only_reads(task: Any) -> bool:
    """Whether the task itself says that its command changes nothing, in check mode neither."""
    written = task.get_ds() or {}
    return written.get("changed_when") is False and written.get("check_mode") is False


def answers_count(action: Any, variables: dict[str, Any]) -> bool:
    """Whether there is a look of this host since the last change; it is taken where it is due."""
    host, run = variables["inventory_hostname"], this_run()
    play = str(variables.get("ansible_play_name"))
    taken = run.taken(host)
    if (
        taken is None
        or taken.held != run.held()
        or (taken.changes != run.changes() and taken.useful and taken.play != play)
    ):
        taken = take(action, run, host, play, variables)
    return taken.changes == run.changes()


def counts(variables: dict[str, Any]) -> bool:
    """Whether there is a look of this host that may still answer; none is taken for it."""
    if not boolean(variables.get(SWITCH, False), strict=False):
        return False
    run = this_run()
    taken = run.taken(variables["inventory_hostname"])
    return taken is not None and taken.useful and taken.changes == run.changes()


def answered(action: Any, question: Question, variables: dict[str, Any]) -> dict[str, Any] | None:
    """What the look of this host says; None for nothing usable."""
    if not answers_count(action, variables):
        return None
    host, run = variables["inventory_hostname"], this_run()
    answer = run.answer(host, question.key)
    if answer is None or not look.usable(question, answer):
        return None
    run.note_used(host, question.key)
    return look.as_returned(answer)


def take(action: Any, run: Run, host: str, play: str, variables: dict[str, Any]) -> Taken:
    """Asks the host all that the runs before asked it, in one call."""
    changes, held = run.changes(), run.held()
    known = [
        entry for entry in look_files.known_questions(same_command(), host) if entry.held == held
    ]
    answers = _ask(action, run, known, variables) if known else {}
    usable = sum(
        look.usable(entry.question, answers[entry.question.key])
        for entry in known
        if entry.question.key in answers
    )
    useful = bool(known) and usable >= look.USEFUL * len(known)
    taken = Taken(changes, play, useful, held)
    run.keep(host, taken, answers)
    return taken


def _ask(
    action: Any, run: Run, known: list[Remembered], variables: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """The answers by key; none where the node cannot run the program, and each task asks itself."""
    internal: dict[str, Any] = {}
    action._update_module_args("look", internal, variables)
    internal |= {"_ansible_diff": False, "_ansible_tmpdir": None}
    modules = {entry.question.module for entry in known}
    paths = {module: path for module in modules if (path := _path(action, module))}
    questions = {
        entry.question.key: (
            entry.question.module,
            {
                **internal,
                **json.loads(entry.question.arguments),
                "_ansible_module_name": entry.question.module,
                "_ansible_check_mode": not entry.question.reads,
            },
        )
        for entry in known
        if entry.question.module in paths
    }
    buffer = io.BytesIO(_archive(run, paths))
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(module_archive.QUESTIONS, module_archive.document(questions))
    try:
        return node_reader.ask(action, READER, buffer.getvalue(), [])
    except AnsibleError as error:
        display.vvv(f"{variables['inventory_hostname']} is asked one by one: {error}")
        return {}


def _archive(run: Run, paths: dict[str, Path]) -> bytes:
    """The modules' archive, made once in a run for all hosts that are asked by the same modules."""
    file = run.folder / f"{module_archive.name_of(paths)}.zip"
    with run.once():
        if not file.exists():
            write_whole(file, module_archive.archive(paths))
    return file.read_bytes()


def _path(action: Any, module: str) -> Path | None:
    loader = action._shared_loader_obj.module_loader
    for name in (module, f"ansible.legacy.{module}"):
        context = loader.find_plugin_with_context(name, ".py")
        if context.resolved and context.plugin_resolved_path:
            return Path(context.plugin_resolved_path)
    return None


def _is_ours(action: Any, module: str) -> bool:
    path = _path(action, module)
    return path is not None and any(path.is_relative_to(folder) for folder in LIBRARIES)


def same_command() -> list[str]:
    """What two runs have in common that ask the same: inventory, playbooks and tags."""
    options = context.CLIARGS
    named = [*(options.get("inventory") or ()), *(options.get("args") or ())]
    tags = [*sorted(options.get("tags") or ()), "", *sorted(options.get("skip_tags") or ())]
    return [*(str(Path(name).resolve()) for name in named), "", *tags]


def _is_secret(action: Any, question: Question, result: dict[str, Any]) -> bool:
    """Whether its arguments may not be kept: the task is `no_log`, or the module hides one."""
    if question.module in look.WITHOUT_SECRETS:
        return False
    return bool(action._task.no_log) or "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER" in str(
        result.get("invocation", "")
    )
