"""A stand-in for pyxis, built against the nodes' own Slurm and asked by submitting jobs."""

import shutil

import pytest

from tests.pyxis_nodes import (
    COLLECTED,
    COMPUTE,
    CONTROLLER,
    FOLDER,
    JOB,
    LINK,
    LOGIN,
    NODES,
    PLUGSTACK,
    flawed,
    idle,
    in_place,
    runs_through_it,
)


def test_it_was_built_once_and_no_headers_of_slurm_were_installed(node):
    assert len(set(in_place(node))) == 1
    assert len(list(COLLECTED.iterdir())) == 1
    for name in NODES:
        assert not node(name).package("libslurm-dev").is_installed


@pytest.mark.parametrize("name", NODES)
def test_the_option_is_there_where_jobs_are_submitted_and_where_they_run(node, name):
    assert "--container-image=" in node(name).check_output("srun --help")


def test_a_job_runs_through_it(node):
    assert runs_through_it(node)


def test_a_job_without_it_has_nothing_of_it(node):
    plain = f"{JOB} sh -c 'echo image=$STAND_IN_IMAGE'"
    assert node(LOGIN).check_output(plain) == "image="


def test_compute_nodes_have_its_options(node):
    """plugstack.conf names no other file."""
    line = node(COMPUTE).check_output(f"cat {PLUGSTACK}")
    assert f"optional {LINK} container_scope=global execute_entrypoint=0 importer=/" in line
    assert "include" not in line


def test_its_folders_are_there_now_and_at_every_boot(node):
    gpu1 = node(COMPUTE)
    assert gpu1.file("/run/pyxis").mode == 0o755
    assert gpu1.file("/run/pyxis").user == "root"
    assert "d /run/pyxis 0755" in gpu1.file("/etc/tmpfiles.d/pyxis.conf").content_string
    assert gpu1.file("/var/cache/pyxis").mode == 0o1777
    assert gpu1.service("plumbline-pyxis-cache.timer").is_running
    with gpu1.sudo():
        gpu1.check_output("systemctl start plumbline-pyxis-cache.service")


def test_the_importer_imports_once_for_many(node):
    gpu1 = node(COMPUTE)
    gpu1.check_output(
        "mkdir -p /tmp/fake && printf '%s\\n' '#!/bin/sh' 'echo $1 >> /tmp/fake/log' "
        "'[ $1 = import ] || { echo sha256:$(printf x | sha256sum | cut -c1-64); exit; }' "
        "'sleep 1; echo $4 > $3' > /tmp/fake/enroot && chmod 755 /tmp/fake/enroot"
    )
    done = gpu1.check_output(
        "for i in $(seq 20); do PATH=/tmp/fake:$PATH /usr/local/libexec/plumbline/pyxis-importer "
        "get docker://x & done; wait"
    )
    assert len(set(done.splitlines())) == 1
    assert len(done.splitlines()) == 20
    assert gpu1.check_output("grep -c import /tmp/fake/log") == "1"


def test_without_the_library_jobs_run_and_daemons_start(node):
    link = node(LOGIN).check_output(f"readlink {LINK}")
    for name in NODES:
        with node(name).sudo():
            node(name).check_output(f"rm {LINK}")
    try:
        with node(CONTROLLER).sudo():
            node(CONTROLLER).check_output("systemctl restart slurmctld")
        with node(COMPUTE).sudo():
            node(COMPUTE).check_output("systemctl restart slurmd")
        assert idle(node)
        done = node(LOGIN).run(f"{JOB} hostname")
        assert (done.rc, done.stdout.strip()) == (0, COMPUTE)
        assert LINK in done.stderr  # it is said, so that somebody sees it
        # srun's status is 255, which testinfra takes for SSH's own.
        refused = node(LOGIN).check_output(f"{JOB} --container-image=x true || echo refused")
        assert refused == "refused"
    finally:
        for name in NODES:
            with node(name).sudo():
                node(name).check_output(f"ln -s {link} {LINK}")
    assert runs_through_it(node)


def test_one_that_cannot_be_loaded_is_not_put_in_place(node, play):
    """The scenario faults has the other ways in which a release is broken."""
    before = in_place(node)
    run = play(None, f"--limit={LOGIN}", **flawed("crash"))
    assert run.code != 0
    assert "srun was killed by signal 6" in run.output
    assert in_place(node) == before
    assert len(list(COLLECTED.iterdir())) == 1
    assert runs_through_it(node)


@pytest.mark.long
def test_a_slurm_that_changed_gets_a_plugin_of_its_own(node, play):
    """The stamp is what an older Slurm left; login1 builds, as it alone lacks the plugin."""
    login = node(LOGIN)
    kind = login.check_output(f"readlink {LINK}").split("/")[-2]
    old = f"{FOLDER}/pyxis-000000000000"
    with login.sudo():
        login.check_output(
            f"mv {FOLDER}/{kind} {old} && ln -sfn {old}/spank_pyxis.so {LINK} && "
            f"sed -i 's/{kind.removeprefix('pyxis-')}/000000000000/; "
            's/"slurm": "[^"]*"/"slurm": "20.2.7"/\' ' + f"{old}/stamp.json"
        )
    shutil.rmtree(COLLECTED)
    run = play(None)
    assert run.code == 0, run.output
    assert login.check_output(f"readlink {LINK}") == f"{FOLDER}/{kind}/spank_pyxis.so"
    assert not login.file(old).exists
    assert login.package("gcc").is_installed
    assert runs_through_it(node)
    again = play(None)
    assert (again.code, again.changed) == (0, 0), again.output
