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


NASTY = "a \"b\" 'c' $HOME $(touch /tmp/set) `touch /tmp/set` \\n \\ ;&|<>*?!#~ {x,y} [z] %d ü ]]"


def test_what_leaves_the_list_goes_and_a_sites_own_stays(host, play):
    with host.sudo():
        host.check_output(f"mkdir -p {TREE}/site && cp {TREE}/rival/1.lua {TREE}/site/1.lua")
        host.check_output(f"cp {TREE}/tool/2.0.lua {TREE}/tool/2.1.lua")
    fewer = [
        {"name": "rival", "version": "1", "description": "alone", "kind": "variables"},
    ]
    run = play(environment_modules_modulefiles=fewer)
    assert run.code == 0, run.output
    assert avail(host) & (ALL | {"site/1", "tool/2.1"}) == {"rival/1", "site/1", "tool/2.1"}
    assert not host.file(f"{TREE}/nasty").exists
    assert not host.file(f"{TREE}/tool/.modulerc.lua").exists
    again = play(environment_modules_modulefiles=fewer)
    assert (again.code, again.changed) == (0, 0), again.output

    with host.sudo():
        host.check_output(f"rm -r {TREE}/site {TREE}/tool/2.1.lua")
    assert play().code == 0
    assert avail(host) >= ALL


def test_somebody_elses_file_is_not_written_over(host, play):
    with host.sudo():
        host.check_output(f"mkdir -p {TREE}/tool && echo '-- ours' > {TREE}/tool/3.lua")
    try:
        refused(
            play(environment_modules_modulefiles=[TOOL]), f"{TREE}/tool/3.lua is somebody else's"
        )
    finally:
        with host.sudo():
            host.check_output(f"rm {TREE}/tool/3.lua")


def test_check_mode_writes_nothing(host, play):
    with host.sudo():
        before = host.check_output(
            f"find {TREE} {CACHE} /etc -newermt '-1 minute' -type f; ls -lR {TREE}"
        )
        run = play(None, "--check", environment_modules_modulefiles=[TOOL])
        assert (run.code, run.changed > 0) == (0, True), run.output
        assert host.check_output(f"ls -lR {TREE}") in before
        assert not host.file(f"{TREE}/tool/3.lua").exists
    assert play(None, "--check").changed == 0


def test_what_users_do_not_have_is_told(host, play):
    with host.sudo():
        host.check_output(f"chmod 700 {TREE}/mpi-a")
    try:
        run = play()
        assert run.code == 2, run.output
        assert "modules is 7 of 8, expected 8 of 8; mpi-a/1: look whether" in run.output
    finally:
        with host.sudo():
            host.check_output(f"chmod 755 {TREE}/mpi-a")
