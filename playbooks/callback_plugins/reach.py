"""Adds to --limit the hosts that must learn of what a playbook does.

A new node is a line in Slurm's files on controllers and login nodes and a target of the monitoring,
so `--limit gpu7` alone cannot add it; a node that leaves is none of the hosts that its leaving is
done on. A playbook names these groups in its first play, `vars: {__run_reaches: […]}`. The
run is then for the hosts of --limit and these, and without --limit for these alone.

Others may have to learn a little, such as a new node's name, and be left alone otherwise: the first
play names their groups in `__run_tells`. Only plays with `vars: {__run_of_others: true}` are for
them, and not for the hosts of --limit, which get all of it from the other plays.

A run may find hosts that it has to leave alone, such as nodes that are switched off. A task that
sets the fact `__run_leaves_out` to their names takes them out of all plays that follow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible.plugins.callback import CallbackBase

from playbooks.plugin_utils.leaving_out import left_out

DOCUMENTATION = """
name: reach
type: aggregate
short_description: Adds to --limit the hosts that must learn of what a playbook does
description: Reads C(__run_reaches) of the playbook's first play, before it begins.
"""

VARIABLE = "__run_reaches"
TELLS = "__run_tells"
OF_OTHERS = "__run_of_others"


def reached(
    groups: Sequence[str], members: Mapping[str, Sequence[str]], limited: Collection[str]
) -> list[str]:
    """The hosts of a run: those of --limit, then those of these groups, each once.

    A group that the inventory has not has nobody to tell.
    """
    hosts = [host for group in groups for host in members.get(group, ())]
    return list(dict.fromkeys([*limited, *hosts]))


def pattern(sign: str, hosts: Iterable[str]) -> str:
    """Ansible's pattern that keeps these hosts of a play (`&`), or takes them out (`!`).

    A regular expression without a colon or a comma, at which Ansible would split it.
    """
    return f"{sign}~^({'|'.join(map(re.escape, hosts))})$"


def narrow(play: Any, more: str) -> None:
    """The play is for the hosts that this pattern leaves of its own."""
    own = [play.hosts] if isinstance(play.hosts, str) else list(play.hosts)
    play.hosts = [*own, more]


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "reach"
    # It lies among our playbooks and belongs to them: whatever else a user enables, it runs.
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.to_come: dict[str, Any] = {}  # plays that have not begun

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self.to_come.pop(play._uuid, None)

    def v2_runner_on_ok(self, result: Any) -> None:
        if hosts := left_out(result):
            for play in self.to_come.values():
                narrow(play, pattern("!", hosts))

    def v2_playbook_on_start(self, playbook: Any) -> None:
        plays = playbook.get_plays()
        self.to_come = {play._uuid: play for play in plays}
        groups = plays[0].vars.get(VARIABLE) if plays else None
        if not groups:
            return
        inventory = plays[0].get_variable_manager()._inventory
        # Names, not patterns: `--limit 'gpu:&rack1'` would intersect with the controllers, too.
        limited = inventory.get_hosts() if inventory._subset else ()
        members, limited = inventory.get_groups_dict(), [host.get_name() for host in limited]
        names = reached(groups, members, limited)
        tells = plays[0].vars.get(TELLS) or ()
        inventory.subset(reached(tells, members, names))
        for play in plays if tells else ():
            others = play.vars.get(OF_OTHERS)
            narrow(play, pattern("!", limited) if others else pattern("&", names))
