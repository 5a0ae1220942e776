#!/usr/bin/python3
"""Stand-in for Grafana's program, and nothing of it: what a role's files are held against.

It reads grafana.ini and the provisioning folder as Grafana's documentation says that Grafana does,
and does not start with what Grafana does not start with. What passes against it says that the files
are where they should be, that its account can read them, and that they mean what was meant; it
says nothing of Grafana's pages.

    grafana server --config=FILE [cfg:default.SECTION.KEY=VALUE ...]
    grafana cli --homepath=FOLDER --config=FILE admin reset-admin-password --password-from-stdin

It runs on a node, with the distribution's python3 and python3-yaml.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import sqlite3
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

DEFAULTS = {
    "paths": {"data": "data", "provisioning": "conf/provisioning"},
    "server": {"protocol": "http", "http_addr": "", "http_port": "3000"},
    "security": {
        "admin_user": "admin",
        "admin_password": "admin",
        "secret_key": "SW2YcwTIb9zpOOhoPsMm",
        "strict_transport_security": "false",
    },
    "auth.anonymous": {"enabled": "false", "hide_version": "false"},
    "metrics": {"enabled": "true"},
}
# Whoever guesses waits: so many wrong passwords in so many seconds.
GUESSES, GUESSING_S = 5, 300
VARIABLE = re.compile(r"\$(|__\w+)\{([^}]+)\}")

Settings = dict[str, dict[str, str]]


class Wrong(Exception):
    """Why it does not start."""


# --- grafana.ini ----------------------------------------------------------------------------------


def expanded(text: str) -> str:
    """`$__file{PATH}`, `$__env{NAME}` and `${NAME}` by what they stand for. Raises Wrong."""

    def replacement(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "__file":
            try:
                return Path(name).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise Wrong(f"cannot expand {match[0]}: {error.strerror}") from None
        return os.environ.get(name, "") if kind in {"", "__env"} else match[0]

    return VARIABLE.sub(replacement, text)


def unquoted(text: str) -> str:
    """A value without its quotes; outside of them # and ; begin a comment."""
    for quote in ('"""', "`", '"'):
        if text.startswith(quote) and text.endswith(quote) and len(text) >= 2 * len(quote):
            return text[len(quote) : -len(quote)]
    return re.split(r"\s*[#;]", text, maxsplit=1)[0]


def settings(path: Path, arguments: list[str]) -> Settings:
    """What holds: the defaults, those of the command line, and the file. Raises Wrong."""
    sections: Settings = {name: dict(keys) for name, keys in DEFAULTS.items()}
    for argument in arguments:
        if match := re.fullmatch(r"cfg:default\.(\S+)\.(\w+)=(.*)", argument):
            sections.setdefault(match[1], {})[match[2]] = match[3]
    reader = configparser.RawConfigParser(
        comment_prefixes=("#", ";"), delimiters=("=",), strict=False
    )
    reader.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        reader.read_string(path.read_text(encoding="utf-8"))
    except (OSError, configparser.Error) as error:
        raise Wrong(f"cannot read {path}: {error}") from None
    for name in reader.sections():
        keys = {key: unquoted(text) for key, text in reader.items(name)}
        sections.setdefault(name, {}).update(keys)
    return {
        name: {key: expanded(text) for key, text in keys.items()} for name, keys in sections.items()
    }


def yes(text: str) -> bool:
    return text.lower() in {"true", "1", "yes", "on"}


# --- provisioning ---------------------------------------------------------------------------------


def interpolated(value: Any) -> Any:
    """Variables in a value of a provisioning file; `$$` is a $."""
    if isinstance(value, dict):
        return {key: interpolated(item) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item) for item in value]
    if not isinstance(value, str):
        return value
    # The environment's variables are looked for in what came from a file, too.
    return "$".join(
        re.sub(
            r"\$(?:\{(\w*)\}|(\w+))",
            lambda match: os.environ.get(match[1] or match[2] or "", ""),
            expanded(part),
        )
        for part in value.split("$$")
    )


def documents(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every file of a provisioning folder that says something. Raises Wrong."""
    for path in sorted(folder.glob("*.y*ml")):
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise Wrong(f"cannot read {path}: {error}") from None
        if document:
            if document.get("apiVersion") != 1:
                raise Wrong(f"{path} has no apiVersion 1")
            yield path, interpolated(document)


def datasources(folder: Path) -> dict[str, dict[str, Any]]:
    """The data sources by uid. Raises Wrong."""
    by_uid: dict[str, dict[str, Any]] = {}
    for path, document in documents(folder):
        for source in document.get("datasources") or []:
            if not source.get("name") or not source.get("type") or source.get("access") != "proxy":
                raise Wrong(f"{path}: a data source has no name, no type, or another access")
            uid = str(source.get("uid") or source["name"])
            if uid in by_uid:
                raise Wrong(f"{path}: two data sources have the uid {uid}")
            by_uid[uid] = source
    if sum(bool(source.get("isDefault")) for source in by_uid.values()) > 1:
        raise Wrong("only one data source can be the default")
    return by_uid


def providers(folder: Path) -> list[dict[str, Any]]:
    """The providers of dashboards. Raises Wrong."""
    entries = [
        provider
        for _, document in documents(folder)
        for provider in document.get("providers") or []
    ]
    for provider in entries:
        options = provider.get("options") or {}
        if provider.get("type") != "file" or not options.get("path"):
            raise Wrong(f"the provider {provider.get('name')} has no files")
        if options.get("foldersFromFilesStructure") and (
            provider.get("folder") or provider.get("folderUid")
        ):
            raise Wrong(
                f"the provider {provider['name']} has a folder and takes them from the files"
            )
    return entries


def dashboards(provided: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The dashboards that are shown, by uid; of what is not, a line for the journal."""
    shown: dict[str, dict[str, Any]] = {}
    titles: set[tuple[str, str]] = set()
    for provider in provided:
        root = Path(provider["options"]["path"])
        for path in sorted(root.rglob("*.json")):
            try:
                document = json.loads(path.read_text(encoding="utf-8"))
                uid, title = str(document["uid"]), str(document["title"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                print(f"failed to load dashboard {path}: {error}", file=sys.stderr)
                continue
            folder = "" if path.parent == root else path.parent.name
            if uid in shown or (folder, title) in titles:
                print(f"{path}: the same UID or title is used more than once", file=sys.stderr)
                continue
            titles.add((folder, title))
            editable = bool(provider.get("allowUiUpdates"))
            shown[uid] = {
                "document": document,
                "title": title,
                "folder": folder,
                "editable": editable,
            }
    return shown


# --- accounts -------------------------------------------------------------------------------------


def hashed(word: str, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", word.encode(), salt.encode(), 10000, 50).hex()


class Database:
    """Accounts, and something that was encrypted with the secret key of the first start."""

    def __init__(self, settings: Settings) -> None:
        self.path = Path(settings["paths"]["data"]) / "grafana.db"
        key = settings["security"]["secret_key"].encode()
        proof = hmac.new(key, b"data key", "sha256").hexdigest()
        with self.open() as database:
            database.execute("CREATE TABLE IF NOT EXISTS proof (value TEXT)")
            database.execute(
                "CREATE TABLE IF NOT EXISTS user (id INTEGER PRIMARY KEY, login, salt, word)"
            )
            there = database.execute("SELECT value FROM proof").fetchone()
            if there and there[0] != proof:
                raise Wrong("cipher: message authentication failed")
            if not there:
                salt = secrets.token_hex(5)
                security = settings["security"]
                database.execute("INSERT INTO proof VALUES (?)", (proof,))
                database.execute(
                    "INSERT INTO user (login, salt, word) VALUES (?, ?, ?)",
                    (security["admin_user"], salt, hashed(security["admin_password"], salt)),
                )

    def open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=10)

    def lets_in(self, login: str, word: str) -> bool:
        with self.open() as database:
            row = database.execute(
                "SELECT salt, word FROM user WHERE login = ?", (login,)
            ).fetchone()
        return bool(row) and hmac.compare_digest(hashed(word, row[0]), row[1])

    def reset(self, word: str, number: int = 1) -> None:
        with self.open() as database:
            (salt,) = database.execute("SELECT salt FROM user WHERE id = ?", (number,)).fetchone()
            database.execute("UPDATE user SET word = ? WHERE id = ?", (hashed(word, salt), number))


# --- the server -----------------------------------------------------------------------------------


def ask_prometheus(source: Mapping[str, Any]) -> tuple[int, str]:
    """What the health check of a data source says: it asks Prometheus for a number."""
    private, public = source.get("secureJsonData") or {}, source.get("jsonData") or {}
    word = f"{source.get('basicAuthUser')}:{private.get('basicAuthPassword')}".encode()
    request = urllib.request.Request(f"{source['url']}/api/v1/query?query=1%2B1")
    if source.get("basicAuth"):
        request.add_header("Authorization", f"Basic {base64.b64encode(word).decode()}")
    try:
        trusted = private.get("tlsCACert") if public.get("tlsAuthWithCACert") else None
        tls = ssl.create_default_context(cadata=trusted)
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
        with urllib.request.build_opener(*handlers).open(request, timeout=10) as answer:
            json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return 400, f"{error.code} {error.reason}"
    except (OSError, ValueError) as error:
        return 400, str(error)
    return 200, "Successfully queried the Prometheus API."


class Handler(BaseHTTPRequestHandler):
    settings: Settings
    database: Database
    sources: Mapping[str, dict[str, Any]]
    providers: list[dict[str, Any]]
    guesses: dict[str, list[float]] = {}  # noqa: RUF012 - of the process

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing to the journal."""

    def answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        if yes(self.settings["security"]["strict_transport_security"]):
            self.send_header("Strict-Transport-Security", "max-age=86400")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def lets_in(self) -> bool:
        if yes(self.settings["auth.anonymous"]["enabled"]):
            return True
        kind, _, word = (self.headers.get("Authorization") or "").partition(" ")
        if kind != "Basic":
            return False
        login, _, word = base64.b64decode(word).decode().partition(":")
        now = time.monotonic()
        recent = [then for then in self.guesses.get(login, ()) if now - then < GUESSING_S]
        good = len(recent) < GUESSES and self.database.lets_in(login, word)
        self.guesses[login] = recent if good else [*recent, now]
        return good

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        hidden = yes(self.settings["auth.anonymous"]["hide_version"])
        if path == "/api/health":
            self.answer(200, {"database": "ok"} | ({} if hidden else {"version": "stand-in"}))
        elif path == "/metrics" and yes(self.settings["metrics"]["enabled"]):
            self.answer(200, {})
        elif not self.lets_in():
            self.answer(401, {"message": "Invalid username or password"})
        elif path == "/api/user":
            self.answer(200, {"id": 1})
        elif path == "/api/admin/settings":
            self.answer(200, masked(self.settings))
        elif path == "/api/datasources":
            self.answer(200, [public(source) for source in self.sources.values()])
        elif match := re.fullmatch(r"/api/datasources/uid/([\w-]+)/health", path):
            source = self.sources.get(match[1])
            status, message = ask_prometheus(source) if source else (404, "Data source not found")
            self.answer(status, {"message": message, "status": "OK" if status == 200 else "ERROR"})
        elif path == "/api/search":
            most = int(query.get("limit", ["1000"])[0])
            shown = dashboards(self.providers)
            self.answer(
                200,
                [
                    {"uid": uid, "title": dashboard["title"], "folderTitle": dashboard["folder"]}
                    for uid, dashboard in shown.items()
                ][:most],
            )
        elif match := re.fullmatch(r"/api/dashboards/uid/([\w-]+)", path):
            dashboard = dashboards(self.providers).get(match[1])
            meta = {"provisioned": True, "canSave": bool(dashboard and dashboard["editable"])}
            self.answer(
                200 if dashboard else 404,
                {"dashboard": dashboard and dashboard["document"], "meta": meta},
            )
        else:
            self.answer(404, {"message": "Not found"})


def masked(settings: Settings) -> Settings:
    return {
        name: {
            key: "*********" if re.search("password|secret", key) else text
            for key, text in keys.items()
        }
        for name, keys in settings.items()
    }


def public(source: Mapping[str, Any]) -> dict[str, Any]:
    private = source.get("secureJsonData") or {}
    shown = {key: value for key, value in source.items() if key != "secureJsonData"}
    return shown | {"readOnly": True, "secureJsonFields": dict.fromkeys(private, True)}


def serve(config: Settings) -> None:
    provisioning = Path(config["paths"]["provisioning"])
    Handler.settings = config
    Handler.database = Database(config)
    Handler.sources = datasources(provisioning / "datasources")
    Handler.providers = providers(provisioning / "dashboards")
    section = config["server"]
    kind = socket.AF_INET6 if ":" in section["http_addr"] else socket.AF_INET
    listener = type("Server", (ThreadingHTTPServer,), {"address_family": kind})
    server = listener((section["http_addr"], int(section["http_port"])), Handler)
    if section["protocol"] == "https":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            tls.load_cert_chain(section["cert_file"], section["cert_key"])
        except (OSError, KeyError) as error:
            raise Wrong(f"cannot use certificate and key: {error}") from None
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


def main() -> None:
    kind, *arguments = sys.argv[1:]
    named = dict(
        argument.lstrip("-").split("=", 1)
        for argument in arguments
        if argument.startswith("--config=")
    )
    try:
        config = settings(Path(named["config"]), arguments)
        if kind == "server":
            serve(config)
        elif arguments[-3:] == ["admin", "reset-admin-password", "--password-from-stdin"]:
            Database(config).reset(sys.stdin.readline().rstrip("\n"))
            print("Admin password changed successfully")
        else:
            raise Wrong(f"the stand-in has no {' '.join(arguments)}")
    except Wrong as problem:
        sys.exit(f"Error: {problem}")


if __name__ == "__main__":
    main()
