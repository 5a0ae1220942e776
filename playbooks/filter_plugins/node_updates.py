"""An update of nodes in use, for its playbook; what is decided is in plugin_utils/updates.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from ansible.errors import AnsibleFilterError

from playbooks.filter_plugins.reboot_batches import bound
from playbooks.plugin_utils import service, updates

# A play's `hosts` that are none, without a warning of Ansible's.
NOBODY = "!all"


def progress(
    said: str,
    slurm: str,
    asked: Sequence[str],
    inventory: Sequence[str],
    at_once: object,
    anew: bool = False,
    retry: bool = False,
) -> dict[str, Any]:
    """The update under way, or a new one of the nodes that are asked for.

    said   what the controller says of an update (tasks/read.yml)
    slurm  what Slurm says of nodes and jobs
    """
    try:
        answer = updates.answered(slurm)
        text, reserved = updates.told(said)
        before = None if anew else updates.parsed(text)
    except updates.NoProgress as problem:
        raise AnsibleFilterError(f"{problem}.") from problem
    most = bound(at_once, len(inventory), "node_update_at_once")
    if before is not None and not before.ended:
        return asdict(updates.taken_up(before, inventory, retry=retry, at_once=most))
    begun = updates.begun(
        asked, answer, reserved, by=service.operator(), now=datetime.now(UTC), at_once=most
    )
    return asdict(begun)


def plan(known: Mapping[str, Any], said: str, slurm: str, limit: Collection[str]) -> dict[str, Any]:
    """What the round does now; see updates.Plan."""
    try:
        answer = updates.answered(slurm)
        _, reserved = updates.told(said)
    except updates.NoProgress as problem:
        raise AnsibleFilterError(f"{problem}.") from problem
    return asdict(updates.decide(updates.of_document(known), answer, reserved, limit=limit))


def results(
    planned: Mapping[str, Any], hostvars: Mapping[str, Any], proof: Mapping[str, str], slurm: str
) -> dict[str, dict[str, str]]:
    """What became of the round's nodes, from what they say of themselves: `done` and `failed`."""
    names = list(planned["chosen"])
    fit = [name for name in names if hostvars[name].get("__node_update_fits")]
    broken = {name: str(hostvars[name].get("__node_update_failed") or "") for name in names}
    done, failed = updates.results(
        updates.Plan(**planned), fit, broken, proof, updates.answered(slurm)
    )
    return {"done": done, "failed": failed}


def recorded(
    known: Mapping[str, Any], found: Mapping[str, Mapping[str, str]], off: Collection[str]
) -> dict[str, Any]:
    return asdict(updates.recorded(updates.of_document(known), found["done"], found["failed"], off))


def beginning(known: Mapping[str, Any], chosen: Iterable[str]) -> dict[str, Any]:
    """The progress before nodes are worked on: from then on only an update brings them back."""
    now = updates.of_document(known)
    return asdict(updates.working(now, list(chosen)))


def hosts(hostvars: Mapping[str, Any], controllers: Iterable[str]) -> str:
    """The nodes that the round updates, as the `hosts` of a play.

    Ansible also reads it when it only checks the syntax, without hosts.
    """
    for name in controllers if hostvars else ():
        if found := hostvars[name].get("__node_update_now"):
            return ",".join(found)
    return NOBODY


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "node_update_progress": progress,
            "node_update_plan": plan,
            "node_update_beginning": beginning,
            "node_update_results": results,
            "node_update_recorded": recorded,
            "node_update_to_return": lambda fit, slurm: updates.to_return(
                fit, updates.answered(slurm)
            ),
            "node_update_to_drain": lambda failed, slurm: updates.to_drain(
                failed, updates.answered(slurm)
            ),
            "node_update_reserved": lambda said: sorted(updates.told(said)[1]),
            "node_update_told": lambda planned, known: updates.begins(
                updates.of_document(known), updates.Plan(**planned)
            ),
            "node_update_hosts": hosts,
            "node_update_reason": updates.reason,
            "node_update_signed": lambda words: f"{words}, by {service.operator()}",
            "node_update_verdicts": updates.verdicts,
            "node_update_text": lambda known: updates.written(updates.of_document(known)),
            "node_update_summary": lambda known, planned, command: updates.summary(
                updates.of_document(known), updates.Plan(**planned), command
            ),
        }
