"""The rules of a host as text for nft, and what is wrong with what a site says of them."""

from __future__ import annotations

import ipaddress
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

TABLE = "plumbline"
ANYWHERE = "anywhere"
ANY_PORT = "1024-65535"  # what a program gets that does not say which port it wants
PROTOCOLS = ("tcp", "udp")
# Words whose hosts are compute nodes among others: firewall_node_networks counts as these.
OF_NODES = frozenset({"cluster", "slurm", "compute"})
PORT = re.compile(r"any|[0-9]+(-[0-9]+)?")
INTERFACE = re.compile(r"[A-Za-z0-9_.:-]+\*?")

Ranges = list[tuple[int, int]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(text: str) -> list[Network]:
    """The networks that an entry of a `from` means. Raises ValueError where it is none."""
    if text == ANYWHERE:
        return [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
    return [ipaddress.ip_network(text, strict=False)]


def _ranges(text: str) -> tuple[int, int]:
    """First and last port. Raises ValueError."""
    if not PORT.fullmatch(text):
        raise ValueError(text)
    first, _, last = (ANY_PORT if text == "any" else text).partition("-")
    low, high = int(first), int(last or first)
    if not 1 <= low <= high <= 65535:
        raise ValueError(text)
    return low, high


def _merged(ranges: Ranges) -> str:
    """Ports as nft writes them; it refuses a set whose ranges overlap."""
    merged: Ranges = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in merged)


# --- what is wrong -------------------------------------------------------------------------------


def firewall_problems(
    allow: Sequence[Mapping[str, Any]],
    peers: Mapping[str, Sequence[str]],
    sources: Mapping[str, Sequence[str]],
    interfaces: Sequence[str],
) -> list[str]:
    """A sentence for each thing that cannot be made a rule. `sources`: addresses, by variable."""
    problems = []
    for name, texts in sources.items():
        for text in texts:
            if problem := _address_problem(str(text)):
                problems.append(f"{name} has {text!r}, {problem}")
    for name in interfaces:
        if not INTERFACE.fullmatch(str(name)):
            problems.append(
                f"firewall_trusted_interfaces has {name!r}, which is no name of an interface; set "
                "one such as ib0, or ib* for all whose names begin so"
            )
    for number, entry in enumerate(allow):
        problems += [f"firewall_allow[{number}] {text}" for text in _wrong(entry, peers)]
    return problems


def _address_problem(text: str) -> str:
    try:
        _networks(text)
    except ValueError:
        return (
            "which is no address and no network; set addresses such as 192.0.2.1, networks such as "
            f"192.0.2.0/24, or {ANYWHERE}"
        )
    return ""


def _wrong(entry: Mapping[str, Any], peers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    protocol, port = str(entry.get("protocol", "tcp")), entry.get("port")
    if protocol == "any" and port is not None:
        yield "has a port and protocol any; set protocol to tcp or udp, or remove the port"
    if protocol != "any":
        if port is None:
            yield "has no port; set one, as port: 8080, or protocol: any to let in everything"
        else:
            try:
                _ranges(str(port))
            except ValueError:
                yield f"has the port {port}; set a number from 1 to 65535, a range, or any"
    known = {*peers, "people", "operators"}
    for text in entry.get("from") or []:
        if str(text) not in known and _address_problem(str(text)):
            yield (
                f"lets in {text!r}, which is no address and no network and none of "
                f"{', '.join(sorted({ANYWHERE, *known}))}"
            )
    if not entry.get("from"):
        yield f"says not from where; set from, as from: [192.0.2.0/24] or from: [{ANYWHERE}]"


def firewall_others(answer: str) -> list[str]:
    """Other firewalls of a host, by what `systemctl is-active firewalld; nft -j list chains` say.

    Where one drops a packet, it matters no more that ours lets it in.
    """
    first, _, rest = answer.partition("\n")
    others = ["firewalld"] if first.strip() == "active" else []
    document = json.loads(rest) if rest.strip() else {"nftables": []}
    for item in document["nftables"]:
        chain = item.get("chain", {})
        ours = (chain.get("family"), chain.get("table")) == ("inet", TABLE)
        if chain.get("hook") == "input" and chain.get("policy") == "drop" and not ours:
            family, table, name = (chain[key] for key in ("family", "table", "name"))
            others.append(f"chain {name} of table {family} {table}")
    return others


# --- the rules -----------------------------------------------------------------------------------


def firewall_rules(
    ports: Sequence[Mapping[str, Any]],
    peers: Mapping[str, Sequence[str]],
    allow: Sequence[Mapping[str, Any]] = (),
    *,
    people: Sequence[str] = (),
    operators: Sequence[str] = (),
    nodes: Sequence[str] = (),
    ssh_ports: Sequence[Any] = (),
    interfaces: Sequence[str] = (),
    managed: str = "",
) -> str:
    """The text for nft: one table, replaced whole.

    There is a rule for each word of a `from` and each protocol, and a set for its addresses, so
    that a change of nodes changes sets alone.
    """
    known = {
        **{
            word: [*addresses, *(nodes if word in OF_NODES else ())]
            for word, addresses in peers.items()
        },
        "people": people,
        "operators": operators,
    }
    operators_door = [{"port": port, "from": ["operators"]} for port in ssh_ports]
    opened: dict[tuple[str, str], Ranges] = defaultdict(list)
    all_of: list[str] = []
    for entry in (*operators_door, *ports, *allow):
        protocol = str(entry.get("protocol", "tcp"))
        for text in map(str, entry["from"]):
            if protocol == "any":
                all_of.append(text)
                continue
            try:
                opened[text, protocol].append(_ranges(str(entry["port"])))
            except ValueError:
                raise AnsibleFilterError(f"firewall: {entry['port']!r} is no port") from None
    wanted = dict.fromkeys([*all_of, *(text for text, _ in opened)])
    sources = {text: _source(text, known, number) for number, text in enumerate(wanted)}
    rules = [f"{match}accept" for text in dict.fromkeys(all_of) for match in sources[text].matches]
    for (text, protocol), ranges in opened.items():
        dports = f"{protocol} dport {{ {_merged(ranges)} }} accept"
        rules += [f"{match}{dports}" for match in sources[text].matches]
    sets = [line for text in wanted for line in sources[text].sets]
    return "\n".join(
        [
            *(f"# {line}" for line in managed.splitlines()),
            f"table inet {TABLE}",
            f"delete table inet {TABLE}",
            f"table inet {TABLE} {{",
            *sets,
            "\tchain input {",
            "\t\ttype filter hook input priority filter; policy drop;",
            "\t\tct state established,related accept",
            '\t\tiif "lo" accept',
            "\t\tmeta l4proto { icmp, igmp, ipv6-icmp } accept",
            "\t\tudp sport 67 udp dport 68 accept",
            "\t\tudp sport 547 udp dport 546 accept",
            *(f'\t\tiifname "{name}" accept' for name in interfaces),
            *(f"\t\t{rule}" for rule in rules),
            '\t\tcounter comment "dropped"',
            "\t}",
            "}",
            "",
        ]
    )


class _Source:
    """How rules name who may come: the beginning of a rule for each family, and sets for them."""

    def __init__(self, matches: list[str], sets: list[str]) -> None:
        self.matches, self.sets = matches, sets


def _source(text: str, known: Mapping[str, Sequence[str]], number: int) -> _Source:
    if text in known:
        name = text
    elif _address_problem(text):
        raise AnsibleFilterError(
            f"firewall: a port is for {text!r}, which is neither in firewall_peers nor an address; "
            "set firewall_peers, with the addresses of its hosts"
        )
    else:
        name = f"site_{number}"
    members = [str(member) for member in known.get(text, [text])]
    if ANYWHERE in members:
        return _Source([""], [])
    found = _Source([], [])
    for family, prefix, kind in (("ip", "v4", "ipv4_addr"), ("ip6", "v6", "ipv6_addr")):
        elements = [member for member in members if (":" in member) == (family == "ip6")]
        if elements:
            found.matches.append(f"{family} saddr @{name}_{prefix} ")
            found.sets += [
                f"\tset {name}_{prefix} {{",
                f"\t\ttype {kind}; flags interval; auto-merge;",
                f"\t\telements = {{ {', '.join(elements)} }}",
                "\t}",
            ]
    return found


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "firewall_others": firewall_others,
            "firewall_problems": firewall_problems,
            "firewall_rules": firewall_rules,
        }
