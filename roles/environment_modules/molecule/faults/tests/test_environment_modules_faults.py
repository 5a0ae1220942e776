"""What others have in the tree, an interrupted run, and hosts that only read."""

from roles.environment_modules.molecule.parts import (
    ALL,
    CACHE,
    TOOL,
    TREE,
    avail,
    loaded,
)
from tests.role_play import refused


def test_a_default_of_somebody_else_is_told(host, play):
    with host.sudo():
        host.check_output(f"ln -s 2.0.lua {TREE}/tool/default")
    try:
        refused(play(), f"{TREE}/tool/default of somebody else chooses the default")
    finally:
        with host.sudo():
            host.check_output(f"rm {TREE}/tool/default")


def test_a_run_that_was_interrupted_is_mended_by_the_next(host, play):
    """Until then no user sees what is no longer true."""
    more = [{"name": "rival", "version": "1", "description": "alone", "kind": "variables"}]
    half = {"name": "environment_modules", "tasks_from": "configure"}
    tasks = [
        {"ansible.builtin.include_role": half},
        {"ansible.builtin.fail": {"msg": "interrupted"}},
    ]
    interrupted = play(tasks, environment_modules_modulefiles=more)
    assert "interrupted" in interrupted.output
    assert avail(host) & ALL == {"rival/1"}
    assert "tool" not in loaded(host, "module --terse spider 2>&1")
    assert not host.file(f"{CACHE}/spiderT.lua").exists
    mended = play(environment_modules_modulefiles=more)
    assert mended.code == 0, mended.output
    assert host.file(f"{CACHE}/spiderT.lua").exists
    assert play().code == 0


def test_a_host_that_does_not_write_uses_the_tree_as_it_is(host, play):
    run = play(environment_modules_write=False)
    assert run.code == 0, run.output
    assert not host.service("plumbline-module-cache.timer").is_running
    missing = play(
        environment_modules_write=False, environment_modules_modulefiles=[TOOL | {"folder": "/"}]
    )
    assert missing.code == 2
    assert "modules is 0 of 1, expected 1 of 1; tool/3: look whether users" in missing.output
    assert play().code == 0
