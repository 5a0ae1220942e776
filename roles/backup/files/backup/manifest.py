"""What an archive says of itself: its first file, which has the hashes of all others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from roles.backup.files.backup.errors import Refused

NAME = "manifest.json"
# Counts up when an older program could not restore what a newer one wrote.
FORMAT = 1

# The folders of an archive, which are its parts as well.
DATABASE, STATE, FILES, SQLITE = "database", "state", "files", "sqlite"

FILE, FOLDER, LINK = "file", "folder", "link"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Member:
    """kind is file, folder or link; sha256 is that of a file's content or of a link's target."""

    path: str
    kind: str
    size: int
    sha256: str
    mode: int
    owner: str
    group: str


@dataclass(frozen=True)
class Manifest:
    """next_job is the number that slurmctld gives next, 0 where it is not known.

    database is the name of what was dumped, slurm the release, such as 24.11; "" without.
    """

    format: int
    cluster: str
    host: str
    time: datetime
    version: str
    slurm: str
    database: str
    next_job: int
    secrets: Mapping[str, str]
    members: tuple[Member, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(sorted({member.path.partition("/")[0] for member in self.members}))

    def text(self) -> str:
        return json.dumps({**asdict(self), "time": self.time.strftime(_TIME)}, indent=1) + "\n"


def of(text: str | bytes) -> Manifest:
    """Raises Refused."""
    try:
        document: dict[str, Any] = json.loads(text)
        if document["format"] > FORMAT:
            raise Refused(
                f"has the format {document['format']}, and this Plumbline reads up to {FORMAT}; "
                f"restore it with the Plumbline that made it ({document.get('version')}) or newer"
            )
        members = tuple(Member(**member) for member in document.pop("members"))
        time = datetime.strptime(document.pop("time"), _TIME).replace(tzinfo=timezone.utc)
        return Manifest(**document, time=time, members=members)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"has a manifest that cannot be read ({error!r}); take another") from None
