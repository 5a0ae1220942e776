"""One file of a release: whole, as pinned, or what was there before."""

from __future__ import annotations

import hashlib
import http.server
import socket
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parent.parent / "playbooks/library/release_file.py"
spec = spec_from_file_location("release_file", PATH)
assert spec is not None and spec.loader is not None  # noqa: PT018 - for mypy
release_file = sys.modules["release_file"] = module_from_spec(spec)
spec.loader.exec_module(release_file)

BODY = b"release\n" * 5000
SHA = hashlib.sha256(BODY).hexdigest()


class Mirror(http.server.BaseHTTPRequestHandler):
    """/whole, /short (says more than it sends), /503; anything else is not there."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path in ("/whole", "/short"):
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY if self.path == "/whole" else BODY[:100])
            self.close_connection = True
        else:
            self.send_error(503 if self.path == "/503" else 404)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def mirror():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def dest(tmp_path):
    file = tmp_path / "enroot.deb"
    file.write_bytes(b"the version before")
    return file


def fetch(url, dest, sha256=SHA):
    release_file.fetch(url, sha256, dest, 0o640, 5, "enroot_mirror")


def refused(url, dest, sha256=SHA):
    """The sentence; what was there is untouched, and nothing lies beside it."""
    with pytest.raises(release_file.NoFile) as problem:
        fetch(url, dest, sha256)
    assert dest.read_bytes() == b"the version before"
    assert list(dest.parent.iterdir()) == [dest]
    return str(problem.value)


def test_a_whole_file_replaces_the_one_before(mirror, dest):
    fetch(f"{mirror}/whole", dest)
    assert (dest.read_bytes(), dest.stat().st_mode & 0o777) == (BODY, 0o640)
    assert list(dest.parent.iterdir()) == [dest]


def test_a_file_of_a_mounted_mirror(dest, tmp_path_factory):
    source = tmp_path_factory.mktemp("mirror") / "enroot.deb"
    source.write_bytes(BODY)
    fetch(source.as_uri(), dest)
    assert dest.read_bytes() == BODY


def test_another_content_is_refused(mirror, dest):
    said = refused(f"{mirror}/whole", dest, "0" * 64)
    assert f"has the SHA-256 {SHA}, and {'0' * 64} is pinned" in said


def test_a_download_that_broke_off(mirror, dest):
    assert "broke off after 100" in refused(f"{mirror}/short", dest)


def test_a_version_that_does_not_exist(mirror, dest):
    said = refused(f"{mirror}/v9", dest)
    assert "does not exist (404); see the version, or set enroot_mirror to a mirror" in said


def test_a_mirror_in_trouble(mirror, dest):
    assert "503" in refused(f"{mirror}/503", dest)


def test_nobody_answers(dest):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = refused(f"http://127.0.0.1:{port}/x", dest)
    assert "cannot be reached: Connection refused; set enroot_mirror to a mirror" in said


def test_a_name_that_nobody_knows(dest):
    assert "its name is not known" in refused("http://mirror.invalid/x", dest)


def test_a_mounted_mirror_without_the_file(dest):
    assert "cannot be reached" in refused("file:///nowhere/enroot.deb", dest)


def test_a_full_disk(mirror, dest, monkeypatch):
    class Full:
        def __init__(self, file):
            self._file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._file.close()

        def write(self, _):
            raise OSError(28, "No space left on device")

    real = release_file.os.fdopen
    monkeypatch.setattr(release_file.os, "fdopen", lambda *given: Full(real(*given)))
    assert "its disk is full; make room there" in refused(f"{mirror}/whole", dest)


def test_a_folder_that_is_missing(mirror, tmp_path):
    with pytest.raises(release_file.NoFile, match="takes no file: No such file"):
        fetch(f"{mirror}/whole", tmp_path / "away" / "file")
