"""Libraries on a whole cluster: the same on every node, in jobs of a user, and once if shared."""

from __future__ import annotations

import json
import re

import pytest

from tests.live_cluster import REPOSITORY, changed, on, words

SITE = REPOSITORY / "molecule/data/vars/site.yml"
LOCKS = REPOSITORY / "roles/user_libraries/molecule/default/locks"
ROOT, SHARED = "/opt/libraries", "/shared/libraries"
FIRST = {"name": "tools", "version": "1", "imports": ["six"]}
SECOND = {"name": "tools", "version": "2"}
# Of another lock on one node, as if an index gave it something else.
DIFFERENT = "tools-{{ 1 if inventory_hostname == 'gpu2' else 2 }}.txt"


@pytest.fixture(scope="module")
def install(operator, tmp_path_factory):
    """A function that runs the playbook with a list of libraries."""
    folder = tmp_path_factory.mktemp("declared")

    def run(published, *arguments: str, **variables: str):
        said = {"user_libraries_published": published, "user_libraries_folder": str(LOCKS)}
        (folder / "libraries.json").write_text(json.dumps(said | variables))
        files = ("-e", f"@{SITE}", "-e", f"@{folder / 'libraries.json'}")
        return operator.playbook("install-libraries.yml", *files, *arguments)

    return run


@pytest.fixture
def job(operator):
    """A function that runs a shell script of ada's on both nodes; the lines of each."""

    def run(script: str) -> list[str]:
        options = "--quiet --time=2 --nodes=2 --ntasks-per-node=1 --label"
        command = f"srun {options} bash -lc {json.dumps(script)} 2>&1 | sort"
        return on(operator.cluster, "ada@login1", command.replace("$", r"\$")).splitlines()

    return run


LOADED = (
    "module load tools/$V && python -c 'import packaging as p; print(p.__file__, p.__version__)'"
)


def test_a_library_is_the_same_on_all_nodes_and_loaded_in_jobs(operator, install, job):
    told = install([FIRST], "--check")
    assert told.returncode == 0, told.stdout + told.stderr
    assert on(operator.cluster, "gpu1", f"ls {ROOT} 2>&1 | wc -l") == "1"
    done = install([FIRST])
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = job(f"V=1; {LOADED}")
    assert first.removeprefix("0: ") == second.removeprefix("1: ")
    assert f"{ROOT}/tools/1/lib/" in first
    assert first.endswith(" 24.2")
    names = ("login1", "gpu1", "gpu2")
    read = f'python3 -c \'import json; print(json.load(open("{ROOT}/tools/1/.library.json"))'
    contents = {on(operator.cluster, name, f'{read}["content"])\'') for name in names}
    assert len(contents) == 1
    again = install([FIRST])
    assert {host: count for host, count in changed(again.stdout).items() if count != "0"} == {}


def test_a_node_that_has_something_else_is_named_and_has_no_module(install, job):
    done = install([FIRST, SECOND | {"requirements": DIFFERENT}])
    assert done.returncode != 0
    said = words(done)
    assert "user_libraries: gpu2: tools 2 has the content " in said
    assert "and login1 has " in said
    assert "user_libraries: gpu1: " not in said
    found = job("module load tools/2 2>/dev/null && command -v tabulate || echo none")
    assert found == [f"0: {ROOT}/tools/2/bin/tabulate", "1: none"]


def test_one_that_is_mended_alone_is_compared_with_a_host_outside_of_the_run(install, job):
    done = install([FIRST, SECOND], "--limit=gpu2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len({line[3:] for line in job(f"V=2; {LOADED}")}) == 1


def test_a_file_that_was_changed_is_named_with_its_node(operator, install):
    good = install([FIRST, SECOND], "--tags=verify")
    assert good.returncode == 0, good.stdout + good.stderr
    file = f"{ROOT}/tools/1/lib/python3.13/site-packages/six.py"
    on(operator.cluster, "gpu1", f"sudo sed -i 1s/^/#/ {file}")
    found = install([FIRST, SECOND], "--tags=verify")
    assert found.returncode != 0
    said = words(found)
    assert (
        "gpu1: user_libraries: tools/1 is lib/python3.13/site-packages/six.py has changed" in said
    )
    assert "gpu2: user_libraries" not in said
    on(operator.cluster, "gpu1", f"sudo rm -r {ROOT}/tools/1")
    assert install([FIRST, SECOND]).returncode == 0
    assert install([FIRST, SECOND], "--tags=verify").returncode == 0


def test_on_shared_storage_one_host_builds_for_all(install, job):
    done = install([SECOND], user_libraries_path=SHARED)
    assert done.returncode == 0, done.stdout + done.stderr
    built = done.stdout.partition("Configure | Build the libraries")[2].partition("TASK [")[0]
    assert re.findall(r"(?:changed|ok): \[(\S+)\]", built) == ["login1"]
    assert {line[3:].split("/lib/")[0] for line in job(f"V=2; {LOADED}")} == {f"{SHARED}/tools/2"}
    again = install([SECOND], user_libraries_path=SHARED)
    assert {host: count for host, count in changed(again.stdout).items() if count != "0"} == {}
