"""Whether the playbooks have Slurm ask for associations."""

import pytest

from tests.standins.slurm_files import declared, of_role, policy

USERS = [{"name": "ada", "account": "research"}]
ASKED = "associations,limits,qos,safe"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ""),
        ({"slurm_accounts": [{"name": "research"}]}, ""),
        ({"slurm_users": USERS}, ASKED),
        ({"slurm_users": USERS, "slurm_associations_enforce": False}, ""),
        ({"slurm_users": USERS, "slurm_associations_enforce": "false"}, ""),
        ({"slurm_associations_enforce": True}, ASKED),  # associations from elsewhere
        ({"slurm_users": USERS, "slurm_settings": {"AccountingStorageEnforce": "safe"}}, "safe"),
        ({"slurm_users": USERS, "slurm_accounting_host": ""}, ""),
    ],
)
def test_slurm_asks_where_users_are_declared_unless_the_site_says_otherwise(variables, expected):
    look = {"__slurm_controller_versions": policy("24.11")}
    composed = of_role(declared("24.11"), "slurm", "ctl1", "__slurm_composed", **variables, **look)
    assert composed.get("AccountingStorageEnforce", "") == expected
