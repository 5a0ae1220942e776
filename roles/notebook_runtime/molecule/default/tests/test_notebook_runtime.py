"""The environment of notebooks on a node: what it has, and that it is whole or not there."""

import json
from pathlib import Path

import pytest

REQUIREMENTS = (Path(__file__).parents[3] / "files/requirements.in").read_text(encoding="utf-8")
PREFIX = "/opt/plumbline/notebook"
PYTHON = f"{PREFIX}/env/bin/python"


def _name(package):
    """As pip compares names."""
    return package.lower().replace("_", "-")


def test_it_is_what_the_lock_says(host):
    listed = json.loads(host.check_output(f"{PYTHON} -m pip list --format=json"))
    versions = {_name(package["name"]): package["version"] for package in listed}
    pinned = [line.split("==") for line in REQUIREMENTS.split() if "==" in line]
    assert pinned
    assert {name: versions[_name(name)] for name, _ in pinned} == dict(pinned)


def test_nobody_is_asked_for_news_of_the_project(host):
    page = json.loads(host.file(f"{PREFIX}/etc/labconfig/page_config.json").content_string)
    assert page["disabledExtensions"] == {"@jupyterlab/apputils-extension:announcements": True}


def test_no_user_can_change_it(host):
    for path in (
        PREFIX,
        f"{PREFIX}/env/",
        f"{PREFIX}/bin/plumbline-notebook",
        f"{PREFIX}/program/",
    ):
        file = host.file(path)
        assert (file.user, file.mode & 0o022) == ("root", 0), path


def test_a_kernel_of_a_module_runs_the_modules_python(host):
    spec = json.loads(
        host.file(f"{PREFIX}/share/jupyter/kernels/system/kernel.json").content_string
    )
    program = spec["argv"][2].split("exec python3 ")[1].split(" -f")[0]
    # The system's Python has no ipykernel: the one of notebooks comes behind its own packages.
    with pytest.raises(AssertionError):
        host.check_output("python3 -c 'import ipykernel'")
    output = host.check_output(f"python3 {program} --version")
    assert output == host.check_output(f"{PYTHON} -m ipykernel_launcher --version")


def test_a_kernel_of_another_python_says_so(host):
    program = f"{PREFIX}/program/roles/notebook_runtime/files/notebook/kernel.py"
    failed = host.run(f"python3 {program} /nowhere -f x")
    assert failed.rc == 1
    assert "has no ipykernel" in failed.stderr


@pytest.mark.long
def test_an_interrupted_installation_is_repeated(host, play):
    """The folder without its last file is what a run that died leaves."""
    with host.sudo():
        folder = host.check_output(f"readlink {PREFIX}/env")
        assert host.file(f"{PREFIX}/{folder}/complete").exists
        host.check_output(f"rm -r {PREFIX}/{folder}/lib {PREFIX}/{folder}/complete")
    assert play().code == 0
    assert host.run(f"{PYTHON} -c 'import jupyterlab'").rc == 0
