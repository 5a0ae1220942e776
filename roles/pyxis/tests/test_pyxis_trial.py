"""The trial of a plugin, with commands of our own in place of Slurm's."""

import pytest
from ansible.module_utils.refused import Refused

from roles.pyxis.library import pyxis_trial as m


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A function that makes a command of Slurm's from lines of shell."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name, *lines):
        command = tmp_path / name
        command.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        command.chmod(0o755)
        return str(tmp_path)

    return make


def tried(folder="/nowhere", job=False, timeout=1):
    m.tried("/l.so", ["a=1"], "container-image", job, [folder], timeout)


def test_the_plugin_is_required_and_keeps_out_of_the_real_runtime_folder():
    line = m.plugstack("/l.so", ["runtime_path=/run/pyxis"], "/tmp/x")
    assert line == "required /l.so runtime_path=/run/pyxis runtime_path=/tmp/x\n"


def test_slurms_words_are_its_errors_each_once():
    errors = m.words(
        "srun: error: spank: /l.so: Incompatible plugin version\nsrun: info: nothing",
        "[2026-11-22T06:00:00] error: spank: /l.so: Incompatible plugin version",
        "slurmd: fatal: it ends.",
    )
    assert errors == "spank: /l.so: Incompatible plugin version / it ends"


def test_one_that_srun_has_is_fine(slurm):
    slurm("srun", "echo --container-image=IMAGE")
    tried()


def test_srun_sees_the_trials_configuration_and_no_jobs_environment(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    slurm(
        "srun",
        'grep -q "^required /l.so a=1 " "$(dirname "$SLURM_CONF")/plugstack.conf" || exit 1',
        '[ -z "$SLURM_JOB_ID" ] && echo --container-image',
    )
    tried()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["echo 'srun: error: spank: no such symbol' >&2; exit 1"], "spank: no such symbol"),
        (["kill -ABRT $$"], "srun was killed by signal 6 (SIGABRT)"),
        (["exit 3"], "srun ended with status 3"),
        (["echo --help"], "it does not offer --container-image"),
    ],
)
def test_one_that_srun_does_not_take_is_told(slurm, lines, words):
    slurm("srun", *lines)
    with pytest.raises(Refused, match=r"Slurm cannot use /l\.so: ") as refusal:
        tried()
    assert words in str(refusal.value)


def test_no_srun_is_told(slurm, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="there is no srun"):
        tried()


def test_no_slurmctld_is_told(slurm):
    slurm("srun", "echo --container-image")
    with pytest.raises(Refused, match="there is no slurmctld in /nowhere; name the package"):
        tried(job=True)


@pytest.fixture
def daemons(slurm):
    """The folder of Slurm's daemons, beside an srun that takes the plugin."""
    for name in ("slurmctld", "slurmd", "slurmstepd"):
        folder = slurm(name, "exec sleep 60")
    slurm("sinfo", "echo idle")
    slurm("srun", "echo --container-image")
    return folder


def test_a_job_that_ends_well_is_fine(daemons):
    tried(daemons, job=True)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("echo 'srun: error: task 0: Aborted' >&2; exit 1", "status 1: task 0: Aborted"),
        ("exec sleep 60", "did not end within 1 s"),
    ],
)
def test_a_job_that_fails_is_told(slurm, daemons, line, words):
    slurm("srun", f'[ "$1" != --help ] || {{ echo --container-image; exit; }}; {line}')
    with pytest.raises(Refused, match="a job with it") as refusal:
        tried(daemons, job=True)
    assert words in str(refusal.value)


def test_a_slurmd_that_dies_is_told(slurm, daemons):
    slurm("slurmd", "echo 'slurmd: fatal: spank: it crashed' >&2; exit 1")
    slurm("sinfo", "echo down")
    with pytest.raises(Refused, match="slurmd ended with status 1: spank: it crashed"):
        tried(daemons, job=True, timeout=10)


def test_a_slurmd_that_never_registers_is_told(slurm, daemons):
    slurm("sinfo", "echo unknown")
    with pytest.raises(Refused, match="slurmd does not register"):
        tried(daemons, job=True)
