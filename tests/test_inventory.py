"""What playbooks and roles read of the inventory: filters, and the inventories that we ship."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible.template import trust_as_template

from playbooks.filter_plugins import declaration, partitions, preflight_hosts
from playbooks.plugin_utils.progress import Progress
from playbooks.plugin_utils.values import Values, expression_reads, template_reads
from tests import ansible_processes
from tests.standins.inventories import good, site, write

# --- partitions ----------------------------------------------------------------------------------

GROUPS = {"gpu_h100": ["gpu1", "gpu2"], "cpu": ["cpu1"], "slurm_login": ["login1"]}
NODES = [{"name": name} for name in ("gpu1", "gpu2", "cpu1")]


def expand(*entries: str) -> list[str]:
    wanted = [{"name": "p", "nodes": list(entries)}]
    names: list[str] = partitions.slurm_partitions_expanded(wanted, NODES, GROUPS)[0]["nodes"]
    return names


def test_a_partition_names_groups_nodes_or_all_in_the_order_of_the_nodes() -> None:
    assert expand("gpu_h100") == ["gpu1", "gpu2"]
    assert expand("cpu1", "gpu1") == ["gpu1", "cpu1"]
    assert expand("ALL") == ["gpu1", "gpu2", "cpu1"]


def test_a_group_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        expand("gpu_h200")
    assert 'slurm_partitions[0].nodes names "gpu_h200"' in str(refused.value)
    assert "groups with compute nodes: cpu, gpu_h100" in str(refused.value)


def test_a_partition_without_a_compute_node_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="has no compute node"):
        expand("slurm_login")


# --- the folder of the secrets -------------------------------------------------------------------


def test_the_folder_of_a_run_is_that_of_its_first_source(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, good())
    folder, file = str(tmp_path / "a"), str(tmp_path / "b" / "hosts.yml")
    assert declaration.inventory_folder([folder, file]) == folder
    assert declaration.inventory_folder([file, folder]) == str(tmp_path / "b")
    assert declaration.inventory_folder(["host1,host2", file]) == str(tmp_path / "b")
    assert declaration.inventory_folder(["host1,"]) == str(Path.cwd())


# --- values, each worked out once ----------------------------------------------------------------


def test_what_a_template_reads_is_found_in_its_syntax() -> None:
    loop = "{{ a.b | default(c) }}{% for d in e %}{{ d }}{% endfor %}"
    assert template_reads(loop).names == {"a", "c", "e"}
    assert expression_reads("x in y and lookup('env', z)").names == {"x", "y", "z"}
    assert template_reads("{{ lookup('ansible.builtin.password', 'x') }}").writes
    assert template_reads("{{ lookup(which) }}").writes  # who knows
    assert not template_reads("{{ lookup('file', 'x') }}").writes
    assert template_reads("{{ query('ansible.builtin.varnames', '^a') }}").names == {"*"}


def test_a_value_is_rendered_once_for_all_hosts_that_agree() -> None:
    rendered: list[str] = []

    def render(variables: Mapping[str, Any], value: Any) -> Any:
        rendered.append(value)
        return f"{value} with {variables['b']}"

    hosts: dict[str, dict[str, Any]] = {
        f"gpu{n}": {"a": "{{ b }}", "b": n % 2, "inventory_hostname": n} for n in range(100)
    }
    values = Values(hosts, render)
    assert {values.value(host, "a") for host in hosts} == {"{{ b }} with 0", "{{ b }} with 1"}
    assert len(rendered) == 2
    assert len({values.token(host, "a") for host in hosts}) == 2


def test_a_lookup_of_variables_depends_on_all_of_them() -> None:
    text = "{{ query('ansible.builtin.vars', *names) }}"
    hosts: dict[str, dict[str, Any]] = {
        host: {"a": text, "names": ["b"], "b": value, "inventory_hostname": host}
        for host, value in (("x", 1), ("y", 1), ("z", 2))
    }
    values = Values(hosts, lambda variables, _: variables["b"])
    assert [values.value(host, "a") for host in hosts] == [1, 1, 2]
    assert values.token("x", "a") == values.token("y", "a") != values.token("z", "a")


def test_a_name_that_is_only_compared_tells_two_kinds_of_hosts_apart() -> None:
    assert expression_reads("inventory_hostname == first").compared == {"first"}
    assert expression_reads("inventory_hostname == first").names == {"first"}
    more = expression_reads("inventory_hostname != first and inventory_hostname in others")
    assert not more.compared
    assert more.names == {"inventory_hostname", "first", "others"}
    rendered: list[str] = []

    def render(variables: Mapping[str, Any], _: Any) -> Any:
        rendered.append(variables["inventory_hostname"])
        return variables["inventory_hostname"] == variables["first"]

    common = {"a": "{{ inventory_hostname == first }}", "b": "{{ a }}", "first": "gpu7"}
    hosts = {f"gpu{n}": common | {"inventory_hostname": f"gpu{n}"} for n in range(100)}
    values = Values(hosts, render)
    assert [host for host in hosts if values.value(host, "a")] == ["gpu7"]
    assert len(rendered) == 2
    assert len({values.token(host, "b") for host in hosts}) == 2


def test_hosts_that_told_the_same_fact_share_what_reads_it() -> None:
    both = template_reads("{{ ansible_facts['a'] + ansible_facts.b }}")
    assert both.names == {"ansible_facts.a", "ansible_facts.b"}
    assert template_reads("{{ ansible_facts['a'] | d(ansible_facts) }}").names == {"ansible_facts"}
    assert template_reads("{{ ansible_facts[which] }}").names == {"ansible_facts", "which"}
    hosts: dict[str, dict[str, Any]] = {
        f"gpu{n}": {"a": "{{ ansible_facts.system }}", "ansible_facts": {"n": n, "system": n // 9}}
        for n in range(10)
    }
    before = Values(hosts, lambda _, value: value)
    assert before.reach(before.token("gpu1", "a")).facts
    values = before.within(hosts, {}, {}, facts=True)
    assert [len(alike) for alike in values.same(hosts, "a").values()] == [9, 1]


def test_another_name_of_the_host_needs_no_engine() -> None:
    hosts = {host: {"a": "{{ inventory_hostname }}", "inventory_hostname": host} for host in "xy"}
    values = Values(hosts, lambda _, value: pytest.fail(f"{value} was rendered"))
    assert [values.value(host, "a") for host in hosts] == ["x", "y"]
    assert values.token("x", "a") != values.token("y", "a")


def test_what_a_template_reads_is_put_in_as_what_it_is() -> None:
    """So that it is rendered once; what may be slow, or fails, is left to who wants it."""

    def render(variables: Mapping[str, Any], value: Any) -> Any:
        if value == "{{ broken }}":
            raise ValueError
        return {name: variables[name] for name in ("b", "slow", "wrong") if name in variables}

    raw = {
        "a": "{{ b }}{{ slow }}{{ wrong }}",
        "b": "{{ c }}",
        "c": 1,
        "slow": "{{ lookup('pipe', 'x') }}",
        "wrong": "{{ broken }}",
        "broken": 1,
    }
    values = Values({"x": raw}, render)
    left = {"slow": raw["slow"], "wrong": raw["wrong"]}
    assert values.value("x", "a") == {"b": {}, **left}  # `b` reads none of them


def test_kin_share_tokens_and_others_do_not() -> None:
    hosts: dict[str, dict[str, Any]] = {
        f"gpu{n}": {"a": "{{ b }}", "b": 1, "inventory_hostname": f"gpu{n}", "node_rack": n}
        for n in range(3)
    }
    hosts["gpu2"] |= {"b": 2}
    values = Values(hosts, lambda variables, _: variables["b"])
    alike = values.alike(hosts, "key", expression_reads("a"))
    assert list(alike.values()) == [["gpu0", "gpu1"], ["gpu2"]]
    assert len(values.alike(hosts, "key", expression_reads("node_rack"))) == 3
    within = values.within(hosts, {"c": 1}, {"b": 7})
    assert len(within.alike(hosts, "key", expression_reads("a"))) == 1
    answers = {"gpu0": {"d": 1}, "gpu1": {"d": 2}, "gpu2": {}}
    within = values.within(hosts, {}, {}, answers=answers, own={"d"})
    assert len(within.alike(hosts, "key", expression_reads("d"))) == 3
    values.define("e", "new")
    assert values.value("gpu1", "e") == "new"


def test_values_of_other_hosts_are_those_that_are_known(tmp_path: Path) -> None:
    read = site(write(tmp_path, good()))
    others = read.values.hosts["gpu1"]["hostvars"]
    assert others["gpu2"]["node_health_node"] == "gpu2"
    assert others["gpu2"].get("nothing") is None
    assert "localhost" in others
    assert len(list(others.values())) == len(others) == 4
    count = trust_as_template("{{ hostvars.gpu2.node_gpus.count }}")
    assert read.render({"hostvars": others}, count) == 8
    names = trust_as_template("{{ lookup('declared_cluster').nodes | map(attribute='name') }}")
    assert read.render({"hostvars": others}, names) == ["gpu1", "gpu2"]


def test_what_takes_long_says_how_far_it_is() -> None:
    lines: list[str] = []
    clock = iter([0, 1, 4, 6, 7, 8, 12, 13])
    done = list(Progress(lines.append, lambda: next(clock)).over("abcde", "letters judged"))
    assert done == list("abcde")
    assert lines == ["letters judged: 2 of 5", "letters judged: 4 of 5"]


def test_a_value_depends_on_what_its_variables_read() -> None:
    hosts: dict[str, dict[str, Any]] = {
        "x": {"a": "{{ b }}", "b": "{{ c }}", "c": "{{ ansible_facts.x }}", "d": ["{{ e }}"]},
        "y": {"a": "{{ b }}", "b": "{{ a }}"},
    }
    values = Values(hosts, lambda _, value: value)
    assert values.reach(values.token("x", "a")).facts
    assert values.reach(values.token("x", "d")).missing == {"e"}
    assert values.token("y", "a") != values.token("x", "a")  # a circle ends


# --- hosts that were asked -----------------------------------------------------------------------

DECLARED: dict[str, Any] = {
    "node_cpus": {"sockets": 2, "cores_per_socket": 8, "threads_per_core": 2},
    "node_memory_mb": 64000,
    "node_gpus": {"model": "h100_sxm", "count": 8},
}
FACTS = {"processor_vcpus": 32, "memtotal_mb": 64100}


def hardware(counted: str = "8 8", facts: Mapping[str, Any] = FACTS, **declared: Any) -> str:
    refusals = preflight_hosts.hardware_refusals(DECLARED | declared, "gpu1", facts, counted)
    return "\n".join(map(str, refusals))


def test_a_node_that_has_what_is_declared_is_accepted() -> None:
    assert hardware() == ""
    assert hardware("0 8") == ""  # no driver yet
    assert hardware("8 0") == ""  # a container, which sees no bus
    assert hardware(facts={"processor_vcpus": 64, "memtotal_mb": 128000}) == ""


@pytest.mark.parametrize(
    ("counted", "facts", "declared", "sentence"),
    [
        ("8 8", {"processor_vcpus": 16}, {}, "32 logical CPUs (2 × 8 × 2), but the node has 16"),
        ("8 8", {"memtotal_mb": 32000}, {}, "declares 64000 MiB, but the node has 32000"),
        ("7 8", {}, {}, "declares 8 GPUs (h100_sxm), but the node shows 7 (device files)"),
        ("0 7", {}, {}, "but the node shows 7 (on its PCI bus)"),
        ("0 0", {}, {}, "but the node shows 0 (on its PCI bus)"),
        ("1 8", {}, {"node_gpus": {"model": "virtual", "count": 2}}, "shows 1 (device files)"),
    ],
)
def test_a_node_with_less_than_declared_is_refused(
    counted: str, facts: Mapping[str, Any], declared: dict[str, Any], sentence: str
) -> None:
    refusals = hardware(counted, {**FACTS, **facts}, **declared)
    assert sentence in refusals
    assert refusals.endswith("[hardware-less:gpu1]")


def test_a_user_who_cannot_become_root_is_told_what_to_do() -> None:
    refusal = preflight_hosts.facts_refusal({"msg": "Task failed: Missing sudo password"})
    assert refusal.startswith("the user that logs in cannot become root")
    assert "--ask-become-pass" in refusal


def test_a_controller_that_is_away_is_refused_unless_silenced() -> None:
    away = {"item": "ctl1", "unreachable": True, "msg": "no\n route."}
    results: list[dict[str, Any]] = [away, {"item": "db1"}]
    [refusal] = preflight_hosts.away_refusals(results, [])
    assert refusal.startswith("ctl1 cannot be reached (no route); ")
    assert preflight_hosts.away_refusals(results, ["controller-away:ctl1"]) == []


def test_what_hosts_told_is_held_against_what_they_declare() -> None:
    answers = {"ansible_facts": FACTS, "__gpus": {"stdout": "7 8"}}
    hosts = [
        {"inventory_hostname": "gpu1", **DECLARED, **answers},
        {"inventory_hostname": "login1", "ansible_facts": FACTS, "__gpus": {"skipped": True}},
        {"inventory_hostname": "gpu2", **DECLARED, "__preflight_problems": ["old system."]},
    ]
    refusals = preflight_hosts.host_refusals(hosts, {"login1": ["no."]}, [])
    assert [len(refusals[name]) for name in ("gpu1", "login1", "gpu2")] == [1, 1, 1]
    assert preflight_hosts.host_refusals(hosts, {}, ["hardware-less:gpu1"])["gpu1"] == []


def unfit(
    problems: Mapping[str, Sequence[str]], hosts: Sequence[str], percent: int = 30
) -> dict[str, Any]:
    return preflight_hosts.unfit_hosts(problems, hosts, ["ctl1", "db1"], percent)


FIT: dict[str, list[str]] = {"ctl1": [], "gpu1": [], "gpu2": [], "gpu3": []}


def test_an_unfit_host_drops_out_and_the_others_go_on() -> None:
    verdict = unfit(FIT | {"gpu2": ["old system."]}, list(FIT))
    assert verdict == {"stop": [], "unfit": {"gpu2": ["old system."]}, "vital": ["ctl1"]}
    assert unfit(FIT, list(FIT))["unfit"] == {}


def test_one_host_alone_never_stops_a_run() -> None:
    """A group with three nodes has a third of them unfit at once."""
    assert unfit({"gpu2": ["old system."]}, ["gpu2"])["stop"] == []
    assert unfit(FIT, [*FIT, "gpu4"], percent=0)["stop"] == []


def test_a_controller_or_a_database_host_stops_a_run() -> None:
    verdict = unfit(FIT | {"ctl1": ["full disk."], "gpu1": ["old system."]}, list(FIT))
    assert verdict["stop"] == ["ctl1: full disk.", "gpu1: old system."]
    assert verdict["unfit"] == {}


@pytest.mark.parametrize(
    ("refused", "away", "percent", "stops"),
    [
        (2, 0, 30, False),  # of ten
        (3, 0, 30, False),
        (4, 0, 30, True),
        (1, 2, 30, False),
        (1, 3, 30, True),
        (0, 4, 30, True),
        (0, 4, 40, False),
        (2, 0, 0, True),
        (1, 0, 0, False),
        (8, 0, 100, False),
    ],
)
def test_too_many_unfit_hosts_are_not_the_hosts_fault(
    refused: int, away: int, percent: int, stops: bool
) -> None:
    hosts = ["ctl1", *(f"gpu{number}" for number in range(9))]
    asked = hosts[: len(hosts) - away]
    problems = {host: ["no."] if host in asked[1 : refused + 1] else [] for host in asked}
    verdict = unfit(problems, hosts, percent)
    assert bool(verdict["stop"]) is stops
    assert len(verdict["unfit"]) == (0 if stops else refused)


def test_too_many_unfit_hosts_are_named_with_the_cure() -> None:
    hosts = ["ctl1", *(f"gpu{number}" for number in range(1, 5))]
    problems: dict[str, list[str]] = {"ctl1": [], "gpu1": ["no."], "gpu2": ["no."]}
    first, second = unfit(problems, hosts)["stop"]
    assert first.startswith("4 of 5 hosts cannot be reached or are refused, which is more than 30")
    assert "cluster_unfit_percent" in first
    assert second == "gpu[1-2]: no."
    del problems["gpu1"], problems["gpu2"]
    assert unfit(problems, hosts)["stop"][0].startswith("4 of 5 hosts cannot be reached, which")


def test_a_sentence_of_many_hosts_is_told_once() -> None:
    by_host = {"gpu1": ["old system."], "gpu2": ["old system.", "gpu2: no driver."]}
    assert preflight_hosts.told_once(by_host) == ["gpu[1-2]: old system.", "gpu2: no driver."]


# --- through ansible-playbook --------------------------------------------------------------------


def playbook(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ansible_processes.run(f"playbooks/{name}", *arguments)


def judge(*arguments: str) -> subprocess.CompletedProcess[str]:
    return playbook("preflight.yml", "--skip-tags", "hosts", *arguments)


def test_the_example_is_refused_nothing() -> None:
    done = judge("-i", "inventory/example")
    assert done.returncode == 0, done.stdout


def test_the_declaration_is_what_the_validation_reads(tmp_path: Path) -> None:
    from cluster import declaration as read  # noqa: PLC0415 - the other half

    written = tmp_path / "cluster.json"
    arguments = ("-i", "inventory/example", "-e", f"declaration_file={written}")
    done = playbook("declaration.yml", *arguments)
    assert done.returncode == 0, done.stdout
    assert read.parse(json.loads(written.read_text()), "test").cluster == "example"


@pytest.mark.sample(1)
@pytest.mark.parametrize("limit", [(), ("--limit", "gpu1"), ("--check",)])
def test_a_bad_inventory_stops_a_run_with_all_its_sentences(
    tmp_path: Path, limit: tuple[str, ...]
) -> None:
    children = good()
    children["slurm_login"]["hosts"]["login1"]["ansible_host"] = "10.0.0.1"
    write(tmp_path, children, {"group_vars/all.yml": {"slurm_partitons": [], "node_gpu": 1}})
    done = judge("-i", str(tmp_path), *limit)
    assert done.returncode != 0
    output = " ".join(done.stdout.split())
    for word in ("address-shared:10.0.0.1", "unknown-variable:slurm_partitons", "node_gpu"):
        assert word in output
    assert "preflight refused the inventory; nothing was changed." in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["group_vars", "hosts.yml"]


def test_without_a_host_there_is_still_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {children: {slurm_compute: {}}}\n")
    done = judge("-i", str(tmp_path))
    assert done.returncode != 0
    assert "no group slurm_cluster" in " ".join(done.stdout.split())
