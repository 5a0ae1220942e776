"""Questions to Prometheus' HTTP API: https://prometheus.io/docs/prometheus/latest/querying/api/."""

from __future__ import annotations

import base64
import json
import math
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT_S = 30.0


class NoAnswer(Exception):
    """One sentence: why there is no answer."""


@dataclass(frozen=True)
class Server:
    """Where Prometheus is. `ca` is a file, and so is `password`, where it is not the `secret`
    itself; without a user none is sent. `limit_s` is how long an answer may take.
    """

    url: str
    ca: Path | None = None
    user: str | None = None
    password: Path | None = None
    secret: str | None = field(default=None, repr=False)
    limit_s: float = LIMIT_S


@dataclass(frozen=True)
class Series:
    """`points` are (seconds since 1970, value) in the order of time, numbers alone."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(value for _, value in self.points)

    @property
    def last(self) -> float:
        return self.points[-1][1]


def now(server: Server, expr: str, at: float) -> list[Series]:
    """Values at one time. Raises NoAnswer."""
    return _query(server, "query", {"query": expr, "time": f"{at:.3f}"})


def over(server: Server, expr: str, start: float, end: float, step_s: float) -> list[Series]:
    """Values between two times. Raises NoAnswer."""
    span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_s:g}"}
    return _query(server, "query_range", {"query": expr, **span})


def _query(server: Server, what: str, form: Mapping[str, str]) -> list[Series]:
    url = f"{server.url.rstrip('/')}/api/v1/{what}"
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), _password(server))
    # No proxy: it is a machine of the cluster.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_trust(server))
    )
    try:
        with opener.open(request, timeout=server.limit_s) as answer:
            return parse(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            raise NoAnswer(
                f"Prometheus at {server.url} answers with {error.code}: {_why(error)}."
            ) from None
    except urllib.error.URLError as error:
        raise NoAnswer(f"Prometheus at {server.url} does not answer: {error.reason}.") from None
    except (OSError, ValueError) as error:
        raise NoAnswer(f"Prometheus at {server.url} does not answer: {error}.") from None


def _password(server: Server) -> dict[str, str]:
    if server.user is None or (server.password is None and server.secret is None):
        return {}
    password = _read(server.password) if server.secret is None else server.secret
    pair = base64.b64encode(f"{server.user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def _read(password: Path | None) -> str:
    assert password is not None
    try:
        return password.read_text(encoding="utf-8").strip()
    except PermissionError:
        why = f"You may not read {password}, which Prometheus asks for."
        raise NoAnswer(why) from None
    except OSError as error:
        raise NoAnswer(f"{password} cannot be read: {error.strerror}.") from None


def _trust(server: Server) -> ssl.SSLContext | None:
    if server.ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=server.ca)
    except OSError as error:  # also what is no certificate
        raise NoAnswer(f"{server.ca} cannot be used: {error.strerror or error}.") from None


def _why(error: urllib.error.HTTPError) -> str:
    """Its own words, for a query that is wrong."""
    try:
        return str(json.load(error)["error"])
    except (KeyError, OSError, TypeError, ValueError):
        return str(error.reason)


def parse(document: Mapping[str, Any]) -> list[Series]:
    """Series that have a number at all. Raises NoAnswer for what is no answer to a query."""
    try:
        if document["status"] != "success":
            raise NoAnswer(f"Prometheus answers: {document.get('error')}.")
        kind, result = document["data"]["resultType"], document["data"]["result"]
        if kind == "scalar":
            result = [{"metric": {}, "value": result}]
        series = []
        for item in result:
            pairs = item["values"] if kind == "matrix" else [item["value"]]
            points = tuple((float(time), float(value)) for time, value in pairs)
            if numbers := tuple(point for point in points if math.isfinite(point[1])):
                series.append(Series(dict(item["metric"]), numbers))
        return series
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NoAnswer(f"Prometheus' answer is not understood: {error!r}.") from None
