"""A small web server for the folder of a mirror: what the manifest names, to be read.

Without TLS: nodes verify the distribution's signatures of packages, and the hashes of files and
wheels, whoever hands them over. It answers APT as a proxy, too: APT asks for
`http://deb.debian.org/debian/…` here, so that a node's sources and preferences name the hosts that
they name everywhere. And it answers enroot as a registry (images.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from playbooks.mirror.images import media_type
from playbooks.mirror.store import MANIFEST, Entry, entries_of, read_manifest


class Mirror:
    """What is served: the manifest as it is now, which a run of `make` replaces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: tuple[int, Mapping[str, Entry]] = (-1, {})

    def entries(self) -> Mapping[str, Entry]:
        changed = (self.folder / MANIFEST).stat().st_mtime_ns
        if self._read[0] != changed:
            self._read = (changed, entries_of(read_manifest(self.folder)))
        return self._read[1]

    def find(self, target: str) -> str:
        """The name of what a request asks for, as a path here or as an address of elsewhere.

        "" for all that the manifest does not name: no folder is listed, and no path leads out of
        this one.
        """
        parts = urlsplit(target)
        if parts.query:
            return ""
        path = unquote(parts.path)
        name = f"{parts.netloc}{path}" if parts.scheme else path.lstrip("/")
        entries = self.entries()
        for each in (name, f"{name.rstrip('/')}/index.html"):
            if each in entries:
                return each
        return ""

    def headers(self, name: str) -> dict[str, str]:
        """What a client is told about a file before it reads it."""
        if name.startswith("v2/") and "/manifests/" in name:
            digest = f"sha256:{self.entries()[name].sha256}"
            kind = media_type(self.folder / name)
            return {"Content-Type": kind, "Docker-Content-Digest": digest}
        kind = "text/html" if name.endswith(".html") else "application/octet-stream"
        return {"Content-Type": kind}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "plumbline-mirror"
    timeout = 60  # seconds that a client may be silent

    def __init__(self, mirror: Mirror, *arguments: Any) -> None:
        self.mirror = mirror
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        name = self.mirror.find(self.path)
        try:
            file = (self.mirror.folder / name).open("rb") if name else None
        except OSError:
            file = None
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND, "Not in this mirror")
            return
        with file:
            size = file.seek(0, 2)
            file.seek(0)
            self.send_response(HTTPStatus.OK)
            for header, value in self.mirror.headers(name).items():
                self.send_header(header, value)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            if with_body:
                shutil.copyfileobj(file, self.wfile, 2**20)


def server(folder: Path, address: str, port: int) -> ThreadingHTTPServer:
    """Listens; whoever has it calls serve_forever. Raises OSError, and MirrorError."""
    mirror = Mirror(folder)
    read_manifest(folder)
    return ThreadingHTTPServer((address, port), partial(Handler, mirror))
