"""Limits of a user on a login node: as a site writes them, and as the kernel has them.

A limit is an amount, or a percentage of what the host has. The template of a user's slice writes
them down for systemd.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from playbooks.filter_plugins.verify import verify_row, verify_skipped

Settings = Mapping[str, Any]  # by name, less `login_limits_`; empty is no limit
Node = Mapping[str, Any]  # what the module login_limits_node returns

COMPONENT = "login_limits"
PERIOD_US = 100_000  # the kernel's, of cpu.max
LEAST_MEMORY = 64 << 20  # with less, the login itself is killed
LEAST_CPUS = Decimal("0.01")  # below, systemd and the kernel use another period
NEAR = 0.01

DROP_IN = "systemd/system/user-{}.slice.d/50-plumbline.conf"

AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]{1,2})?)([%KMGT]?)")
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True)
class Limit:
    """What a site may write, and where the kernel has it."""

    file: str
    allowed: str  # what a site can write instead
    least: Decimal | int = 0  # unless it is a percentage
    most: int | None = None
    written: str = "[0-9]+"  # an amount; a percentage is written alike everywhere
    whole: str = ""  # of which number of the host a percentage is one; of none without
    nothing: bool = False  # 0% is a limit

    @property
    def controller(self) -> str:
        return self.file.partition(".")[0]

    def fits(self, text: str) -> bool:
        match = AMOUNT.fullmatch(text)
        if match is None:
            return False
        if match[2] == "%":
            part = Decimal(match[1])
            return bool(self.whole) and part <= 100 and (part > 0 or self.nothing)
        number = amount(text, 0)
        in_range = self.least <= number and (self.most is None or number <= self.most)
        return in_range and re.fullmatch(self.written, text) is not None


SIZE = "[0-9]+[KMGT]?"
MEMORY = Limit(
    "memory.max",
    "a part of the host's memory as 1% to 100%, or to a size of 64M or more",
    LEAST_MEMORY,
    written=SIZE,
    whole="memory",
)
LIMITS = {
    "cpu_quota": Limit(
        "cpu.max",
        "a part of the host's CPUs as 1% to 100%, or to a number of them",
        LEAST_CPUS,
        written=r"[0-9]+(\.[0-9]{1,2})?",
        whole="cpus",
    ),
    "cpu_weight": Limit("cpu.weight", "a number from 1 to 10000", 1, 10_000),
    "memory_high": Limit("memory.high", MEMORY.allowed, MEMORY.least, written=SIZE, whole="memory"),
    "memory_max": MEMORY,
    "memory_swap_max": Limit(
        "memory.swap.max",
        "a part of the host's swap as 0% to 100%, or to a size such as 0 or 4G",
        written=SIZE,
        whole="swap",
        nothing=True,
    ),
    "tasks_max": Limit(
        "pids.max", "a number of 16 or more, or to 1% to 100% of all", 16, whole="tasks"
    ),
    "io_weight": Limit("io.weight", "a number from 1 to 10000", 1, 10_000),
}

CGROUPS = {
    "v1": "cgroup v1",
    "hybrid": "cgroup v1 with v2 beside it (hybrid)",
    "no version": "no cgroups",
}


def amount(text: str, whole: int) -> Decimal:
    """What a limit comes to on a host that has so much in all."""
    match = AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    if match[2] == "%":
        return whole * Decimal(match[1]) / 100
    return Decimal(match[1]) * (1 << UNITS[match[2]])


def limits(settings: Settings) -> dict[str, str]:
    """Those that are set, by their name."""
    texts = {name: str(settings[name]).strip() for name in LIMITS}
    return {name: text for name, text in texts.items() if text}


def declared(settings: Settings) -> bool:
    """Whether there is anything to hold users to."""
    return bool(limits(settings) or settings["remove_ipc"] or settings["kill_user_processes"])


def kernel(settings: Settings, node: Node) -> dict[str, str]:
    """What the files of a user's cgroup say, by the file's name."""
    return {
        LIMITS[name].file: _in_kernel(name, text, node) for name, text in limits(settings).items()
    }


def _in_kernel(name: str, text: str, node: Node) -> str:
    limit = LIMITS[name]
    number = amount(text, node[limit.whole] if limit.whole else 0)
    if limit.file == "cpu.max":
        # systemd reads two decimals of a percentage of one CPU.
        return f"{int(number * 10_000) * (PERIOD_US // 10_000)} {PERIOD_US}"
    step = node["page"] if limit.controller == "memory" else 1
    return str(int(number) // step * step)


def drop_ins(node: Node, text_of_all: str, text_of_exempt: str) -> dict[str, str]:
    """Files by their path below /etc. One of a single user takes the place of that for all."""
    exempt = sorted(uid for uid in node["users"].values() if uid is not None)
    return {DROP_IN.format(""): text_of_all} | {DROP_IN.format(u): text_of_exempt for u in exempt}


# --- what is wrong -------------------------------------------------------------------------------


def problems(settings: Settings) -> list[str]:
    """Sentences on values that can work on no host."""
    texts = limits(settings)
    wrong = [name for name, text in texts.items() if not LIMITS[name].fits(text)]
    if wrong:
        return [
            f"{COMPONENT}: {COMPONENT}_{name} is {texts[name]}; set it to {LIMITS[name].allowed}, "
            "or to nothing for no limit."
            for name in wrong
        ]
    # Of a size and a percentage the host decides.
    memory = [texts.get(name, "") for name in ("memory_high", "memory_max")]
    alike = len({text.endswith("%") for text in memory}) == 1
    return [f"{COMPONENT}: {sentence}" for sentence in _order(texts, 100) if alike]


def _order(texts: Mapping[str, str], memory: int) -> Iterator[str]:
    if not {"memory_high", "memory_max"} <= texts.keys():
        return
    high, most = texts["memory_high"], texts["memory_max"]
    if amount(high, memory) > amount(most, memory):
        yield (
            f"{COMPONENT}_memory_high is {high} and {COMPONENT}_memory_max {most}, so processes "
            "are killed before they are slowed down; set the first below the second."
        )


def host_problems(settings: Settings, node: Node, host: str, exempt: Iterable[str]) -> list[str]:
    """Sentences on what this host cannot have. `settings` has no problem of its own."""
    if not declared(settings):
        return []
    texts = limits(settings)
    if texts and node["cgroup"] != "v2":
        listed = ", ".join(f"{COMPONENT}_{name}" for name in texts)
        return [
            f"{COMPONENT}: {host} has {CGROUPS[node['cgroup']]}, and only v2 holds users "
            "to limits; boot it with systemd.unified_cgroup_hierarchy=1 and no other such option, "
            f"or set {listed} to nothing."
        ]
    return [
        f"{COMPONENT}: {sentence}"
        for sentence in (
            *_missing_controllers(texts, node, host),
            *_cpus(texts, node, host),
            *_memory(texts, node, host),
            *_order(texts, node["memory"]),
            *_operator(node["operator"], host, exempt),
        )
    ]


def _missing_controllers(texts: Mapping[str, str], node: Node, host: str) -> Iterator[str]:
    for controller, name in {LIMITS[name].controller: name for name in texts}.items():
        if controller not in node["controllers"]:
            yield (
                f"the kernel of {host} has no cgroup controller {controller}, which "
                f"{COMPONENT}_{name} needs; boot it without cgroup_disable, or set that to nothing."
            )


def _cpus(texts: Mapping[str, str], node: Node, host: str) -> Iterator[str]:
    text = texts.get("cpu_quota")
    if text is None:
        return
    if amount(text, node["cpus"]) > node["cpus"]:
        yield (
            f"{COMPONENT}_cpu_quota is {text}, and {host} has {node['cpus']} CPUs; "
            "set it to fewer, or to a percentage."
        )
    if amount(text, node["cpus"]) < LEAST_CPUS:
        yield (
            f"{COMPONENT}_cpu_quota is {text}, less than 1% of one of the {node['cpus']} CPUs "
            f"of {host}; set it to more."
        )


def _memory(texts: Mapping[str, str], node: Node, host: str) -> Iterator[str]:
    for name in ("memory_high", "memory_max"):
        number = int(amount(texts[name], node["memory"])) if name in texts else LEAST_MEMORY
        if number > node["memory"]:
            yield (
                f"{COMPONENT}_{name} is {texts[name]}, and {host} has {node['memory'] >> 20}M of "
                "memory; set it to less, or to a percentage."
            )
        elif number < LEAST_MEMORY:
            yield (
                f"{COMPONENT}_{name} is {texts[name]}, on {host} {number >> 20}M, with which "
                "nobody can log in; set it to 64M or more."
            )


def _operator(operator: str, host: str, exempt: Iterable[str]) -> Iterator[str]:
    """A run must not be killed by what it sets."""
    if operator not in {"root", *exempt}:
        yield (
            f"Ansible logs in to {host} as {operator}, whom the limits would hit in the midst of a "
            f"run; add {operator} to {COMPONENT}_exempt."
        )


# --- what is there -------------------------------------------------------------------------------


def same(value: str, expected: str) -> bool:
    """Whether a file says what it should.

    The memory of a virtual machine may have grown or shrunk a little since systemd worked out a
    percentage of it.
    """
    if value == expected:
        return True
    sizes = value.isdecimal() and expected.isdecimal() and int(expected) >= LEAST_MEMORY
    return sizes and abs(int(value) - int(expected)) <= NEAR * int(expected)


def rows(settings: Settings, node: Node, exempt: Iterable[str]) -> list[dict[str, str]]:
    """The verify table's rows. `node` was read with a probe."""
    if node["cgroup"] != "v2" and limits(settings):
        return [verify_row(node["cgroup"], COMPONENT, "cgroup", "v2", "boot with cgroup v2")]
    free = sorted({"root", *exempt})
    return [
        *_probe_rows(settings, node),
        _sessions_row(settings, node, free),
        _exempt_row(node, free),
        *_logind_rows(settings, node, exempt),
    ]


def _probe_rows(settings: Settings, node: Node) -> Iterator[dict[str, str]]:
    expected = kernel(settings, node)
    for file, value in expected.items():
        advice = node["probe_error"] or "apply the role login_limits"
        if file == "io.weight" and not node["probe_error"]:
            advice = "a kernel without iocost has no weights; set login_limits_io_weight to nothing"
        probed = node["probe"].get(file)
        shown = value if same(probed or "", value) else probed
        yield verify_row(shown, COMPONENT, f"{file} of a new session", value, advice)
    if not expected:
        yield verify_skipped(COMPONENT, "limits of a new session", "none are declared")


def _sessions_row(settings: Settings, node: Node, free: Iterable[str]) -> dict[str, str]:
    expected = kernel(settings, node)
    free_uids = {str(node["users"].get(name)) for name in free}
    others = [
        f"user {uid} ({file} {files.get(file, 'missing')})"
        for uid, files in sorted(node["slices"].items(), key=lambda item: int(item[0]))
        if uid not in free_uids
        for file, value in expected.items()
        if not same(files.get(file, ""), value)
    ]
    advice = "run systemctl daemon-reload; what systemctl set-property set for one user wins"
    return verify_row(
        ", ".join(others) or "none", COMPONENT, "sessions with other limits", "none", advice
    )


def _exempt_row(node: Node, names: Iterable[str]) -> dict[str, str]:
    unknown = [name for name in names if node["users"].get(name) is None]
    advice = "apply the role login_limits"
    if unknown:
        advice = (
            f"{', '.join(unknown)}: no such user; make it, or take it out of {COMPONENT}_exempt"
        )
    free = ", ".join(name for name in names if name in node["free"])
    return verify_row(free or "nobody", COMPONENT, "exempt users", ", ".join(names), advice)


def _logind_rows(settings: Settings, node: Node, exempt: Iterable[str]) -> Iterator[dict[str, str]]:
    for name, key in (("remove_ipc", "RemoveIPC"), ("kill_user_processes", "KillUserProcesses")):
        expected = "yes" if settings[name] else "no"
        advice = "run systemctl restart systemd-logind"
        yield verify_row(node["logind"].get(key), COMPONENT, f"{key} of logind", expected, advice)
    if settings["linger"]:
        yield verify_skipped(COMPONENT, "users who linger", "they may, login_limits_linger is true")
    else:
        users = ", ".join(lingering(node, exempt)) or "none"
        advice = "run loginctl disable-linger for each of them"
        yield verify_row(users, COMPONENT, "users who linger", "none", advice)


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
            "login_limits_kernel": kernel,
            "login_limits_drop_ins": drop_ins,
            "login_limits_lingering": lingering,
            "login_limits_rows": rows,
        }
