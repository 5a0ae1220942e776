"""A web server on this machine that sends parts of files, and breaks off where a test says so."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Served:
    """One file; `cuts` are the bytes after which each of the next answers breaks off."""

    body: bytes
    ranges: bool = True
    sized: bool = True
    cuts: list[int] = field(default_factory=list)


@dataclass
class Web:
    """What is served, by path, and what was asked for: path and the header Range."""

    address: str
    files: dict[str, Served] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def serve(self, path: str, body: bytes, **more) -> str:
        self.files[path] = Served(body, **more)
        return f"{self.address}{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def do_GET(self) -> None:
        span = self.headers.get("Range") or ""
        self.web.asked.append((self.path, span))
        self.close_connection = True
        served = self.web.files.get(self.path)
        if served is None:
            self.send_error(404)
            return
        body, begin = served.body, 0
        if span and served.ranges:
            begin = int(span.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        if served.sized:
            self.send_header("Content-Length", str(len(body) - begin))
        self.end_headers()
        rest = body[begin:]
        with suppress(ConnectionError):  # who asked for the length alone has gone
            self.wfile.write(rest[: served.cuts.pop(0)] if served.cuts else rest)

    def log_message(self, *_) -> None:
        pass


@contextmanager
def serving() -> Iterator[Web]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web = Web(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (Handler,), {"web": web})
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
