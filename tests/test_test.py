"""scripts/test in a small checkout whose tools are stand-ins: what it runs, counts and refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import checkers

# Notes how it was called; fails if its name and arguments hold the word in $FAILS.
STAND_IN = r"""#!/bin/sh
called="$(basename "$0") $*"
echo "$called os=$PLUMBLINE_OS" >>"$CALLS"
case "$called" in *"${FAILS:-nothing fails}"*) echo "words of the failure"; exit 1 ;; esac
case "$PLUMBLINE_LONG_TESTS $called" in
    no\ molecule*) echo "SKIPPED [2] tests/test_two.py:9: left for scripts/test --full" ;;
esac
"""
TOOLS = ("ansible-lint", "molecule", "mypy", "pytest", "python", "ruff", "shellcheck", "yamllint")
CHECKERS = ("prometheus", "promtool", "amtool", "rsyslogd")
TREE = (
    "playbooks/site.yml",
    "roles/one/tasks/main.yml",
    "roles/one/molecule/default/molecule.yml",
    "roles/one/molecule/other/molecule.yml",
    "roles/two/molecule/default/molecule.yml",
    "roles/two/molecule/default/tests/test_two.py",
    "molecule/default/molecule.yml",
    "validation/run.py",
)


class Checkout:
    def __init__(self, repository: Path, folder: Path) -> None:
        self.folder = folder
        self.log = folder.parent / "calls"
        subprocess.run(["git", "init", "--quiet", folder], check=True)
        programs = [f".venv/bin/{tool}" for tool in TOOLS]
        programs += [f"scripts/{name}" for name in ("setup", "test-role", "virtual-cluster")]
        programs += [f".cache/checkers/usr/bin/{name}" for name in CHECKERS]
        for name in programs:
            self.write(name, STAND_IN).chmod(0o755)
        for name in ("test", "role-chains"):
            shutil.copy(repository / "scripts" / name, folder / "scripts" / name)
        self.write(".gitignore", ".venv/\n.cache/\n")
        self.write("scripts/check", "#!/usr/bin/env python3\n")
        for name in TREE:
            self.write(name, "")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def builds_on(self, role: str, other: str) -> None:
        play = f"- hosts: all\n  roles:\n    - role: {other}\n"
        self.write(f"roles/{role}/molecule/default/prepare.yml", play)

    def test(
        self, *arguments: str, fails: str = "", path: str = os.environ["PATH"]
    ) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": path, "CALLS": str(self.log)}
        if fails:
            environment["FAILS"] = fails
        return subprocess.run(
            [self.folder / "scripts/test", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def checkout(repository, tmp_path):
    return Checkout(repository, tmp_path / "checkout")


def test_without_a_stage_everything_runs(checkout):
    done = checkout.test()
    assert done.returncode == 0
    # 8 of lint, unit, 2 roles, the cluster
    assert done.stdout.splitlines()[-1] == "13 passed, 0 failed"
    calls = checkout.calls()
    assert calls[:2] == ["setup --with-torch os=", "virtual-cluster packages os="]
    assert "ansible-lint  os=" in calls
    for role in ("one", "two"):
        (call,) = (call for call in calls if f" {role} test os=debian13" in call)
        assert call.startswith(f"test-role --on test-{role}-")
    assert "molecule test --scenario-name default os=debian13" in calls


def test_full_is_every_scenario_on_both_systems_from_a_bare_node(checkout):
    checkout.builds_on("two", "one")
    done = checkout.test("--full", "roles", "cluster")
    assert done.stdout.splitlines()[-1] == "8 passed, 0 failed"
    assert "test-role one test --scenario-name other os=debian12" in checkout.calls()
    assert not [call for call in checkout.calls() if "--on" in call]


def test_what_is_left_for_full_is_counted_and_full_leaves_nothing(checkout):
    *_, left, counted = checkout.test("cluster").stdout.splitlines()
    assert (left, counted) == (
        "2 tests marked `long` were left for scripts/test --full",
        "1 passed, 0 failed",
    )
    assert "were left" not in checkout.test("--full", "cluster").stdout


def test_roles_that_build_on_each_other_share_a_node(checkout):
    checkout.builds_on("one", "two")
    done = checkout.test("roles")
    assert done.stdout.splitlines()[-1] == "2 passed, 0 failed"
    packages, *calls = [call.partition(" os=")[0] for call in checkout.calls()[1:]]
    assert packages == "virtual-cluster packages"
    node = calls[0].rpartition(" ")[2]
    assert node.startswith("test-two-")
    assert calls == [
        f"virtual-cluster down --name {node}",
        f"test-role --on {node} two test",
        f"test-role --on {node} one test",
        f"virtual-cluster down --name {node}",
    ]


def test_after_a_role_that_failed_the_next_has_a_bare_node(checkout):
    checkout.builds_on("one", "two")
    done = checkout.test("roles", fails="two test")
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed"
    calls = [call.split()[0:2] + call.split()[3:4] for call in checkout.calls()[2:]]
    down = ["virtual-cluster", "down"]
    assert [call[:2] for call in calls] == [
        down,
        ["test-role", "--on"],
        down,
        ["test-role", "--on"],
        down,
    ]


def test_a_role_whose_turn_never_came_has_failed(checkout):
    checkout.builds_on("one", "two")
    done = checkout.test("roles", fails="virtual-cluster down")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 2 failed"
    assert "The chain that this role is in ended before its turn." in done.stdout


def test_roles_that_cannot_be_planned_are_a_failure(checkout):
    checkout.builds_on("one", "tow")
    done = checkout.test("roles")
    assert done.returncode == 1
    assert "there is no role tow with a scenario" in done.stdout


def test_files_go_to_the_tools_that_read_them(checkout):
    checkout.test("lint")
    calls = checkout.calls()
    older, mypy = sorted(call for call in calls if call.startswith("mypy"))
    assert "scripts/check" in mypy  # by its first line; it has no extension
    assert "validation/run.py" in mypy
    assert "test_two.py" not in mypy
    assert older.startswith("mypy --python-version 3.10 ")
    assert "validation/run.py" in older
    assert "scripts/check" not in older
    (shellcheck,) = (call for call in calls if call.startswith("shellcheck"))
    assert "scripts/test" in shellcheck
    assert "scripts/check" not in shellcheck


@pytest.mark.parametrize(
    ("fails", "failed"),
    [
        (" one test", "role one debian13"),
        ("ruff format", "lint format"),
        ("ansible-lint", "lint ansible-lint"),
        ("pytest", "unit"),
        ("molecule test", "cluster debian13"),
    ],
)
def test_a_failure_is_shown_counted_and_stops_nothing(checkout, fails, failed):
    done = checkout.test(fails=fails)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-1] == "12 passed, 1 failed"
    (line,) = (line for line in lines if "FAILED  .cache/test/" in line)
    assert line.startswith(failed)
    assert lines[lines.index(line) + 1] == "    words of the failure"


@pytest.mark.parametrize(
    ("stage", "gone", "failed"),
    [
        ("roles", "roles", "roles debian13"),
        ("cluster", "molecule", "cluster debian13"),
        ("lint", "playbooks", "lint ansible-lint"),
        ("lint", "scripts/check", "lint mypy"),
    ],
)
def test_nothing_to_check_is_a_failure(checkout, stage, gone, failed):
    for name in (gone, "roles", "validation", *(["scripts/role-chains"] * (stage == "lint"))):
        path = checkout.folder / name
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    done = checkout.test(stage)
    assert done.returncode == 1
    assert f"{failed:32}" in done.stdout
    assert "There is no file to check" in done.stdout


def test_an_environment_that_cannot_be_made_ends_it(checkout):
    done = checkout.test(fails="setup")
    assert done.returncode == 1
    assert checkout.calls() == ["setup --with-torch os="]


def test_an_unknown_stage_is_refused(checkout):
    done = checkout.test("lnit")
    assert done.returncode == 2
    assert "unknown stage: lnit" in done.stderr


# --- the daemons' own checkers -------------------------------------------------------------------

APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$CALLS"
[ "$1" = install ] || exit 0
for word; do case $word in Dir::Cache::archives=*) folder=${word#*=} ;; esac; done
[ ! -e offline ] || { echo "E: Failed to fetch" >&2; exit 100; }
touch "$folder/one.deb" "$folder/two.deb"
"""
DPKG = """#!/bin/sh
echo "dpkg $1 $(basename "$2")" >>"$CALLS"
mkdir -p "$3/usr/bin"
for name in promtool amtool rsyslogd prometheus; do
    echo "#!/bin/sh" >"$3/usr/bin/$name"
    chmod +x "$3/usr/bin/$name"
done
"""


@pytest.fixture
def bare(checkout, tmp_path):
    """The PATH of a machine without a checker; what it gets from its distribution is made up."""
    shutil.rmtree(checkout.folder / ".cache")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("apt-get", APT_GET), ("dpkg", DPKG)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for place in os.environ["PATH"].split(":"):
        for program in Path(place).glob("*"):
            if program.name not in CHECKERS and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return str(folder)


def test_checkers_are_unpacked_once_and_not_installed(checkout, bare):
    first = checkout.test("unit", path=bare)
    assert first.stdout.startswith("test: unpacking from the distribution, installing nothing: ")
    calls = [call for call in checkout.calls() if call.startswith(("apt-get install", "dpkg"))]
    assert "--download-only" in calls[0]
    assert calls[0].endswith(" prometheus prometheus-alertmanager rsyslog")
    assert calls[1:] == ["dpkg --extract one.deb", "dpkg --extract two.deb"]
    unpacked = [path.name for path in (checkout.folder / ".cache/checkers").rglob("*")]
    assert sorted(unpacked) == [
        "amtool",
        "bin",
        "partial",
        "prometheus",
        "promtool",
        "rsyslogd",
        "usr",
    ]
    assert "unpacking" not in checkout.test("unit", path=bare).stdout


def test_checkers_that_cannot_be_had_are_for_the_unit_tests_to_miss(checkout, bare):
    (checkout.folder / "offline").touch()
    done = checkout.test("unit", path=bare)
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed"
    assert "E: Failed to fetch" in done.stderr
    assert "unpacking" in checkout.test("unit", path=bare).stdout


def test_the_documentations_commands_need_them_too_and_lint_does_not(checkout, bare):
    assert "unpacking" not in checkout.test("lint", path=bare).stdout
    assert "unpacking" in checkout.test("cluster", path=bare).stdout


def test_a_missing_checker_fails_a_test_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(checkers, "UNPACKED", tmp_path)
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    with pytest.raises(
        pytest.fail.Exception, match=r"^promtool is missing: run `scripts/test unit`"
    ):
        checkers.checker("promtool")
