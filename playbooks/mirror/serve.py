"""A small web server for the folder of a mirror: what the manifest names, to be read.

Without TLS: nodes verify the distribution's signatures of packages, and the hashes of files and
wheels, whoever hands them over. It answers APT as a proxy, too: APT asks for
`http://deb.debian.org/debian/…` here, so that a node's sources and preferences name the hosts that
they name everywhere.
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

    def file(self, target: str) -> Path | None:
        """The file that a request asks for, as a path here or as an address of elsewhere.

        Only what the manifest names: no folder is listed, and no path leads out of this one.
        """
        parts = urlsplit(target)
        if parts.query:
            return None
        path = unquote(parts.path)
        name = f"{parts.netloc}{path}" if parts.scheme else path.lstrip("/")
        entries = self.entries()
        for each in (name, f"{name.rstrip('/')}/index.html"):
            if each in entries:
                return self.folder / each
        return None


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
        path = self.mirror.file(self.path)
        try:
            file = path.open("rb") if path else None
        except OSError:
            file = None
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND, "Not in this mirror")
            return
        with file:
            size = file.seek(0, 2)
            file.seek(0)
            self.send_response(HTTPStatus.OK)
            kind = "text/html" if str(path).endswith(".html") else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            if with_body:
                shutil.copyfileobj(file, self.wfile, 2**20)


def server(folder: Path, address: str, port: int) -> ThreadingHTTPServer:
    """Listens; whoever has it calls serve_forever. Raises OSError, and MirrorError."""
    mirror = Mirror(folder)
    read_manifest(folder)
    return ThreadingHTTPServer((address, port), partial(Handler, mirror))
