"""The severities of XIDs: data with a source, read strictly from validation/xids.yml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from validation import strict
from validation.errors import DataError

FILE = Path(__file__).parents[1] / "xids.yml"
SEVERITIES = ("fatal", "reset", "text", "recovery", "watch", "application", "informational")


@dataclass(frozen=True, slots=True)
class Xid:
    """action is the catalog's word for what to do at once; severity follows from it."""

    code: int
    severity: str
    action: str
    name: str


@dataclass(frozen=True, slots=True)
class Xids:
    """source names the catalog, its address, when it was read, and the version of our file."""

    source: str
    by_code: Mapping[int, Xid]

    def of(self, code: int) -> Xid | None:
        return self.by_code.get(code)


_READER = strict.table(
    {
        "version": strict.whole(1),
        "source": strict.text,
        "url": strict.text,
        "read": strict.text,
        "xids": strict.list_of(
            strict.table(
                {
                    "xid": strict.whole(1),
                    "severity": strict.one_of(*SEVERITIES),
                    "action": strict.text,
                    "name": strict.text,
                }
            ),
            empty=False,
        ),
    }
)


@cache
def load(path: Path = FILE) -> Xids:
    """Raises DataError with every problem of the file."""
    problems: strict.Problems = []
    read = _READER(strict.load_yaml(path), "", problems)
    if not problems:
        codes = [item["xid"] for item in read["xids"]]
        twice = sorted({code for code in codes if codes.count(code) > 1})
        problems = [f"xids: {code} is given twice" for code in twice]
    if problems:
        raise DataError(str(path), problems)
    source = f"{read['source']} ({read['url']}, read {read['read']}), version {read['version']}"
    return Xids(
        source,
        {
            item["xid"]: Xid(item["xid"], item["severity"], item["action"], item["name"])
            for item in read["xids"]
        },
    )
