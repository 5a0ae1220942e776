"""Everything that preflight refuses without a connection: groups, names, variables, asserts."""

from __future__ import annotations

import contextlib
import difflib
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ansible.errors import AnsibleError, AnsibleFilterError
from ansible.plugins.loader import add_all_plugin_dirs

from playbooks.filter_plugins.hostlist import compressed_hostlist
from playbooks.plugin_utils import names, roles, variables
from playbooks.plugin_utils.cluster import SILENCED, Cluster, cause, silenced, work_out
from playbooks.plugin_utils.contract import Contract
from playbooks.plugin_utils.origin import as_written, comes_from, where_set
from playbooks.plugin_utils.refusal import Refusal, standing
from playbooks.plugin_utils.site import Site
from playbooks.plugin_utils.values import Values, Variables, expression_reads, value_reads

# What the worked out cluster is registered as; group_vars/all/cluster.yml reads it.
WORKED_OUT = "__cluster"
OURS = Path(__file__).resolve().parents[2] / "group_vars"


# For a moment the kind of what could not be evaluated, and of values of ours that read the site's.
IN_VAIN = "in vain"
DERIVED = "derived"


@dataclass(frozen=True, slots=True)
class Judgement:
    sentences: Sequence[str]  # empty: nothing is refused
    cluster: Cluster
    roles: Mapping[str, Sequence[str]]  # of each host, those that have more to refuse there


def judge(
    site: Site,
    contract: Contract,
    specs: Mapping[str, variables.Options],
    *,
    folder: Path,
    playbook: Path,
) -> Judgement:
    """What is refused, and what the cluster is. `folder` holds the roles, `playbook` gives them."""
    refusals = [*inventory_refusals(site, contract)]
    if not site.names:
        return Judgement(standing(refusals, ()), Cluster(), {})
    cluster, more = work_out(site, contract)
    refusals += more
    # From here on templates see the cluster that was just worked out, and work it out no more.
    worked_out = {"cluster": cluster.plain()}
    for raw in site.values.hosts.values():
        raw[WORKED_OUT] = worked_out
    found = list(variable_refusals(site, contract, specs, whole=bool(cluster.declaration)))
    refusals += [refusal for refusal in found if refusal.kind != DERIVED]
    # What we ship reads what the inventory says: a value of ours goes wrong with one of the site's,
    # which is told.
    if not standing(refusals, silenced(site)):
        refusals += [replace(refusal, kind="") for refusal in found if refusal.kind == DERIVED]
    given = roles_by_host(site, playbook, folder)
    if not standing(refusals, silenced(site)):
        asserted = judge_roles(site, given, folder)
        refusals += [Refusal(said) for host in asserted.sentences.values() for said in host]
        given = asserted.remaining
    return Judgement(standing(refusals, silenced(site)), cluster, given)


# --- groups and names ----------------------------------------------------------------------------


def inventory_refusals(site: Site, contract: Contract) -> Iterator[Refusal]:
    """What is wrong with the groups, the names and the files beside the inventory."""
    yield from names.group_refusals(site.groups, contract)
    yield from names.name_refusals(site.names)
    yield from names.vars_file_refusals(site.folders(), set(site.groups), site.known_hosts())
    for variable, hosts, settings in site.settings(contract.hardware):
        yield from names.hardware_refusals(variable, hosts, settings)
    if not site.names:
        return
    for variable, judged in (
        ("cluster_name", names.cluster_name_refusals),
        ("cluster_database_backup", lambda value: names.database_refusals(site.groups, str(value))),
        (SILENCED, lambda value: _silenced_refusals(value, contract)),
    ):
        if site.values.defined(site.names[0], variable):
            # One that cannot be evaluated is told with the other variables.
            with contextlib.suppress(AnsibleError):
                yield from judged(site.values.value(site.names[0], variable))


def _silenced_refusals(said: object, contract: Contract) -> Iterator[Refusal]:
    for word in said if isinstance(said, list) else ():
        kind = str(word).partition(":")[0]
        if kind not in contract.silenceable:
            near = difflib.get_close_matches(kind, contract.silenceable, n=1)
            hint = f"did you mean {near[0]}?" if near else "it cannot be silenced."
            yield Refusal(f"{SILENCED} names {word}; {hint}")


# --- variables -----------------------------------------------------------------------------------


def variable_refusals(
    site: Site, contract: Contract, specs: Mapping[str, variables.Options], *, whole: bool
) -> Iterator[Refusal]:
    """What is wrong with the variables of all hosts, each distinct value judged once.

    Where the cluster could not be worked out as a whole, ours cannot be evaluated either.
    """
    options = {name: option for role in specs.values() for name, option in role.items()}
    options |= contract.variables
    known = {*options, *contract.made}
    set_anywhere = {name for raw in site.values.hosts.values() for name in raw}
    for name, refusal in variables.unknown_variables(set_anywhere, known, specs):
        if _is_ours(site, name):
            continue  # scripts/check-role-specs judges those
        host = next(host for host in site.names if site.values.defined(host, name))
        yield _about(site, name, host, refusal)
    for name in options:
        if name in set_anywhere and name not in contract.hardware:
            for refusal in _judged(site, contract, name, options[name]):
                if whole or not (refusal.kind == IN_VAIN and _is_ours(site, name)):
                    yield replace(refusal, kind="") if refusal.kind == IN_VAIN else refusal


def _judged(
    site: Site, contract: Contract, name: str, option: variables.Option
) -> Iterator[Refusal]:
    alike: dict[int, list[str]] = defaultdict(list)
    without: list[str] = []
    for host in site.names:
        if site.values.defined(host, name):
            alike[site.values.token(host, name)].append(host)
        else:
            without.append(host)
    distinct: dict[str, list[str]] = {}
    for token, hosts in alike.items():
        reach = site.values.reach(token)
        if reach.facts or reach.writes:
            continue  # told by the role itself, when the host is known
        try:
            value = site.values.value(hosts[0], name)
        except AnsibleError as error:
            last = cause(error)
            # Our own filters say what is wrong and where; a variable's name adds nothing.
            if isinstance(last, AnsibleFilterError):
                yield Refusal(str(last), IN_VAIN)
            elif not reach.missing or reach.missing & site.values.reads(hosts[0], name):
                # A variable that reads another that cannot be evaluated is told by the other.
                yield _about(site, name, hosts[0], Refusal(f"cannot be evaluated: {last}", IN_VAIN))
            continue
        distinct.setdefault(repr(value), []).extend(hosts)
        kind = DERIVED if _is_ours(site, name, hosts[0]) else ""
        if name in contract.switches:
            value = variables.switched(value)
        for problem in variables.value_problems(name, option, value, contract.words, as_written):
            yield _about(site, name, hosts[0], Refusal(problem, kind))
    if name in contract.one_value:
        if without:
            distinct.setdefault(repr(option.get("default")), []).extend(without)
        yield from _one_value(name, distinct)


def _one_value(name: str, distinct: Mapping[str, Sequence[str]]) -> Iterator[Refusal]:
    if len(distinct) > 1:
        ordered = sorted(distinct.values(), key=len, reverse=True)
        some = " and ".join(compressed_hostlist(hosts) for hosts in ordered[:2])
        yield Refusal(
            f"{name} has one value in the whole cluster, but differs between {some}; set it once, "
            "for all hosts.",
            "cluster-wide",
            name,
        )


def _about(site: Site, name: str, host: str, refusal: Refusal) -> Refusal:
    """The refusal with its subject, the variable, and where that is set."""
    where = where_set(name, site.values.hosts[host][name], _places(site))
    space = "" if refusal.sentence.startswith(":") else " "
    return Refusal(f"{name}{where}{space}{refusal.sentence}", refusal.kind, refusal.subject)


def _is_ours(site: Site, name: str, host: str = "") -> bool:
    """Whether we ship what a host has, the first if none is named."""
    return comes_from(site.values.hosts[host or site.names[0]].get(name), OURS)


def _places(site: Site) -> list[str]:
    """Where variables are set: a site's files come before what we ship."""
    return [*site.sources, str(OURS)]


# --- roles ---------------------------------------------------------------------------------------


def roles_by_host(site: Site, playbook: Path, folder: Path) -> Mapping[str, Sequence[str]]:
    """The roles that bring a refuse.yml, of each host, in the order of the playbook."""
    given: dict[str, list[str]] = {host: [] for host in site.names}
    for pattern, role in roles.roles_of(playbook, site.read):
        if (folder / role / roles.REFUSE).is_file():
            for host in site.hosts(pattern):
                if role not in given[host]:
                    given[host].append(role)
    return given


@dataclass(frozen=True, slots=True)
class Asserted:
    """What the asserts of roles refuse, by host, and the roles that have more to say on a host."""

    sentences: Mapping[str, Sequence[str]]
    remaining: Mapping[str, Sequence[str]]


def judge_roles(
    site: Site, given: Mapping[str, Sequence[str]], folder: Path, *, facts: bool = False
) -> Asserted:
    """Judges the asserts of roles' refuse.yml that can be judged here, each distinct case once.

    Without facts these are the asserts that read variables alone. A role whose refuse.yml has but
    asserts, all of them judged, has nothing more to say; the others are asked on the host.
    """
    sentences: dict[str, list[str]] = {host: [] for host in given}
    remaining: dict[str, list[str]] = {host: [] for host in given}
    hosts_of: dict[str, list[str]] = defaultdict(list)
    for host, of in given.items():
        for role in of:
            hosts_of[role].append(host)
    for role, hosts in hosts_of.items():
        path = folder / role
        add_all_plugin_dirs(str(path))
        tasks = site.read(path / roles.REFUSE)
        low = site.read(path / "defaults" / "main.yml") or {}
        high = (site.read(path / "vars" / "main.yml") or {}) | {"role_path": str(path)}
        scope = _scope(site, hosts, low, high, facts)
        asked = set() if roles.only_asserts(tasks) else set(hosts)
        for assertion in roles.assertions(role, tasks):
            own = scope
            if assertion.variables:
                own = _scope(site, hosts, low, {**high, **assertion.variables}, facts)
            for host, said in _asserted(site, own, assertion, hosts):
                if said is None:
                    asked.add(host)
                elif said:
                    sentences[host].append(said)
        for host in hosts:
            if host in asked:
                remaining[host].append(role)
    return Asserted(sentences, remaining)


def _scope(
    site: Site, hosts: Sequence[str], low: Variables, high: Variables, facts: bool
) -> Values:
    """The variables as a role sees them: its defaults lose to the site's, its vars win."""
    raw = {host: ChainMap(high, site.values.hosts[host], low) for host in hosts}
    return Values(raw, site.render, facts=facts)


def _asserted(
    site: Site, scope: Values, assertion: roles.Assertion, hosts: Sequence[str]
) -> Iterator[tuple[str, str | None]]:
    """For each host what is refused, "" for nothing, None where that cannot be judged here."""
    reads = value_reads(assertion.fail_msg)
    for condition in (*assertion.when, *assertion.that):
        reads |= expression_reads(str(condition))
    judged: dict[int, str | None] = {}
    for host in hosts:
        token = scope.depending(host, assertion.name, reads)
        if token not in judged:
            known = scope.reach(token).known
            judged[token] = _refused(site, scope.hosts[host], assertion) if known else None
        yield host, judged[token]


def _refused(site: Site, own: Variables, assertion: roles.Assertion) -> str | None:
    try:
        if not all(site.holds(own, condition) for condition in assertion.when):
            return ""
        if all(site.holds(own, condition) for condition in assertion.that):
            return ""
        said = site.render(own, assertion.fail_msg) or f"{assertion.name} does not hold."
        return " ".join(str(said).split())
    except AnsibleError as error:
        last = cause(error)
        return str(last) if isinstance(last, AnsibleFilterError) else None


__all__ = ["OURS", "WORKED_OUT", "Asserted", "Judgement", "judge", "judge_roles"]
