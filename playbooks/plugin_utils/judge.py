"""Everything that preflight refuses without a connection: groups, names, variables, asserts."""

from __future__ import annotations

import contextlib
import difflib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError, AnsibleFilterError
from ansible.plugins.loader import add_all_plugin_dirs

from cluster import fixed_versions, gpus, names, sizes
from cluster.contract import Contract
from cluster.hostlist import listed
from cluster.partitions import expanded
from cluster.refusal import Refusal, standing
from cluster.slurm import gres
from playbooks.filter_plugins.preflight_hosts import told
from playbooks.plugin_utils import kept, known_secrets, roles, rotation, variables
from playbooks.plugin_utils.cluster import (
    SILENCED,
    WORKED_OUT,
    Cluster,
    cause,
    reason,
    silenced,
    work_out,
)
from playbooks.plugin_utils.listening import port_refusals
from playbooks.plugin_utils.origin import as_written, comes_from, where_set
from playbooks.plugin_utils.placing import placed
from playbooks.plugin_utils.progress import Progress, silent
from playbooks.plugin_utils.site import Engine, Site
from playbooks.plugin_utils.values import Values, expression_reads, value_reads

OURS = Path(__file__).resolve().parents[2] / "group_vars"


# For a moment the kind of what is wrong with values of ours that read the site's.
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
    progress: Progress | None = None,
) -> Judgement:
    """What is refused, and what the cluster is. `folder` holds the roles, `playbook` gives them."""
    progress = progress or silent()
    refusals = [*inventory_refusals(site, contract)]
    if not site.names:
        return Judgement(placed(standing(refusals, ()), site, OURS), Cluster(), {})
    cluster, more = work_out(site, contract)
    refusals += more
    # From here on templates see the cluster that was just worked out, and work it out no more.
    site.values.define(WORKED_OUT, {"cluster": cluster.plain()})
    takers = roles.hosts_by_role(site, playbook)
    whole = bool(cluster.declaration)
    of_variables = list(variable_refusals(site, contract, specs, takers, progress, whole=whole))
    refusals += [refusal for refusal in of_variables if refusal.kind != DERIVED]
    # What we ship reads what the inventory says: a value of ours goes wrong with one of the site's,
    # which is told.
    if not standing(refusals, silenced(site)):
        refusals += [
            replace(refusal, kind="") for refusal in of_variables if refusal.kind == DERIVED
        ]
    refusals += limit_refusals(site, cluster.nodes)
    refusals += pmix_refusals(site)
    refusals += port_refusals(site, takers, folder, OURS)
    by_host = roles_by_host(site, takers, folder)
    if not standing(refusals, silenced(site)):
        asserted = judge_roles(site, by_host, folder, progress)
        refusals += [Refusal(sentence) for host in asserted.sentences.values() for sentence in host]
        by_host = asserted.remaining
    sentences = placed(standing(refusals, silenced(site)), site, OURS)
    return Judgement(sentences, cluster, by_host)


def cautions(site: Site) -> list[str]:
    """Sentences about what works and should not be so."""
    return [
        *_operators_among_users(site),
        *_known_holes(site),
        *_newer_drivers(site),
        *_endless_jobs(site),
        *_old_names(site),
        *_idle_nodes(site),
        *_monitoring_beside_slurm(site),
    ]


def _monitoring_beside_slurm(site: Site) -> Iterator[str]:
    """What a query or a full disk does to slurmctld, and what no small cluster notices."""
    hosts = len(site.groups.get("slurm_cluster", ()))
    both = set(site.groups.get("slurm_controller", ()))
    both &= set(site.groups.get("monitoring", ()))
    if hosts > sizes.FEW_BESIDE_SLURM and both:
        kept = sizes.retention_gb(hosts, sizes.scrape_interval_s(hosts), "30d")
        yield (
            f"{listed(sorted(both))} {'is' if len(both) == 1 else 'are'} in monitoring and in "
            f"slurm_controller: Prometheus of {hosts} hosts needs up to "
            f"{sizes.memory_gb(hosts)} GB of memory, and {kept} GB of disk for 30 days, beside "
            "slurmctld and its state. Give monitoring a host of its own."
        )


def _idle_nodes(site: Site) -> Iterator[str]:
    """Slurm takes nodes without a partition, for reservations or for later; most are forgotten."""
    with contextlib.suppress(AnsibleError, IndexError, KeyError, TypeError):
        names = ("slurm_partitions", "slurm_nodes", "slurm_node_groups")
        partitions, nodes, groups = (site.values.value(site.names[0], name) for name in names)
        used = {name for part in expanded(partitions, nodes, groups) for name in part["nodes"]}
        if idle := [node["name"] for node in nodes if node["name"] not in used]:
            yield (
                f"{listed(idle)} {'is' if len(idle) == 1 else 'are'} in no partition of "
                "slurm_partitions, so no job can run there."
            )


def _old_names(site: Site) -> Iterator[str]:
    with contextlib.suppress(AnsibleError, KeyError, TypeError):
        settings = site.values.value(site.names[0], "slurm_settings") if site.names else {}
        for name, value in settings.items():
            if str(name).lower() == "jobcontainertype" and value:
                yield (
                    f"slurm_settings.{name} is the old name of NamespaceType: Slurm 25.11 and "
                    "newer still read it, and slurmctld warns. Remove it; slurm_private_tmp sets "
                    "the one that the release reads."
                )


def _operators_among_users(site: Site) -> list[str]:
    # What cannot be read has been refused by then.
    with contextlib.suppress(AnsibleError, KeyError, TypeError):
        declared = site.values.value(site.names[0], "slurm_users") if site.names else []
        users = {str(entry["name"]) for entry in declared}
        operators = {
            str(site.values.value(host, "ansible_user"))
            for host in (site.names if users else ())
            if site.values.defined(host, "ansible_user")
        }
        return [
            f"slurm_users has {name}, the account that Ansible comes as. Whoever is root on one "
            "host of Slurm can act as any of its users, and with that one's sudo is root on all. "
            f"Take {name} out of slurm_users, and submit jobs as an account without sudo "
            "(docs/operate/validate.md)."
            for name in sorted(users & operators)
        ]
    return []


def _known_holes(site: Site) -> Iterator[str]:
    for variable, software in fixed_versions.known().items():
        hosts = [host for host in site.names if site.values.defined(host, variable)]
        for alike in site.values.same(hosts, variable).values():
            with contextlib.suppress(AnsibleError, KeyError):
                value = str(site.values.value(alike[0], variable))
                if hole := software.hole(value):
                    yield f"{variable} is {value} on {listed(alike)}: {hole}. Set a newer one."


def _newer_drivers(site: Site) -> Iterator[str]:
    variable = "nvidia_driver_branch"
    hosts = [host for host in site.names if site.values.defined(host, variable)]
    for alike in site.values.same(hosts, variable).values():
        with contextlib.suppress(AnsibleError, KeyError, TypeError, ValueError):
            branch = int(site.values.value(alike[0], variable))
            if newer := gpus.newer_branch(branch):
                yield f"{variable} {newer}. So it is on {listed(alike)}."


def _endless_jobs(site: Site) -> Iterator[str]:
    with contextlib.suppress(AnsibleError, KeyError, TypeError, IndexError):
        endless = [
            str(partition["name"])
            for partition in site.values.value(site.names[0], "slurm_partitions")
            if not partition.get("max_time")
            and not {"defaulttime", "maxtime"}
            & {str(name).lower() for name in partition.get("settings") or {}}
        ]
        if endless:
            yield (
                f"slurm_partitions: jobs without --time run for ever in {', '.join(endless)}. Set "
                "max_time there, as 7-00:00:00, or settings: {DefaultTime: 1-00:00:00}."
            )


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
        ("cluster_secrets", lambda value: _secrets_refusals(Path(str(value)))),
    ):
        if site.values.defined(site.names[0], variable):
            # One that cannot be evaluated is told with the other variables.
            with contextlib.suppress(AnsibleError):
                yield from judged(site.values.value(site.names[0], variable))


def _secrets_refusals(folder: Path) -> Iterator[Refusal]:
    if not folder.is_absolute():
        yield Refusal(
            f"cluster_secrets is {str(folder)!r}, which is another folder wherever a run starts; "
            "set it to an absolute path, or remove it to have .secrets beside the inventory."
        )
        return
    for path in kept.tracked_by_git(folder):
        yield Refusal(
            f"git tracks the secret {path} as plain text: whoever has the repository has it. Run "
            f"`git rm --cached {path}`, then replace the secret with rotate-secrets.yml; what may "
            "be tracked is encrypted (scripts/secrets encrypt)."
        )
    for path in rotation.under_way(folder):
        known = known_secrets.SECRETS.get(path.name)
        yield Refusal(
            f"the replacement of {path} was interrupted, and hosts may have the old value or the "
            f"new one; complete it with `ansible-playbook playbooks/rotate-secrets.yml -e "
            f"rotate={known.kind if known and known.kind else known_secrets.ALL}`."
        )


def _silenced_refusals(words: object, contract: Contract) -> Iterator[Refusal]:
    for word in words if isinstance(words, list) else ():
        kind = str(word).partition(":")[0]
        if kind not in contract.silenceable:
            near = difflib.get_close_matches(kind, contract.silenceable, n=1)
            hint = f"did you mean {near[0]}?" if near else "it cannot be silenced."
            yield Refusal(f"{SILENCED} names {word}; {hint}")


# --- variables -----------------------------------------------------------------------------------


def variable_refusals(
    site: Site,
    contract: Contract,
    specs: Mapping[str, variables.Options],
    takers: Mapping[str, Sequence[str]],
    progress: Progress,
    *,
    whole: bool,
) -> Iterator[Refusal]:
    """What is wrong with the variables of all hosts, each distinct value judged once.

    What we ship matters on the hosts that take the role it is for, what a site says wherever it
    says it. Where the cluster could not be worked out as a whole, ours cannot be evaluated either.
    """
    options = {name: option for role in specs.values() for name, option in role.items()}
    options |= contract.variables
    known = {*options, *contract.derived}
    set_anywhere = {name for raw in site.values.hosts.values() for name in raw}
    # scripts/check-role-specs judges ours.
    others = [name for name in set_anywhere - known if not _is_ours(site, name)]
    for name, refusal in variables.unknown_variables(others, known, specs):
        host = next(host for host in site.names if site.values.defined(host, name))
        yield _about(site, name, host, refusal)
    for name in progress.over(options, "variables judged"):
        if name in set_anywhere and name not in contract.hardware:
            hosts = site.names
            if name not in contract.one_value and _is_ours(site, name):
                of = [role for role in specs if name in specs[role]]
                if of and all(role in takers for role in of):
                    wanted = {host for role in of for host in takers[role]}
                    hosts = [
                        host for host in hosts if host in wanted or not _is_ours(site, name, host)
                    ]
            yield from _judged(site, contract, name, options[name], hosts, whole=whole)


def _judged(
    site: Site,
    contract: Contract,
    name: str,
    option: variables.Option,
    among: Sequence[str],
    *,
    whole: bool,
) -> Iterator[Refusal]:
    having = [host for host in among if site.values.defined(host, name)]
    without = [host for host in among if not site.values.defined(host, name)]
    distinct: dict[str, list[str]] = {}
    for token, hosts in site.values.same(having, name).items():
        reach = site.values.reach(token)
        if reach.facts or reach.writes:
            continue  # told by the role itself, when the host is known
        kind = DERIVED if _is_ours(site, name, hosts[0]) else ""
        try:
            value = site.values.value(hosts[0], name)
        except AnsibleError as error:
            last = cause(error)
            # Our own filters say what is wrong and where; a variable's name adds nothing.
            if isinstance(last, AnsibleFilterError):
                yield Refusal(str(last), "" if whole else kind)
            elif not reach.missing or reach.missing & site.values.reads(hosts[0], name):
                # A variable that reads another that cannot be evaluated is told by the other.
                refusal = Refusal(f"cannot be evaluated: {reason(error)}.", kind)
                yield _about(site, name, hosts[0], refusal)
            continue
        distinct.setdefault(repr(value), []).extend(hosts)
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
        some = " and ".join(listed(hosts) for hosts in ordered[:2])
        yield Refusal(
            f"{name} has one value in the whole cluster, but differs between {some}; set it once, "
            "for all hosts.",
            "cluster-wide",
            name,
        )


def _about(site: Site, name: str, host: str, refusal: Refusal) -> Refusal:
    """The refusal with its subject, the variable, and where that is set."""
    where = where_set(name, site.values.hosts[host][name], _places(site), site.owners(host))
    space = "" if refusal.sentence.startswith(":") else " "
    return Refusal(f"{name}{where}{space}{refusal.sentence}", refusal.kind, refusal.subject)


def _is_ours(site: Site, name: str, host: str = "") -> bool:
    """Whether we ship what a host has, the first if none is named."""
    return comes_from(site.values.hosts[host or site.names[0]].get(name), OURS)


def _places(site: Site) -> list[str]:
    """Where variables are set: a site's files come before what we ship."""
    return [*site.sources, str(OURS)]


def limit_refusals(site: Site, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
    """Limits on a type of GPU that no node has: Slurm would take them, and limit nothing."""
    have = sorted(
        {str(entry["Type"]) for node in nodes for entry in gres.entries(node) if "Type" in entry}
    )
    for name in ("slurm_qos", "slurm_accounts", "slurm_users"):
        if not site.values.defined(site.names[0], name):
            continue
        with contextlib.suppress(AnsibleError):
            value = site.values.value(site.names[0], name)
            for path, kind in gres.unknown_types(value, nodes, name):
                types = f"the nodes' GPUs are {', '.join(have)}" if have else "no node has GPUs"
                yield Refusal(f"{path} limits gres/gpu:{kind}, which no node has; {types}.")


def pmix_refusals(site: Site) -> Iterator[Refusal]:
    """A Slurm that is built without PMIx cannot load the plugin that its configuration names."""
    with contextlib.suppress(AnsibleError, KeyError, TypeError):
        host, value = site.names[0], site.values.value
        options = value(host, "slurm_install_build_options")
        known = site.values.defined(host, "slurm_settings")
        settings = value(host, "slurm_settings") if known else {}
        mpi = {str(key).lower(): str(of) for key, of in settings.items()}.get("mpidefault", "pmix")
        without = [each for each in options if each in {"--without-pmix", "--with-pmix=no"}]
        if without and mpi.startswith("pmix") and value(host, "slurm_install_method") == "build":
            yield Refusal(
                f"slurm_install_build_options has {without[0]}, and MpiDefault is {mpi}, whose "
                "plugin such a Slurm has not: srun would refuse every job. Take the option out, or "
                "set slurm_settings: {MpiDefault: none}."
            )


# --- roles ---------------------------------------------------------------------------------------


def roles_by_host(
    site: Site, takers: Mapping[str, Sequence[str]], folder: Path
) -> Mapping[str, Sequence[str]]:
    """The roles that bring a refuse.yml, of each host."""
    by_host: dict[str, list[str]] = {host: [] for host in site.names}
    for role, hosts in takers.items():
        if (folder / role / roles.REFUSE).is_file():
            for host in hosts:
                by_host[host].append(role)
    return by_host


@dataclass(frozen=True, slots=True)
class Asserted:
    """What the asserts of roles refuse, by host, and the roles that have more to say on a host."""

    sentences: Mapping[str, Sequence[str]]
    remaining: Mapping[str, Sequence[str]]


def judge_roles(
    site: Site, roles_of: Mapping[str, Sequence[str]], folder: Path, progress: Progress
) -> Asserted:
    """Judges the asserts of roles' refuse.yml that read variables alone, each distinct case once.

    A role whose refuse.yml has but asserts, all of them judged, has nothing more to say; the others
    are asked when the hosts have told their facts.
    """
    sentences: dict[str, list[str]] = {host: [] for host in roles_of}
    remaining: dict[str, list[str]] = {host: [] for host in roles_of}
    hosts_of: dict[str, list[str]] = defaultdict(list)
    for host, of in roles_of.items():
        for role in of:
            hosts_of[role].append(host)
    for role in progress.over(hosts_of, "roles judged"):
        hosts, path = hosts_of[role], folder / role
        add_all_plugin_dirs(str(path))
        tasks = site.read(path / roles.REFUSE)
        low = site.read(path / "defaults" / "main.yml") or {}
        high = (site.read(path / "vars" / "main.yml") or {}) | {"role_path": str(path)}
        scope = site.values.within(hosts, low, high)
        undecided = set() if roles.only_asserts(tasks) else set(hosts)
        for assertion in roles.assertions(role, tasks):
            own = scope
            if assertion.variables:
                inner = {**high, **assertion.variables}
                own = site.values.within(hosts, low, inner)
            for sentence, alike in _asserted(own, site.engine, assertion, hosts):
                if sentence is None:
                    undecided.update(alike)
                elif sentence:
                    for host in alike:
                        sentences[host].append(sentence)
        for host in hosts:
            if host in undecided:
                remaining[host].append(role)
    return Asserted(sentences, remaining)


def _asserted(
    scope: Values, engine: Engine, assertion: roles.Assertion, hosts: Sequence[str]
) -> Iterator[tuple[str | None, Sequence[str]]]:
    """What is refused, "" for nothing, None where that cannot be judged here, and of which hosts.

    One condition after the other: what a later one reads, or only the sentence, tells hosts apart
    where it comes to that.
    """
    left = list(hosts)
    for condition in assertion.when:
        held = _held(scope, engine, condition, left)
        for verdict, alike in held:
            if verdict is not True:
                yield "" if verdict is False else verdict, alike
        left = [host for verdict, alike in held if verdict is True for host in alike]
    for condition in assertion.that:
        held = _held(scope, engine, condition, left)
        for verdict, alike in held:
            if verdict is False:
                yield from _sentences(scope, engine, assertion, alike)
            elif verdict is not True:
                yield verdict, alike
        left = [host for verdict, alike in held if verdict is True for host in alike]
    yield "", left


def _held(
    scope: Values, engine: Engine, condition: Any, hosts: Sequence[str]
) -> list[tuple[bool | str | None, Sequence[str]]]:
    """Whether a condition holds, or what a filter of ours says instead, or None; of which hosts."""

    def verdict(host: str, token: int) -> bool | str | None:
        if not scope.reach(token).known:
            return None
        try:
            return engine.holds(scope.variables(host, reads), condition)
        except AnsibleError as error:
            return ours(error)

    reads = expression_reads(str(condition))
    by_token = scope.alike(hosts, ("condition", str(condition)), reads)
    return [(verdict(alike[0], token), alike) for token, alike in by_token.items()]


def _sentences(
    scope: Values, engine: Engine, assertion: roles.Assertion, hosts: Sequence[str]
) -> Iterator[tuple[str | None, Sequence[str]]]:
    """The sentence of an assert that does not hold; None where it cannot be said here."""
    reads = value_reads(assertion.fail_msg)
    for token, alike in scope.alike(hosts, ("sentence", assertion.fail_msg), reads).items():
        if not scope.reach(token).known:
            yield None, alike
            continue
        try:
            message = engine.render(scope.variables(alike[0], reads), assertion.fail_msg)
            for sentence in told(message or f"{assertion.name} does not hold."):
                yield sentence, alike
        except AnsibleError as error:
            yield ours(error), alike


def ours(error: AnsibleError) -> str | None:
    """What a filter of ours says; what else goes wrong is told by the role, on the host."""
    last = cause(error)
    return str(last) if isinstance(last, AnsibleFilterError) else None


__all__ = ["OURS", "WORKED_OUT", "Asserted", "Judgement", "judge", "judge_roles", "ours"]
