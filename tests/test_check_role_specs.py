"""scripts/check-role-specs, on a small tree that is right and then wrong in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

DEFAULTS = "roles/store/defaults/main.yml"
SPECS = "roles/store/meta/argument_specs.yml"
README = "roles/store/README.md"
LINK = "[meta/argument_specs.yml](meta/argument_specs.yml)"

TREE = {
    DEFAULTS: """
store_port: 2049
store_host: "{{ inventory_hostname }}"
store_exports: [{path: /home}]
""",
    SPECS: """
argument_specs:
  main:
    short_description: A store
    options:
      store_password: {type: str, description: Secret., required: true, no_log: true}
      store_password_file: {type: str, description: Where it is., required: true}
      store_key_generate: {type: bool, description: A switch., required: true}
      store_port: {type: int, description: Port., default: 2049}
      store_host: {type: str, description: Host.}
      store_exports:
        type: list
        elements: dict
        description: [What is exported., 'To whom: a | b.']
        default: [{path: /home}]
        options:
          path: {type: path, description: Folder., required: true}
          mode: {type: str, description: Access., choices: [ro, rw]}
""",
    "roles/store/vars/main.yml": "__store_packages: [nfs]",
    README: f"# store\n\n{LINK}\n",
    # A role whose name begins with another's.
    "roles/store_client/defaults/main.yml": "store_client_mounts: []",
    "roles/store_client/meta/argument_specs.yml": """
argument_specs:
  main:
    options:
      store_client_mounts: {type: list, elements: str, description: Mounts., default: []}
""",
    "roles/store_client/README.md": LINK,
    # Where variables are set.
    "group_vars/all/store.yml": "store_port: 1\nstore_client_mounts: [a]\nother: 1",
    "group_vars/all/secrets.yml": "$ANSIBLE_VAULT;1.1;AES256\n6162",
    "inventory/hosts.yml": """
all:
  vars: {store_host: a}
  children:
    nodes:
      hosts:
        n1: {store_port: 2, store_password: !vault x}
        n2:
""",
    "playbooks/store.yml": "[{hosts: all, vars: {store_port: 3}, tasks: []}]",
    "roles/store/molecule/default/molecule.yml": """
provisioner: {inventory: {group_vars: {all: {store_port: 4}}}}
""",
}


@pytest.fixture
def tree(tmp_path, check_role_specs):
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_right_tree_has_no_problem(tree, check_role_specs):
    assert check_role_specs.check(tree) == (2, [])


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        pytest.param(
            DEFAULTS, "store_port: 2049", "store_port: 2049\nstore_extra: 1",
            f"{DEFAULTS}: store_extra is not described; add it to meta/argument_specs.yml.",
            id="default-without-option",
        ),
        pytest.param(
            DEFAULTS, "store_port: 2049\n", "",
            f"{SPECS}: store_port has no default; set one in defaults/main.yml, "
            "or `required: true`.",
            id="option-without-default",
        ),
        pytest.param(
            DEFAULTS, "store_port", "store_password: changeme\nstore_port",
            f"{DEFAULTS}: store_password is required and has a default; remove one of the two.",
            id="required-with-default",
        ),
        pytest.param(
            DEFAULTS, "2049", "2050",
            f"{SPECS}: the default of store_port is 2049, but in defaults/main.yml it is 2050; "
            "make them the same.",
            id="different-default",
        ),
        pytest.param(
            DEFAULTS, "2049", '"2049"',
            f"{SPECS}: the default of store_port is 2049, but in defaults/main.yml it is "
            '"2049"; make them the same.',
            id="default-of-another-type",
        ),
        pytest.param(
            SPECS, ", default: 2049", "",
            f"{SPECS}: store_port lacks its default; add `default: 2049`.",
            id="literal-default-not-in-spec",
        ),
        pytest.param(
            SPECS, "Host.", "Host., default: '{{ other }}'",
            f'{SPECS}: the default of store_host is "{{{{ other }}}}", but in defaults/main.yml '
            'it is "{{ inventory_hostname }}"; make them the same.',
            id="other-expression",
        ),
        pytest.param(
            SPECS, "{type: int, description: Port.,", "{type: int,",
            f"{SPECS}: store_port has no description; add it.",
            id="no-description",
        ),
        pytest.param(
            SPECS, "path: {type: path, ", "path: {",
            f"{SPECS}: store_exports[].path has no type; add it.",
            id="no-type-of-a-sub-option",
        ),
        pytest.param(
            SPECS, "        elements: dict\n", "",
            f"{SPECS}: store_exports is a list of anything; add `elements`.",
            id="list-without-elements",
        ),
        pytest.param(
            SPECS, ", no_log: true", "",
            f"{SPECS}: store_password looks like a secret; add `no_log: true`.",
            id="secret-in-the-log",
        ),
        pytest.param(
            SPECS, "mode: {", "token: {",
            f"{SPECS}: store_exports[].token looks like a secret; add `no_log: true`.",
            id="secret-in-a-sub-option",
        ),
        pytest.param(
            SPECS, "      store_port:",
            "      port: {type: int, description: Port., required: true}\n"
            "      store_port:",
            f"{SPECS}: port belongs to no role; name it store_something.",
            id="public-name",
        ),
        pytest.param(
            SPECS, "      store_port:",
            "      store_client_x: {type: int, description: Port., required: true}\n"
            "      store_port:",
            f"{SPECS}: store_client_x reads as one of the role store_client; "
            "name it store_something.",
            id="name-of-another-role",
        ),
        pytest.param(
            "roles/store/vars/main.yml", "__store", "_store",
            "roles/store/vars/main.yml: _store_packages is not named as the role's own; "
            "name it __store_something.",
            id="private-name",
        ),
        pytest.param(
            README, "(meta/argument_specs.yml)", "(meta/main.yml)",
            f"{README}: does not say where the variables are described; add a link, `{LINK}`.",
            id="no-link",
        ),
        *(
            pytest.param(
                file, "store_port", "store_prot",
                f"{file}: store_prot is not a variable of the role store; "
                f"its variables are in {SPECS}.",
                id=f"misspelt-in-{file.replace('/', '-')}",
            )
            for file in (
                "group_vars/all/store.yml",
                "inventory/hosts.yml",
                "playbooks/store.yml",
                "roles/store/molecule/default/molecule.yml",
            )
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tree, check_role_specs, file, old, new, problem):
    edit(tree / file, old, new)
    _, problems = check_role_specs.check(tree)
    assert problem in problems


def test_a_variable_of_the_contract_may_begin_like_a_role(tree, check_role_specs):
    edit(tree / "group_vars/all/store.yml", "store_port: 1", "store_tenants: [a]")
    _, problems = check_role_specs.check(tree)
    assert len(problems) == 1
    (tree / "cluster").mkdir()
    contract = tree / "cluster/contract.yml"
    contract.write_text("variables: {store_tenants: {scope: cluster, type: list}}")
    assert check_role_specs.check(tree) == (2, [])


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (SPECS, "a: [", f"{SPECS}: while parsing"),
        (SPECS, "options: {}", f"{SPECS}: has no argument_specs.main"),
        (DEFAULTS, "[a]", f"{DEFAULTS}: is a list, must be a mapping."),
        ("inventory/hosts.yml", "a: [", "inventory/hosts.yml: while parsing"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem(tree, check_role_specs, file, text, problem):
    (tree / file).write_text(text)
    _, problems = check_role_specs.check(tree)
    assert any(p.startswith(problem) for p in problems)


def test_a_role_without_spec_is_a_problem(tree, check_role_specs):
    (tree / SPECS).unlink()
    _, problems = check_role_specs.check(tree)
    assert any(p.startswith(f"{SPECS}: ") for p in problems)


def test_no_role_at_all_is_a_problem(tmp_path, check_role_specs):
    count, problems = check_role_specs.check(tmp_path)
    assert count == 0
    assert problems == ["roles: has no role; a check of nothing is no check."]


def test_links_are_not_followed(tree, check_role_specs):
    """playbooks/group_vars links to group_vars: one problem is said once."""
    (tree / "playbooks/group_vars").symlink_to("../group_vars")
    edit(tree / "group_vars/all/store.yml", "store_port", "store_prot")
    _, problems = check_role_specs.check(tree)
    assert len(problems) == 1
