"""scripts/test in a small checkout whose tools are stand-ins: what it runs, counts and refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import checkers
from tests.patience import until
from tests.processes import git, run
from tests.runner.changed import LINT

# Notes how it was called; fails if its name and arguments hold the word in $FAILS.
STAND_IN = r"""#!/bin/sh
called="$(basename "$0") $*"
case "$called" in *"virtual-cluster cpu "*) echo 7 0; exit ;; esac # asked around every part
echo "$called os=$PLUMBLINE_OS" >>"$CALLS"
case "$called" in *"${FAILS:-nothing fails}"*) echo "words of the failure"; exit 1 ;; esac
case "$PLUMBLINE_LONG_TESTS $called" in
    no\ molecule*) echo "SKIPPED [2] tests/test_two.py:9: left for scripts/test --full" ;;
esac
"""
TOOLS = (
    "ansible-playbook",
    "molecule",
    "mypy",
    "pytest",
    "python",
    "ruff",
    "shellcheck",
    "yamllint",
)
SCRIPTS = ("setup", "test-role", "virtual-cluster", "lint-ansible")
CHECKERS = ("prometheus", "promtool", "amtool", "rsyslogd", "age", "skopeo", "docker-registry")
TREE = (
    "playbooks/site.yml",
    "roles/one/tasks/main.yml",
    "roles/one/molecule/default/molecule.yml",
    "roles/one/molecule/other/molecule.yml",
    "roles/two/molecule/default/molecule.yml",
    "roles/two/molecule/default/tests/test_two.py",
    "molecule/default/molecule.yml",
    "molecule/growth/molecule.yml",
    "validation/run.py",
    "validation/tests/test_run.py",
)
PARTS = (
    *(f"lint {name}" for name in LINT),
    "unit",
    "role one debian13",
    "role two debian13",
    "cluster debian13",
)
# Far more than a stand-in costs, in yardsticks that are stand-ins as well.
PLENTY = 1e6
ON_NODES = re.compile("role|cluster")


class Checkout:
    def __init__(self, repository: Path, folder: Path) -> None:
        self.folder = folder
        self.log = folder.parent / "calls"
        folder.mkdir()
        git(folder, "init", "--quiet")
        programs = [f".venv/bin/{tool}" for tool in TOOLS]
        programs += [f"scripts/{name}" for name in SCRIPTS]
        programs += [f".cache/checkers/usr/bin/{name}" for name in CHECKERS]
        for name in programs:
            self.write(name, STAND_IN).chmod(0o755)
        # `python` is a stand-in, for programs of the checkout; this one is for the runner's own.
        # What these import from elsewhere (the version) is the real checkout's.
        real = f'#!/bin/sh\nPYTHONPATH="{repository}" exec "{sys.executable}" "$@"\n'
        self.write(".venv/bin/python3", real).chmod(0o755)
        for name in ("test", "role-chains"):
            shutil.copy(repository / "scripts" / name, folder / "scripts" / name)
        shutil.copytree(repository / "tests/runner", folder / "tests/runner")
        self.budget(dict.fromkeys(PARTS, PLENTY))
        self.write(".gitignore", ".venv/\n.cache/\ntests/runner/\n")
        self.write("scripts/check", "#!/usr/bin/env python3\n")
        for name in TREE:
            self.write(name, "")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def budget(self, records: dict[str, float]) -> None:
        lines = [f"{part}\tcontrol\t{record}\n" for part, record in records.items()]
        lines += [f"{part}\tnodes\t{PLENTY}\n" for part in records if ON_NODES.match(part)]
        self.write("tests/budget.tsv", "".join(lines))

    def commit(self) -> None:
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--message=x")

    def builds_on(self, role: str, other: str, **variables: object) -> None:
        variables |= {"scenario_builds_on": [other]}
        scenario = {"provisioner": {"inventory": {"group_vars": {"all": variables}}}}
        self.write(f"roles/{role}/molecule/default/molecule.yml", json.dumps(scenario))

    def test(
        self, *arguments: str, fails: str = "", path: str = os.environ["PATH"], jobs: int = 2
    ) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": path, "CALLS": str(self.log), "PLUMBLINE_JOBS": str(jobs)}
        if fails:
            environment["FAILS"] = fails
        return run(self.folder / "scripts/test", *arguments, env=environment, timeout=60)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], "CALLS": str(self.log)}
        return subprocess.Popen(
            [self.folder / "scripts/test", *arguments], env=environment, stdout=subprocess.DEVNULL
        )

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()

    def on_nodes(self) -> list[str]:
        """What was called that has to do with nodes, without the system."""
        calls = (call.partition(" os=")[0] for call in self.calls())
        return [call for call in calls if call.startswith(("virtual-cluster", "test-role"))]


@pytest.fixture
def checkout(repository, tmp_path):
    return Checkout(repository, tmp_path / "checkout")


def test_without_a_stage_everything_runs_in_its_order(checkout):
    done = checkout.test(jobs=0)  # one part at a time
    assert done.returncode == 0
    # 9 of lint, unit, 2 roles, the cluster, the budget
    assert done.stdout.splitlines()[-1] == "15 passed, 0 failed"
    calls = checkout.calls()
    assert calls[:3] == [
        "setup --with-torch os=",
        "virtual-cluster packages os=",
        "virtual-cluster image --os debian13 os=",
    ]
    assert "lint-ansible  os=" in calls
    for role in ("one", "two"):
        (call,) = (call for call in calls if f" {role} test os=debian13" in call)
        assert call.startswith(f"test-role --on test-{role}-")
    assert "molecule test --scenario-name default os=debian13" in calls
    # The longest begins first.
    words = [call.split()[0] for call in calls]
    begins = [words.index(word) for word in ("molecule", "pytest", "test-role", "lint-ansible")]
    assert begins == sorted(begins)


@pytest.mark.long
def test_full_is_every_scenario_on_both_systems_from_a_bare_node(checkout):
    checkout.builds_on("two", "one")
    done = checkout.test("--full", "roles", "cluster")
    # two systems of three roles' scenarios and two of the cluster
    assert done.stdout.splitlines()[-1] == "10 passed, 0 failed"
    assert "budget: not judged, for its records are not those of --full" in done.stdout
    assert "test-role one test --scenario-name other os=debian12" in checkout.calls()
    assert not [call for call in checkout.calls() if "--on" in call]


def test_what_is_left_for_full_is_counted_and_full_leaves_nothing(checkout):
    *_, left, counted = checkout.test("cluster").stdout.splitlines()
    assert left == "2 tests were left for scripts/test --full"
    assert counted == "2 passed, 0 failed"
    assert "were left" not in checkout.test("--full", "cluster").stdout


def test_roles_that_build_on_each_other_share_a_node(checkout):
    checkout.builds_on("one", "two")
    done = checkout.test("roles")
    assert done.stdout.splitlines()[-1] == "3 passed, 0 failed"
    calls = [call for call in checkout.on_nodes() if not call.startswith("virtual-cluster image")]
    assert calls.pop(0) == "virtual-cluster packages"
    node = calls[0].rpartition(" ")[2]
    assert node.startswith("test-two-")
    assert calls == [
        f"virtual-cluster down --name {node}",
        f"test-role --on {node} two test",
        f"test-role --on {node} one test",
        f"virtual-cluster down --name {node}",
    ]


def test_a_role_whose_scenario_is_long_is_left_and_named(checkout):
    checkout.builds_on("one", "two", scenario_long="it builds a kernel")
    done = checkout.test("roles")
    assert "1 role was left for scripts/test --full: one" in done.stdout.splitlines()
    assert {"role two debian13"} == {part for part in parts(done) if part.startswith("role two")}
    assert "role one debian13" not in parts(done)


def test_after_a_role_that_failed_the_next_has_a_bare_node(checkout):
    checkout.builds_on("one", "two")
    done = checkout.test("roles", fails="two test")
    assert done.stdout.splitlines()[-1] == "2 passed, 1 failed"
    calls = [" ".join(call.split()[:2]) for call in checkout.on_nodes()[2:]]
    down, on = "virtual-cluster down", "test-role --on"
    assert calls == [down, on, down, on, down]


def test_a_role_whose_turn_never_came_has_failed(checkout):
    checkout.builds_on("one", "two")
    done = checkout.test("roles", fails="virtual-cluster down")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "1 passed, 2 failed"
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


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("fails", "failed"),
    [
        (" one test", "role one debian13"),
        ("ruff format", "lint format"),
        ("yamllint", "lint yamllint"),
        ("pytest", "unit"),
        ("molecule test", "cluster debian13"),
    ],
)
def test_a_failure_is_shown_counted_and_stops_nothing(checkout, fails, failed):
    done = checkout.test(fails=fails)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-1] == "14 passed, 1 failed"
    (line,) = (line for line in lines if "FAILED  .cache/test/" in line)
    assert line.startswith(failed)
    assert lines[lines.index(line) + 1] == "    words of the failure"


@pytest.mark.sample(2)
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


def test_an_interrupt_ends_everything_that_runs(checkout):
    for stage in ("molecule", "test-role"):
        folder = "scripts" if stage == "test-role" else ".venv/bin"
        slow = STAND_IN.replace("called=", "echo $$ >>$CALLS.pids; sleep 600 & wait; called=", 1)
        checkout.write(f"{folder}/{stage}", slow).chmod(0o755)
    pids = Path(f"{checkout.log}.pids")
    with checkout.start("roles", "cluster") as test:
        until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
        test.send_signal(signal.SIGINT)
        assert test.wait(timeout=30) == 130
    until(lambda: not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()])


# --- the budget ----------------------------------------------------------------------------------


def test_what_each_part_cost_is_told_beside_its_record(checkout):
    done = checkout.test("unit")
    lines = done.stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("unit") and "×" in line)
    assert line.split() == ["unit", "0:00", "0", "×", "0.00", "ok"]
    assert [line for line in lines if line.startswith("budget: a yardstick was")]


def test_a_part_without_a_record_is_a_failure(checkout):
    checkout.budget({})
    done = checkout.test("unit")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed"
    assert "budget, FAILED: unit: control is " in done.stdout
    assert "tests/budget.tsv has no line for it" in done.stdout


def test_a_part_over_twice_its_record_is_a_failure(checkout):
    checkout.budget({"unit": 0})
    works = "python3 -c 'sum(range(10**7))'\n"  # a hundred times what the yardstick's stand-in does
    checkout.write(".venv/bin/pytest", STAND_IN + works).chmod(0o755)
    done = checkout.test("unit")
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed"
    assert "the record is 0" in done.stdout


@pytest.mark.sample(2)
@pytest.mark.parametrize(("noted", "failed"), [(3, 0), (4, 1), (None, 1)])
def test_a_count_is_held_against_its_record(checkout, noted, failed):
    note = "" if noted is None else f"echo calls_to_a_node {noted} >>.cache/test/counts.tsv\n"
    checkout.write(".venv/bin/pytest", STAND_IN + note).chmod(0o755)
    budget = checkout.folder / "tests/budget.tsv"
    with budget.open("a") as file:
        file.write("*\tcalls_to_a_node\t3\n")
    done = checkout.test()
    assert done.stdout.splitlines()[-1] == f"{15 - failed} passed, {failed} failed"


@pytest.mark.long
def test_renewed_it_is_what_was_measured_and_then_kept(checkout):
    checkout.budget({"no such part": 1.0})
    done = checkout.test("--renew-budget")
    assert done.stdout.splitlines()[-1] == "15 passed, 0 failed"
    written = (checkout.folder / "tests/budget.tsv").read_text()
    assert "no such part" not in written
    assert written.count("\tcontrol\t") == 14
    assert written.count("\tnodes\t") == 3
    # What stand-ins use is so little that on a busy machine it is three times as much at once.
    plenty = re.sub(r"[\d.]+$", str(PLENTY), written, flags=re.MULTILINE)
    checkout.write("tests/budget.tsv", plenty)
    assert checkout.test().returncode == 0
    assert (checkout.folder / "tests/budget.tsv").read_text() == plenty


@pytest.mark.parametrize("other", [("--full",), ("--changed", "HEAD")])
def test_what_is_measured_otherwise_does_not_renew_it(checkout, other):
    done = checkout.test("--renew-budget", *other)
    assert done.returncode == 2
    assert f"--renew-budget does not go with {other[0]}" in done.stderr


# --- what a change touches -----------------------------------------------------------------------


@pytest.fixture
def committed(checkout):
    checkout.write("ansible.cfg", "")
    checkout.commit()
    return checkout


def parts(done):
    return {line.split("  ")[0] for line in done.stdout.splitlines() if line.endswith(" s  ok")}


def test_only_what_a_change_touches_is_run(committed):
    committed.write("roles/two/tasks/main.yml", "---\n")
    committed.write("roles/two/tests/test_two.py", "")
    done = committed.test("--changed", "HEAD")
    lint = ("ansible-lint", "check-role-specs", "format", "mypy", "ruff", "yamllint")
    assert parts(done) == {"role two debian13", "unit", *(f"lint {name}" for name in lint)}
    calls = [call for call in committed.calls() if call.startswith("pytest")]
    options = ("--collect-only -qq", "--numprocesses 4")
    assert calls == [f"pytest {option} roles/two/tests tests os=" for option in options]
    assert "budget: not judged" in done.stdout


def test_a_long_role_that_a_change_touches_is_run(committed):
    committed.builds_on("one", "two", scenario_long="it builds a kernel")
    done = committed.test("--changed", "HEAD", "roles")
    assert parts(done) == {"role one debian13"}
    assert "left for" not in done.stdout


@pytest.mark.long
def test_with_full_the_long_scenarios_that_it_touches_are_run_too(committed):
    committed.write("molecule/growth/tests/test_growth.py", "")
    assert "cluster/growth debian13" not in parts(committed.test("--changed", "HEAD"))
    done = committed.test("--changed", "HEAD", "--full", "cluster", "roles")
    assert parts(done) == {"cluster/growth debian13", "cluster/growth debian12"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("base", ["HEAD", "no-such-branch"])
def test_what_nobody_foresaw_is_everything(committed, base):
    committed.write("foo/bar", "" if base == "HEAD" else "committed")
    done = committed.test("--changed", base)
    assert "this is everything" in done.stderr
    assert done.stdout.splitlines()[-1] == "14 passed, 0 failed"


def test_no_change_is_nothing_to_check_and_so_no_pass(committed):
    done = committed.test("--changed", "HEAD")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 0 failed"


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
for name in promtool amtool rsyslogd prometheus age skopeo docker-registry; do
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


@pytest.mark.long
def test_checkers_are_unpacked_once_and_not_installed(checkout, bare):
    first = checkout.test("unit", path=bare)
    assert first.stdout.startswith("test: unpacking from the distribution, installing nothing: ")
    calls = [call for call in checkout.calls() if call.startswith(("apt-get install", "dpkg"))]
    assert "--download-only" in calls[0]
    assert calls[0].endswith(" prometheus prometheus-alertmanager rsyslog skopeo")
    assert calls[1:] == ["dpkg --extract one.deb", "dpkg --extract two.deb"]
    unpacked = [path.name for path in (checkout.folder / ".cache/checkers").rglob("*")]
    assert sorted(unpacked) == sorted(["partial", "usr", "bin", *CHECKERS])
    assert "unpacking" not in checkout.test("unit", path=bare).stdout


@pytest.mark.long
def test_checkers_that_cannot_be_had_are_for_the_unit_tests_to_miss(checkout, bare):
    (checkout.folder / "offline").touch()
    done = checkout.test("unit", path=bare)
    assert done.stdout.splitlines()[-1] == "2 passed, 0 failed"
    assert "E: Failed to fetch" in done.stderr
    assert "unpacking" in checkout.test("unit", path=bare).stdout


@pytest.mark.sample(1)
@pytest.mark.parametrize("stage", ["roles", "cluster"])
def test_other_stages_need_them_too_and_lint_does_not(checkout, bare, stage):
    assert "unpacking" not in checkout.test("lint", path=bare).stdout
    assert "unpacking" in checkout.test(stage, path=bare).stdout


def test_a_missing_checker_fails_a_test_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(checkers, "UNPACKED", tmp_path)
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    with pytest.raises(pytest.fail.Exception, match=r"^promtool is missing: run `scripts/test"):
        checkers.checker("promtool")
