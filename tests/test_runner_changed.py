"""tests/runner/changed.py: which parts a change touches, and that no file is forgotten."""

from __future__ import annotations

import re

import pytest

from tests.conftest import REPOSITORY
from tests.processes import git
from tests.runner import changed
from tests.runner.changed import LINT, Tree, Unknown, parts_of, touched


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(REPOSITORY)


def tracked() -> list[str]:
    return [path for path in git(REPOSITORY, "ls-files", "-z").split("\0") if path]


def test_every_file_is_known_and_touches_something(tree):
    rules = {
        path: [rule for pattern, rule in changed.RULES if re.match(pattern, path)]
        for path in tracked()
    }
    assert [path for path, matches in rules.items() if not matches] == []
    # One file for each kind: a rule reads much of the checkout.
    kinds = {
        (matches[0], path.split("/")[1] if "/" in path else path): path
        for path, matches in rules.items()
    }
    for path in kinds.values():
        parts = parts_of(tree, path)
        assert parts, path
        files = [part.removeprefix("unit ") for part in parts if part.startswith("unit ")]
        assert [file for file in files if not (REPOSITORY / file).exists()] == []


def test_a_rule_that_no_file_needs_is_none():
    paths = tracked()
    for pattern, rule in changed.RULES:
        assert any(re.match(pattern, path) for path in paths), (pattern, rule)


def test_what_the_runner_runs_is_what_can_be_chosen(tree):
    script = (REPOSITORY / "scripts/test").read_text()
    checks = re.findall(r'^    check ("[^"]+"|\S+) run', script, re.MULTILINE)
    assert sorted(name.strip('"') for name in checks) == sorted(LINT)


@pytest.mark.parametrize("path", ["new-folder/file", "Makefile", "roles/munge.txt"])
def test_a_file_that_nobody_foresaw_is_unknown(tree, path):
    with pytest.raises(Unknown, match="no rule"):
        parts_of(tree, path)


@pytest.mark.parametrize(
    "path",
    [
        "playbooks/plugin_utils/packed.py",
        "group_vars/all/slurm.yml",
        "molecule/shared/converge.yml",
        "tests/role_play.py",
        "tests/runner/changed.py",
        "scripts/virtual-cluster",
        "requirements.txt",
        "conftest.py",
    ],
)
def test_what_all_stand_on_is_everything(tree, path):
    assert parts_of(tree, path) >= tree.everything


def test_a_role_is_itself_what_builds_on_it_its_unit_tests_and_the_cluster(tree):
    parts = parts_of(tree, "roles/slurm_database/tasks/main.yml")
    assert {"role slurm_database", "role slurm", "role slurmrestd", "role job_login"} <= parts
    assert {"role slurm_database/faults", "cluster", "cluster/ha"} <= parts
    assert {"unit roles/slurm_database/tests", "unit tests"} <= parts
    assert {"lint ansible-lint", "lint yamllint", "lint check-role-specs"} <= parts
    assert not {"role munge", "role grafana", "unit", "lint mypy"} & parts


def test_a_role_of_no_layer_touches_no_cluster_of_its_own_accord(tree):
    below = {role for role in tree.scenarios if "slurm" in tree.below[role]}
    assert {f"role {role}" for role in below} <= parts_of(tree, "roles/slurm/vars/main.yml")


def test_what_uses_a_role_in_a_longer_scenario_is_touched_too(tree):
    scenarios = tree.scenarios_that_apply(frozenset({"munge"}))
    assert "role slurm_exporter/scale" in scenarios


def test_the_validation_is_its_tests_the_roles_that_carry_it_and_the_cluster(tree):
    parts = parts_of(tree, "validation/payloads/node.py")
    assert {"unit validation/tests", "unit tests", "cluster", "lint mypy 3.10"} <= parts
    # node_health packs it; nvidia_driver has a filter of playbooks/ that reads its thresholds.
    assert {"role node_health", "role nvidia_driver"} <= parts
    assert "role munge" not in parts


def test_what_all_build_on_is_everything(tree):
    assert parts_of(tree, "cluster/readers/nvml.py") == tree.everything
    assert parts_of(tree, "cluster/tests/test_hostlist.py") == {
        "unit cluster/tests/test_hostlist.py",
        *(f"lint {name}" for name in ("ruff", "format", "mypy", "mypy 3.10", "pages")),
    }


def test_a_test_is_itself(tree):
    assert parts_of(tree, "tests/test_hold.py") == {
        "unit tests/test_hold.py",
        *(f"lint {name}" for name in ("ruff", "format", "mypy")),
    }
    assert "unit validation/tests" in parts_of(tree, "validation/tests/test_run.py")
    assert parts_of(tree, "roles/rdma/tests/test_rows.py") >= {"unit roles/rdma/tests"}
    # roles/grafana's tests read it.
    other = parts_of(tree, "roles/prometheus/tests/metrics.yml")
    assert "unit roles/prometheus/tests" in other


def test_a_scenario_is_that_of_its_role_or_of_the_cluster(tree):
    parts = parts_of(tree, "roles/munge/molecule/default/tests/test_munge.py")
    assert {part for part in parts if not part.startswith(("lint", "unit"))} == {"role munge"}
    parts = parts_of(tree, "molecule/growth/molecule.yml")
    assert "cluster/growth" in parts
    assert "cluster" not in parts


def test_a_page_is_its_tests_and_the_cluster_only_with_other_commands(tree, tmp_path):
    parts = parts_of(tree, "docs/understand/architecture.md", "HEAD")
    assert "unit tests" in parts
    assert "cluster" not in parts
    # As if the page had not been there.
    assert "cluster" in parts_of(tree, "docs/contribute/testing.md", "no-such-commit")
    assert "role slurmrestd" in parts_of(tree, "docs/operate/rest-api.md", "HEAD")


def test_a_folder_has_its_files_and_unit_has_all(tree):
    some = frozenset({"unit tests", "unit tests/test_hold.py", "unit roles/rdma/tests"})
    assert changed.without_repetition(some) == {"unit tests", "unit roles/rdma/tests"}
    assert changed.without_repetition(some | {"unit"}) == {"unit"}
    assert touched(tree, ["conftest.py", "tests/test_hold.py"], "HEAD") == tree.everything


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(changed, "REPOSITORY", tmp_path)
    git(tmp_path, "init", "--initial-branch=main")
    for name in ("one", "two", "three", "four"):
        (tmp_path / name).write_text(name)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "x")
    return tmp_path


def test_a_change_is_commits_what_is_not_committed_and_what_is_new(checkout):
    git(checkout, "switch", "-c", "branch")
    git(checkout, "mv", "one", "uno")
    git(checkout, "commit", "-m", "x")
    (checkout / "two").write_text("other")
    (checkout / "three").unlink()
    (checkout / "new").touch()
    git(checkout, "switch", "main", "-m")
    (checkout / "elsewhere").touch()
    git(checkout, "add", "elsewhere")
    git(checkout, "commit", "-m", "x", "elsewhere")
    git(checkout, "switch", "branch", "-m")
    tree = Tree(checkout)
    base = changed.git(tree, "merge-base", "main", "HEAD").strip()
    assert changed.paths_since(tree, base) == ["new", "one", "three", "two", "uno"]


@pytest.mark.parametrize("base", ["no-such-branch", "stranger"])
def test_a_base_without_a_common_commit_is_everything(checkout, capsys, monkeypatch, base):
    git(checkout, "switch", "--orphan", "stranger")
    git(checkout, "commit", "--allow-empty", "-m", "x")
    git(checkout, "switch", "main")
    monkeypatch.setattr(changed, "Tree", lambda: Tree(checkout))
    monkeypatch.setattr(Tree, "everything", frozenset({"all of it"}), raising=False)
    assert changed.main(base) == 0
    shown = capsys.readouterr()
    assert shown.out == "all of it\n"
    assert "this is everything" in shown.err
