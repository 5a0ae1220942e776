"""The folder of a mirror: what is brought, kept, compared and served."""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from playbooks.mirror.serve import server
from playbooks.mirror.store import (
    MANIFEST,
    MirrorError,
    Store,
    entries_of,
    path_of,
    problems,
    read_manifest,
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder of somebody else's, and its address."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as there:
        threading.Thread(target=there.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{there.server_port}"
        there.shutdown()


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    folder.mkdir()
    return folder


def opened(folder: Path, **more: object) -> Store:
    return Store(folder, entries_of(read_manifest(folder)), **more)  # type: ignore[arg-type]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_file_lies_at_its_address_and_is_not_asked_for_again(upstream, ours):
    there, url = upstream
    (there / "a+b.deb").write_bytes(b"package")
    store = opened(ours)
    path = store.fetch(f"{url}/a%2bb.deb", sha256(b"package"))
    assert path == ours / url.removeprefix("http://") / "a+b.deb"
    assert path.read_bytes() == b"package"
    store.end({}, prune=False)
    (there / "a+b.deb").unlink()
    again = opened(ours)
    assert again.fetch(f"{url}/a%2bb.deb", sha256(b"package")) == path
    assert again.fetched == 0
    assert problems(ours) == []


def test_a_file_with_another_hash_is_no_part_of_it(upstream, ours):
    there, url = upstream
    (there / "file").write_bytes(b"another")
    store = opened(ours)
    with pytest.raises(MirrorError, match=f"{url}/file has the SHA-256 .* is pinned"):
        store.fetch(f"{url}/file", sha256(b"the one"))
    store.end({}, prune=False)
    assert [path for path in ours.rglob("file") if path.is_file()] == []
    # And it is asked for anew once it is right.
    (there / "file").write_bytes(b"the one")
    assert opened(ours).fetch(f"{url}/file", sha256(b"the one")).read_bytes() == b"the one"


def test_what_an_interrupted_run_left_is_gone_on_with(upstream, ours):
    there, url = upstream
    data = b"x" * 1000
    (there / "file").write_bytes(data)
    part = ours / ".parts" / sha256(f"{url}/file {sha256(data)}".encode())
    part.parent.mkdir()
    part.write_bytes(data[:300])
    assert problems(ours) == [f"{ours} has no files of a mirror; run `scripts/mirror make` first."]
    assert opened(ours).fetch(f"{url}/file", sha256(data)).read_bytes() == data
    assert not part.exists()


def test_a_near_copy_is_asked_and_the_file_keeps_its_address(upstream, ours):
    there, url = upstream
    (there / "file").write_bytes(b"data")
    store = opened(ours, elsewhere={"http://deb.example.org/debian": url})
    path = store.fetch("http://deb.example.org/debian/file", sha256(b"data"))
    assert path == ours / "deb.example.org/debian/file"
    assert store.known_as(f"{url}/dists/x") == "http://deb.example.org/debian/dists/x"


def test_what_is_not_wanted_any_more_stays_until_it_is_pruned(upstream, ours):
    there, url = upstream
    for name in ("old", "new"):
        (there / name).write_bytes(name.encode())
    first = opened(ours)
    first.fetch(f"{url}/old", sha256(b"old"))
    first.end({}, prune=False)
    second = opened(ours)
    second.fetch(f"{url}/new", sha256(b"new"))
    (superfluous,) = second.superfluous()
    assert superfluous.endswith("/old")
    second.end({}, prune=False)
    assert len(read_manifest(ours)["files"]) == 2
    second.end({}, prune=True)
    assert [*read_manifest(ours)["files"]] == [f"{url.removeprefix('http://')}/new"]
    assert not (ours / superfluous).exists()


def test_each_damaged_and_each_missing_file_is_named(ours):
    store = opened(ours)
    store.put("http://example.org/a", b"a")
    store.put("http://example.org/b", b"b")
    store.end({}, prune=False)
    assert problems(ours) == []
    (ours / "example.org/a").write_bytes(b"c")
    (ours / "example.org/b").unlink()
    wrong = problems(ours)
    assert len(wrong) == 2
    assert wrong[0].startswith("example.org/a has the SHA-256")
    assert wrong[1] == "example.org/b is missing; run `scripts/mirror make` again."


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://e.org/../x", "http://e.org/%2e%2e/x", "http://e.org/?a=b"]
)
def test_an_address_that_leads_elsewhere_is_refused(url):
    with pytest.raises(MirrorError, match="cannot be in a mirror"):
        path_of(url)


def test_a_broken_manifest_is_no_empty_mirror(ours):
    (ours / MANIFEST).write_text(json.dumps({"files": {"a": {}}}))
    with pytest.raises(MirrorError, match="is no manifest of a mirror"):
        read_manifest(ours)


# --- serving --------------------------------------------------------------------------------------


@pytest.fixture
def served(ours: Path, monkeypatch) -> Iterator[str]:
    monkeypatch.setattr("playbooks.mirror.serve.Handler.log_message", lambda *_: None)
    store = opened(ours)
    store.put("http://deb.example.org/pool/a+b.deb", b"package")
    store.put("http://wheels/simple/torch/index.html", b"<a>")
    store.end({}, prune=False)
    (ours / "secret").write_text("of nobody's")
    with server(ours, "127.0.0.1", 0) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{listening.server_port}"
        listening.shutdown()


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_files_are_served_by_path_and_to_who_takes_it_for_a_proxy(served):
    with urllib.request.urlopen(f"http://{served}/deb.example.org/pool/a%2bb.deb") as answer:
        assert answer.read() == b"package"
    request = urllib.request.Request("http://deb.example.org/pool/a+b.deb")
    request.set_proxy(served, "http")
    with urllib.request.urlopen(request) as answer:
        assert answer.read() == b"package"
    with urllib.request.urlopen(f"http://{served}/wheels/simple/torch/") as answer:
        assert answer.read() == b"<a>"


@pytest.mark.parametrize(
    "path",
    [*("", "secret", "deb.example.org/", "deb.example.org/pool", MANIFEST, "../secret"),
     *("deb.example.org/../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd")],
)  # fmt: skip
def test_only_what_the_manifest_names_is_served(served, path):
    assert status(f"http://{served}/{path}") == 404


def test_a_manifest_that_is_replaced_counts_at_once(served, ours):
    assert status(f"http://{served}/example.org/new") == 404
    store = opened(ours)
    store.put("http://example.org/new", b"new")
    store.end({}, prune=False)
    assert status(f"http://{served}/example.org/new") == 200
