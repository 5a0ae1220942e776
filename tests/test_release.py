"""scripts/release and scripts/collection: what is refused, what is made, and that it installs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from cluster import version
from tests import processes
from tests.conftest import REPOSITORY, load_script
from tests.processes import ANSIBLE_PLAYBOOK, PYTHON, git
from validation.tests.conftest import declare

BIN = Path(sys.executable).parent
SECTION = "## 0.1.0 (2026-11-25)\n\n### What to do\n\nNothing.\n"
CHANGELOG = f"# Changelog\n\n## Unreleased\n\nMore.\n\n{SECTION}\n## 0.0.9\n\nLess.\n"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return load_script("release")


@pytest.fixture(scope="module")
def collection() -> ModuleType:
    return load_script("collection")


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Files")


# --- what is refused -----------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(version, "VERSION", "0.1.0")
    git(tmp_path, "init", "--quiet")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    commit(tmp_path)
    return tmp_path


def test_a_version_with_a_section_may_be_released(release, checkout):
    git(checkout, "tag", "v0.0.9")
    git(checkout, "tag", "vienna")  # no version
    assert release.check(checkout, "0.1.0") == SECTION


@pytest.mark.parametrize("text", ["0.1", "v0.1.0", "0.01.0", "0.1.0rc1", "latest"])
def test_what_is_no_version_is_refused(release, checkout, text):
    with pytest.raises(release.Refused, match="is no version; write three numbers"):
        release.check(checkout, text)


@pytest.mark.parametrize("name", ["CHANGELOG.md", "new"])
def test_a_dirty_tree_is_refused(release, checkout, name):
    (checkout / name).write_text("changed")
    with pytest.raises(release.Refused, match="changes that are not committed"):
        release.check(checkout, "0.1.0")


def test_another_version_than_the_programs_tell_is_refused(release, checkout):
    with pytest.raises(release.Refused, match=r"version\.py says 0\.1\.0; set VERSION to 0\.2\.0"):
        release.check(checkout, "0.2.0")


@pytest.mark.parametrize("tag", ["v0.1.0", "v0.10.0"])
def test_a_version_that_is_not_newer_is_refused(release, checkout, tag):
    git(checkout, "tag", "v0.0.9")
    git(checkout, "tag", tag)
    with pytest.raises(release.Refused, match=rf"0\.1\.0 is not newer than {tag[1:]}"):
        release.check(checkout, "0.1.0")


@pytest.mark.parametrize("changelog", ["## 0.1.00\n\nText.\n", "## 0.1.0\n\n## 0.0.9\n\nText.\n"])
def test_a_version_without_a_section_is_refused(release, checkout, changelog):
    (checkout / "CHANGELOG.md").write_text(changelog)
    commit(checkout)
    with pytest.raises(release.Refused, match=r"has no section for 0\.1\.0"):
        release.check(checkout, "0.1.0")


def test_a_missing_tool_is_refused(release, monkeypatch):
    monkeypatch.setattr(release.shutil, "which", lambda name: None)
    with pytest.raises(release.Missing, match=r"^git is missing; run scripts/setup"):
        release.check_tools()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [(["0.1"], 1, "release: 0.1 is no version"), ([], 2, "the following arguments are required")],
)
def test_it_says_so_in_its_exit_status(arguments, status, words):
    done = processes.run(sys.executable, REPOSITORY / "scripts/release", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr


# --- the tree of the collection ------------------------------------------------------------------

FILTERS, LOOKUPS = frozenset({"gpu", "gpu_names"}), frozenset({"packed_archive"})


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("{{ x | gpu }}", "{{ x | plumbline.cluster.gpu }}"),
        ("{{ x |gpu_names('a') }}", "{{ x |plumbline.cluster.gpu_names('a') }}"),
        ("{{ x | map('gpu') }}", "{{ x | map('plumbline.cluster.gpu') }}"),
        ("{{ x | gpus | other }}", "{{ x | gpus | other }}"),
        ("gpu: gpu", "gpu: gpu"),
        ("lookup('packed_archive', 'a')", "lookup('plumbline.cluster.packed_archive', 'a')"),
        ("lookup('env', 'gpu')", "lookup('env', 'gpu')"),
    ],
)
def test_filters_and_lookups_are_named_in_full(collection, text, becomes):
    once = collection.named_in_full(text, FILTERS, LOOKUPS)
    assert once == becomes
    assert collection.named_in_full(once, FILTERS, LOOKUPS) == becomes


def test_a_plugin_finds_the_packages_of_the_collection(collection, tmp_path):
    text = '"""Words."""\n\nfrom __future__ import annotations\n\nimport {}\n'
    assert collection.reachable(text.format("json"), 2) == text.format("json")
    for package in collection.PACKAGES:
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "plumbline_found.py").touch()
        plugin = tmp_path / "roles/one/filter_plugins" / f"{package}.py"
        plugin.parent.mkdir(parents=True, exist_ok=True)
        plugin.write_text(collection.reachable(text.format(f"{package}.plumbline_found"), 3))
        # Neither this checkout nor what is installed helps.
        subprocess.run([sys.executable, "-I", "-S", plugin], check=True, cwd="/")


def test_the_tree_has_every_role_and_none_of_their_tests(collection, tmp_path):
    folder = tmp_path / "tree"
    collection.make(REPOSITORY, folder)
    roles = {path.parent.name for path in REPOSITORY.glob("roles/*/tasks")}
    assert {path.parent.name for path in folder.glob("roles/*/tasks")} == roles
    names = [part for path in folder.rglob("*") for part in path.relative_to(folder).parts]
    assert not collection.NOT_HERE.intersection(names)
    for path in (path for path in folder.rglob("*") if path.is_symlink()):
        assert path.resolve(strict=True).is_relative_to(folder)
    modules = {path.name for path in folder.glob("plugins/modules/*.py")}
    assert {"owned_files.py", "cluster_users.py"} <= modules
    sent = "|".join(path.stem for path in folder.glob("plugins/module_utils/*.py"))
    for path in (*folder.glob("plugins/modules/*.py"), *folder.glob("plugins/module_utils/*.py")):
        assert not re.search(rf"import ansible\.module_utils\.({sent})\b", path.read_text())
        assert not re.search(rf"from ansible\.module_utils\.({sent})\b", path.read_text())
    actions = {path.stem for path in folder.glob("plugins/action/*.py")}
    assert "nvml" in actions
    assert not actions & {"command", "copy", "normal", "template", "uri", "preflight_facts"}
    for path in folder.glob("roles/*/tasks/*.yml"):
        for shared in re.findall(r"(?:\.\./)+(playbooks/\S+\.yml)", path.read_text()):
            assert (folder / shared).is_file(), path
    with pytest.raises(collection.Wrong, match="exists; choose another name"):
        collection.make(REPOSITORY, folder)


def test_two_plugins_of_one_name_are_refused(collection, tmp_path):
    for role in ("one", "two"):
        (tmp_path / f"roles/{role}/library").mkdir(parents=True)
        (tmp_path / f"roles/{role}/library/same.py").touch()
    with pytest.raises(collection.Wrong, match="would be one modules plugin"):
        collection.plugins(tmp_path)


# --- a whole release, each part installed into an empty environment ------------------------------


def run(
    *command: object, cwd: Path, status: int = 0, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    done = processes.run(*command, cwd=cwd, env={**kept, **(environment or {})})
    assert done.returncode == status, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """This checkout as it is, committed, with a section for its version."""
    folder = tmp_path_factory.mktemp("source")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = run(*listed, cwd=REPOSITORY).stdout.split("\0")
    for name in filter(None, names):
        if os.path.lexists(REPOSITORY / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name, follow_symlinks=False)
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version.VERSION}\n\nWords.\n")
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


@pytest.fixture(scope="module")
def built_release(source, tmp_path_factory):
    """The folder of a release, and what was said."""
    folder = tmp_path_factory.mktemp("made") / "release"
    command = [sys.executable, source / "scripts/release", version.VERSION, "--output", folder]
    output = run(*command, "--check", cwd=source).stdout
    assert "may be released; this would make" in output
    assert not folder.exists()
    return folder, run(*command, cwd=source).stdout


@pytest.mark.long
def test_it_makes_five_files_and_says_what_comes_next(built_release, source, release):
    folder, output = built_release
    assert {path.name for path in folder.iterdir()} == release.names(version.VERSION).keys()
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=folder)
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    assert len(sums) == 4
    assert (folder / f"CHANGELOG-{version.VERSION}.md").read_text().endswith("\n\nWords.\n")
    assert f"git tag --annotate v{version.VERSION}" in output
    assert f"git push origin v{version.VERSION}" in output
    assert git(source, "tag") == ""  # it does not tag by itself


@pytest.mark.long
def test_the_same_commit_gives_the_same_archive_and_wheel(built_release, source, tmp_path):
    folder, _ = built_release
    again = tmp_path / "again"
    command = [sys.executable, source / "scripts/release", version.VERSION, "--output", again]
    run(*command, cwd=source)
    for name in (
        f"plumbline-{version.VERSION}.tar.gz",
        f"plumbline-{version.VERSION}-py3-none-any.whl",
    ):
        first, other = (hashlib.sha256((f / name).read_bytes()).digest() for f in (folder, again))
        assert first == other, name
    done = run(*command, cwd=source, status=1)
    assert f"release: {again} exists; remove it" in done.stderr


@pytest.mark.long
def test_the_archive_is_a_checkout_that_tells_its_version(built_release, source, tmp_path):
    folder, _ = built_release
    name = f"plumbline-{version.VERSION}"
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="tar")
    tracked = git(source, "ls-files").splitlines()
    assert all(os.path.lexists(tmp_path / name / path) for path in tracked)
    output = run(tmp_path / name / "scripts/test", "--version", cwd=tmp_path).stdout
    assert output == f"plumbline {version.VERSION}\n"


@pytest.mark.long
def test_the_wheel_has_what_the_validator_is_made_of(built_release, source):
    folder, _ = built_release
    with zipfile.ZipFile(folder / f"plumbline-{version.VERSION}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    tracked = set(git(source, "ls-files", "validation", "cluster").splitlines())
    of_nodes = ("roles/", "playbooks/", "validation/node_health/")
    wanted = {n for n in tracked if "/tests/" not in n and not n.startswith(of_nodes)}
    assert names == wanted


# Nothing but what the wheel brings. Only nodes have torch, with a payload's runtime, and
# prometheus_client, packed with an exporter.
EVERY_MODULE = """
import importlib, pkgutil, cluster, validation
for package in (cluster, validation):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as missing:
            if missing.name.partition(".")[0] not in ("torch", "prometheus_client"):
                raise
        print(found.name)
"""


@pytest.mark.long
def test_the_wheel_works_in_an_empty_environment(built_release, tmp_path):
    folder, _ = built_release
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv/bin/python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, folder / f"plumbline-{version.VERSION}-py3-none-any.whl", cwd=tmp_path)

    def answer(*arguments: str, status: int = 0) -> str:
        done = run(python, "-I", *arguments, cwd=tmp_path, status=status)
        return done.stdout or done.stderr

    assert answer("-m", "validation.run", "--version") == f"plumbline {version.VERSION}\n"
    assert "Prove a Slurm GPU cluster" in answer("-m", "validation.run", "--help")
    assert "burn-in" in answer("-m", "validation.run", "--list")
    assert "h100_sxm" in answer("-m", "validation.thresholds", "list")
    cluster = ["cluster"] if (REPOSITORY / "cluster/__init__.py").exists() else []
    modules = answer("-c", EVERY_MODULE, *cluster).splitlines()
    assert "validation.report.html" in modules
    assert "validation.slurm.client" in modules
    # A plan of a cluster that is declared in a file: no inventory, no node.
    (tmp_path / "cluster.json").write_text(json.dumps(declare(("gpu1", "h100_sxm", 8))))
    plan = ("--here", "--declaration", "cluster.json", "--dry-run")
    assert "dry run: nothing was submitted" in answer("-m", "validation.run", *plan)
    (tmp_path / "inventory").touch()
    refused = answer("-m", "validation.run", "-i", "inventory", status=2)
    assert "run it from a checkout of Plumbline, or give --declaration FILE" in refused


PLAY = """\
- name: A role, a filter and a lookup of the collection
  hosts: localhost
  gather_facts: false
  roles:
    - role: plumbline.cluster.user_examples
      user_examples_folder: "{{ folder }}/examples"
  tasks:
    - ansible.builtin.assert:
        that:
          - (['gpu1', 'gpu2', 'gpu3'] | plumbline.cluster.compressed_hostlist) == 'gpu[1-3]'
          - ('h100_sxm' | plumbline.cluster.gpu) is mapping
    - ansible.builtin.copy:
        src: "{{ lookup('plumbline.cluster.packed_archive', 'job_report') }}"
        dest: "{{ folder }}/job-report.pyz"
        mode: "0644"
"""


@pytest.fixture(scope="module")
def environment(built_release, tmp_path_factory):
    """That of an Ansible which has the collection and nothing else."""
    folder = tmp_path_factory.mktemp("ansible")
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_HOME": str(folder / "home"),
        "PYTHONNOUSERSITE": "1",
    }
    file = built_release[0] / f"plumbline-cluster-{version.VERSION}.tar.gz"
    galaxy = [BIN / "ansible-galaxy", "collection", "install", "--no-deps", "--offline"]
    run(*galaxy, file, "-p", folder / "collections", cwd=folder, environment=settings)
    return settings


@pytest.mark.long
def test_the_collection_works_where_nothing_else_is(environment, source, tmp_path):
    (tmp_path / "play.yml").write_text(PLAY)
    play = [ANSIBLE_PLAYBOOK, "-i", "localhost,", "-c", "local", "play.yml"]
    play += ["-e", f"folder={tmp_path}", "-e", PYTHON]
    if os.geteuid() == 0:
        tmp_path.chmod(0o755)
        output = run(*play, cwd=tmp_path, environment=environment).stdout
        assert "failed=0" in output
        examples = {path.name for path in (tmp_path / "examples").iterdir()}
        shipped = (source / "roles/user_examples/files/examples").iterdir()
        assert examples == {path.name for path in shipped}
        report = run(sys.executable, "-I", "job-report.pyz", "--version", cwd=tmp_path).stdout
        assert report == f"plumbline {version.VERSION}\n"
    run(*play, "--check", cwd=tmp_path, environment=environment)

    doc = [BIN / "ansible-doc", "--list", "plumbline.cluster"]
    roles = run(*doc, "--type", "role", cwd=tmp_path, environment=environment).stdout
    names = set(re.findall(r"^plumbline\.cluster\.(\w+):", roles, re.MULTILINE))
    assert names == {path.parent.name for path in source.glob("roles/*/tasks")}


@pytest.mark.long
def test_every_filter_of_the_collection_can_be_loaded(environment, source, collection, tmp_path):
    """ansible-doc would only warn of one that cannot."""
    files = (path for path in source.rglob("*.py") if path.parent.name == "filter_plugins")
    names = sorted(set(collection.filters(files)))
    assert "compressed_hostlist" in names

    def loads(*filters: str, status: int) -> str:
        """A template that has them, in a part that is compiled and never evaluated."""
        used = [f"{{{{ false and (1 | plumbline.cluster.{name}) }}}}" for name in filters]
        message = {"ansible.builtin.debug": {"msg": used}}
        play = {"hosts": "localhost", "gather_facts": False, "tasks": [message]}
        (tmp_path / "load.yml").write_text(json.dumps([play]))
        command = [ANSIBLE_PLAYBOOK, "-i", "localhost,", "-c", "local", "load.yml"]
        return run(*command, cwd=tmp_path, status=status, environment=environment).stdout

    loads(*names, status=0)
    assert "no_such_filter" in loads("no_such_filter", status=2)
