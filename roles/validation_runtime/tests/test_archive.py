"""The program that a timer starts: one file that needs an interpreter and nothing else."""

import re
import subprocess
import sys
import zipfile

import pytest

from roles.validation_runtime.plugin_utils import archive


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    file = tmp_path_factory.mktemp("program") / "validation.pyz"
    file.write_bytes(archive.content())
    return file


def started(program, *options):
    """Isolated, as on a login node: what is installed here is not seen."""
    words = [sys.executable, "-I", "-S", str(program), *options]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_file_is_the_same_each_time_and_has_no_tests_in_it(program):
    assert program.read_bytes() == archive.content()
    with zipfile.ZipFile(program) as packed:
        names = packed.namelist()
    assert not [name for name in names if re.search(r"/tests/|^(roles|playbooks)/", name)]
    for needed in (
        "validation/suites/gpu.yml",
        "validation/payloads/gpu_worker.py",
        "yaml/__init__.py",
    ):
        assert needed in names


def test_it_is_the_validation_with_all_its_suites(program):
    done = started(program, "--list")
    assert done.returncode == 0, done.stderr
    for suite in ("quick", "gpu", "burn-in"):
        assert f"\n  {suite}  " in done.stdout


def test_it_plans_a_run_from_a_declaration(program, tmp_path):
    """With data files, thresholds and the payloads of its own."""
    declaration = tmp_path / "cluster.json"
    declaration.write_text(
        '{"schema": 1, "cluster": "c", "login": ["l"], "controller": ["l"], "python": "/p", '
        '"partitions": [{"name": "all", "nodes": ["n1"], "default": true}], "nodes": [{"name": '
        '"n1", "cpus": 2, "memory_mb": 2000, "gpus": {"count": 0}, "fabric": "ethernet"}]}'
    )
    options = ("--here", "--declaration", str(declaration), "--suite", "gpu")
    done = started(program, *options, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "dry run: nothing was submitted" in done.stdout
    refused = started(program, *options, "--background", "--every", "soon")
    assert (refused.returncode, "--every: 'soon' is no duration" in refused.stderr) == (2, True)
