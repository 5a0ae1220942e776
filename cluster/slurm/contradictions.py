"""Settings of slurm.conf that do not go with one another: most of them end a daemon.

From _validate_and_set_defaults and the parsers of single values (src/common/read_config.c), and
what slurmctld and slurmd end for when they start, in 22.05 to 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from cluster.slurm.key_problems import Place, nowhere
from cluster.slurm.keys import entries
from cluster.slurm.settings import NOWHERE

# Each implies that processes outside of steps are contained (prolog_str2flags).
CONTAINING = ("contain", "x11", "runinjob")
CONSUMED = (
    "cr_socket", "cr_socket_memory", "cr_core", "cr_core_memory", "cr_memory", "cr_cpu",
    "cr_cpu_memory",
)  # fmt: skip

# (key, word, words that do not go with it)
NOT_TOGETHER: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("PrologFlags", "NoHold", CONTAINING),
    ("PrologFlags", "Serial", ("runinjob",)),
    ("LaunchParameters", "enable_nss_slurm", ("disable_send_gids",)),
    ("JobAcctGatherParams", "UsePss", ("noshared",)),
    ("TaskPluginParam", "SlurmdOffSpec", ("slurmdspecoverride",)),
    ("SlurmdParameters", "l3cache_as_socket", ("numa_node_as_socket",)),
)
# (key, words of which a value has at most one)
ONE_OF: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("SelectTypeParameters", CONSUMED),
    ("TaskPluginParam", ("none", "sockets", "cores", "threads")),
)
ALONE = (("HealthCheckNodeState", ("start_only", "reboot_only")),)
# (key, word, or "" for any but none; key and words of which it needs one, the first for a site)
NEEDS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("JobContainerType", "", "PrologFlags", ("Contain", "X11", "RunInJob")),
    ("NamespaceType", "", "PrologFlags", ("Contain", "X11", "RunInJob")),
    ("SlurmctldParameters", "enable_stepmgr", "PrologFlags", ("Contain", "X11", "RunInJob")),
    ("CommunicationParameters", "DisableIPv4", "CommunicationParameters", ("EnableIPv6",)),
    ("PreemptMode", "SUSPEND", "PreemptMode", ("GANG",)),
    ("TaskPluginParam", "OOMKillStep", "TaskPlugin", ("task/cgroup", "cgroup")),
    ("TaskPluginParam", "SlurmdSpecOverride", "TaskPlugin", ("task/cgroup", "cgroup")),
)
# Keys of one line, of which Slurm takes the first and is silent about the second.
ONE_KEY_OF = (
    ("CoreSpecCount", "CPUSpecList"),
    ("AllowAccounts", "DenyAccounts"),
    ("AllowQos", "DenyQos"),
    ("MaxMemPerCPU", "MaxMemPerNode"),
    ("DefMemPerCPU", "DefMemPerNode"),
    ("ExclusiveUser", "ExclusiveTopo"),
)


Hosts = Mapping[str, Collection[str]]


def contradictions(
    settings: Mapping[str, Any],
    site: Mapping[str, Any] = NOWHERE,
    place: Place = nowhere,
    hosts: Hosts | None = None,
) -> list[str]:
    """What does not go together in slurm.conf, as sentences, each of which begins with a key.

    settings: of the role, its components and the site together, name to value
    site: what the site sets of them, for the place that a sentence names
    hosts: of a port's daemon, key to names; a key that it lacks counts as on every host
    """
    written = {str(name).lower(): place(value) for name, value in site.items()}
    return [
        f"{key}{written.get(key.lower(), '')} {rest}"
        for sentence in _contradictions(settings, hosts or {})
        for key, _, rest in [sentence.partition(" ")]
    ]


def _contradictions(settings: Mapping[str, Any], hosts: Hosts) -> list[str]:
    of = {str(name).lower(): entries(value) for name, value in settings.items()}
    return [
        *_words(of),
        *_preemption(of),
        *_priority(of),
        *_numbers(of),
        *_ports(of, hosts),
        *one_key_of(settings, "slurm_settings"),
    ]


def one_key_of(settings: Mapping[str, Any], where: str) -> Iterator[str]:
    """Keys of which only one is read, in the settings of a node, a partition, or all."""
    names = {str(name).lower(): name for name, value in settings.items() if entries(value)}
    for first, second in ONE_KEY_OF:
        if first.lower() in names and second.lower() in names:
            yield f"{where} has {first} and {second}, and Slurm reads only one; remove the other."


Words = Mapping[str, list[str]]  # name in lower case -> entries


def _lower(of: Words, key: str) -> list[str]:
    return [entry.lower() for entry in of.get(key.lower(), ())]


def _shown(of: Words, key: str) -> str:
    return ",".join(of.get(key.lower(), ())) or "not set"


def _words(of: Words) -> Iterator[str]:
    for key, word, others in NOT_TOGETHER:
        have = _lower(of, key)
        if word.lower() in have and (with_ := _spelt(of, key, others)):
            yield (
                f"{key} is {_shown(of, key)}; remove {word} or {with_[0]} in slurm_settings.{key}."
            )
    for key, words in ONE_OF:
        if len(several := _spelt(of, key, words)) > 1:
            yield (
                f"{key} is {_shown(of, key)}; leave one of {' and '.join(several)} in "
                f"slurm_settings.{key}."
            )
    for key, words in ALONE:
        if (matches := _spelt(of, key, words)) and len(_lower(of, key)) > 1:
            yield f"{key} is {_shown(of, key)}; {matches[0]} stands alone in slurm_settings.{key}."
    for key, word, needed, words in NEEDS:
        have = _lower(of, key)
        is_set = word.lower() in have if word else any(not _is_none(entry) for entry in have)
        if is_set and not _spelt(of, needed, words):
            yield (
                f"{key} is {_shown(of, key)}, which needs {words[0]} in {needed}, and that is "
                f"{_shown(of, needed)}; add {words[0]} to slurm_settings.{needed}."
            )
    if "x11" in _lower(of, "PrologFlags") and "proctrack/linuxproc" in _lower(of, "ProctrackType"):
        yield (
            "PrologFlags has X11, and ProctrackType is proctrack/linuxproc, which contains no "
            "processes; remove X11 in slurm_settings.PrologFlags, or set slurm_constrain to true."
        )


def _spelt(of: Words, key: str, words: Iterable[str]) -> list[str]:
    wanted = {word.lower() for word in words}
    return [entry for entry in of.get(key.lower(), ()) if entry.lower() in wanted]


def _is_none(entry: str) -> bool:
    return entry.lower().rpartition("/")[2] == "none"


def _preemption(of: Words) -> Iterator[str]:
    mode = [entry for entry in _lower(of, "PreemptMode") if entry != "gang"]
    off = all(entry == "off" for entry in mode)
    by = [entry for entry in _lower(of, "PreemptType") if not _is_none(entry)]
    if by and off:
        yield (
            f"PreemptType is {by[0]}, and PreemptMode is {_shown(of, 'PreemptMode')}; set "
            "slurm_settings.PreemptMode to what becomes of such a job, as REQUEUE."
        )
    if not by and not off:
        yield (
            f"PreemptMode is {_shown(of, 'PreemptMode')}, and PreemptType is "
            f"{_shown(of, 'PreemptType')}; set slurm_settings.PreemptType to preempt/qos or "
            "preempt/partition_prio."
        )


def _priority(of: Words) -> Iterator[str]:
    half_life = "".join(of.get("prioritydecayhalflife", ()))
    never = half_life[:1].isdigit() and not re.search("[1-9]", half_life)
    if never and _lower(of, "PriorityUsageResetPeriod") in ([], ["none"]):
        yield (
            f"PriorityDecayHalfLife is {half_life}, and nothing forgets what was used; set "
            "slurm_settings.PriorityUsageResetPeriod, as MONTHLY."
        )


def _numbers(of: Words) -> Iterator[str]:
    first, last = _number(of, "FirstJobId"), _number(of, "MaxJobId")
    if first is not None and last is not None and first > last:
        yield (
            f"FirstJobId is {first}, and MaxJobId is {last}; set slurm_settings.FirstJobId to "
            "less than MaxJobId."
        )
    if _number(of, "SlurmSchedLogLevel") and not of.get("slurmschedlogfile"):
        yield (
            f"SlurmSchedLogLevel is {_shown(of, 'SlurmSchedLogLevel')}, and there is no file for "
            "it; set slurm_settings.SlurmSchedLogFile."
        )


def _number(of: Words, key: str) -> int | None:
    value = "".join(of.get(key.lower(), ()))
    return int(value) if value.isdigit() else None


PORTS = {"SlurmctldPort": "6817", "SlurmdPort": "6818"}  # the others' are said


def _ports(of: Words, hosts: Hosts) -> Iterator[str]:
    """Daemons that would listen on one port, which they cannot on a host that has both."""
    taken: dict[str, tuple[int, int]] = {}
    port = "".join(of.get("accountingstorageport", ())) or "6819"
    if of.get("accountingstoragehost") and not (port.isdigit() and 1 <= int(port) <= 65535):
        yield f"slurm_database_port is {port}; set a port from 1 to 65535."
    for key in (*PORTS, "AccountingStoragePort", "SrunPortRange"):
        value = "".join(of.get(key.lower(), ())) or PORTS.get(key, "")
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
        if not match:
            continue
        low, high = int(match[1]), int(match[2] or match[1])
        for other, (first, last) in taken.items():
            if low <= last and first <= high and _meet(hosts, key, other):
                yield f"{key} is {value}, and {other} is {_range(first, last)}; {_apart(key)}."
        taken[key] = (low, high)


def _meet(hosts: Hosts, key: str, other: str) -> bool:
    """Whether a host may have the daemons of both keys."""
    return key not in hosts or other not in hosts or not set(hosts[key]).isdisjoint(hosts[other])


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _apart(key: str) -> str:
    if key == "AccountingStoragePort":
        return "set slurm_database_port to another port"
    return f"set slurm_settings.{key} to ports of its own"
