"""What firmware the boards of all nodes have, as a table, and which of them differs from its like.

Alike are parts of one model: GPUs of one name, network cards of one board (PSID), servers of one
product. What most of them have is taken for the right one, as the validation's check `alike` does.
Each host's answers are in its variables; see playbooks/describe-firmware.yml.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.hostlist import compress
from cluster.majority import most
from playbooks.callback_plugins.summary import failure_words, unreachable_words
from playbooks.filter_plugins.verify_table import aligned

Host = Mapping[str, Any]  # a host's variables

HEADINGS = ("WHAT", "MODEL", "FIRMWARE", "PARTS", "NODES", "")
WIDTHS = (14, 40, 30, 5, 40, 9)
_OF_GPUS = {"vbios": "VBIOS", "inforom": "InfoROM"}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a node with firmware; `where` says which, if there may be several."""

    host: str
    what: str
    model: str
    version: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Silent:
    """What did not tell its firmware, and why."""

    host: str
    why: str


def read(host: Host) -> Iterator[Part | Silent]:
    """What a host answered."""
    name = str(host["inventory_hostname"])
    asked = host.get("__firmware_board") or {"msg": "it was not reached in this run"}
    if asked.get("unreachable") or "stdout" not in asked:
        yield Silent(
            name, (unreachable_words if asked.get("unreachable") else failure_words)(asked)
        )
        return
    yield _board(name, str(asked["stdout"]))
    yield from _gpus(name, host.get("__firmware_gpus") or {})
    yield from _cards(name, host.get("__firmware_cards") or {})


def _board(host: str, output: str) -> Part | Silent:
    """Of lines such as /sys/class/dmi/id/bios_version:2.1."""
    lines = [line.partition(":") for line in output.splitlines()]
    told = {path.rpartition("/")[2]: text.strip() for path, _, text in lines}
    if "bios_version" not in told:
        return Silent(host, "the kernel does not tell the version of the BIOS")
    model = " ".join(told[key] for key in ("sys_vendor", "product_name") if key in told)
    version = told["bios_version"] + (f" ({told['bios_date']})" if "bios_date" in told else "")
    return Part(host, "BIOS", model or "unknown", version)


def _gpus(host: str, answer: Mapping[str, Any]) -> Iterator[Part | Silent]:
    if answer.get("skipped"):
        return
    if answer.get("error") or "gpus" not in answer:
        yield Silent(host, f"NVML does not answer: {answer.get('error') or failure_words(answer)}")
        return
    for gpu in answer["gpus"]:
        where = f"GPU {gpu['index']}"
        values = gpu["values"] or {}
        if gpu["error"] or not values.get("name"):
            yield Silent(host, f"{where} does not answer: {gpu['error'] or 'it has no name'}")
            continue
        for key, what in _OF_GPUS.items():
            if values.get(key):  # not all boards have an InfoROM
                yield Part(host, what, values["name"], values[key], where)


def _cards(host: str, answer: Mapping[str, Any]) -> Iterator[Part | Silent]:
    if answer.get("error") or "ports" not in answer:
        yield Silent(host, f"network cards: {answer.get('error') or failure_words(answer)}")
        return
    cards = {port["device"]: port for port in answer["ports"]}
    for device, port in cards.items():
        if port["firmware"] and port["board"]:  # a device of software has none
            yield Part(host, "network card", port["board"], port["firmware"], device)


def firmware_table(hosts: Iterable[Host]) -> str:
    """The table, what differs, and who did not tell. Raises ValueError without any host."""
    told = [item for host in hosts for item in read(host)]
    if not told:
        raise ValueError("no node was asked")
    parts = [item for item in told if isinstance(item, Part)]
    silent = [item for item in told if isinstance(item, Silent)]
    kinds: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        kinds.setdefault((part.what, part.model), []).append(part)
    rows = [row for kind in sorted(kinds) for row in _rows(kind, kinds[kind])]
    differs = [line for kind in sorted(kinds) for line in _differing(kinds[kind])]
    lines = [*aligned([HEADINGS, *rows], WIDTHS)]
    lines += ["", "Other firmware than their like have:", *differs] if differs else []
    lines += ["", "Not told:", *_not_told(silent)] if silent else []
    if not differs:
        lines += ["", "Parts of one model have the same firmware."] if parts else []
    return "\n".join(lines)


def _rows(kind: tuple[str, str], parts: list[Part]) -> Iterator[tuple[str, ...]]:
    """A row for each version, that of most first."""
    counts = Counter(part.version for part in parts)
    common = most([part.version for part in parts])
    for version, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        nodes = dict.fromkeys(part.host for part in parts if part.version == version)
        mark = "differs" if len(counts) > 1 and version != common else ""
        yield (*kind, version, str(count), compress(nodes), mark)


def _differing(parts: list[Part]) -> Iterator[str]:
    """A sentence for each part that differs, or one for all where no version is that of most."""
    values = [part.version for part in parts]
    common, first = most(values), parts[0]
    if common is None:
        versions = ", ".join(sorted(set(values)))
        if len(set(values)) > 1:
            yield (
                f"  {first.what} of {first.model}: {versions}; which is right is not known, for no "
                "version is that of most."
            )
        return
    for part in parts:
        if part.version != common:
            where = f" of {part.where}" if part.where else ""
            yield (
                f"  {part.host}: {part.what}{where} ({part.model}) is {part.version}; "
                f"{values.count(common)} of {len(values)} have {common}."
            )


def _not_told(silent: Iterable[Silent]) -> Iterator[str]:
    hosts: dict[str, list[str]] = {}
    for item in silent:
        hosts.setdefault(item.why, []).append(item.host)
    for why, names in hosts.items():
        yield f"  {compress(names)}: {why.rstrip('.')}."


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"firmware_table": firmware_table}
