"""Questions to a listener over TLS with a password, asked on its node as its users ask."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

# Beside the inventory of one node, or that of a whole cluster.
_SCENARIO = Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", "/nowhere"))
_CLUSTERS = _SCENARIO / "inventory" / ".secrets"
SECRETS = _CLUSTERS if _CLUSTERS.is_dir() else _SCENARIO / ".secrets"
CURL = "python3 -c " + shlex.quote(
    """
import base64, json, ssl, sys, urllib.error, urllib.request
given = json.load(sys.stdin)
tls = ssl.create_default_context(cafile=given["authority"]) if given["authority"] else None
request = urllib.request.Request(given["url"], method=given["method"])
if given["user"]:
    word = base64.b64encode(f"{given['user']}:{given['password']}".encode()).decode()
    request.add_header("Authorization", f"Basic {word}")
open_ = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
).open
try:
    with open_(request, timeout=10) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except (OSError, ValueError) as error:
    print(0, error)
"""
)


def password(user: str) -> str:
    return (SECRETS / f"monitoring_{user}_password").read_text().strip()


@dataclass(frozen=True)
class Answer:
    status: int  # 0 where there was none
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Listener:
    """`host` is testinfra's; the program runs there, so the node needs python3 alone."""

    host: Any
    port: int
    name: str = "node"

    @property
    def user(self) -> str:
        """As whom Prometheus asks: exporters, or Alertmanager and itself."""
        return "server" if self.port in {9090, 9093} else "prometheus"

    def ask(
        self,
        path: str,
        *,
        user: str | None = None,
        word: str | None = None,
        scheme: str = "https",
        authority: str = "/etc/plumbline/tls/ca.crt",
        method: str = "GET",
    ) -> Answer:
        user = self.user if user is None else user
        request = {
            "url": f"{scheme}://{self.name}:{self.port}{path}",
            "user": user,
            "password": password(user) if user and word is None else word,
            "authority": authority,
            "method": method,
        }
        reply = self.host.check_output(f"echo {shlex.quote(json.dumps(request))} | {CURL}")
        status, _, text = reply.partition(" ")
        return Answer(int(status), text)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What Prometheus has now for an expression."""
        document = self.ask(f"/api/v1/query?query={quote(expression)}").document
        assert document["status"] == "success", document
        result: list[dict[str, Any]] = document["data"]["result"]
        return result

    def is_closed_to_strangers(
        self, path: str, *, user: str | None = None, word: str | None = None
    ) -> None:
        assert self.ask(path, user=user, word=word).status == 200
        assert self.ask(path, user=user, word="wrong").status == 401
        assert self.ask(path, user="nobody", word="x").status == 401
        assert self.ask(path, user="").status == 401
        plain = self.ask(path, scheme="http")
        assert plain.status in {0, 400}, plain
        assert "CERTIFICATE_VERIFY_FAILED" in self.ask(path, authority="").text
