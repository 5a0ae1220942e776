"""Limits of a user on a login node: as a site writes them, as systemd and as the kernel have them.

A limit is an amount, or a percentage of the host. systemd counts CPUQuota= in percent of one CPU,
so a percentage of all of them needs their number; percentages of memory it works out itself, at
each boot anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from playbooks.filter_plugins.verify import verify_row, verify_skipped

Settings = Mapping[str, Any]  # by name, less `login_limits_`; empty is no limit
Node = Mapping[str, Any]  # what the module login_limits_node returns

COMPONENT = "login_limits"
PERIOD_US = 100_000  # the kernel's, of cpu.max
LEAST_MEMORY = 64 << 20  # with less, the login itself is killed
LEAST_TASKS = 16
LEAST_CPU = Decimal(1)  # percent of one CPU: below, systemd and the kernel use another period
WEIGHTS = range(1, 10_001)
NONE = "max"  # the kernel's word for no limit
NEAR = 0.01

PERCENT = re.compile(r"(\d+(?:\.\d\d?)?)%")
CPUS = re.compile(r"\d+(?:\.\d\d?)?")
SIZE = re.compile(r"(\d+)([KMGT]?)")
COUNT = re.compile(r"\d+")
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}

DROP_IN = "/etc/systemd/system/user-{}.slice.d/50-plumbline.conf"

MEMORY = {"memory_high": "MemoryHigh", "memory_max": "MemoryMax"}
WEIGHT = {"cpu_weight": "CPUWeight", "io_weight": "IOWeight"}

CGROUPS = {
    "v1": "cgroup v1",
    "hybrid": "cgroup v1 with v2 beside it (hybrid)",
    "no version": "no cgroups",
}

ADVICE = {
    "io.weight": "a kernel without iocost has no weights; set login_limits_io_weight to nothing",
}

# What the kernel must have for a limit.
CONTROLLERS = {
    "cpu_quota": "cpu",
    "cpu_weight": "cpu",
    "memory_high": "memory",
    "memory_max": "memory",
    "memory_swap_max": "memory",
    "tasks_max": "pids",
    "io_weight": "io",
}


def given(settings: Settings, name: str) -> str:
    return str(settings[name]).strip()


def percent(text: str) -> Decimal | None:
    """The number before a `%`; None for what is no percentage."""
    found = PERCENT.fullmatch(text)
    return Decimal(found[1]) if found else None


def size(text: str) -> int | None:
    """Bytes; None for what is no size."""
    found = SIZE.fullmatch(text)
    return int(found[1]) << UNITS[found[2]] if found else None


def declared(settings: Settings) -> bool:
    """Whether there is anything to hold users to."""
    return _limited(settings) or settings["remove_ipc"] or settings["kill_user_processes"]


def _limited(settings: Settings) -> bool:
    return any(given(settings, name) for name in CONTROLLERS)


def cpu_percent(text: str, node: Node) -> Decimal:
    """Percent of one CPU, with the two decimals that systemd reads."""
    part = percent(text)
    of_one = part * node["cpus"] if part is not None else Decimal(text) * 100
    return of_one.quantize(Decimal("0.01"), rounding="ROUND_DOWN")


def part_of(text: str, whole: int, unit: int = 1) -> int:
    """An amount as a number, rounded down to a multiple of `unit`."""
    part = percent(text)
    number = int(whole * part / 100) if part is not None else size(text) or 0
    return number // unit * unit


# --- what is wrong -------------------------------------------------------------------------------


def problems(settings: Settings) -> list[str]:
    """Sentences on values that can work on no host."""
    return [
        f"{COMPONENT}: {COMPONENT}_{name} is {given(settings, name)}; "
        f"set it to {wanted}, or to nothing for no limit."
        for name, wanted in _wrong(settings)
    ] + _order(settings)


def _wrong(settings: Settings) -> Iterator[tuple[str, str]]:
    """(setting, what it can be instead)"""
    for name in CONTROLLERS:
        text = given(settings, name)
        part = percent(text)
        wrong = part is not None and not 0 < part <= 100
        if not text:
            continue
        if name == "cpu_quota":
            cpus = CPUS.fullmatch(text)
            if wrong or (part is None and (not cpus or Decimal(text) * 100 < LEAST_CPU)):
                yield (
                    name,
                    "a part of the host's CPUs as 1% to 100%, or to a number of them",
                )
        elif name in MEMORY:
            if wrong or (part is None and (size(text) or 0) < LEAST_MEMORY):
                yield name, "a part of the host's memory as 1% to 100%, or to a size of 64M or more"
        elif name == "memory_swap_max":
            if (part is not None and part > 100) or (part is None and size(text) is None):
                yield name, "a part of the host's swap as 0% to 100%, or to a size such as 0 or 4G"
        elif name == "tasks_max":
            if wrong or (part is None and not _is_count(text, LEAST_TASKS)):
                yield (
                    name,
                    f"a number of {LEAST_TASKS} or more, or to 1% to 100% of all",
                )
        elif not COUNT.fullmatch(text) or int(text) not in WEIGHTS:
            yield name, "a number from 1 to 10000"


def _is_count(text: str, least: int) -> bool:
    return COUNT.fullmatch(text) is not None and int(text) >= least


def _order(settings: Settings) -> list[str]:
    """High above max, where both are written alike; the others need the host's memory."""
    high, most = given(settings, "memory_high"), given(settings, "memory_max")
    for read in (percent, size):
        one, other = read(high), read(most)
        if one is not None and other is not None and one > other:
            return [_above(high, most)]
    return []


def _above(high: str, most: str) -> str:
    return (
        f"{COMPONENT}: {COMPONENT}_memory_high is {high} and {COMPONENT}_memory_max {most}, so "
        "processes are killed before they are slowed down; set the first below the second."
    )


def host_problems(settings: Settings, node: Node, host: str, exempt: Iterable[str]) -> list[str]:
    """Sentences on what this host cannot have. `settings` has no problem of its own."""
    if not declared(settings):
        return []
    if node["cgroup"] != "v2" and _limited(settings):
        return [
            f"{COMPONENT}: {host} has {CGROUPS[node['cgroup']]}, and only v2 holds users "
            "to limits; boot it with systemd.unified_cgroup_hierarchy=1 and no other such option, "
            f"or set {_listed(settings)} to nothing."
        ]
    return [
        f"{COMPONENT}: {sentence}"
        for sentence in (
            *_missing_controllers(settings, node, host),
            *_more_than_there_is(settings, node, host),
            *_operator(node, host, exempt),
        )
    ]


def _listed(settings: Settings) -> str:
    return ", ".join(f"{COMPONENT}_{name}" for name in CONTROLLERS if given(settings, name))


def _missing_controllers(settings: Settings, node: Node, host: str) -> Iterator[str]:
    wanted = {CONTROLLERS[name]: name for name in CONTROLLERS if given(settings, name)}
    for controller, name in wanted.items():
        if controller not in node["controllers"]:
            yield (
                f"the kernel of {host} has no cgroup controller {controller}, which "
                f"{COMPONENT}_{name} needs; boot it without cgroup_disable, or set that to nothing."
            )


def _more_than_there_is(settings: Settings, node: Node, host: str) -> Iterator[str]:
    cpu = given(settings, "cpu_quota")
    if cpu:
        of_one = cpu_percent(cpu, node)
        if of_one > 100 * node["cpus"]:
            yield (
                f"{COMPONENT}_cpu_quota is {cpu}, and {host} has {node['cpus']} CPUs; "
                "set it to fewer, or to a percentage."
            )
        if of_one < LEAST_CPU:
            yield (
                f"{COMPONENT}_cpu_quota is {cpu}, less than 1% of one of the {node['cpus']} CPUs "
                f"of {host}; set it to more."
            )
    for name in MEMORY:
        text = given(settings, name)
        amount = part_of(text, node["memory"]) if text else LEAST_MEMORY
        if amount > node["memory"]:
            yield (
                f"{COMPONENT}_{name} is {text}, and {host} has {node['memory'] >> 20}M of memory; "
                "set it to less, or to a percentage."
            )
        elif amount < LEAST_MEMORY:
            yield (
                f"{COMPONENT}_{name} is {text}, on {host} {amount >> 20}M, with which nobody can "
                "log in; set it to 64M or more."
            )
    high, most = given(settings, "memory_high"), given(settings, "memory_max")
    if high and most and part_of(high, node["memory"]) > part_of(most, node["memory"]):
        yield _above(high, most).removeprefix(f"{COMPONENT}: ")


def _operator(node: Node, host: str, exempt: Iterable[str]) -> Iterator[str]:
    """A run must not be killed by what it sets."""
    operator = node["operator"]
    if operator not in {"root", *exempt}:
        yield (
            f"Ansible logs in to {host} as {operator}, whom the limits would hit in the midst of a "
            f"run; add {operator} to {COMPONENT}_exempt."
        )


# --- as systemd has them -------------------------------------------------------------------------


def lines(settings: Settings, node: Node) -> list[str]:
    """The settings of a user's slice."""
    found = []
    if text := given(settings, "cpu_quota"):
        found.append(f"CPUQuota={_plain(cpu_percent(text, node))}%")
    for name, key in WEIGHT.items():
        if text := given(settings, name):
            found.append(f"{key}={text}")
    for name, key in MEMORY.items():
        if text := given(settings, name):
            found.append(f"{key}={text}")
    if text := given(settings, "memory_swap_max"):
        # Of what systemd would take a percentage differs from release to release.
        found.append(f"MemorySwapMax={part_of(text, node['swap'], node['page'])}")
    if text := given(settings, "tasks_max"):
        found.append(f"TasksMax={part_of(text, node['tasks'])}")
    return found


def _plain(number: Decimal) -> str:
    return f"{number:f}".rstrip("0").rstrip(".") if "." in f"{number:f}" else f"{number:f}"


def drop_ins(node: Node, text_of_all: str, text_of_exempt: str) -> dict[str, str]:
    """Files by their path. One of a single user takes the place of that for all, by its name."""
    exempt = sorted(uid for uid in node["users"].values() if uid is not None)
    free = {DROP_IN.format(uid): text_of_exempt for uid in exempt}
    return {DROP_IN.format(""): text_of_all, **free}


# --- as the kernel has them ----------------------------------------------------------------------


def kernel(settings: Settings, node: Node) -> dict[str, str]:
    """What the files of a user's cgroup say, by the file's name."""
    found = {}
    if text := given(settings, "cpu_quota"):
        found["cpu.max"] = f"{int(cpu_percent(text, node) * PERIOD_US / 100)} {PERIOD_US}"
    if text := given(settings, "cpu_weight"):
        found["cpu.weight"] = text
    for name, file in (("memory_high", "memory.high"), ("memory_max", "memory.max")):
        if text := given(settings, name):
            found[file] = str(part_of(text, node["memory"], node["page"]))
    if text := given(settings, "memory_swap_max"):
        found["memory.swap.max"] = str(part_of(text, node["swap"], node["page"]))
    if text := given(settings, "tasks_max"):
        found["pids.max"] = str(part_of(text, node["tasks"]))
    if text := given(settings, "io_weight"):
        found["io.weight"] = text
    return found


def same(found: str, expected: str) -> bool:
    """Whether a file says what it should.

    The memory of a virtual machine may have grown or shrunk a little since systemd worked out a
    percentage of it.
    """
    if found == expected:
        return True
    both = found.isdecimal() and expected.isdecimal() and int(expected) >= LEAST_MEMORY
    return both and abs(int(found) - int(expected)) <= NEAR * int(expected)


def rows(settings: Settings, node: Node, exempt: Iterable[str]) -> list[dict[str, str]]:
    """The verify table's rows. `node` was read with a probe."""
    if node["cgroup"] != "v2" and _limited(settings):
        return [verify_row(node["cgroup"], COMPONENT, "cgroup", "v2", "boot with cgroup v2")]
    return [
        *_probe_rows(settings, node),
        _running_row(settings, node, exempt),
        _exempt_row(node, exempt),
        *_logind_rows(settings, node, exempt),
    ]


def _probe_rows(settings: Settings, node: Node) -> Iterator[dict[str, str]]:
    expected = kernel(settings, node)
    for file, value in expected.items():
        advice = node["probe_error"] or ADVICE.get(file, "apply the role login_limits")
        found = node["probe"].get(file)
        shown = value if found is not None and same(found, value) else found
        yield verify_row(shown, COMPONENT, f"{file} of a new session", value, advice)
    if not expected:
        yield verify_skipped(COMPONENT, "limits of a new session", "none are declared")


def _running_row(settings: Settings, node: Node, exempt: Iterable[str]) -> dict[str, str]:
    expected = kernel(settings, node)
    free = {node["users"].get(name) for name in ("root", *exempt)}
    others = [
        f"user {uid} ({file} {files.get(file, 'missing')})"
        for uid, files in sorted(node["slices"].items(), key=lambda one: int(one[0]))
        if int(uid) not in free
        for file, value in expected.items()
        if not same(files.get(file, ""), value)
    ]
    found = ", ".join(others) or "none"
    advice = "run systemctl daemon-reload; what systemctl set-property set for one user wins"
    return verify_row(found, COMPONENT, "sessions with other limits", "none", advice)


def _exempt_row(node: Node, exempt: Iterable[str]) -> dict[str, str]:
    names = sorted({"root", *exempt})
    unknown = [name for name in names if node["users"].get(name) is None]
    free = [name for name in names if name in node["free"]]
    found = ", ".join(free) or "nobody"
    advice = (
        f"{', '.join(unknown)}: no such user; make it, or take it out of {COMPONENT}_exempt"
        if unknown
        else "apply the role login_limits"
    )
    return verify_row(found, COMPONENT, "exempt users", ", ".join(names), advice)


def _logind_rows(settings: Settings, node: Node, exempt: Iterable[str]) -> Iterator[dict[str, str]]:
    for name, key in (("remove_ipc", "RemoveIPC"), ("kill_user_processes", "KillUserProcesses")):
        expected = "yes" if settings[name] else "no"
        advice = "run systemctl restart systemd-logind"
        yield verify_row(node["logind"].get(key), COMPONENT, f"{key} of logind", expected, advice)
    if settings["linger"]:
        yield verify_skipped(COMPONENT, "users who linger", "they may, login_limits_linger is true")
    else:
        found = ", ".join(lingering(node, exempt)) or "none"
        advice = "run loginctl disable-linger for each of them"
        yield verify_row(found, COMPONENT, "users who linger", "none", advice)


def lingering(node: Node, exempt: Iterable[str]) -> list[str]:
    """Who may keep processes without a session and should not."""
    return sorted(set(node["linger"]) - {"root", *exempt})


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "login_limits_problems": problems,
            "login_limits_declared": declared,
            "login_limits_host_problems": host_problems,
            "login_limits_lines": lines,
            "login_limits_drop_ins": drop_ins,
            "login_limits_lingering": lingering,
            "login_limits_rows": rows,
        }
