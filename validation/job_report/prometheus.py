"""Questions to Prometheus' HTTP API: https://prometheus.io/docs/prometheus/latest/querying/api/."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.job_report.errors import NotKnown

FILE = Path("/etc/plumbline/job_report.json")
LIMIT_S = 30.0
POINTS = 1000  # of one series; Prometheus gives 11,000 at most


@dataclass(frozen=True)
class Config:
    """Where Prometheus is. ca is a file, as is password; None where none is needed."""

    url: str
    ca: Path | None = None
    user: str | None = None
    password: Path | None = None


@dataclass(frozen=True)
class Series:
    """values are in the order of their times."""

    labels: Mapping[str, str]
    values: tuple[float, ...]


def config(path: Path = FILE) -> Config:
    """Raises NotKnown where nobody says which Prometheus."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        files = {key: Path(found[key]) if found[key] else None for key in ("ca", "password_file")}
        return Config(found["url"], files["ca"], found["user"] or None, files["password_file"])
    except FileNotFoundError:
        raise NotKnown(f"No Prometheus is named here: there is no {path}.") from None
    except OSError as error:
        raise NotKnown(f"{path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise NotKnown(f"{path} is not what the role job_report writes: {error}.") from None


def query(where: Config, text: str, start: float, end: float, step_s: float) -> list[Series]:
    """The series of a query between two times, in seconds since the epoch. Raises NotKnown."""
    form = {"query": text, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_s:g}"}
    request = urllib.request.Request(
        f"{where.url.rstrip('/')}/api/v1/query_range", urllib.parse.urlencode(form).encode()
    )
    try:
        if where.user is not None and where.password is not None:
            pair = f"{where.user}:{where.password.read_text(encoding='utf-8').strip()}"
            request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
        context = ssl.create_default_context(cafile=where.ca) if where.ca else None
        # No proxy of the user's: it is a machine of the cluster.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=LIMIT_S) as answer:
            return parse(json.load(answer))
    except urllib.error.HTTPError as error:
        raise NotKnown(f"Prometheus answers with {error.code}: {_why(error)}.") from None
    except urllib.error.URLError as error:
        raise NotKnown(f"Prometheus at {where.url} does not answer: {error.reason}.") from None
    except PermissionError as error:
        raise NotKnown(f"You may not read {error.filename}, which Prometheus asks for.") from None
    except (OSError, ValueError) as error:
        raise NotKnown(f"Prometheus at {where.url} does not answer: {error}.") from None


def _why(error: urllib.error.HTTPError) -> str:
    """Its own words, for a query that is wrong."""
    try:
        return str(json.load(error)["error"])
    except (KeyError, OSError, TypeError, ValueError):
        return str(error.reason)


def parse(document: Mapping[str, Any]) -> list[Series]:
    """Raises NotKnown for what is no answer to query_range. NaN and Inf are no values."""
    try:
        if document["status"] != "success" or document["data"]["resultType"] != "matrix":
            raise NotKnown(f"Prometheus answers: {document.get('error', 'no matrix')}.")
        found = []
        for item in document["data"]["result"]:
            numbers = (float(value) for _, value in item["values"])
            values = tuple(number for number in numbers if abs(number) < float("inf"))
            if values:
                found.append(Series(dict(item["metric"]), values))
        return found
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotKnown(f"Prometheus' answer is not understood: {error!r}.") from None
