"""Which Prometheus knows the jobs of this cluster, as the role job_report wrote it down."""

from __future__ import annotations

import json
from pathlib import Path

from cluster.prometheus import Server
from roles.job_report.files.job_report.errors import NotKnown

FILE = Path("/etc/plumbline/job_report.json")


def server(path: Path = FILE) -> Server:
    """Raises NotKnown where nobody says which Prometheus."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        files = {key: Path(config[key]) if config[key] else None for key in ("ca", "password_file")}
        return Server(config["url"], files["ca"], config["user"] or None, files["password_file"])
    except FileNotFoundError:
        raise NotKnown(f"No Prometheus is named here: there is no {path}.") from None
    except OSError as error:
        raise NotKnown(f"{path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise NotKnown(f"{path} is not what the role job_report writes: {error}.") from None
