"""Brings Slurm's accounts, QOS and users to what is declared, by sacctmgr.

    slurm_associations:
      cluster: site
      accounts: [{name: physics, qos: [normal, high]}]
      qos: [{name: high, priority: 100, limits: {MaxWall: "1-00:00:00"}}]
      users: [{name: alice, account: physics}]
      unmanaged: keep

It plans on the control node, and asks the host once for each kind of thing, not for each thing. In
check mode nothing is changed; with --diff each change is a line. What nobody declares stays
(`keep`), or goes (`remove`), of the kinds that are declared at all.

Returned are `commands`, what sacctmgr did or would do, and `kept`, what stays undeclared.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase

from roles.slurm_associations.plugin_utils import database_state, plan
from roles.slurm_associations.plugin_utils.declared import ROLE, Declared, read

MODULE = "sacctmgr_calls"


class Failed(Exception):
    """One sentence."""


def reason(result: dict[str, Any]) -> str:
    """The last words of a call that failed, on one line."""
    lines = [*result.get("stderr", "").splitlines(), *result.get("stdout", "").splitlines()]
    words = [line.strip().removeprefix("sacctmgr: error: ") for line in lines if line.strip()]
    return " / ".join(words[:3]) or f"exit status {result.get('rc')}"


class ActionModule(ActionBase):
    _supports_check_mode = True
    _supports_async = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        ansible: Any = self  # whose methods have no types
        entries = {"type": "list", "elements": "dict", "default": []}
        _, arguments = ansible.validate_argument_spec(
            argument_spec={
                "cluster": {"type": "str", "required": True},
                "accounts": entries,
                "qos": entries,
                "users": entries,
                "unmanaged": {"type": "str", "choices": ["keep", "remove"], "default": "keep"},
            }
        )
        self._variables = task_vars
        try:
            return {**result, **self._apply(arguments)}
        except Failed as failed:
            return {**result, "failed": True, "msg": str(failed)}

    def _apply(self, arguments: dict[str, Any]) -> dict[str, Any]:
        declared, problems = read(arguments["accounts"], arguments["qos"], arguments["users"])
        if problems:
            raise Failed(" ".join(problems))
        cluster, remove = arguments["cluster"].lower(), arguments["unmanaged"] == "remove"
        planned = self._plan(declared, cluster, remove=remove)
        if planned.problems:
            raise Failed(" ".join(planned.problems))
        if planned.removals:
            jobs = self._calls([plan.JOBS])[0]["stdout"]
            if problems := plan.busy(planned.removals, jobs):
                raise Failed(" ".join(problems))
        commands = planned.commands
        if commands and not self._task.check_mode:
            self._calls(commands)
            self._settled(declared, cluster, remove=remove)
        return {
            "changed": bool(commands),
            "commands": [shlex.join(command) for command in commands],
            "kept": list(planned.kept),
            "msg": plan.sentence(planned.kept),
            "diff": {
                "before_header": f"associations of {cluster}",
                "after_header": f"associations of {cluster}",
                "before": planned.before,
                "after": planned.after,
            },
        }

    def _plan(self, declared: Declared, cluster: str, *, remove: bool) -> plan.Plan:
        try:
            there = self._find(declared, cluster)
        except Failed:
            if not self._task.check_mode:
                raise
            there = database_state.DatabaseState()  # a cluster that is not up yet has nothing
        if problems := plan.untracked(declared, there):
            raise Failed(" ".join(problems))
        return plan.plan(declared, there, cluster, remove=remove)

    def _find(self, declared: Declared, cluster: str) -> database_state.DatabaseState:
        questions = database_state.questions(declared)
        answers = self._calls(list(questions.values()))
        printed = {name: answer["stdout"] for name, answer in zip(questions, answers, strict=True)}
        there = database_state.parse(printed, declared, cluster)
        if not there.associations:
            raise Failed(
                f"{ROLE}: Slurm's database does not know the cluster {cluster}; set "
                "slurm_associations_cluster to one that it has, or start slurmctld first, which "
                "makes itself known."
            )
        if there.other_clusters:
            [answer] = self._calls([database_state.DEFAULTS])
            there = database_state.with_defaults(
                there, database_state.defaults(answer["stdout"], cluster)
            )
        return there

    def _settled(self, declared: Declared, cluster: str, *, remove: bool) -> None:
        """sacctmgr ends well also where it has changed nothing."""
        left = self._plan(declared, cluster, remove=remove)
        if left.changes:
            [line, *_] = (*left.changes[0].after, *left.changes[0].before)
            raise Failed(
                f"{ROLE}: sacctmgr took the changes, and Slurm's database has not all of them; the "
                f"first that lacks: {line}; see /var/log/slurm/slurmdbd.log on slurmdbd's host."
            )

    def _calls(self, calls: Sequence[database_state.Call]) -> list[dict[str, Any]]:
        """The results of commands, all of which ended well."""
        ansible: Any = self
        done: dict[str, Any] = ansible._execute_module(
            MODULE, {"calls": [list(call) for call in calls]}, task_vars=self._variables
        )
        results: list[dict[str, Any]] = done.get("results") or []
        if done.get("failed") and not results:
            raise Failed(f"{ROLE}: {done.get('msg') or 'the host said nothing'}")
        if len(results) < len(calls) or results[-1]["rc"] != 0:
            last = results[-1]
            before = len(results) - 1
            progress = f"; {before} of {len(calls)} commands were done before it"
            raise Failed(
                f"{ROLE}: `{_shown(calls[before])}` failed: {reason(last)}"
                f"{progress if '--immediate' in calls[before] else ''}."
            )
        return results


def _shown(call: database_state.Call, most: int = 200) -> str:
    text = shlex.join(call)
    return f"{text[:most]} …" if len(text) > most else text
