"""Container images in a mirror: out of a real registry, and into a client that knows registries."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playbooks.mirror.images import collect
from playbooks.mirror.serve import server
from playbooks.mirror.store import MirrorError, Store, entries_of, problems, read_manifest
from tests.checkers import checker
from tests.patience import until
from tests.processes import passes, run

OCI = "application/vnd.oci.image"
REGISTRY = "registry.example.org:5000"
TOOL = f"{REGISTRY}#site/tool:1"


def layout(folder: Path, **text: str) -> None:
    """An image as a folder of OCI's, with an architecture for each text that is its one file."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(kind: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {
            "mediaType": f"{OCI}.{kind}",
            "digest": f"sha256:{digest}",
            "size": len(data),
        }

    def image(architecture: str, said: str) -> dict[str, Any]:
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            member = tarfile.TarInfo("said")
            member.size = len(said)
            tar.addfile(member, io.BytesIO(said.encode()))
        data = layer.getvalue()
        ids = [f"sha256:{hashlib.sha256(data).hexdigest()}"]
        platform = {"os": "linux", "architecture": architecture}
        config = {**platform, "rootfs": {"type": "layers", "diff_ids": ids}, "config": {}}
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": put("config.v1+json", json.dumps(config).encode()),
            "layers": [put("layer.v1.tar", data)],
        }
        return {**put("manifest.v1+json", json.dumps(manifest).encode()), "platform": platform}

    index = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [image(architecture, said) for architecture, said in text.items()],
    }
    top = put("index.v1+json", json.dumps(index).encode())
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class Registry:
    """Debian's docker-registry at loopback."""

    def __init__(self, folder: Path, *, private: bool = False) -> None:
        self.folder, self.host = folder, f"127.0.0.1:{free_port()}"
        auth = ""
        if private:  # nobody's password is in it
            (folder / "passwords").touch()
            auth = f"auth: {{htpasswd: {{realm: here, path: {folder}/passwords}}}}\n"
        (folder / "config.yml").write_text(
            f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/stored}}}}\n"
            f"http: {{addr: '{self.host}'}}\n{auth}"
        )
        command = [*checker("docker-registry"), "serve", str(folder / "config.yml")]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: "listening on" in (folder / "log").read_text(), 20)

    def push(self, name: str, **text: str) -> None:
        folder = self.folder / name.replace("/", "+").replace(":", "-")
        layout(folder, **text)
        to = f"docker://{self.host}/{name}"
        passes(*skopeo("copy", "--all", "--dest-tls-verify=false", f"oci:{folder}", to))

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def skopeo(*arguments: str) -> list[str]:
    return [*checker("skopeo"), *arguments]


@pytest.fixture
def registry(tmp_path, monkeypatch) -> Iterator[Registry]:
    folder = Path(checker("skopeo")[0]).parent
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{folder}")
    (tmp_path / "registry").mkdir()
    with Registry(tmp_path / "registry") as one:
        one.push("site/tool:1", amd64="for amd64", arm64="for arm64")
        yield one


def mirrored(tmp_path: Path, host: str, *machines: str, digest: str = "") -> Store:
    folder = tmp_path / "made"
    folder.mkdir(exist_ok=True)
    elsewhere = {f"https://{REGISTRY}": f"http://{host}"}
    store = Store(folder, entries_of(read_manifest(folder)), elsewhere)
    collect(store, machines or ("x86_64",), {TOOL: digest})
    store.end({"made": "now"}, prune=False)
    return store


def top_of(tmp_path: Path) -> Path:
    return tmp_path / "made/v2/registry.example.org_5000/site/tool/manifests"


def test_a_client_finds_the_image_in_the_mirror_as_at_its_registry(registry, tmp_path, monkeypatch):
    mirrored(tmp_path, registry.host)
    registry.end()
    monkeypatch.setattr("playbooks.mirror.serve.Handler.log_message", lambda *_: None)
    with server(tmp_path / "made", "127.0.0.1", 0) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{listening.server_port}/registry.example.org_5000/site/tool"
        brought = tmp_path / "brought"
        copy = skopeo("copy", "--src-tls-verify=false", "--override-arch=amd64")
        passes(*copy, f"docker://{place}:1", f"dir:{brought}")
        # Of the other architecture the list of images says where it is, and no node wants it.
        other = run(*copy[:-1], "--override-arch=arm64", f"docker://{place}:1", f"dir:{brought}2")
        digest = f"sha256:{hashlib.sha256((top_of(tmp_path) / '1').read_bytes()).hexdigest()}"
        told = passes("curl", "-fsSI", f"http://{place.replace('/', '/v2/', 1)}/manifests/{digest}")
        listening.shutdown()
    texts = []
    for path in brought.iterdir():
        if tarfile.is_tarfile(path):
            with tarfile.open(path) as tar:
                member = tar.extractfile("said")
                assert member is not None
                texts.append(member.read())
    assert texts == [b"for amd64"]
    assert other.returncode != 0
    assert "manifest unknown" in other.stderr or "404" in other.stderr
    assert f"Docker-Content-Digest: {digest}" in told
    assert f"Content-Type: {OCI}.index.v1+json" in told


def test_an_image_comes_for_the_architectures_of_all_nodes_and_only_once(registry, tmp_path):
    one = mirrored(tmp_path, registry.host)
    both = mirrored(tmp_path, registry.host, "x86_64", "aarch64")
    again = mirrored(tmp_path, registry.host, "aarch64", "x86_64")
    # The registry's own page, a list under its tag and digest, an image, a layer, its settings.
    assert len(one.wanted) == 6
    assert len(both.wanted) == len(again.wanted) == 9
    assert 0 < both.fetched < one.fetched * 2
    assert again.fetched == 0
    assert problems(tmp_path / "made") == []


def test_an_interrupted_copy_is_made_again(registry, tmp_path):
    mirrored(tmp_path, registry.host)
    for blob in (tmp_path / "made").rglob("blobs/*"):
        blob.unlink()
    part = tmp_path / "made/.parts"
    digest = json.loads((top_of(tmp_path) / "1").read_text())["manifests"][0]["digest"]
    left = part / digest.removeprefix("sha256:")
    left.mkdir(parents=True)
    (left / "manifest.json").write_text("half")
    mirrored(tmp_path, registry.host)
    assert problems(tmp_path / "made") == []
    assert list(part.iterdir()) == []


def test_an_image_that_is_not_as_declared_is_refused_and_not_served(registry, tmp_path):
    digest = f"sha256:{'0' * 64}"
    why = rf"^{TOOL}: the registry has sha256:[0-9a-f]{{64}}, and {digest} is declared"
    with pytest.raises(MirrorError, match=why):
        mirrored(tmp_path, registry.host, digest=digest)
    assert not (tmp_path / "made/v2").exists()
    registry.push("site/small:1", amd64="one")
    store = Store(tmp_path / "made", {}, {f"https://{REGISTRY}": f"http://{registry.host}"})
    with pytest.raises(MirrorError, match="the registry has none for arm64"):
        collect(store, ["aarch64"], {TOOL.replace("tool", "small"): ""})
    with pytest.raises(MirrorError, match=r"nowhere:1: skopeo inspect failed: .*manifest unknown"):
        collect(store, ["x86_64"], {TOOL.replace("tool", "nowhere"): ""})


def test_who_has_no_login_or_no_skopeo_is_told_what_to_do(tmp_path, registry, monkeypatch):
    (tmp_path / "private").mkdir()
    with (
        Registry(tmp_path / "private", private=True) as private,
        pytest.raises(MirrorError, match=r"unauthorized.*run `skopeo login` first"),
    ):
        mirrored(tmp_path, private.host)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MirrorError, match="install the package skopeo, or leave images out"):
        mirrored(tmp_path, registry.host)
