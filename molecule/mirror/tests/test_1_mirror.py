"""A cluster that was deployed from a mirror, with no way out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import proven_cluster
from tests.live_cluster import REPOSITORY

SCRATCH = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
MIRROR = SCRATCH / "mirror"
PORTAL = str(REPOSITORY / "inventory/demo-portal/hosts.yml")
NODES = ("ctl1", "login1", "gpu1", "gpu2")
# APT as it would be without the mirror: the sources of the image, asked without the proxy.
ORIGIN = (
    "sudo apt-get update -o Acquire::http::Proxy=DIRECT -o Acquire::Retries=0 "
    "-o Dir::Etc::sourcelist=/etc/apt/sources.list "
    "-o Dir::Etc::sourceparts=/etc/apt/sources.list.d "
    "-o Dir::State::lists=/tmp/lists -o APT::Update::Error-Mode=any"
)


def requests() -> list[tuple[str, int]]:
    """What the nodes asked the mirror for, and the status of the answer."""
    log = (SCRATCH / "mirror.log").read_text(encoding="utf-8")
    return [(path, int(code)) for path, code in re.findall(r'"GET (\S+) [^"]*" (\d+)', log)]


def test_there_is_no_way_out(node):
    for name in NODES:
        done = node(name).run(f"sudo mkdir -p /tmp/lists/partial; {ORIGIN}")
        assert done.rc != 0, f"{name}: {done.stdout}"


def test_all_that_nodes_asked_for_was_there():
    asked = requests()
    assert sum(path.endswith(".deb") for path, _ in asked) > 400
    assert sum(path.endswith(".whl") for path, _ in asked) > 20
    # APT asks for keys of its own indexes that it may do without; nothing else is missing.
    assert [path for path, code in asked if code != 200] == []


def test_what_is_installed_is_in_the_mirror(node):
    """All that came onto the nodes since, by APT's own record."""
    there = {path.name.partition("_")[0] for path in MIRROR.rglob("*.deb")}
    for name in NODES:
        log = node(name).check_output("sudo cat /var/log/apt/history.log")
        installed = set(re.findall(r"([a-z0-9][a-z0-9+.-]+):amd64 \(", log))
        assert len(installed) > 50, name
        # nftables came before the way out was closed.
        lacking = {each for each in installed - there if "nft" not in each}
        assert lacking == set(), f"{name}: {sorted(lacking)}"


def test_a_second_run_changes_nothing(operator):
    proven_cluster.a_second_run_changes_nothing(operator, PORTAL)


def test_jobs_run_and_the_quick_suite_passes(node, operator):
    proven_cluster.jobs_run_and_are_accounted(node("login1"))
    proven_cluster.the_quick_suite_passes(operator)


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        yield
    finally:
        path.write_bytes(whole)


def test_a_damaged_file_is_refused(node, operator):
    (package,) = MIRROR.rglob("tree_*.deb")
    with damaged(package):
        extra = '{"node_base_extra_packages": ["tree"]}'
        run = operator.playbook("nodes.yml", "-i", PORTAL, "--limit=gpu1", "-e", extra)
        assert run.returncode != 0
        assert "tree" in run.stdout, run.stdout[-3000:]
        assert re.search(r"[Hh]ash", run.stdout), run.stdout[-3000:]
        assert node("gpu1").run("dpkg-query --status tree").rc != 0
        checked = operator(".venv/bin/python", "scripts/mirror", "check", MIRROR)
        assert checked.returncode == 1
        assert package.name in checked.stderr
    run = operator.playbook("nodes.yml", "-i", PORTAL, "--limit=gpu1", "-e", extra)
    assert run.returncode == 0, run.stdout[-3000:]
    assert node("gpu1").run("dpkg-query --status tree").rc == 0
    assert operator(".venv/bin/python", "scripts/mirror", "check", MIRROR).returncode == 0


def test_without_the_mirror_the_nodes_read_their_own_sources_again(node, operator):
    """The way back: the variable emptied, and only what belongs to the role is gone."""
    run = operator.playbook(
        "nodes.yml", "-i", PORTAL, "--limit=gpu2", "-e", '{"cluster_mirror": ""}', "--tags=install"
    )
    assert run.returncode == 0, run.stdout[-3000:]
    settings = node("gpu2").check_output("apt-config dump")
    assert "mirror.sources.d" not in settings
    assert node("gpu2").run("ls /etc/apt/mirror.sources.d/*").rc != 0
