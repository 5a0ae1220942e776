"""What a host keeps, as the role wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roles.backup.files.backup.errors import Refused

FILE = Path("/etc/plumbline/backup.json")


@dataclass(frozen=True)
class Settings:
    """files must be there, optional_files may; secrets has the place of each by its name.

    database and state are "" where another host has them; textfile is "" without a monitoring.
    """

    cluster: str
    host: str
    folder: Path
    recipients: tuple[str, ...]
    keep: int
    copy: tuple[str, ...]
    textfile: str
    database: str
    state: str
    files: tuple[str, ...]
    optional_files: tuple[str, ...]
    sqlite: tuple[str, ...]
    secrets: Mapping[str, str]


def read(path: Path = FILE) -> Settings:
    """Raises Refused."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return of(document)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise Refused(f"{path} cannot be read ({error!r}); run playbooks/backup.yml") from None


def of(document: Mapping[str, Any]) -> Settings:
    """Raises KeyError, TypeError, ValueError."""
    return Settings(
        cluster=str(document["cluster"]),
        host=str(document["host"]),
        folder=Path(document["folder"]),
        recipients=tuple(document["recipients"]),
        keep=int(document["keep"]),
        copy=tuple(document["copy"]),
        textfile=str(document["textfile"]),
        database=str(document["database"]),
        state=str(document["state"]),
        files=tuple(document["files"]),
        optional_files=tuple(document["optional_files"]),
        sqlite=tuple(document["sqlite"]),
        secrets=dict(document["secrets"]),
    )
