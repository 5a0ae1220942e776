"""A mirror of our own: packages, an APT repository and release files, served over HTTP with faults.

Nothing in it is anybody's release: names, layout and behaviour are like upstream's, the contents
are ours. What passes against it says nothing of the real packages.

On the control node a scenario makes a folder:

    mirror = Mirror(folder)                      # a key is made, or the one that is there is used
    mirror.apt("cuda", [Deb("cudart", "1.0")])   # a flat repository, as NVIDIA's are
    mirror.apt("tool", debs, suite="stable")     # one with suites and components
    sha256 = mirror.file("enroot/v4.1.2/enroot_4.1.2-1_amd64.deb", content)

`mirror.yml`, beside this file, copies it to a node, where this very file serves it on the node's
loopback: no other machine is asked, and each node's mirror has its own faults. Tests reach it as
`OnNode(host)`: `fault`, `healed`, `down`, `up`, `requests`.

It needs `dpkg-deb` and `gpg` on the control node, and nothing but Python on the node.
"""

from __future__ import annotations

import argparse
import base64
import fnmatch
import gzip
import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# Where a node has it; mirror.yml puts it there.
PORT = 8098
URL = f"http://127.0.0.1:{PORT}"
UNIT = "plumbline-mirror"
FAULTS = "/run/plumbline-mirror/faults.json"
REQUESTS = "/run/plumbline-mirror/requests.log"

# What a file of the mirror can be asked to do instead of arriving.
NOT_FOUND = "404"
TRUNCATED = "truncated"  # the length is said, half of it comes, and the connection ends
WRONG = "wrong"  # as many bytes as there should be, and others
RESET = "reset"  # the connection ends without an answer
HANGING = "hanging"  # no answer, for as long as somebody waits
KINDS = (NOT_FOUND, TRUNCATED, WRONG, RESET, HANGING)

# As `uname -m` and dpkg call a machine.
_ARCHITECTURES = ("amd64", "arm64")


# --- packages -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deb:
    """A package to be made. `files` are by their paths on the node; what begins with `#!` is a
    program. `scripts` are dpkg's: preinst, postinst, prerm, postrm. `fields` are any others of the
    control file, such as Provides or Replaces."""

    name: str
    version: str
    architecture: str = "all"
    depends: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def filename(self) -> str:
        """As in an archive: without the version's epoch."""
        return f"{self.name}_{self.version.split(':', 1)[-1]}_{self.architecture}.deb"

    @property
    def control(self) -> str:
        """The control file; also the package's paragraph in an index, but for three fields."""
        lines = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "Plumbline's tests <tests@localhost>",
            "Depends": ", ".join(self.depends),
            "Conflicts": ", ".join(self.conflicts),
            **self.fields,
            "Description": f"Stand-in for {self.name}, made by a test",
        }
        return "".join(f"{key}: {value}\n" for key, value in lines.items() if value)


def build(package: Deb, folder: Path) -> Path:
    """Makes the package's file in a folder. The same package is the same bytes again."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="plumbline-deb-") as scratch:
        root = Path(scratch) / "root"
        write(root / "DEBIAN/control", package.control)
        for name, script in package.scripts.items():
            write(root / "DEBIAN" / name, script)
        for path, content in package.files.items():
            write(root / path.lstrip("/"), content)
        for parent in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            parent.chmod(0o755)
        built = folder / package.filename
        # gzip is fast; the epoch makes times of files, and so the bytes, the same each time.
        run(
            ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(root), str(built)],
            environment={"SOURCE_DATE_EPOCH": "0"},
        )
    return built


def write(path: Path, content: str | bytes) -> None:
    """A file with its folders; a program if it says so in its first two bytes."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o755 if data.startswith(b"#!") else 0o644)


def run(
    argv: list[str], *, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> bytes:
    """Runs a program of the control node; its last words are the error."""
    done = subprocess.run(
        argv, input=stdin, capture_output=True, check=False, env=os.environ | (environment or {})
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(argv)} failed: {done.stderr.decode(errors='replace')}")
    return done.stdout


# --- the key --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """A key for signing that nobody else has and nobody trusts. `secret` is armoured."""

    secret: bytes
    armoured: bytes
    fingerprint: str

    @property
    def binary(self) -> bytes:
        """The public key as `gpg --dearmor` writes it."""
        body = self.armoured.decode().split("\n\n", 1)[1].split("\n=", 1)[0]
        return base64.b64decode(body)


@contextmanager
def keyring() -> Iterator[list[str]]:
    """The first words of a gpg command with a home of its own, which is gone afterwards.

    It lies in /tmp: the path of its agent's socket may have 107 characters.
    """
    home = tempfile.mkdtemp(prefix="plumbline-gpg-", dir="/tmp")
    try:
        yield ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode=loopback"]
    finally:
        # The agent ends by itself when its home is gone, but not at once.
        run(["gpgconf", "--homedir", home, "--kill", "all"])
        shutil.rmtree(home, ignore_errors=True)


def make_key(name: str = "Plumbline's tests") -> Key:
    with keyring() as gpg:
        run([*gpg, "--passphrase=", "--quick-generate-key", name, "ed25519", "sign", "never"])
        listed = run([*gpg, "--with-colons", "--list-keys"]).decode().splitlines()
        fingerprint = next(line for line in listed if line.startswith("fpr:")).split(":")[9]
        secret = run([*gpg, "--armor", "--export-secret-keys", fingerprint])
        armoured = run([*gpg, "--armor", "--export", fingerprint])
    return Key(secret, armoured, fingerprint)


def sign(text: str, key: Key) -> bytes:
    """The text in clear with its signature, as InRelease is."""
    with keyring() as gpg:
        run([*gpg, "--import"], stdin=key.secret)
        return run([*gpg, "--clearsign", "--local-user", key.fingerprint], stdin=text.encode())


# --- an APT repository and release files ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mirror:
    """A folder that will be served; its secret key lies beside it, as FOLDER.key."""

    folder: Path

    @property
    def key(self) -> Key:
        """The mirror's key, made when it is first asked for."""
        kept = self.folder.with_name(f"{self.folder.name}.key")
        if not kept.exists():
            key = make_key()
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.touch(mode=0o600)
            kept.write_text(
                json.dumps([key.secret.decode(), key.armoured.decode(), key.fingerprint])
            )
        secret, armoured, fingerprint = json.loads(kept.read_text())
        return Key(secret.encode(), armoured.encode(), fingerprint)

    def file(self, path: str, content: str | bytes) -> str:
        """Puts a plain file there; returns its SHA-256."""
        write(self.folder / path, content)
        return hashlib.sha256((self.folder / path).read_bytes()).hexdigest()

    def deb(self, path: str, package: Deb) -> str:
        """Puts a package there as a plain file, under upstream's name; returns its SHA-256."""
        with tempfile.TemporaryDirectory(prefix="plumbline-deb-") as scratch:
            return self.file(path, build(package, Path(scratch)).read_bytes())

    def apt(
        self,
        path: str,
        packages: Iterable[Deb],
        *,
        suite: str = "/",
        component: str = "main",
        key: Key | None = None,
        signed: bool = True,
    ) -> Key:
        """Makes an APT repository at `path`; returns the key that it is signed with.

        The suite `/` makes a flat one, where all files lie side by side. The public key lies in it
        as `key.asc` and `key.gpg`. Without `signed` there is a Release and no signature.
        """
        root, flat = self.folder / path, suite.endswith("/")
        releases = root if flat else root / "dists" / suite
        pool = root if flat else root / "pool"
        paragraphs: list[tuple[str, str]] = []
        for package in packages:
            built = build(package, pool)
            data = built.read_bytes()
            paragraph = (
                f"{package.control}Filename: {'./' if flat else 'pool/'}{built.name}\n"
                f"Size: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
            )
            paragraphs.append((package.architecture, paragraph))
        # A flat repository has one index for all machines.
        indexes = {"Packages": [text for _, text in paragraphs]}
        if not flat:
            indexes = {
                f"{component}/binary-{name}/Packages": [
                    text for architecture, text in paragraphs if architecture in ("all", name)
                ]
                for name in _ARCHITECTURES
            }
        for name, listed in indexes.items():
            text = "\n".join(listed).encode()
            write(releases / name, text)
            write(releases / f"{name}.gz", gzip.compress(text, mtime=0))
        release = release_text("" if flat else suite, component, releases, indexes)
        write(releases / "Release", release)
        (releases / "InRelease").unlink(missing_ok=True)
        key = key or self.key
        if signed:
            write(releases / "InRelease", sign(release, key))
        write(root / "key.asc", key.armoured)
        write(root / "key.gpg", key.binary)
        return key


def release_text(suite: str, component: str, releases: Path, indexes: Iterable[str]) -> str:
    """The Release file: what there is, and the size and SHA-256 of each index."""
    lines = ["Origin: Plumbline's tests", "Label: Plumbline's tests"]
    if suite:
        lines += [f"Suite: {suite}", f"Codename: {suite}", f"Components: {component}"]
    lines += [f"Architectures: {' '.join(_ARCHITECTURES)}"]
    # A minute ago: a node's clock that is a moment behind would call it not yet valid.
    lines += [f"Date: {formatdate(time.time() - 60, usegmt=True)}", "SHA256:"]
    for name in sorted({*indexes, *(f"{index}.gz" for index in indexes)}):
        data = (releases / name).read_bytes()
        lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}")
    return "\n".join(lines) + "\n"


# --- the server, on the node ----------------------------------------------------------------------


def fault_of(path: str, faults: Mapping[str, str]) -> str:
    """What is to go wrong with this path; the first pattern that fits counts, none is ""."""
    return next((kind for pattern, kind in faults.items() if fnmatch.fnmatch(path, pattern)), "")


class Handler(SimpleHTTPRequestHandler):
    """Files of a folder, or the fault that the file of faults has for them right now."""

    faults = Path(FAULTS)
    requests = Path(REQUESTS)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing to the journal; what was asked for stands in the log of requests."""

    def do_GET(self) -> None:
        with self.requests.open("a", encoding="utf-8") as log:
            log.write(f"{self.path}\n")
        faults = json.loads(self.faults.read_text()) if self.faults.exists() else {}
        kind = fault_of(self.path, faults)
        file = Path(self.translate_path(self.path))
        if not kind:
            super().do_GET()
        elif kind == RESET:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif kind == HANGING:
            time.sleep(3600)  # whoever waits gives up long before; a daemon thread ends with us
        elif kind == NOT_FOUND or not file.is_file():
            self.send_error(404)
        else:
            self.send_fault(kind, file.read_bytes())

    def send_fault(self, kind: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.close_connection = True
        half = data[: len(data) // 2]
        self.wfile.write(half if kind == TRUNCATED else bytes(byte ^ 1 for byte in data))


def serve(folder: Path, address: str, port: int) -> None:
    """Serves the folder until it is ended."""

    def handler(*arguments: Any) -> Handler:
        return Handler(*arguments, directory=str(folder))

    ThreadingHTTPServer((address, port), handler).serve_forever()


# --- tests of a scenario --------------------------------------------------------------------------


class OnNode:
    """The mirror of one node, for a test: `host` is testinfra's."""

    def __init__(self, host: Any) -> None:
        self.host = host

    def _root(self, command: str) -> str:
        with self.host.sudo():
            return str(self.host.check_output("sh -ec %s", command))

    def fault(self, pattern: str, kind: str) -> None:
        """From now on this is what comes of all paths that fit (`/cuda/*`, `*/InRelease`)."""
        if kind not in KINDS:
            raise ValueError(f"{kind} is no fault of the mirror; it has {', '.join(KINDS)}")
        faults = shlex.quote(json.dumps({pattern: kind}))
        self._root(f"printf %s {faults} > {FAULTS}.new && mv {FAULTS}.new {FAULTS}")

    def healed(self) -> None:
        """All is served again."""
        self._root(f"rm -f {FAULTS} && systemctl start {UNIT}")

    def down(self) -> None:
        """Connections are refused."""
        self._root(f"systemctl stop {UNIT}")

    up = healed

    def requests(self) -> list[str]:
        """The paths that were asked for since this was last asked."""
        return self._root(f"cat {REQUESTS} 2>/dev/null || :; rm -f {REQUESTS}").split()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves a folder, with the faults that are told.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=PORT)
    arguments = parser.parse_args()
    serve(arguments.folder, arguments.address, arguments.port)


if __name__ == "__main__":
    main()
