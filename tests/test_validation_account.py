"""As whom the validation submits its jobs: an account that may do nothing else."""

from __future__ import annotations

import pytest

from cluster import declaration
from playbooks.plugin_utils.judge import cautions
from tests import ansible_processes
from tests.live_cluster import REPOSITORY
from tests.standins.inventories import good, hosts, site, write

ACCOUNT = "plumbline-validation"
ALICE = {"name": "alice", "account": "physics"}
PHYSICS = {"name": "physics"}


@pytest.fixture
def declared(tmp_path):
    """A function from a site's variables to the inventory as it is read."""

    def read(**variables):
        return site(write(tmp_path / "i", good(), {"group_vars/all.yml": variables}))

    return read


def of(read, host, *names):
    return [read.values.value(host, name) for name in names]


@pytest.mark.parametrize(
    ("variables", "user", "made"),
    [
        ({}, ACCOUNT, ACCOUNT),
        ({"validation_user": "alice"}, "alice", ""),  # the site's own is left alone
        ({"validation_user": ""}, None, ""),
        ({"validation_submission": {"account": "physics"}}, ACCOUNT, ACCOUNT),
        ({"validation_submission": {"user": "bob"}}, "bob", ACCOUNT),
    ],
)
def test_jobs_are_submitted_by_an_account_of_ours_unless_a_site_has_one(
    declared, variables, user, made
):
    read = declared(**variables)
    document, maker = of(read, "login1", "cluster_declaration", "validation_runtime_user")
    assert maker == made
    assert declaration.parse(document, "test").submission.user == user


@pytest.mark.parametrize(
    ("variables", "users", "accounts"),
    [
        # Nothing is enforced, and nothing is kept in order.
        ({}, [], []),
        (
            {"slurm_accounts": [PHYSICS], "slurm_users": [ALICE]},
            [ALICE, {"name": ACCOUNT, "account": ACCOUNT}],
            ["physics", ACCOUNT],
        ),
        (
            {
                "slurm_accounts": [PHYSICS],
                "slurm_users": [ALICE],
                "slurm_qos": [{"name": "high"}],
                "validation_submission": {"account": "physics", "qos": "high"},
            },
            [ALICE, {"name": ACCOUNT, "account": "physics", "qos": ["high"]}],
            ["physics"],
        ),
        # Declared by the site: as it is there.
        (
            {"slurm_accounts": [PHYSICS], "slurm_users": [{"name": ACCOUNT, "account": "physics"}]},
            [{"name": ACCOUNT, "account": "physics"}],
            ["physics"],
        ),
        (
            {
                "slurm_accounts": [PHYSICS],
                "slurm_users": [ALICE],
                "validation_user": "alice",
            },
            [ALICE],
            ["physics"],
        ),
    ],
)
def test_it_has_an_association_where_users_are_declared(declared, variables, users, accounts):
    read = declared(**variables)
    names = ("slurm_associations_users", "slurm_associations_accounts")
    has_users, has_accounts = of(read, "ctl1", *names)
    assert has_users == users
    assert [account["name"] for account in has_accounts] == accounts


def test_accounting_hides_jobs_where_it_knows_who_has_them(declared):
    """slurmdbd hides from users without an association their own jobs as well."""
    assert of(declared(), "ctl1", "slurm_database_private_data") == [[]]
    users = declared(slurm_accounts=[PHYSICS], slurm_users=[ALICE])
    assert of(users, "ctl1", "slurm_database_private_data") == [["jobs", "usage"]]


@pytest.mark.parametrize(
    ("monitored", "variables", "folder"),
    [
        (False, {}, ""),  # nobody would read it
        (True, {}, "/var/lib/prometheus/node-exporter-validation"),
        (True, {"node_exporter_textfile_folder": "/srv/textfiles"}, "/srv/textfiles-validation"),
        (True, {"validation_user": "alice"}, ""),  # the site's own may not write there
    ],
)
def test_tests_in_the_background_tell_prometheus_where_it_is(
    tmp_path, monitored, variables, folder
):
    groups = {**good(), **({"monitoring": hosts(mon1="10.0.0.3")} if monitored else {})}
    read = site(write(tmp_path / "i", groups, {"group_vars/all.yml": variables}))
    assert of(read, "login1", "validation_runtime_background_metrics") == [folder]


def test_its_home_is_where_homes_are(declared):
    names = ("validation_runtime_user_home", "validation_runtime_user_make_home")
    assert of(declared(), "gpu1", *names) == [f"/var/lib/{ACCOUNT}", True]
    shared = declared(
        shared_storage_mounts=[{"path": "/shared", "kind": "external", "type": "nfs4"}],
        shared_storage_folders=[{"path": "/shared/home", "tier": "home"}],
    )
    assert of(shared, "gpu1", *names) == [f"/shared/home/{ACCOUNT}", False]
    [home] = of(shared, "ctl1", "shared_storage_homes")[0]
    assert home == {"path": f"/shared/home/{ACCOUNT}", "owner": "61000", "mode": "0700"}


def test_the_account_that_ansible_comes_as_should_be_no_user_of_slurm(declared):
    users = {"slurm_accounts": [PHYSICS], "slurm_users": [ALICE]}
    assert cautions(declared(**users, ansible_user="admin")) == []
    assert cautions(declared(ansible_user="admin")) == []
    [sentence] = cautions(declared(**users, ansible_user="alice"))
    assert sentence.startswith("slurm_users has alice, the account that Ansible comes as.")
    assert "Take alice out of slurm_users" in sentence


@pytest.mark.long
def test_no_example_makes_the_account_of_ansible_a_user_of_slurm():
    examples = [path for path in REPOSITORY.glob("inventory/example*") if path.is_dir()]
    assert len(examples) > 2
    assert {path.name: told for path in examples if (told := cautions(site(path)))} == {}


@pytest.mark.long
def test_a_run_says_so_and_goes_on(tmp_path):
    inventory = write(
        tmp_path / "i",
        good(),
        {
            "group_vars/all.yml": {
                "slurm_accounts": [PHYSICS],
                "slurm_users": [ALICE],
                "ansible_user": "alice",
            }
        },
    )
    preflight = REPOSITORY / "playbooks/preflight.yml"
    run = ansible_processes.run("-i", inventory, preflight, "--skip-tags", "hosts")
    assert run.returncode == 0, run.stdout
    assert "slurm_users has alice" in " ".join((run.stdout + run.stderr).split())
