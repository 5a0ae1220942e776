"""What the inventory makes of it: off where nobody asked, the key where it must be; refusals."""

from pathlib import Path
from typing import Any

import pytest

from cluster import contract
from playbooks.plugin_utils.cluster import WORKED_OUT, work_out
from playbooks.plugin_utils.site import Site
from tests.standins.inventories import site, write
from tests.standins.slurm_files import cluster, of_role, policy, variables

RELEASE = "24.11"
HOSTS = ("ctl1", "ctl2", "login1", "gpu1", "cpu1")


def declared(folder: Path, **settings: Any) -> Site:
    inventory = site(write(folder, cluster(RELEASE), vars=variables(RELEASE) | settings))
    worked_out, refusals = work_out(inventory, contract.load())
    assert not refusals
    for raw in inventory.values.hosts.values():
        raw[WORKED_OUT] = {"cluster": worked_out.plain()}
    return inventory


def parts(inventory: Site) -> dict[str, list[str]]:
    return {host: of_role(inventory, "slurmrestd", host, "slurmrestd_parts") for host in HOSTS}


def text_of(inventory: Site, role: str, name: str) -> str:
    names = ("__slurm_controller_versions", "__slurm_database_policy")
    look = dict.fromkeys(names, policy(RELEASE))
    template = f"lookup('ansible.builtin.template', 'etc/slurm/{name}.j2')"
    return str(of_role(inventory, role, "ctl1", template, **look))


def slurm_conf(inventory: Site) -> str:
    return text_of(inventory, "slurm", "slurm.conf")


def slurmdbd_conf(inventory: Site) -> str:
    return text_of(inventory, "slurm_database", "slurmdbd.conf")


def test_nothing_of_it_is_anywhere_until_a_site_turns_it_on(tmp_path):
    inventory = declared(tmp_path)
    assert parts(inventory) == {host: [] for host in HOSTS}
    assert "AuthAlt" not in slurm_conf(inventory) + slurmdbd_conf(inventory)
    files = of_role(inventory, "slurm", "ctl1", "__slurm_slurmctld_files")
    assert "/etc/slurm/jwt_hs256.key" not in files


def test_the_key_is_with_slurmctld_and_slurmdbd_and_the_daemon_where_users_are(tmp_path):
    assert parts(declared(tmp_path, slurmrestd_enabled=True)) == {
        "ctl1": ["key"],
        "ctl2": ["key"],
        "login1": ["daemon"],
        "gpu1": [],
        "cpu1": [],
    }


def test_both_daemons_are_told_and_start_again_with_another_key(tmp_path):
    inventory = declared(tmp_path, slurmrestd_enabled=True, slurmrestd_token_lifespan_max=3600)
    key = "/etc/slurm/jwt_hs256.key"
    text = slurm_conf(inventory)
    assert "AuthAltTypes=auth/jwt\n" in text
    assert f"AuthAltParameters=jwt_key={key},max_token_lifespan=3600\n" in text
    assert "AuthType=auth/munge\n" in text
    assert key in of_role(inventory, "slurm", "ctl1", "__slurm_slurmctld_files")
    assert of_role(inventory, "slurm", "ctl1", "__slurm_problems") == []
    text = slurmdbd_conf(inventory)
    assert "AuthAltTypes=auth/jwt\n" in text
    assert f"AuthAltParameters=jwt_key={key}\n" in text
    assert of_role(inventory, "slurm_database", "ctl1", "__slurm_database_problems") == []


def test_what_the_site_sets_against_it_is_named(tmp_path):
    inventory = declared(
        tmp_path,
        slurmrestd_enabled=True,
        slurm_settings={"AuthAltTypes": "auth/slurm"},
        slurm_database_settings={"AuthAltParameters": "jwt_key=/site/key"},
    )
    problems = of_role(inventory, "slurmrestd", "ctl1", "__slurmrestd_problems")
    assert [sentence.split(" is ")[0] for sentence in problems] == [
        "slurm_settings.AuthAltTypes",
        "slurm_database_settings.AuthAltParameters",
    ]


@pytest.mark.parametrize(
    ("socket", "taken"),
    [
        ("/run/slurmrestd/slurmrestd.socket", True),
        ("/run/site/api", True),
        ("", False),
        ("0.0.0.0:6820", False),
        ("127.0.0.1:6820", False),
        ("https://10.0.0.1:6820", False),
        ("/tmp/slurmrestd.socket", False),
        ("/run/slurmrestd.socket", False),
        ("/run/a/../../tmp/x", False),
    ],
)
def test_tokens_are_taken_from_this_host_alone(tmp_path, socket, taken):
    inventory = declared(tmp_path, slurmrestd_enabled=True, slurmrestd_socket=socket)
    tasks = inventory.read(Path(__file__).parents[1] / "tasks/refuse.yml")
    (task,) = (task for task in tasks if "slurmrestd_socket" in task["name"])
    judged = of_role(inventory, "slurmrestd", "login1", task["ansible.builtin.assert"]["that"])
    assert judged is taken
