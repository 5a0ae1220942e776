"""What both scenarios' tests share: the declared users, and all that a refusal must not change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

SCENARIO = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "molecule/default/molecule.yml"
DECLARED = yaml.safe_load(SCENARIO.read_text())["provisioner"]["inventory"]["group_vars"]["all"]
USERS: dict[str, dict[str, Any]] = {user["name"]: user for user in DECLARED["cluster_users_list"]}
NEW = {"name": "dan", "uid": 2004, "gid": 2004}
FILES = "/etc/passwd /etc/group /etc/shadow /etc/gshadow /etc/ssh/authorized_keys.d/*"


def listed(*more: dict[str, Any], **changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The scenario's users with changes by name, and further ones."""
    return [*({**user, **changes.get(name, {})} for name, user in USERS.items()), *more]


def everything(host) -> str:
    with host.sudo():
        return host.check_output(f"cat {FILES} | sha256sum; ls -lan /home")
