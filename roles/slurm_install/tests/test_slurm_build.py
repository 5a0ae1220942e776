"""How far a build is, from what its host says; and the program that builds, up to the compiler."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from roles.slurm_install.action_plugins import slurm_build_progress as m

BUILD = Path(__file__).parents[1] / "files/build"


def test_a_build_at_work():
    now = m.state("active=active\ndone=\nat=configures and compiles\ncompiled=1240\nwords=\n")
    assert (now.running, now.done, now.compiled) == (True, False, 1240)
    line = m.progress_line("ctl1", now, 150)
    assert line == "  ctl1: configures and compiles, 1240 files compiled, 2.5 min"


def test_one_that_ended_without_packages():
    now = m.state(
        "active=inactive\ndone=\nat=installs what the build needs\ncompiled=0\n"
        "words=E: Unable to correct problems|build: error: no \n"
    )
    assert not now.running
    assert now.words == "E: Unable to correct problems / build: error: no"


def test_what_a_host_is_asked(tmp_path):
    (tmp_path / "progress").write_text("packs\n")
    (tmp_path / "log").write_text("ok\nconfigure: error: no MUNGE\nmake: *** Error 2\n")
    question = ["bash", "-c", m.question(str(tmp_path), "no-such.service")]
    now = m.state(subprocess.check_output(question, text=True))
    assert (now.running, now.done, now.at) == (False, False, "packs")
    assert now.words == "configure: error: no MUNGE / make: *** Error 2"
    (tmp_path / "packages.tar").touch()
    assert m.state(subprocess.check_output(question, text=True)).done


RULES = """#!/bin/sh
# is called as make would be
case $1 in
build) grep dh_auto_configure "$0" > ../configured ;;
binary) : > ../slurm-smd_24.11.5-1_amd64.deb; : > ../slurm-smd-doc_24.11.5-1_all.deb ;;
esac
exit
\tdh_auto_configure -- --sysconfdir=/etc/slurm --with-pmix SUCMD=/bin/su
"""


def built(folder: Path, version: str, *options: str, package: str = "24.11.5-1") -> Path:
    """Runs the program over a tarball of ours, with programs of ours in the place of APT's."""
    source = folder / "slurm-24.11.5/debian"
    source.mkdir(parents=True)
    rules = source / "rules"
    rules.write_text(RULES)
    rules.chmod(0o755)
    with tarfile.open(folder / "source.tar", "w") as packed:
        packed.add(source.parent, "slurm-24.11.5")
    programs = folder / "bin"
    programs.mkdir()
    listing = "echo ./usr/lib/slurm/gpu_nvml.so" if "yes" in package else "echo ./usr/lib/slurm"
    for name, line in {
        "apt-get": "exit 0",
        "dpkg-parsechangelog": f"echo {package.split(maxsplit=1)[0]}",
        "dpkg-deb": listing,
        "dpkg-buildpackage": 'exec debian/rules "${1#--rules-target=}"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    shutil.copy(BUILD, folder / "build")
    subprocess.run(
        [folder / "build", version, "2", *options],
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"},
        check=False,
        timeout=60,
    )
    return folder


def test_what_was_built_is_one_file(tmp_path):
    folder = built(tmp_path, "24.11.5")
    assert (folder / "progress").read_text() == "finished\n", (folder / "log").read_text()
    with tarfile.open(folder / "packages.tar") as packed:
        assert packed.getnames() == ["./slurm-smd_24.11.5-1_amd64.deb"]
    assert not (folder / "work").exists()


def test_options_reach_configure_last(tmp_path):
    folder = built(tmp_path, "24.11.5", "--with-nvml=/usr/local/cuda", "--enable-x")
    # Without NVML in what came of it, it is refused; its work stays for a look.
    assert "NVML was asked for" in (folder / "log").read_text()
    assert not (folder / "packages.tar").exists()
    assert (folder / "progress").read_text() == "packs\n"
    line = (folder / "work/configured").read_text().strip().splitlines()[-1]
    assert line.endswith("SUCMD=/bin/su --with-nvml=/usr/local/cuda --enable-x")


def test_nvml_that_was_found(tmp_path):
    folder = built(tmp_path, "24.11.5", "--with-nvml=/usr/local/cuda", package="24.11.5-1 yes")
    assert (folder / "packages.tar").exists(), (folder / "log").read_text()


def test_a_tarball_of_another_version(tmp_path):
    folder = built(tmp_path, "24.11.5", package="25.05.1-1")
    assert "error: the tarball is of Slurm 25.05.1, and 24.11.5" in (folder / "log").read_text()
    assert not (folder / "packages.tar").exists()
