"""A browser of one person, as far as the protocol goes: cookies, redirects and XSRF tokens."""

from __future__ import annotations

import html
import http.client
import http.cookiejar
import json
import re
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """What came back, after all redirects."""

    status: int
    url: str
    text: str

    @property
    def path(self) -> str:
        return urllib.parse.urlsplit(self.url).path

    @property
    def json(self) -> dict:
        return json.loads(self.text)

    @property
    def error(self) -> str:
        """The sentence that a form shows."""
        found = re.search(r'class="spawn-error-msg[^"]*">\s*(.*?)\s*</p>', self.text, re.DOTALL)
        return html.unescape(" ".join(found.group(1).split())) if found else ""


class _Connection(http.client.HTTPSConnection):
    """To the node's address; the certificate is held against the name of the page."""

    address = ""

    def connect(self) -> None:
        self.sock = socket.create_connection((self.address, self.port), self.timeout)
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)


class _Handler(urllib.request.HTTPSHandler):
    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self.connection = type("Connection", (_Connection,), {"address": address})
        self.known = context

    def https_open(self, request):
        return self.do_open(self.connection, request, context=self.known)


class Browser:
    """One person's; `authority` is the certificate that it trusts."""

    def __init__(self, base: str, address: str, authority: str) -> None:
        self.base = base
        self.cookies = http.cookiejar.CookieJar()
        context = ssl.create_default_context(cadata=authority)
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            _Handler(address, context),
            urllib.request.HTTPCookieProcessor(self.cookies),
        )

    def get(self, path: str, **headers: str) -> Page:
        return self._open(urllib.request.Request(self._url(path), headers=headers))

    def post(self, path: str, fields: dict[str, str], page: str = "") -> Page:
        """Sends a form, with the token of the page that it is on."""
        self.get(page or path)
        fields = {"_xsrf": self._xsrf(path)} | fields
        data = urllib.parse.urlencode(fields).encode()
        return self._open(urllib.request.Request(self._url(path), data))

    def call(self, method: str, path: str, document: dict | None = None) -> Page:
        """Asks an API, as the page's own script does."""
        data = None if document is None else json.dumps(document).encode()
        headers = {"X-XSRFToken": self._xsrf(path), "Referer": self._url("/hub/home")}
        if data is not None:
            headers["Content-Type"] = "application/json"
        return self._open(urllib.request.Request(self._url(path), data, headers, method=method))

    def login(self, name: str, password: str) -> Page:
        return self.post("/hub/login", {"username": name, "password": password})

    def _url(self, path: str) -> str:
        return path if path.startswith("https:") else self.base + path

    def _xsrf(self, path: str) -> str:
        found = [
            each
            for each in self.cookies
            if each.name == "_xsrf" and urllib.parse.urlsplit(path).path.startswith(each.path)
        ]
        return max(found, key=lambda each: len(each.path)).value if found else ""

    def _open(self, request: urllib.request.Request) -> Page:
        try:
            answer = self.opener.open(request, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = answer.read().decode("utf-8", errors="replace")
            return Page(answer.status, answer.url, text)
