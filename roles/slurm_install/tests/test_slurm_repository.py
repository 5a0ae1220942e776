"""A folder of packages that APT reads: whole, or the one before it."""

import json
import tarfile
from pathlib import Path

import pytest
from ansible.module_utils.refused import Refused

from roles.slurm_install.library import slurm_repository as m
from tests.standins.mirror import Deb, build


@pytest.fixture
def node(tmp_path: Path) -> m.Host:
    return m.Host(tmp_path / "lib/packages", tmp_path / "a.sources", tmp_path / "a.pref")


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The lists that APT was asked to read."""
    calls: list[Path] = []
    monkeypatch.setattr(m, "have_apt_read", calls.append)
    return calls


def archive(folder: Path, *packages: Deb) -> Path:
    path = folder / "packages.tar"
    with tarfile.open(path, "w") as packed:
        for package in packages:
            built = build(package, folder / "debs")
            packed.add(built, f"./{built.name}")
    return path


SMD = Deb("slurm-smd", "24.11.5-1", "amd64")
PIN = m.preference("/x/")
CLIENT = Deb("slurm-smd-client", "24.11.5-1", "amd64", depends=("slurm-smd (= 24.11.5-1)",))


def test_apt_finds_what_was_brought(node, apt, tmp_path):
    packed = archive(tmp_path, SMD, CLIENT)
    assert m.apply(node, packed, "k1", PIN, False) == {"changed": True, "lacking": True}
    index = (node.folder / "Packages").read_text()
    assert index.count("Package: slurm-smd") == 2
    assert "Filename: ./slurm-smd-client_24.11.5-1_amd64.deb" in index
    assert apt == [node.source]
    assert "Pin: version /x/" in node.pin.read_text()
    assert m.apply(node, None, "k1", PIN, False) == {"changed": False, "lacking": False}


def test_check_mode_says_what_is_lacking(node, apt):
    assert m.apply(node, None, "k1", PIN, True) == {"changed": True, "lacking": True}
    assert not node.folder.exists()
    assert not node.pin.exists()
    assert apt == []


def test_what_apt_has_not_read_is_brought_again(node, tmp_path, monkeypatch):
    def fails(_: Path) -> None:
        raise Refused("APT does not read it")

    monkeypatch.setattr(m, "have_apt_read", fails)
    packed = archive(tmp_path, SMD)
    with pytest.raises(Refused):
        m.apply(node, packed, "k1", "", False)
    assert m.apply(node, None, "k1", "", True)["lacking"]


def test_half_an_archive_leaves_what_was_there(node, apt, tmp_path):
    m.apply(node, archive(tmp_path, SMD), "k1", "", False)
    broken = tmp_path / "broken.tar"
    broken.write_bytes(archive(tmp_path, SMD, CLIENT).read_bytes()[:700])
    with pytest.raises(Refused):
        m.apply(node, broken, "k2", "", False)
    assert json.loads(node.stamp.read_text())["kind"] == "k1"
    assert m.apply(node, None, "k1", "", False)["changed"] is False


def test_nothing_lies_outside_of_the_folder(tmp_path):
    packed = tmp_path / "evil.tar"
    with tarfile.open(packed, "w") as file:
        file.add(build(SMD, tmp_path / "debs"), "../../evil.deb")
        file.add(__file__, "../readme.txt")
    assert [path.name for path in m.unpack(packed, tmp_path / "new")] == ["evil.deb"]
    assert not (tmp_path.parent / "evil.deb").exists()


def test_without_a_kind_nothing_of_it_stays(node, apt, tmp_path):
    m.apply(node, archive(tmp_path, SMD), "k1", PIN, False)
    assert m.apply(node, None, "", "", False)["changed"]
    assert not any(path.exists() for path in (node.folder, node.source, node.pin))
    assert not m.apply(node, None, "", "", False)["changed"]


def test_the_distributions_packages_keep_to_a_version_by_their_source(node):
    assert m.apply(node, None, "", m.preference("24.11.5-4", "slurm-wlm"), False)["changed"]
    assert "Package: src:slurm-wlm\nPin: version 24.11.5-4\n" in node.pin.read_text()
    assert m.preference("", "slurm-wlm") == ""
