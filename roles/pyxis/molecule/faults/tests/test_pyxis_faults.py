"""What is refused, and what stays as it was then; and how the role is taken back."""

import pytest

from tests.pyxis_nodes import (
    COLLECTED,
    COMPUTE,
    FOLDER,
    JOB,
    LOGIN,
    NODES,
    VERIFY,
    flawed,
    idle,
    in_place,
    runs_through_it,
)


@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        ("unloadable", "undefined symbol: nobody_has_this"),
        ("version", "Incompatible plugin version"),
        ("init", "the stand-in does not want to"),
    ],
)
def test_one_that_cannot_be_loaded_is_not_put_in_place(node, play, flaw, words):
    before = in_place(node)
    run = play(None, f"--limit={LOGIN}", **flawed(flaw))
    assert run.code != 0
    assert words in run.output
    assert in_place(node) == before
    assert len(list(COLLECTED.iterdir())) == 1


def test_one_that_crashes_in_a_job_is_not_put_in_place_on_any_node(node, play):
    before = in_place(node)
    run = play(None, **flawed("job"))
    assert run.code != 0
    assert "a job with it did not end" in run.output
    nodes = [name for name in NODES if f"{name} gets no pyxis for Slurm" in run.output]
    assert len(nodes) == len(NODES) - 1
    assert "the host that builds it, failed; see its error above." in run.output
    assert in_place(node) == before
    assert len(list(COLLECTED.iterdir())) == 1
    assert idle(node)
    assert runs_through_it(node)


def test_a_tarball_that_is_another_is_refused_and_the_old_plugin_stays(node, play):
    before = in_place(node)
    run = play(None, f"--limit={LOGIN}", pyxis_sha256="0" * 64)
    assert run.code != 0
    assert "has the SHA-256 " in run.output
    assert f"and {'0' * 64} is pinned" in run.output
    assert in_place(node) == before


def test_options_that_pyxis_does_not_know_are_refused(play):
    run = play(None, f"--limit={LOGIN}", pyxis_options={"remap_root": True})
    assert run.code != 0
    assert "pyxis_options has remap_root, which pyxis does not know" in run.output


def test_headers_of_another_slurm_are_refused(node, play):
    login = node(LOGIN)
    before = in_place(node)
    with login.sudo():
        login.check_output(
            "printf '%s\\n' '#!/bin/sh' '[ \"$1\" != --version ] || "
            "{ echo slurm-wlm 99.1.2; exit; }' 'exec /usr/bin/srun \"$@\"' "
            "> /usr/local/bin/srun && chmod 755 /usr/local/bin/srun"
        )
    try:
        run = play(None, f"--limit={LOGIN}")
        verified = play(VERIFY, f"--limit={LOGIN}")
    finally:
        with login.sudo():
            login.check_output("rm /usr/local/bin/srun")
    assert run.code != 0
    assert "its Slurm is 99.1.2 (0x630102), and the headers say 0x" in run.output
    assert in_place(node) == before
    assert verified.changed == 0
    assert "the Slurm that it was built for is " in verified.output
    assert ", expected 99.1.2; run playbooks/containers.yml" in verified.output


def test_without_a_source_nothing_of_it_is_left(node, play):
    run = play(None, f"--limit={LOGIN}", pyxis_source="none")
    assert run.code == 0, run.output
    login = node(LOGIN)
    assert login.check_output(f"ls {FOLDER}") == ""
    assert not login.file("/etc/tmpfiles.d/pyxis.conf").exists
    assert not login.file("/usr/local/libexec/plumbline/pyxis-importer").exists
    assert login.check_output(f"{JOB} hostname") == COMPUTE
    back = play(None, f"--limit={LOGIN}")
    assert back.code == 0, back.output
    assert runs_through_it(node)
