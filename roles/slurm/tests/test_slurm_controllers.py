"""Two controllers: which one is asked, which one restarts, and which hosts have files or sackd."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.standins.inventories import REPOSITORY
from tests.standins.slurm_files import declared, of_role

ROLE = Path(__file__).parents[1]
RELEASE = "24.11"


def of(host: str, expression: str, **variables: Any) -> Any:
    return of_role(declared(RELEASE), "slurm", host, expression, **variables)


@pytest.mark.parametrize(
    ("silenced", "controller"),
    [
        ([], "ctl1"),
        (["machine-twice"], "ctl1"),
        (["controller-away"], "ctl1"),  # of the kind: nobody is named
        (["controller-away:ctl2"], "ctl1"),
        (["controller-away:ctl1"], "ctl2"),
        (["controller-away:ctl1", "controller-away:ctl2"], "ctl1"),
    ],
)
def test_the_first_controller_that_is_not_said_to_be_away_is_asked(silenced, controller):
    variables = {"cluster_silenced_refusals": silenced}
    assert of("gpu1", "cluster_controller", **variables) == controller
    assert of("gpu1", "__slurm_controller", **variables) == controller
    assert of("ctl1", "__slurm_is_first_controller", **variables) is (controller == "ctl1")


@pytest.mark.parametrize(
    ("run", "left"), [(["ctl1", "ctl2", "gpu1"], []), (["ctl1"], ["ctl2"]), (["gpu1"], None)]
)
def test_who_is_not_in_the_run_is_left_out(run, left):
    absent = of("ctl1", "__slurm_absent_controllers", ansible_play_hosts=run)
    assert absent == (["ctl1", "ctl2"] if left is None else left)


@pytest.mark.parametrize(
    ("host", "action", "restarts"),
    [
        ("ctl1", "restart", True),
        ("ctl1", "reload", False),  # `scontrol reconfigure` does it
        ("ctl2", "restart", True),
        ("ctl2", "reload", True),
        ("ctl2", "none", False),
    ],
)
def test_a_backup_restarts_for_what_the_primary_reads_again(host, action, restarts):
    handlers = yaml.safe_load((ROLE / "handlers/main.yml").read_text())
    (when,) = (each["when"] for each in handlers if each["name"] == "Restart slurmctld")
    assert of(host, when, __slurm_slurmctld={"action": action}) is restarts


def test_controllers_and_databases_are_changed_one_by_one_the_primary_first():
    plays = yaml.safe_load((REPOSITORY / "playbooks/slurm.yml").read_text())
    by_name = {play["name"]: play for play in plays}
    for name in ("Set up accounting", "Set up the controllers"):
        assert by_name[name]["serial"] == 1
        assert by_name[name]["any_errors_fatal"]
        assert "order" not in by_name[name]


@pytest.mark.parametrize(
    ("roles", "login", "delivery", "sackd", "files"),
    [
        (["login"], "files", "configless", False, True),
        (["login"], "sackd", "configless", True, False),
        (["compute", "login"], "sackd", "configless", False, True),
        (["controller", "login"], "sackd", "configless", False, True),
        (["compute"], "sackd", "configless", False, False),
        (["compute"], "files", "files", False, True),
    ],
)
def test_a_host_has_files_or_what_fetches_them(roles, login, delivery, sackd, files):
    variables = {"slurm_login_delivery": login, "slurm_config_delivery": delivery}
    variables |= {"slurm_roles": roles}
    assert of("login1", "__slurm_has_sackd", **variables) is sackd
    assert of("login1", "__slurm_has_files", **variables) is files
    assert of("login1", "'sackd' in __slurm_parts", **variables) is sackd


def test_sackd_and_slurmd_know_all_controllers():
    servers = "--conf-server 192.0.2.1:6817,192.0.2.2:6817"
    started = of("login1", "__slurm_units.sackd.Service.Environment")
    assert started == f'SACKD_OPTIONS="{servers}"'
    assert servers in of("gpu1", "__slurm_slurmd_options")
