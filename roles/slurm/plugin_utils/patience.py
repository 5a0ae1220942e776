"""slurm.conf while a run takes daemons away for longer than usual: times no shorter than given.

What is given as a word is set.

A run that writes slurm.conf raises its settings. One that leaves it as it is raises its text: a
raised value stands at the end, and the site's own line stays as a comment, so that the text can be
put back as it was by whoever comes next.
"""

from __future__ import annotations

from collections.abc import Mapping

Times = Mapping[str, int | str]  # by setting: seconds, or a word

KEPT = "# While a run is patient: "
RAISED = " # a run is patient"


def patient(settings: Mapping[str, str], seconds: Times) -> dict[str, str]:
    """The settings with each of these times no shorter than given; 0 is for ever."""
    result = dict(settings)
    for key, least in seconds.items():
        name = next((each for each in result if each.lower() == key.lower()), key)
        if not _is_enough(str(result.get(name, "")), least):
            result[name] = str(least)
    return result


def raised(text: str, seconds: Times) -> str:
    """The text with each of these times no shorter than given; 0 is for ever."""
    plain = lowered(text)
    lines, more = [], dict(seconds)
    for line in plain.splitlines():
        name, equals, value = line.partition("=")
        key = next((key for key in seconds if key.lower() == name.strip().lower()), "")
        number = value.partition("#")[0].strip()
        if not (equals and key):
            lines.append(line)
        elif _is_enough(number, seconds[key]):
            lines.append(line)
            more.pop(key, None)
        else:
            lines.append(KEPT + line)
    return "".join(f"{line}\n" for line in [*lines, *(f"{k}={v}{RAISED}" for k, v in more.items())])


def lowered(text: str) -> str:
    """The text as it was before."""
    lines = (line.removeprefix(KEPT) for line in text.splitlines() if not line.endswith(RAISED))
    return "".join(f"{line}\n" for line in lines)


def _is_enough(number: str, least: int | str) -> bool:
    if isinstance(least, str):
        return number == least
    return number.isdecimal() and (int(number) == 0 or int(number) >= least)
