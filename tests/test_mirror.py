"""The stand-in for release mirrors: dpkg and gpg take what it makes, and faults are faults."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.processes import passes, run
from tests.standins import mirror

TOOL = mirror.Deb(
    "tool",
    "1:2.0-1",
    depends=("base (>= 1)",),
    conflicts=("tool-old",),
    files={"/usr/bin/tool": "#!/bin/sh\necho tool\n", "/etc/tool.conf": "a = 1\n"},
    scripts={"postinst": "#!/bin/sh\nexit 0\n"},
    fields={"Provides": "a-tool"},
)


def test_a_package_is_one_to_dpkg(tmp_path: Path) -> None:
    built = mirror.build(TOOL, tmp_path)
    assert built.name == "tool_2.0-1_all.deb"
    shown = passes("dpkg-deb", "--field", built, "Version", "Conflicts", "Provides")
    assert shown == "Version: 1:2.0-1\nConflicts: tool-old\nProvides: a-tool\n"
    lines = [line.split() for line in passes("dpkg-deb", "-c", built).splitlines()]
    listed = {words[-1]: words[:2] for words in lines}
    assert listed["./usr/bin/tool"] == ["-rwxr-xr-x", "root/root"]
    assert listed["./etc/tool.conf"] == ["-rw-r--r--", "root/root"]
    assert listed["./usr/bin/"][0] == "drwxr-xr-x"


def test_a_package_is_the_same_bytes_again(tmp_path: Path) -> None:
    first, second = (mirror.build(TOOL, tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first == second


def test_the_key_is_kept_and_signs_what_gpgv_accepts(tmp_path: Path) -> None:
    stand_in = mirror.Mirror(tmp_path / "mirror")
    key = stand_in.apt("cuda", [TOOL])
    assert key == stand_in.key == mirror.Mirror(tmp_path / "mirror").key
    folder = stand_in.folder / "cuda"
    assert (folder / "key.asc").read_bytes().startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----")
    assert (tmp_path / "mirror.key").stat().st_mode & 0o777 == 0o600
    passes("gpgv", "--keyring", folder / "key.gpg", folder / "InRelease")

    other = mirror.make_key()
    (tmp_path / "other.gpg").write_bytes(other.binary)
    refused = run("gpgv", "--keyring", tmp_path / "other.gpg", folder / "InRelease")
    assert refused.returncode != 0


@pytest.mark.parametrize(
    ("suite", "releases", "index", "packages"),
    [
        ("/", "", "Packages", "./tool_2.0-1_all.deb"),
        ("stable", "dists/stable", "main/binary-arm64/Packages", "pool/tool_2.0-1_all.deb"),
    ],
)
def test_indexes_lead_to_the_packages(
    tmp_path: Path, suite: str, releases: str, index: str, packages: str
) -> None:
    stand_in = mirror.Mirror(tmp_path)
    stand_in.apt("x", [TOOL, mirror.Deb("only", "1", architecture="arm64")], suite=suite)
    root = tmp_path / "x"
    text = (root / releases / index).read_text()
    assert f"Filename: {packages}\n" in text
    assert text.count("Package: tool\n") == text.count("Package: only\n") == 1
    assert gzip.decompress((root / releases / f"{index}.gz").read_bytes()).decode() == text
    digest = hashlib.sha256((root / releases / index).read_bytes()).hexdigest()
    assert f" {digest} {len(text)} {index}\n" in (root / releases / "InRelease").read_text()
    of_package = hashlib.sha256((root / packages).read_bytes()).hexdigest()
    assert f"SHA256: {of_package}\n" in text


def test_a_repository_may_be_unsigned(tmp_path: Path) -> None:
    stand_in = mirror.Mirror(tmp_path)
    stand_in.apt("x", [TOOL])
    stand_in.apt("x", [TOOL], signed=False)
    assert (tmp_path / "x/Release").exists()
    assert not (tmp_path / "x/InRelease").exists()


# --- the server -----------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path):
    """A function that sets the faults, and the address of a mirror with one file of 1,000 bytes."""
    folder = tmp_path / "mirror"
    digest = mirror.Mirror(folder).file("a/file", b"x" * 1000)
    assert digest == hashlib.sha256(b"x" * 1000).hexdigest()

    class Handler(mirror.Handler):
        faults = tmp_path / "faults.json"
        requests = tmp_path / "requests.log"

    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: Handler(*arguments, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def get(kind: str = "") -> bytes:
        Handler.faults.write_text(json.dumps({"/a/*": kind} if kind else {}))
        address = f"http://127.0.0.1:{server.server_port}/a/file"
        with urllib.request.urlopen(address, timeout=0.5) as answer:
            return bytes(answer.read())

    yield get
    assert Handler.requests.read_text() == "/a/file\n"
    server.shutdown()
    server.server_close()
    thread.join()


Get = Callable[..., bytes]


@pytest.mark.parametrize(("kind", "byte"), [("", b"x"), (mirror.WRONG, b"y")])
def test_the_file_comes_or_as_many_other_bytes(served: Get, kind: str, byte: bytes) -> None:
    assert served(kind) == byte * 1000


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (mirror.NOT_FOUND, urllib.error.HTTPError),
        (mirror.TRUNCATED, http.client.IncompleteRead),
        (mirror.RESET, http.client.RemoteDisconnected),
        (mirror.HANGING, TimeoutError),
    ],
)
def test_what_goes_wrong_is_seen(served: Get, kind: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        served(kind)


def test_the_first_pattern_that_fits_counts() -> None:
    faults = {"*/InRelease": "404", "/cuda/*": "wrong"}
    assert mirror.fault_of("/cuda/InRelease", faults) == "404"
    assert mirror.fault_of("/cuda/x.deb", faults) == "wrong"
    assert mirror.fault_of("/other/x.deb", faults) == ""
