"""What was found on all nodes as one table of plain text: nodes that are alike share a line.

A node's rows are in its variables `__ROLE_verified` (filter_plugins/verify.py makes them). A role
that was not asked, and a node that was not reached, are rows that fail.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cluster.hostlist import compress
from playbooks.callback_plugins.summary import failure_words, unreachable_words
from playbooks.filter_plugins.verify import FAIL, PASS, SKIP, sentence

Host = Mapping[str, Any]  # a host's variables
Roles = Mapping[str, Sequence[str]]  # group -> the roles that its hosts are asked for

HEADINGS = ("NODES", "COMPONENT", "WHAT", "EXPECTED", "FOUND", "VERDICT")
WIDTHS = (24, 26, 34, 30, 40, 7)  # at most; a longer text goes on in the next line


def failed_sentence(result: Mapping[str, Any]) -> str:
    """What a failed task said, in one sentence."""
    if not result:
        return "another host of the same batch failed in a task that runs once for all"
    return failure_words(result)


def roles_of_groups(roles: Roles, groups: Iterable[str]) -> list[str]:
    """The roles that a host in these groups is asked for, each once."""
    member = set(groups)
    return list(dict.fromkeys(r for group, some in roles.items() if group in member for r in some))


def verified_rows(host: Host, roles: Iterable[str]) -> list[dict[str, str]]:
    """What the roles found on one node. Whatever was not answered is a row that fails."""
    lost = host.get("__verify_failed_roles") or {}
    rows: list[dict[str, str]] = []
    for role in roles:
        if role in lost:
            rows.append(_unanswered(role, lost[role], "repair that on the node, and verify again"))
        elif not (role_rows := host.get(f"__{role}_verified")):
            rows.append(_unanswered(role, "no answer", f"apply the role {role}, and ask again"))
        else:
            rows += role_rows
    return rows


def host_rows(host: Host, roles: Iterable[str]) -> list[dict[str, str]]:
    """The same, of a node that may not have been reached at all."""
    reached = host.get("__verify_connection") or {"msg": "it was not reached in this run"}
    if "ansible_facts" in reached:
        return verified_rows(host, roles)
    words = failure_words(reached)
    if reached.get("unreachable"):
        words = unreachable_words(reached)
    return [_unanswered("node", words, "bring it back, and ask again")]


def _unanswered(component: str, actual: str, advice: str) -> dict[str, str]:
    return {
        "component": component,
        "what": "answer",
        "expected": "an answer",
        "found": actual,
        "verdict": FAIL,
        "advice": advice,
    }


# --- all nodes -----------------------------------------------------------------------------------

Alike = dict[tuple[str, ...], list[str]]  # a row's texts -> the nodes that have it
TEXTS = ("component", "what", "expected", "found", "verdict", "advice")


def alike(hosts: Iterable[Host], roles: Roles) -> Alike:
    """Rows as they were met, each with its nodes; those of one question together."""
    questions: dict[tuple[str, str], Alike] = {}
    for host in hosts:
        for row in host_rows(host, roles_of_groups(roles, host["group_names"])):
            texts = tuple(str(row[text]) for text in TEXTS)
            question = questions.setdefault((texts[0], texts[1]), {})
            question.setdefault(texts, []).append(str(host["inventory_hostname"]))
    return {texts: nodes for question in questions.values() for texts, nodes in question.items()}


def verify_table(hosts: Iterable[Host], roles: Roles) -> str:
    """The table, what to do about the rows that fail, and a last line that counts.

    Raises ValueError when there is no host: that is no table without failures.
    """
    all_hosts = list(hosts)
    if not all_hosts:
        raise ValueError("no node was asked")
    rows = alike(all_hosts, roles)
    cells = [(compress(nodes), *texts[:5]) for texts, nodes in rows.items()]
    lines = [*aligned([HEADINGS, *cells], WIDTHS, "-")]
    if advice := list(_advice(rows)):
        lines += ["", "What to do:", *advice]
    return "\n".join([*lines, "", _count(rows, len(all_hosts))])


def aligned(cells: Sequence[Sequence[str]], most: Sequence[int], empty: str = "") -> Iterator[str]:
    """Columns as wide as what is in them, at most `most`; `empty` stands for no text."""
    wrapped = [
        [textwrap.wrap(text, width) or [empty] for text, width in zip(row, most, strict=True)]
        for row in cells
    ]
    widths = [
        max(len(line) for row in wrapped for line in row[column]) for column in range(len(most))
    ]
    for row in wrapped:
        for number in range(max(map(len, row))):
            parts = [cell[number] if number < len(cell) else "" for cell in row]
            padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
            yield "  ".join(padded).rstrip()


def _failing(rows: Alike) -> Iterator[tuple[dict[str, str], list[str]]]:
    for texts, nodes in rows.items():
        row = dict(zip(TEXTS, texts, strict=True))
        if row["verdict"] not in (PASS, SKIP):
            yield row, nodes


def _advice(rows: Alike) -> Iterator[str]:
    for row, nodes in _failing(rows):
        yield f"  {compress(nodes)}: {sentence(row)}."


def _count(rows: Alike, nodes: int) -> str:
    number = dict.fromkeys((PASS, SKIP, FAIL), 0)
    for texts, where in rows.items():
        number[texts[4] if texts[4] in (PASS, SKIP) else FAIL] += len(where)
    bad = {node for _, where in _failing(rows) for node in where}
    state = f"not as they should be: {compress(bad)}" if bad else "all as they should be"
    return (
        f"{nodes} node{'s' if nodes > 1 else ''}, {len(bad) or ''}{' ' if bad else ''}{state}; "
        f"{number[PASS]} passed, {number[FAIL]} failed, {number[SKIP]} do not apply."
    )


def verify_problems(hosts: Iterable[Host], roles: Roles) -> list[str]:
    """A sentence for each row that fails, with its nodes."""
    rows = alike(hosts, roles)
    return [f"{compress(nodes)}: {sentence(row)}." for row, nodes in _failing(rows)]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "failed_sentence": failed_sentence,
            "roles_of_groups": roles_of_groups,
            "verified_rows": verified_rows,
            "verify_problems": verify_problems,
            "verify_table": verify_table,
        }
