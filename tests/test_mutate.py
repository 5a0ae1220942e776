"""scripts/mutate: which faults it makes, and that none of the named ones has gone stale."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY, load_script
from tests.processes import run

mutate = load_script("mutate")


def made_from(source: str) -> set[str]:
    return {mutate.applied(source, fault) for fault in mutate.Faults("x.py", source).mutants}


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("a = b < c\n", {"a = (b <= c)\n"}),
        ("a = b and not c\n", {"a = ((b) or (not c))\n", "a = b and bool(c)\n"}),
        ("a = (b + c) * d\n", {"a = ((b + c) // (d))\n", "a = (((b) - (c))) * d\n"}),
        ("a = 'x' + b\n", set()),
        ("a = max(b, 1)\n", {"a = min(b, 1)\n", "a = max(b, 2)\n"}),
        ("if a:\n    b()\n", {"if True:\n    b()\n", "if False:\n    b()\n", "if a:\n    pass\n"}),
        ("def f(a: int = 1) -> int:\n    return a\n", {
            "def f(a: int = 2) -> int:\n    return a\n",
            "def f(a: int = 1) -> int:\n    return None\n",
        }),
        ("for a in b:\n    continue\n", {"for a in b:\n    break\n"}),
        ("a = [b for b in c if b]\n", {"a = [b for b in c if True]\n"}),
        ("ä = '≥' if a == 1 else b\n", {
            "ä = '≥' if (a != 1) else b\n",
            "ä = '≥' if a == 2 else b\n",
            "ä = '≥' if True else b\n",
            "ä = '≥' if False else b\n",
        }),
    ],
)  # fmt: skip
def test_the_faults_of_a_line(source: str, faults: set[str]) -> None:
    assert made_from(source) == faults


@pytest.mark.parametrize(
    "file",
    ["validation/checks/curve.py", pytest.param("validation/model.py", marks=pytest.mark.long)],
)
def test_every_fault_is_a_program_that_is_another_one(file: str) -> None:
    source = (REPOSITORY / file).read_text(encoding="utf-8")
    faults = mutate.faults_in(file)
    assert len(faults) > 100
    without = ast.dump(ast.parse(source))
    for fault in faults:
        assert ast.dump(ast.parse(mutate.applied(source, fault))) != without


def test_the_named_faults_fit_the_code() -> None:
    faults = mutate.named([])
    listed = yaml.safe_load((REPOSITORY / mutate.NAMED).read_text(encoding="utf-8"))
    assert len(faults) == len(listed) >= 26
    for fault in faults:
        source = (REPOSITORY / fault.file).read_text(encoding="utf-8")
        ast.parse(mutate.applied(source, fault))
    assert len(mutate.named(["validation/model.py"])) < len(faults)


def test_a_named_fault_that_no_longer_fits_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stale = [{"name": "gone", "file": "validation/model.py", "old": "no such text", "new": "x"}]
    (tmp_path / "mutants.yml").write_text(yaml.safe_dump(stale))
    monkeypatch.setattr(mutate, "NAMED", str(tmp_path / "mutants.yml"))
    with pytest.raises(SystemExit) as ended:
        mutate.named([])
    assert ended.value.code == 2
    assert "gone: found 0 times in validation/model.py" in capsys.readouterr().err


def test_every_file_has_tests() -> None:
    for file in mutate.files_of(mutate.DEFAULT):
        assert mutate.tests_of(file), file


def test_a_file_of_a_role_has_the_tests_of_its_role() -> None:
    tests = mutate.tests_of("roles/jupyterhub/files/portal/request.py")
    assert "roles/jupyterhub/tests/test_request.py" in tests
    assert {Path(test).parent for test in tests} == {Path("roles/jupyterhub/tests")}


def test_a_file_without_tests_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        mutate.tests_of("playbooks/plugin_utils/cluster.py")
    assert "no tests belong to playbooks/plugin_utils/cluster.py" in capsys.readouterr().err


@pytest.mark.long
def test_a_fault_is_noticed_or_survives(tmp_path: Path) -> None:
    """The whole program, in a project of one function and one test."""
    for folder in (
        *("cluster", "docs", "group_vars", "playbooks", "roles", "scripts", "tests"),
        "validation/tests",
    ):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(REPOSITORY / "scripts" / "mutate", tmp_path / "scripts")
    shutil.copy(REPOSITORY / "cluster/version.py", tmp_path / "cluster")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest]\npythonpath = ["."]\n')
    (tmp_path / "ansible.cfg").touch()
    (tmp_path / "validation" / "__init__.py").touch()
    plan = tmp_path / "validation" / "plan.py"
    plan.write_text("def half(n):\n    return n // 2 if n > 0 else 0\n")
    test = tmp_path / "validation" / "tests" / "test_plan.py"
    test.write_text("from validation.plan import half\ndef test_it():\n    assert half(4) == 2\n")
    command = (sys.executable, tmp_path / "scripts/mutate", "validation/plan.py")
    done = run(*command, timeout=300)
    assert done.returncode == 1, done.stderr
    survived = [line for line in done.stdout.splitlines() if line.startswith("SURVIVED")]
    assert "SURVIVED validation/plan.py:2: n > 0 -> (n >= 0)" in survived
    assert not any("n // 2 ->" in line for line in survived)
    assert re.search(r"^all +8 ", done.stdout, re.MULTILINE)
    # The file itself was never touched.
    assert plan.read_text() == "def half(n):\n    return n // 2 if n > 0 else 0\n"

    test.write_text("def test_it():\n    assert False\n")
    done = run(*command, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mutate: validation/tests/test_plan.py fail without any fault\n"
