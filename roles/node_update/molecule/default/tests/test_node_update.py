"""A node's own APT: what is upgraded, what is left, and what is refused."""

from __future__ import annotations

import shlex

import pytest

FOLDER = "/opt/archive"
LIST = "/etc/apt/sources.list.d/test-archive.list"
# Makes a package of a name and version, with more lines for its control file.
MAKE = r"""
set -e
mkdir -p {folder}/tree/DEBIAN
printf 'Package: %s\nVersion: %s\nArchitecture: all\n' {name} {version} >{folder}/control
printf 'Maintainer: x <x@example.org>\nDescription: x\n{more}' >>{folder}/control
mv {folder}/control {folder}/tree/DEBIAN/control
dpkg-deb --build {folder}/tree {folder}/{name}_{version}.deb >/dev/null
rm -r {folder}/tree
"""
# A flat archive of the packages that are there; `Origin` is what APT prints of it.
INDEX = r"""
set -e
cd {folder}
for deb in *.deb; do
  dpkg-deb --field $deb
  printf 'Filename: ./%s\nSize: %s\n' $deb $(stat -c %s $deb)
  printf 'SHA256: %s\n\n' $(sha256sum <$deb | cut -d' ' -f1)
done >Packages
printf 'Origin: Test\nLabel: {label}\nSuite: stable\nSHA256:\n %s %s Packages\n' \
  $(sha256sum <Packages | cut -d' ' -f1) $(stat -c %s Packages) >Release
echo 'deb [trusted=yes] file:{folder} ./' >{list}
apt-get update --allow-releaseinfo-change >/dev/null
"""


@pytest.fixture(autouse=True)
def _root(host):
    with host.sudo():
        yield


@pytest.fixture
def archive(host):
    """Packages of our own, in an archive that the node reads; gone afterwards."""
    host.check_output(f"mkdir -p {FOLDER}")

    def make(name: str, version: str, label: str = "Test", more: str = "") -> None:
        script = MAKE.format(folder=FOLDER, name=name, version=version, more=more)
        host.check_output(f"bash -c {shlex.quote(script)}")
        index = INDEX.format(folder=FOLDER, label=label, list=LIST)
        host.check_output(f"bash -c {shlex.quote(index)}")

    yield make
    names = "plumbline-test plumbline-test-held plumbline-test-old plumbline-test-new"
    host.check_output(f"apt-mark unhold {names} >/dev/null 2>&1; dpkg --purge {names} 2>&1; true")
    host.check_output(f"rm -rf {FOLDER} {LIST} && apt-get update >/dev/null")


def install(host, name: str) -> None:
    host.check_output(f"apt-get install --yes {name} >/dev/null 2>&1")


def version(host, name: str) -> str:
    return host.check_output(f"dpkg-query --show --showformat='${{Version}}' {name}")


def test_nothing_is_left_to_upgrade(host):
    """The role was applied: the archive has nothing newer, and no reboot is due in a container."""
    simulated = host.check_output("apt-get dist-upgrade --simulate")
    assert "Inst " not in simulated


def test_what_is_newer_comes_and_what_is_held_stays(host, play, archive):
    archive("plumbline-test", "1")
    archive("plumbline-test-held", "1")
    install(host, "plumbline-test plumbline-test-held")
    host.check_output("apt-mark hold plumbline-test-held")
    archive("plumbline-test", "2")
    archive("plumbline-test-held", "2")
    checked = play(None, "--check")
    assert checked.code == 0, checked.output[-3000:]
    assert version(host, "plumbline-test") == "1"
    run = play()
    assert run.code == 0, run.output[-3000:]
    assert (version(host, "plumbline-test"), version(host, "plumbline-test-held")) == ("2", "1")
    assert play().changed == 0


@pytest.mark.long
def test_security_takes_nothing_else(host, play, archive):
    archive("plumbline-test", "1")
    install(host, "plumbline-test")
    archive("plumbline-test", "2")
    run = play(node_update_packages="security")
    assert run.code == 0, run.output[-3000:]
    assert version(host, "plumbline-test") == "1"
    archive("plumbline-test", "3", label="Debian-Security")
    run = play(node_update_packages="security")
    assert run.code == 0, run.output[-3000:]
    assert version(host, "plumbline-test") == "3"
    archive("plumbline-test", "4", label="Debian-Security")
    assert play(node_update_packages="none").changed == 0
    assert version(host, "plumbline-test") == "3"


@pytest.mark.long
def test_what_would_remove_a_package_or_change_slurm_is_refused(host, play, archive):
    archive("plumbline-test-old", "1")
    archive("plumbline-test", "1")
    install(host, "plumbline-test plumbline-test-old")
    archive("plumbline-test", "2", more="Conflicts: plumbline-test-old\\n")
    run = play()
    # APT itself rather keeps the older one than to remove another package, in most cases.
    assert run.code == 0 or "would remove plumbline-test-old" in run.output, run.output[-3000:]
    assert version(host, "plumbline-test-old") == "1"
    host.check_output("dpkg --purge plumbline-test-old plumbline-test")
    archive("libslurm99", "1")
    install(host, "libslurm99")
    archive("libslurm99", "2")
    try:
        run = play()
        assert run.code != 0
        assert "would change libslurm99, which the playbooks keep in step" in run.output
        assert version(host, "libslurm99") == "1"
    finally:
        host.check_output("dpkg --purge libslurm99")


@pytest.mark.long
def test_an_archive_that_is_gone_changes_nothing(host, play, archive):
    archive("plumbline-test", "1")
    install(host, "plumbline-test")
    host.check_output(f"rm -r {FOLDER}")
    run = play()
    assert run.code != 0
    assert "the package lists cannot be refreshed, and nothing was changed" in run.output
