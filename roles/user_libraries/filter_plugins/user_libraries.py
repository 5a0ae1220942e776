"""Libraries as a site declares them: what is wrong with them, and what hosts are told of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.hostlist import compress
from playbooks.filter_plugins.pip_options import pip_index
from playbooks.filter_plugins.verify import verify_row, verify_skipped
from roles.user_libraries.plugin_utils import lock

Entry = Mapping[str, Any]
Hosts = Mapping[str, Mapping[str, Any]]  # a host's variables
Expected = dict[str, dict[str, dict[str, str]]]

ROLE = "user_libraries"
LIST = f"{ROLE}_published"
PLAN, BUILT = f"__{ROLE}_plan", f"__{ROLE}_built"

# A name is a folder's and a module's; a path is in the first line of each program.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
PATH = re.compile(r"(/[A-Za-z0-9._+-]+)+")
PYTHON = re.compile(r"python3([.][0-9]+)?|(/[A-Za-z0-9._+-]+)+")
MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*")
SHA256 = re.compile(r"[0-9a-f]{64}")
BUILD = "{build}"  # in the address of torch's builds


# --- what is wrong -------------------------------------------------------------------------------


def problems(
    entries: Sequence[Entry],
    path: str,
    folder: str,
    shared_filesystems: Iterable[str],
    taken: Iterable[str],
) -> list[str]:
    """A sentence for each thing that cannot be installed. `taken`: modules of other trees."""
    sentences = [*_path(path, [str(each).rstrip("/") for each in shared_filesystems])]
    for number, entry in enumerate(entries):
        unnamed = [*_naming(number, entry)]
        sentences += unnamed or _entry(entry, folder)
    return sentences or [*_together(entries, set(map(str, taken)))]


def _path(path: str, shared: Sequence[str]) -> Iterator[str]:
    if not PATH.fullmatch(path) or ".." in path.split("/"):
        yield (
            f"{ROLE}_path is {path!r}; give the full path of a folder, of letters, digits and ._+- "
            "without a slash at its end"
        )
    elif path in shared:
        yield f"{ROLE}_path is {path}, a whole shared filesystem; choose a folder below it"


def _naming(number: int, entry: Entry) -> Iterator[str]:
    for key in ("name", "version"):
        value = entry.get(key, "")
        if not isinstance(value, str):
            yield (
                f"{LIST}[{number}].{key} is the number {value}, which may not be what was written "
                f'(3.10 is 3.1); put it in quotes: "{value}"'
            )
        elif not NAME.fullmatch(value) or value == "default":
            yield (
                f'{LIST}[{number}].{key} is "{value}"; a {key} is made of letters, digits and '
                "._+-, begins with a letter or digit, and is not the word default"
            )


def _title(entry: Entry) -> str:
    return f"{entry['name']} {entry['version']}"


def _entry(entry: Entry, folder: str) -> Iterator[str]:
    """What is wrong with a version by itself."""
    if entry.get("state") == "absent":
        return
    title = _title(entry)
    python = str(entry.get("python") or "python3")
    if not PYTHON.fullmatch(python):
        yield f"{title} has the python {python!r}; give python3, python3.12 or a full path"
    for module in entry.get("imports") or []:
        if not MODULE.fullmatch(str(module)):
            yield f"{title} has {module!r} in imports, which is no name that Python imports"
    for machine, content in (entry.get("content") or {}).items():
        if not SHA256.fullmatch(str(content)):
            yield (
                f"{title} has the content {content!r} of {machine}, which is not the 64 "
                "hexadecimal digits that a run printed; correct it, or leave it out"
            )
    file = lock_file(entry, folder)
    if not file.is_absolute():
        yield (
            f"{title} has the requirements {file}; give a full path, or set {ROLE}_folder to the "
            "folder that they are in"
        )
        return
    try:
        lock.read(file.read_text(encoding="utf-8"))
    except lock.NoLock as reason:
        yield f"{title} is not locked: {file}:{reason.line}: this line {reason.why}"
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        yield (
            f"{title} has no lock file that can be read: {file}: {why}; make it with "
            "`uv pip compile --generate-hashes`"
        )


def _together(entries: Sequence[Entry], taken: set[str]) -> Iterator[str]:
    for title, times in Counter(map(_title, entries)).items():
        if times > 1:
            yield f"{title} is {times} times in {LIST}; leave one"
    for place in wanted_places(entries):
        if place in taken:
            yield (
                f"{place} is the name of another module, in environment_modules_modulefiles; "
                "rename one of them"
            )


def lock_file(entry: Entry, folder: str) -> Path:
    """Beside the others where the entry names none, or none with a full path."""
    named = str(entry.get("requirements") or f"{entry['name']}-{entry['version']}.txt")
    return Path(folder, named) if folder else Path(named)


# --- what hosts are told -------------------------------------------------------------------------


def wanted(
    entries: Sequence[Entry], folder: str, sources: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """What the module user_libraries gets. The entries were judged before.

    `sources` is where pip looks: the addresses `index` and `torch`, a list `others`, or a folder
    `wheels` on the hosts in place of all of them.
    """
    told: list[dict[str, Any]] = []
    for entry in entries:
        if entry.get("state") == "absent":
            told.append({key: entry[key] for key in ("name", "version", "state")})
            continue
        locked = lock.read(lock_file(entry, folder).read_text(encoding="utf-8"))
        told.append(
            {
                "name": entry["name"],
                "version": entry["version"],
                "description": entry.get("description") or "",
                "python": str(Path("/usr/bin", entry.get("python") or "python3")),
                "imports": list(entry.get("imports") or []),
                "requirements": locked.text,
                "lock": locked.fingerprint,
                "options": _options(sources, locked.torch_build),
            }
        )
    return told


def _options(sources: Mapping[str, Any], torch_build: str) -> list[str]:
    """pip's options for where packages are.

    The index of torch's builds stands beside the others where a lock names a build. That is safe:
    the package index takes no version with a label (PEP 440), so `+cu126` comes from there alone.
    """
    if sources["wheels"]:
        return ["--no-index", f"--find-links={sources['wheels']}"]
    options = pip_index(str(sources["index"]))
    torch = str(sources["torch"]).replace(BUILD, torch_build) if torch_build else ""
    for other in (*map(str, sources["others"]), torch):
        options += pip_index(other, "--extra-index-url")
    return options


def wanted_places(entries: Iterable[Entry]) -> list[str]:
    """NAME/VERSION of what is to be there."""
    return [
        f"{entry['name']}/{entry['version']}" for entry in entries if entry.get("state") != "absent"
    ]


def downloads(told: Iterable[Entry]) -> list[dict[str, Any]]:
    """The wheels that a mirror collects for them."""
    found = []
    for entry in told:
        if entry.get("state") != "absent" and "--no-index" not in entry["options"]:
            python = re.search(r"python(3[.][0-9]+)$", str(entry["python"]))
            options = [*entry["options"], "--require-hashes"]
            wheels = {"requirements": entry["requirements"], "options": options}
            found.append(wheels | ({"python": python[1]} if python else {}))
    return found


# --- all hosts together --------------------------------------------------------------------------


def _answer(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a host said last of what it has; nothing where it was not asked."""
    for name in (BUILT, PLAN):
        answer = variables.get(name) or {}
        if "there" in answer:
            return dict(answer)
    return {}


def refused(names: Iterable[str], hosts: Hosts) -> list[str]:
    """What the hosts refuse, each sentence once with its hosts."""
    by_sentence: dict[str, list[str]] = {}
    for host in names:
        for sentence in (hosts[host].get(PLAN) or {}).get("refused") or []:
            by_sentence.setdefault(str(sentence), []).append(host)
    return [f"{compress(of)}: {sentence}" for sentence, of in by_sentence.items()]


def expected(
    entries: Iterable[Entry],
    names: Sequence[str],
    hosts: Hosts,
    reference: str,
    away: Mapping[str, Any] | None = None,
) -> Expected:
    """For each version and machine what every host is to have, and who says so.

    That is the entry itself, or a host where users have the version, or the first host. `away` is
    the answer of a reference that is no part of the run: without one, no host of the run is first.
    """
    answers = {host: _answer(hosts[host]) for host in names}
    if away and "there" in away:
        answers[reference] = away
    known = away is None or reference in answers
    ordered = [host for host in (reference, *names) if host in answers]
    found: Expected = {}
    for entry in entries:
        place = f"{entry['name']}/{entry['version']}"
        said = entry.get("content") or {}
        of_place = found.setdefault(place, {})
        for machine, content in said.items():
            of_place[str(machine)] = {"content": str(content), "host": "the inventory"}
        for only_open in (True, False):
            for host in dict.fromkeys(ordered):
                there = (answers[host].get("there") or {}).get(place)
                if there and (there["open"] or (known and not only_open)):
                    of_place.setdefault(
                        str(answers[host]["machine"]),
                        {"content": there["content"], "python": there["python"], "host": host},
                    )
    return found


def contents(found: Expected) -> list[str]:
    """What a site may write down of the versions, a line each."""
    return [
        f"{place} has the content {{{machine}: {each['content']}}}"
        for place, machines in found.items()
        for machine, each in machines.items()
        if each["host"] != "the inventory"
    ]


def rows(found: Mapping[str, str]) -> list[dict[str, str]]:
    """The rows of verify.yml."""
    advice = (
        "remove its folder on this host, run playbooks/install-libraries.yml, and find out who "
        "changed it"
    )
    if not found:
        return [verify_skipped(ROLE, "libraries", "none are declared")]
    return [
        verify_row(state, ROLE, place, "as built", advice) for place, state in sorted(found.items())
    ]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "user_libraries_problems": problems,
            "user_libraries_wanted": wanted,
            "user_libraries_places": wanted_places,
            "user_libraries_downloads": downloads,
            "user_libraries_refused": refused,
            "user_libraries_expected": expected,
            "user_libraries_contents": contents,
            "user_libraries_rows": rows,
        }
