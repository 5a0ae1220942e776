"""The sites that inventory/example-* describe: nothing is refused, and Slurm's files, word by word.

`pytest tests/test_example_inventories.py --renew-golden` writes them anew; read the difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cluster import contract, declaration
from cluster.partitions import expanded
from cluster.slurm import nodes
from cluster.slurm import reservations as booked
from cluster.slurm import topology as topologies
from playbooks.plugin_utils import judge, user_pages
from playbooks.plugin_utils.site import Site
from roles.slurm_associations.plugin_utils import declared as associations
from tests.standins.inventories import REPOSITORY, judged, worked_out
from tests.standins.slurm_files import of_role, policy
from tests.test_user_pages import check_pages
from validation.localise import Topology

# Whichever test asks first works out the inventory for the others.
pytestmark = pytest.mark.heavy("works out an inventory of a thousand nodes")

GOLDEN = Path(__file__).parent / "golden"
RELEASE = "24.11"
PREFIX = "example-"
SITES = {
    "university": {"controller": "head", "nodes": 2},
    "centre": {"controller": "ctl1", "nodes": 34},
    "company": {"controller": "ctl1", "nodes": 1000},
}
# Seconds of this process for a thousand nodes; a quiet machine takes a tenth.
MOST_SECONDS = 90
LOOK = {"__slurm_controller_versions": policy(RELEASE)}


@cache
def example(name: str) -> tuple[Site, Any]:
    """The inventory as preflight leaves it to the roles, and the cluster that it declares."""
    return worked_out(REPOSITORY / "inventory" / f"{PREFIX}{name}")


def of_controller(name: str, expression: str) -> Any:
    inventory, _ = example(name)
    return of_role(inventory, "slurm", controller(name), expression, **LOOK)


def controller(name: str) -> str:
    return str(SITES[name]["controller"])


def test_every_example_is_held_here() -> None:
    folders = {path.name.removeprefix(PREFIX) for path in (REPOSITORY / "inventory").glob("ex*-*")}
    assert folders == set(SITES)
    for name in SITES:
        assert (REPOSITORY / "inventory" / f"{PREFIX}{name}" / "README.md").read_text()


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["university", "centre"])
def test_preflight_refuses_nothing(name: str) -> None:
    assert judged(REPOSITORY / "inventory" / f"{PREFIX}{name}").sentences == []


@pytest.mark.long
def test_groups_names_and_hardware_of_a_company_are_refused_nothing() -> None:
    whole, cluster = example("company")
    assert list(judge.inventory_refusals(whole, contract.load())) == []
    assert cluster.declaration


@pytest.mark.parametrize("name", SITES)
def test_accounts_qos_and_users_fit_together_and_with_the_partitions(name: str) -> None:
    variables = example(name)[0].values
    host = controller(name)
    names = (f"slurm_{part}" for part in ("accounts", "qos", "users", "partitions"))
    assert associations.problems(*(variables.value(host, variable) for variable in names)) == []


@pytest.mark.parametrize("name", SITES)
def test_the_declaration_is_what_the_validation_reads(name: str) -> None:
    read = declaration.parse(dict(example(name)[1].declaration), "test")
    assert len(read.nodes) == SITES[name]["nodes"]


def test_the_switches_of_a_centre_are_what_pairs_are_chosen_by() -> None:
    read = declaration.parse(dict(example("centre")[1].declaration), "test")
    assert read.switches == {"ib-spine": tuple(f"ib-leaf{number}" for number in range(1, 5))}
    leaf, spine = Topology.declared(read).levels
    assert set(leaf.groups) == set(read.switches["ib-spine"])
    assert set(spine.groups["ib-spine"]) == set(read.nodes)


@pytest.mark.parametrize("name", SITES)
def test_pages_for_users_are_the_golden_ones(
    name: str, golden: Callable[[Path, str], None]
) -> None:
    pages = user_pages.files(example(name)[0].values.value(controller(name), "user_pages_site"))
    golden(GOLDEN / f"{PREFIX}{name}" / "users.md", pages["index.md"])
    check_pages(pages)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["university", "centre"])
def test_slurms_files_are_the_golden_ones(name: str, golden: Callable[[Path, str], None]) -> None:
    rendered = of_controller(name, "__slurm_rendered_files")
    for file, text in rendered.items():
        if text:
            golden(GOLDEN / f"{PREFIX}{name}" / file, text)
    refused = f"__slurm_site_settings | slurm_refused_settings('{RELEASE}', 'ctl1')"
    assert of_controller(name, refused) == []


def test_a_company_is_a_few_lines_and_a_matter_of_seconds(
    golden: Callable[[Path, str], None],
) -> None:
    """Its lines are made here by the role's functions, not through its templates."""
    before = time.process_time()  # without what another test has worked out before
    inventory, cluster = example("company")
    topology, partitions, reservations = (
        inventory.values.value("ctl1", f"slurm_{name}")
        for name in ("topology", "partitions", "reservations")
    )
    by_node = expanded(partitions, cluster.nodes, inventory.groups)
    lines = {
        "nodes.conf": nodes.node_lines(cluster.nodes),
        "gres.conf": nodes.gres_lines(cluster.nodes),
        "partitions.conf": nodes.partition_lines(by_node, cluster.nodes),
        "topology.conf": topologies.lines(topology, cluster.nodes),
    }
    assert time.process_time() - before < MOST_SECONDS
    for file, text in lines.items():
        golden(GOLDEN / f"{PREFIX}company" / file, "\n".join(text) + "\n")
    assert len(lines["nodes.conf"]) == 5
    assert len(lines["topology.conf"]) == 63
    known = {"groups": inventory.groups, "partitions": ["train", "small", "cpu"]}
    assert [
        *nodes.node_problems(cluster.nodes),
        *nodes.partition_problems(partitions),
        *topologies.problems(topology, cluster.nodes),
        *booked.problems(reservations, cluster.nodes, known | {"users": [], "accounts": []}),
    ] == []
    (acceptance,) = booked.module_arguments(reservations, cluster.nodes, inventory.groups)
    assert acceptance["settings"]["Nodes"] == "gpu[897-928]"


@pytest.mark.long
def test_a_companys_scheduler_keeps_what_the_health_checks_need() -> None:
    """The inventory sets SchedulerParameters and does not name it."""
    composed = of_controller("company", "__slurm_composed")
    parameters = composed["SchedulerParameters"].split(",")
    assert {"bf_window=10080", "defer", "nohold_on_prolog_fail"} <= set(parameters)
    assert "enable_configless" in composed["SlurmctldParameters"]


@pytest.mark.long
def test_a_company_gets_what_a_thousand_nodes_need_and_its_own_values_stand() -> None:
    composed = of_controller("company", "__slurm_composed")
    assert (composed["TreeWidth"], composed["MessageTimeout"]) == ("32", "60")
    values = example("company")[0].values
    assert values.value("gpu001", "node_base_size_sysctls")["net.core.somaxconn"] == 4096
    assert values.value("ctl1", "munge_threads") == 10
    assert values.value("gpu001", "munge_threads") == 2
    assert example("centre")[0].values.value("ctl1", "node_base_size_sysctls") == {}
