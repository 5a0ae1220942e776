"""The packed local mode: one file that needs nothing but Python 3.10, and torch to compute."""

import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.processes import passes, run
from tests.standins.nvml import library

PACK = REPOSITORY / "scripts/pack-local"


def bare_python():
    """Python 3.10 where there is one, else this one; either without any installed package."""
    versions = Path.home() / ".pyenv" / "versions"
    candidates = [*sorted(versions.glob("3.10.*/bin/python3.10")), shutil.which("python3.10")]
    return str(next((python for python in candidates if python), sys.executable))


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    passes(bare_python(), "-m", "venv", "--without-pip", folder)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    file = tmp_path_factory.mktemp("packed") / "plumbline-local.pyz"
    passes(PACK, file)
    return file


def start(python, packed, folder, *arguments, environment=None):
    settings = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), **(environment or {})}
    return run(python, packed, *arguments, cwd=folder, env=settings)


@pytest.mark.long
def test_the_same_checkout_gives_the_same_bytes(packed, tmp_path):
    again = tmp_path / "again.pyz"
    passes(PACK, again)
    assert again.read_bytes() == packed.read_bytes()


def test_nothing_is_packed_that_belongs_to_the_tests_or_to_one_machine(packed):
    with zipfile.ZipFile(packed) as archive:
        names = archive.namelist()
    assert "validation/suites/local.yml" in names
    assert not [name for name in names if "/tests/" in name or name.endswith((".so", ".pyc"))]


def test_without_a_gpu_it_says_so_and_leaves_nothing(bare, packed, tmp_path):
    answer = start(bare, packed, tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "this machine has no GPU" in answer.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_gpus_are_asked_and_a_missing_torch_is_a_failure(bare, packed, tmp_path):
    """Under the stand-in for NVML: what needs only the driver is judged, the rest fails."""
    description = tmp_path / "description"
    fake = library.build(tmp_path)
    description.write_text(library.describe(2, "h100_sxm", "gpu.1.pcie_width = 4"))
    environment = dict(library.environment(fake, description))
    answer = start(bare, packed, tmp_path, "--output", "run", environment=environment)
    assert answer.returncode == 1, answer.stderr
    lines = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    verdicts = {item["check"]: item["verdict"] for item in map(json.loads, lines)}
    assert (verdicts["driver"], verdicts["ecc"], verdicts["pcie"]) == ("pass", "pass", "fail")
    assert (verdicts["torch"], verdicts["cuda"], verdicts["gemm"]) == ("fail", "fail", "fail")
    assert f"{packed.name} --local --only pcie" in answer.stdout
    assert f"{packed.name} --local --only gemm" not in answer.stdout  # cuda says it
    assert "No module named 'torch'" in answer.stdout
    assert {path.name for path in tmp_path.iterdir()} == {
        *("run", "history.sqlite", "description"),
        fake.name,
    }


def test_an_older_python_is_told_so(packed, tmp_path):
    with zipfile.ZipFile(packed) as archive:
        main = archive.read("__main__.py").decode()
    old = "import sys\nsys.version = '3.9.18 (main)'\nsys.version_info = (3, 9, 18)\n"
    answer = run(sys.executable, "-c", old + main)
    assert answer.returncode == 1
    assert answer.stderr == "plumbline-local: Python 3.10 or newer is needed, this is 3.9.18\n"


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    target = tmp_path / "missing" / "local.pyz"
    answer = run(PACK, target)
    assert answer.returncode == 1
    assert answer.stderr == f"pack-local: {target} cannot be written: No such file or directory\n"
