"""slurm.conf while a run takes daemons away for longer than usual: pure functions of its text.

A raised value stands at the end, and the site's own line stays as a comment, so that the text can
be put back as it was by whoever comes next.
"""

from __future__ import annotations

from collections.abc import Mapping

KEPT = "# While a run is patient: "
RAISED = " # a run is patient"


def raised(text: str, seconds: Mapping[str, int]) -> str:
    """The text with each of these times no shorter than given; 0 is for ever."""
    plain = lowered(text)
    lines, more = [], dict(seconds)
    for line in plain.splitlines():
        name, equals, value = line.partition("=")
        key = next((key for key in seconds if key.lower() == name.strip().lower()), "")
        number = value.partition("#")[0].strip()
        if not (equals and key):
            lines.append(line)
        elif number == "0" or (number.isdecimal() and int(number) >= seconds[key]):
            lines.append(line)
            more.pop(key, None)
        else:
            lines.append(KEPT + line)
    return "".join(f"{line}\n" for line in [*lines, *(f"{k}={v}{RAISED}" for k, v in more.items())])


def lowered(text: str) -> str:
    """The text as it was before."""
    lines = (line.removeprefix(KEPT) for line in text.splitlines() if not line.endswith(RAISED))
    return "".join(f"{line}\n" for line in lines)
