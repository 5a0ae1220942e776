"""What is wrong with hosts that were asked: away, without sudo, less than declared."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cluster.hostlist import compress
from cluster.refusal import Refusal, standing

VIRTUAL = "virtual"
# What sudo, su and doas say, through Ansible, when they do not let us.
NOT_ROOT = re.compile(
    r"sudo|password|privilege escalation|become|sorry, you must|not in the sudoers", re.IGNORECASE
)


def away_refusals(results: Sequence[Mapping[str, Any]], silenced: Sequence[str]) -> list[str]:
    """Controllers and databases that cannot be reached, from the results of a loop over them."""
    return standing(
        (
            Refusal(
                f"{result['item']} cannot be reached "
                f"({' '.join(str(result.get('msg', '')).split()).rstrip('.')}); a cluster does not "
                "work without its controllers and databases: bring it back, and run this again.",
                "controller-away",
                str(result["item"]),
            )
            for result in results
            if result.get("unreachable")
        ),
        silenced,
    )


# Of scontrol's states, between a SuspendProgram and the end of a ResumeProgram.
OFF = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"})


def powered_down(states: str, hosts: Collection[str]) -> list[str]:
    """The hosts that power saving has switched off, from lines `NAME STATE+STATE`."""
    words = (line.split() for line in states.splitlines())
    off = {line[0] for line in words if len(line) == 2 and OFF & set(line[1].upper().split("+"))}
    return [host for host in hosts if host in off]


def facts_refusal(result: Mapping[str, Any]) -> str:
    """Why a host told nothing about itself, from the failed result; hosts may share it."""
    message = " ".join(str(result.get(key) or "") for key in ("msg", "module_stderr", "stderr"))
    message = " ".join(message.split()).rstrip(".")
    if NOT_ROOT.search(message):
        return (
            f"the user that logs in cannot become root ({message}); give its password with "
            "--ask-become-pass, or let it use sudo without one (NOPASSWD)."
        )
    return f"its facts cannot be gathered ({message}); repair that on the host first."


def told(message: object) -> list[str]:
    """The sentences of an assert, a line each; its message is one, or a list of them."""
    texts = message if isinstance(message, (list, tuple)) else [message]
    return [" ".join(str(text).split()) for text in texts]


def role_refusal(result: Mapping[str, Any], role: str) -> list[str]:
    """What a role's refuse.yml refused, from the failed result."""
    sentences = told(result.get("msg", ""))
    if result.get("evaluated_to") is False or "assertion" in result:
        return sentences
    message = " ".join(sentences).rstrip(".")
    return [f"role {role} could not evaluate its refusals ({message})."]


def hardware_refusals(
    declared: Mapping[str, Any], host: str, facts: Mapping[str, Any], counted: str
) -> list[Refusal]:
    """What a compute node declares and does not have; less than it has is a site's choice.

    `counted` is what tasks/gpus.yml prints. The sentences name no host: many may share them.
    """
    return [
        Refusal(
            f"{what}; repair the node, or declare what it has.",
            "hardware-less",
            host,
        )
        for what in _less(declared, facts, counted)
    ]


def _less(declared: Mapping[str, Any], facts: Mapping[str, Any], counted: str) -> Iterator[str]:
    cpus = declared["node_cpus"]
    wanted = cpus["sockets"] * cpus["cores_per_socket"] * cpus["threads_per_core"]
    vcpus = facts.get("processor_vcpus")
    if vcpus is not None and wanted > int(vcpus):
        yield (
            f"node_cpus declares {wanted} logical CPUs ({cpus['sockets']} × "
            f"{cpus['cores_per_socket']} × {cpus['threads_per_core']}), but the node has {vcpus}"
        )
    memory = facts.get("memtotal_mb")
    if memory is not None and int(declared["node_memory_mb"]) > int(memory):
        yield f"node_memory_mb declares {declared['node_memory_mb']} MiB, but the node has {memory}"
    model, count = declared["node_gpus"]["model"], int(declared["node_gpus"]["count"])
    files, devices = (int(number) for number in (counted.split() or ["0", "0"]))
    if model == VIRTUAL:
        seen, where = files, "device files"
    else:  # without device files there is no driver yet, and the bus shows what there is
        seen, where = (files, "device files") if files else (devices, "on its PCI bus")
    if count > seen:
        yield f"node_gpus declares {count} GPUs ({model}), but the node shows {seen} ({where})"


def host_refusals(
    hosts: Iterable[Mapping[str, Any]],
    judged: Mapping[str, Sequence[str]],
    silenced: Sequence[str],
) -> dict[str, list[str]]:
    """Everything that is refused on hosts that were asked, by host, from their variables.

    `judged` is what preflight_facts found.
    """
    by_host: dict[str, list[str]] = {}
    for host in hosts:
        name = str(host["inventory_hostname"])
        by_host[name] = [*judged.get(name, []), *host.get("__preflight_problems", [])]
        counted = host.get("__gpus", {})
        if "stdout" in counted:
            refusals = hardware_refusals(host, name, host["ansible_facts"], str(counted["stdout"]))
            by_host[name] += [
                f"{refusal.sentence} [{refusal.kind}]"
                for refusal in refusals
                if standing([refusal], silenced)
            ]
    return by_host


def unfit_hosts(
    problems: Mapping[str, Sequence[str]],
    hosts: Sequence[str],
    vital: Collection[str],
    percent: int,
) -> dict[str, Any]:
    """Which hosts a run leaves out, and whether it may go on without them.

    problems  sentences by host, of those that could be asked (host_refusals)
    hosts     all hosts of the run; those without an entry in `problems` were not reached
    vital     hosts without which a cluster does not work
    percent   of the hosts, at most; one host alone never stops a run (cluster_unfit_percent)

    `stop` has the sentences that stop the run, `unfit` those of each host that is left out, and
    `vital` those of the vital hosts that go on.
    """
    unfit = {host: list(sentences) for host, sentences in problems.items() if sentences}
    away = [host for host in hosts if host not in problems]
    lost = len(unfit) + len(away)
    stop: list[str] = []
    if set(unfit) & set(vital):
        stop = told_once(unfit)
    elif lost > 1 and 100 * lost > percent * len(hosts):
        what = " or ".join(
            [*(["cannot be reached"] if away else []), *(["are refused"] if unfit else [])]
        )
        stop = [
            f"{lost} of {len(hosts)} hosts {what}, which is more than {percent} %: then the fault "
            "is rarely in the hosts. Repair what they have in common, leave them out (--limit "
            "'!NAME'), or allow more with cluster_unfit_percent.",
            *told_once(unfit),
        ]
    return {
        "stop": stop,
        "unfit": {} if stop else unfit,
        "vital": [host for host in vital if host in problems],
    }


def told_once(problems: Mapping[str, Iterable[str]]) -> list[str]:
    """Sentences of all hosts, each once, with the hosts that it does not name itself."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, sentences in problems.items():
        for sentence in sentences:
            hosts[sentence].append(host)
    return [
        sentence
        if len(names) == 1 and re.search(rf"\b{re.escape(names[0])}\b", sentence)
        else f"{compress(names)}: {sentence}"
        for sentence, names in hosts.items()
    ]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "away_refusals": away_refusals,
            "facts_refusal": facts_refusal,
            "host_refusals": host_refusals,
            "powered_down": powered_down,
            "role_refusal": role_refusal,
            "told_once": told_once,
            "unfit_hosts": unfit_hosts,
        }
