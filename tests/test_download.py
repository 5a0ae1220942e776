"""Bytes from an address to a file: whole, or one sentence and what was there before."""

from __future__ import annotations

import hashlib
import http.server
import io
import socket
import threading

import pytest

from playbooks.module_utils import download as m
from tests.standins.ranges import serving

BODY = b"release\n" * 500_000
SHA = hashlib.sha256(BODY).hexdigest()


class Mirror(http.server.BaseHTTPRequestHandler):
    """/whole, /short (says more than it sends), /unsized, /503; anything else is not there."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path in ("/whole", "/short", "/unsized"):
            self.send_response(200)
            if self.path != "/unsized":
                self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY[:100] if self.path == "/short" else BODY)
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


def refused(url: str, variable: str = "enroot_mirror") -> str:
    with pytest.raises(m.NoFile) as problem:
        m.download(url, io.BytesIO(), 5, variable)
    return str(problem.value)


@pytest.mark.parametrize("path", ["whole", "unsized"])
def test_all_of_it_arrives_and_is_hashed(mirror, path):
    file = io.BytesIO()
    assert m.download(f"{mirror}/{path}", file, 5) == SHA
    assert file.getvalue() == BODY


def test_a_file_of_a_mounted_mirror(tmp_path):
    (tmp_path / "enroot.deb").write_bytes(BODY)
    assert m.download((tmp_path / "enroot.deb").as_uri(), io.BytesIO(), 5) == SHA
    assert "cannot be reached" in refused("file:///nowhere/enroot.deb")


def test_a_download_that_broke_off(mirror):
    assert f"{mirror}/short broke off after 100" in refused(f"{mirror}/short")


def test_an_address_at_which_there_is_nothing(mirror):
    sentence = refused(f"{mirror}/v9")
    assert sentence.startswith(f"{mirror}/v9 does not exist (404); ")
    assert sentence.endswith(" or set enroot_mirror to a mirror that the nodes reach")
    assert refused(f"{mirror}/v9", variable="").endswith(" or use a mirror")


def test_a_mirror_in_trouble(mirror):
    assert f" refuses {mirror}/503: 503 Service Unavailable; set " in refused(f"{mirror}/503")


def test_nobody_answers():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sentence = refused(f"http://127.0.0.1:{port}/x")
    assert "cannot be reached: Connection refused; set enroot_mirror to a mirror" in sentence


def test_a_name_that_nobody_knows():
    assert "cannot be reached: its name is not known; " in refused("http://mirror.invalid/x")


def test_a_mirror_that_keeps_silent():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(m.NoFile, match=r"no answer for 0\.2 s; use a mirror"):
            m.download(f"http://127.0.0.1:{port}/x", io.BytesIO(), 0.2)


def test_a_hash_is_the_pinned_one_whatever_its_case():
    assert m.other_hash(SHA, SHA.upper()) == ""
    assert m.other_hash(SHA, "A" * 64) == f"has the SHA-256 {SHA}, and {'a' * 64} is pinned"


def test_a_file_takes_its_name_when_it_is_whole(tmp_path):
    dest = tmp_path / "enroot.deb"
    dest.write_bytes(b"before")
    with m.replacing(dest, 0o640) as file:
        file.write(b"after")
        assert dest.read_bytes() == b"before"
    assert (dest.read_bytes(), dest.stat().st_mode & 0o777) == (b"after", 0o640)
    assert list(tmp_path.iterdir()) == [dest]


def test_a_body_that_fails_leaves_what_was_there(tmp_path):
    dest = tmp_path / "enroot.deb"
    dest.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), m.replacing(dest) as file:
        file.write(bytes(1 // 0))
    assert dest.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [dest]


def test_a_full_disk(tmp_path):
    """Linux has one that is always full."""
    full = tmp_path / "enroot.deb"
    (tmp_path / "enroot.deb.new").symlink_to("/dev/full")
    with pytest.raises(m.NoFile) as problem, m.replacing(full) as file:
        file.write(BODY)
    sentence = f"{full} cannot be written: its disk is full; make room there and run again"
    assert str(problem.value) == sentence
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing(tmp_path):
    with (
        pytest.raises(m.NoFile, match="away/file cannot be written: No such file"),
        m.replacing(tmp_path / "away" / "file"),
    ):
        pass


# --- downloads that go on ------------------------------------------------------------------------


@pytest.fixture
def web():
    with serving() as served:
        yield served


@pytest.fixture
def part(tmp_path):
    return tmp_path / "data.tar.part"


def test_a_download_goes_on_where_it_was(web, part):
    url = web.serve("/data", BODY)
    part.write_bytes(BODY[:1000])
    told = []
    assert m.resume(url, part, 5, lambda there, whole: told.append((there, whole))) == SHA
    assert part.read_bytes() == BODY
    assert web.asked == [("/data", "bytes=1000-")]
    assert told[-1] == (len(BODY), len(BODY))


def test_a_connection_that_breaks_off_is_made_again(web, part):
    """As long as each of them brings something."""
    cuts = [1_100_000, 1_050_000]
    url = web.serve("/data", BODY, cuts=cuts)
    assert m.resume(url, part, 5, tries=1, pause=0) == SHA
    assert part.read_bytes() == BODY
    assert [span for _, span in web.asked] == ["", "bytes=1100000-", "bytes=2150000-"]


def test_connections_that_bring_nothing_come_to_an_end(web, part):
    url = web.serve("/data", BODY, cuts=[2_000_000, *[0] * 9])
    with pytest.raises(m.NoFile, match="broke off after 2000000 of 4000000 bytes; run again"):
        m.resume(url, part, 5, tries=3, pause=0)
    assert len(web.asked) == 4  # the first, and three that brought nothing
    assert part.stat().st_size == 2_000_000


def test_what_never_answered_is_not_asked_again(web, part):
    with pytest.raises(m.NoFile, match="does not exist"):
        m.resume(f"{web.address}/away", part, 5, pause=0)
    assert len(web.asked) == 1


def test_a_server_without_ranges_starts_again(web, part):
    url = web.serve("/data", BODY, ranges=False)
    part.write_bytes(b"something else")
    assert m.resume(url, part, 5) == SHA
    assert part.read_bytes() == BODY


def test_what_is_whole_is_not_sent_again(web, part):
    url = web.serve("/data", BODY)
    part.write_bytes(BODY)
    assert m.resume(url, part, 5) == SHA
    assert web.asked == [("/data", f"bytes={len(BODY)}-")]


def test_what_is_longer_than_the_file_starts_again(web, part):
    url = web.serve("/data", BODY)
    part.write_bytes(BODY + b"and more")
    assert m.resume(url, part, 5) == SHA
    assert part.read_bytes() == BODY


def test_a_file_of_a_disk_comes_whole(part, tmp_path):
    (tmp_path / "data").write_bytes(BODY)
    part.write_bytes(b"half")
    assert m.resume((tmp_path / "data").as_uri(), part, 5) == SHA
    assert m.length((tmp_path / "data").as_uri(), 5) == len(BODY)


def test_a_folder_that_is_missing_for_it(web, tmp_path):
    url = web.serve("/data", BODY)
    with pytest.raises(m.NoFile, match=r"away/part cannot be written: No such file"):
        m.resume(url, tmp_path / "away/part", 5)


def test_lengths_are_asked_for_without_the_file(web):
    assert m.length(web.serve("/data", BODY), 5) == len(BODY)
    assert m.length(web.serve("/unsized", BODY, sized=False), 5) is None
    with pytest.raises(m.NoFile, match="does not exist"):
        m.length(f"{web.address}/away", 5)
