"""A mirror made of a signed archive, and APT that takes everything from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from playbooks.mirror.archive import Root
from playbooks.mirror.make import make
from playbooks.mirror.serve import server
from playbooks.mirror.store import MirrorError, Store, entries_of, problems, read_manifest
from playbooks.mirror.wheels import for_nodes, index_of, platform_options, write_indexes
from tests.processes import run
from tests.standins.mirror import Deb, Mirror

PACKAGES = [
    Deb("slurmd", "2.0-1", depends=("libslurm (= 2.0-1)", "munge")),
    Deb("libslurm", "2.0-1"),
    Deb("munge", "1.0"),
    Deb("unwanted", "1.0"),
    Deb("sudo", "1.0"),
]
DRIVER = [Deb("driver", "580.1-1", depends=("munge",)), Deb("driver", "590.1-1"), Deb("tool", "1")]

LISTS = ("present", "wishes", "own", "pins", "files", "wheels", "debs")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def archive(tmp_path_factory: Any) -> Iterator[tuple[Path, str]]:
    """The distribution's archive and another one, and their address."""
    folder = tmp_path_factory.mktemp("archive")
    there = Mirror(folder / "mirror")
    there.apt("debian", PACKAGES, suite="trixie")
    there.apt("cuda", DRIVER)
    handler = partial(Quiet, directory=str(there.folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield there.folder, f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def needs(archive: tuple[Path, str], **more: Any) -> dict[str, Any]:
    folder, url = archive
    source = {
        "uri": "http://deb.example.org/debian",
        "suites": ["trixie"],
        "components": ["main"],
        "keyring": str(folder / "debian/key.gpg"),
    }
    system = {
        "architecture": "x86_64",
        "distribution": "Debian",
        "distribution_release": "trixie",
        "distribution_version": "13",
        "python": "3.13",
        "sources": [source],
    }
    cuda = {
        "name": "cuda",
        "uris": [f"{url}/cuda/"],
        "suites": ["/"],
        "key_url": f"{url}/cuda/key.asc",
        "pins": [{"packages": ["tool"], "priority": -1}],
    }
    kind = {
        "hosts": ["n1"],
        "system": system,
        "repositories": [cuda],
        "packages": [{"names": ["slurmd"], "version": ""}],
        **{key: [] for key in (*LISTS, "images")},
        **more,
    }
    return {"kinds": [kind]}


@pytest.fixture
def mirrored(archive, tmp_path):
    """A function that makes a mirror and returns the names of its packages."""

    def make_it(**more: Any) -> set[str]:
        folder = tmp_path / "made"
        folder.mkdir(exist_ok=True)
        elsewhere = {"http://deb.example.org/debian": f"{archive[1]}/debian"}
        store = Store(folder, entries_of(read_manifest(folder)), elsewhere)
        make(store, needs(archive, **more), [], lambda _: None)
        store.end({"made": "now"}, prune=False)
        assert problems(folder) == []
        return {path.name.partition("_")[0] for path in folder.rglob("*.deb")}

    return make_it


def test_packages_come_with_what_they_need_and_what_a_server_has(mirrored, tmp_path):
    assert mirrored() == {"slurmd", "libslurm", "munge", "sudo"}
    assert (tmp_path / "made/deb.example.org/debian/dists/trixie/InRelease").is_file()


def test_a_pinned_driver_is_the_one_of_its_branch(mirrored, tmp_path):
    pins = [{"packages": ["driver"], "version": "580.*", "priority": 1001}]
    found = mirrored(wishes=["driver*", "nobody-has-it"], pins=pins)
    assert found == {"slurmd", "libslurm", "munge", "sudo", "driver"}
    assert len(list((tmp_path / "made").rglob("driver_580.1-1_*.deb"))) == 1
    assert not list((tmp_path / "made").rglob("driver_590*"))


def test_an_exact_version_is_found_without_its_revision(mirrored, tmp_path):
    mirrored(packages=[{"names": ["driver"], "version": "580.1"}])
    assert len(list((tmp_path / "made").rglob("driver_580.1-1_*.deb"))) == 1


def test_what_a_host_builds_itself_is_not_looked_for(mirrored):
    packages = [{"names": ["munge", "slurm-smd-slurmd"], "version": ""}]
    assert mirrored(packages=packages, own=["slurm-smd-*"]) == {"munge", "sudo"}


@pytest.mark.parametrize(
    ("packages", "why"),
    [
        ([{"names": ["nowhere"], "version": ""}], "APT cannot install nowhere: Unable to locate"),
        (
            [{"names": ["driver"], "version": "1"}],
            "no archive has driver 1; they have 590.1-1, 580",
        ),
        ([{"names": ["tool"], "version": ""}], "APT cannot install tool: .*no installation cand"),
    ],
)
def test_what_no_archive_has_is_told(mirrored, packages, why):
    with pytest.raises(MirrorError, match=why):
        mirrored(packages=packages)


def test_an_archive_that_is_signed_by_another_is_refused(archive, mirrored, tmp_path):
    other = Mirror(tmp_path / "other")
    other.apt("debian", [], suite="trixie")
    mine = needs(archive)["kinds"][0]["system"]
    mine["sources"][0]["keyring"] = str(other.folder / "debian/key.gpg")
    with pytest.raises(MirrorError, match="APT cannot read the package archives"):
        mirrored(system=mine)


def test_apt_takes_all_from_the_mirror_and_notices_a_damaged_file(
    archive, mirrored, tmp_path, monkeypatch
):
    mirrored()
    monkeypatch.setattr("playbooks.mirror.serve.Handler.log_message", lambda *_: None)
    folder = tmp_path / "made"
    with server(folder, "127.0.0.1", 0) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        root = Root(tmp_path / "node", Store(tmp_path, {}))
        key = str(archive[0] / "debian/key.gpg")
        source = {"name": "d", "uris": ["http://deb.example.org/debian"], "key": key}
        root.write("amd64", [{**source, "suites": ["trixie"], "components": ["main"]}], [])
        settings = tmp_path / "node/apt.conf"
        proxy = f'Acquire::http::Proxy "http://127.0.0.1:{listening.server_port}";\n'
        settings.write_text(settings.read_text() + proxy)
        root.update()
        (package,) = folder.rglob("slurmd_*.deb")
        package.write_bytes(package.read_bytes()[:-1] + b"x")
        fetch = ("apt-get", "--yes", "--download-only", "install")
        environment = {"APT_CONFIG": str(settings), "PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        done = run(*fetch, "libslurm", env=environment)
        assert done.returncode == 0, done.stderr
        done = run(*fetch, "slurmd", env=environment)
        listening.shutdown()
    assert done.returncode != 0
    assert "Hash Sum mismatch" in done.stdout + done.stderr
    (wrong,) = problems(folder)
    assert "slurmd_2.0-1" in wrong


# --- wheels ---------------------------------------------------------------------------------------


def test_an_index_links_to_wheels_with_their_hashes(tmp_path):
    store = Store(tmp_path, {})
    write_indexes(store, {"simple": {"../../../files.example.org/a_B-1.0-py3.whl": "0" * 64}})
    page = (tmp_path / "wheels/simple/a-b/index.html").read_text()
    link = "../../../files.example.org/a_B-1.0-py3.whl"
    assert f'<a href="{link}#sha256={"0" * 64}">a_B-1.0-py3.whl</a>' in page


def test_wheels_of_another_builds_index_stay_apart():
    options = ["--extra-index-url", "https://torch.example.org/whl/cpu"]
    assert index_of("https://torch.example.org/whl/cpu/torch.whl", options) == "cpu"
    assert index_of("https://torch.example.org/whl/cpu2/torch.whl", options) == "simple"


LOCK = """\
# of pip-compile
numpy==2.4.6 ; python_full_version < "3.12" \\
    --hash=sha256:aa \\
    --hash=sha256:bb
numpy==2.5.5 ; python_full_version >= "3.12" \\
    --hash=sha256:cc
six[x]==1.17.0 --hash=sha256:dd  # via numpy
only-there==1 ; platform_machine == "aarch64"
"""


def test_markers_are_those_of_the_nodes_and_not_of_this_python():
    assert for_nodes(LOCK, "x86_64", "3.13").splitlines() == [
        "numpy==2.5.5 --hash=sha256:cc",
        "six[x]==1.17.0 --hash=sha256:dd",
    ]
    assert for_nodes(LOCK, "aarch64", "3.11").splitlines() == [
        "numpy==2.4.6 --hash=sha256:aa --hash=sha256:bb",
        "six[x]==1.17.0 --hash=sha256:dd",
        "only-there==1",
    ]
    assert for_nodes("--index-url https://x\nsix", "x86_64", "3.13") == "--index-url https://x\nsix"
    with pytest.raises(MirrorError, match="is no requirement of pip"):
        for_nodes("six ==", "x86_64", "3.13")


def test_wheels_are_those_of_the_nodes_python():
    options = platform_options("aarch64", "3.13")
    assert "--python-version=3.13" in options
    assert "--platform=manylinux_2_28_aarch64" in options
