"""A release is built once, by its own packaging; a run may end in between."""

import os
import shutil
import time
from pathlib import Path

from tests.role_play import refused

KEPT = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "slurm/kept"
UNITS = "systemctl list-units --plain --no-legend 'plumbline-slurm-*' | cut -d ' ' -f 1"
CLIENT = [{"distribution_packages": {"name": ["slurm-smd-client"]}}]


def test_apt_has_what_was_built(host, play):
    assert len(list(KEPT.glob("*.tar"))) == 1
    assert play(CLIENT).code == 0
    assert host.check_output("sinfo --version") == "slurm 24.11.5"
    assert host.package("slurm-smd").version == "24.11.5-1"


def test_options_came_last(host):
    arguments = host.file("/usr/share/slurm-smd/configured").content_string
    assert arguments.strip().endswith("--with-pmix SUCMD=/bin/su --without-rpath")


def test_nothing_of_the_build_is_left(host):
    assert host.check_output("ls /var/cache/plumbline") == ""
    assert host.check_output(UNITS) == ""


def test_what_is_kept_is_not_built_again(host, play):
    with host.sudo():
        host.check_output("rm -r /var/lib/plumbline/slurm-packages")
    run = play(None)
    assert run.code == 0, run.output
    assert "is built on" not in run.output
    assert host.file("/var/lib/plumbline/slurm-packages/stamp.json").exists


def test_a_run_that_gave_up_leaves_the_build_at_work(host, play):
    shutil.rmtree(KEPT)
    other = {"slurm_install_build_options": ["--enable-this"]}
    refused(play(None, **other, slurm_install_build_timeout=1), "another run waits for it")
    (unit,) = host.check_output(UNITS).split()
    began = host.check_output(f"systemctl show --value --property=InvocationID {unit}")
    run = play(None, **other)
    assert run.code == 0, run.output
    assert began
    assert "Build | Start the build" in run.output
    time.sleep(1)
    assert host.check_output(UNITS) == ""


def test_one_that_was_killed_begins_anew(host, play):
    shutil.rmtree(KEPT)
    other = {"slurm_install_build_options": ["--enable-that"]}
    refused(play(None, **other, slurm_install_build_timeout=1), "another run waits for it")
    with host.sudo():
        host.check_output(f"systemctl kill --signal=KILL $({UNITS})")
    run = play(None, **other)
    assert run.code == 0, run.output


def test_nvml_that_is_not_there_is_said(host, play):
    run = play(None, slurm_install_build_options=["--with-nvml=/nowhere"])
    refused(run, "NVML was asked for, and configure did not find it")
    assert play(None).code == 0


def test_another_tarball_than_the_pinned_one(play):
    refused(play(None, slurm_install_sha256="0" * 64), "is pinned")
