"""Which Prometheus knows the jobs of this cluster, as the role job_report wrote it down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cluster.prometheus import Server
from roles.job_report.files.job_report.errors import NotKnown

FILE = Path("/etc/plumbline/job_report.json")


@dataclass(frozen=True)
class Settings:
    """operators is the group whose members may ask about anybody's jobs; "" for none."""

    server: Server
    operators: str


def settings(password: str | None, path: Path = FILE) -> Settings:
    """Raises NotKnown where nobody says which Prometheus."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        authority = Path(config["ca"]) if config["ca"] else None
        server = Server(config["url"], authority, config["user"] or None, secret=password)
        return Settings(server, config["operators"])
    except OSError as error:
        raise NotKnown(f"{path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise NotKnown(f"{path} is not what the role job_report writes: {error}.") from None
