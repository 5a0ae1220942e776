"""Adds to --limit the hosts that must learn of what a playbook does.

A new node is a line in Slurm's files on controllers and login nodes and a target of the monitoring,
so `--limit gpu7` alone cannot add it; a node that leaves is none of the hosts that its leaving is
done on. A playbook names these groups in its first play, `vars: {__run_reaches: […]}`. The
run is then for the hosts of --limit and these, and without --limit for these alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: reach
type: aggregate
short_description: Adds to --limit the hosts that must learn of what a playbook does
description: Reads C(__run_reaches) of the playbook's first play, before it begins.
"""

VARIABLE = "__run_reaches"


def reached(
    groups: Sequence[str], members: Mapping[str, Sequence[str]], limited: Collection[str]
) -> list[str]:
    """The hosts of a run: those of --limit, then those of these groups, each once.

    A group that the inventory has not has nobody to tell.
    """
    hosts = [host for group in groups for host in members.get(group, ())]
    return list(dict.fromkeys([*limited, *hosts]))


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "reach"
    # It lies among our playbooks and belongs to them: whatever else a user enables, it runs.
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        plays = playbook.get_plays()
        groups = plays[0].vars.get(VARIABLE) if plays else None
        if not groups:
            return
        inventory = plays[0].get_variable_manager()._inventory
        # Names, not patterns: `--limit 'gpu:&rack1'` would intersect with the controllers, too.
        limited = inventory.get_hosts() if inventory._subset else ()
        names = reached(groups, inventory.get_groups_dict(), [host.get_name() for host in limited])
        inventory.subset(names)
