"""The table of what Slurm's releases read, held against their own parsers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.slurm.key_problems import BITS, SHAPES
from cluster.slurm.keys import (
    KEYS,
    RELEASES,
    WORDS,
    File,
    Key,
    Known,
    find,
    lists,
    of_version,
    oldest_release,
    read,
    release,
    table,
    wanted_release,
)
from cluster.slurm.settings import merged

REPOSITORY = Path(__file__).parents[2]
OF_FILE = {
    "slurm.conf": File.SLURM,
    "nodes.conf": File.NODE,
    "partitions.conf": File.PARTITION,
    "cgroup.conf": File.CGROUP,
    "slurmdbd.conf": File.SLURMDBD,
}


@cache
def parsers() -> Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]]:
    """release -> file -> `taken` and `read`, in lower case."""
    document = yaml.safe_load((REPOSITORY / "tests/slurm_parsers.yml").read_text())
    taken: dict[str, frozenset[str]] = {file: frozenset() for file in File}
    releases: dict[str, dict[str, Any]] = {}
    for of, files in document.items():
        for file, parts in files.items():
            came, went, over = (
                frozenset(parts.get(part, "").lower().split())
                for part in ("came", "went", "passed over")
            )
            taken[file] = (taken[file] | came) - went
            releases.setdefault(of, {})[file] = {"taken": taken[file], "read": taken[file] - over}
    return releases


@pytest.mark.parametrize("of", parsers())
def test_the_parser_of_a_release_reads_what_the_table_says(of: str) -> None:
    """All that a release takes and reads is in the table, and nothing else is."""
    for file, parts in parsers()[of].items():
        keys = table()[File(file)].items()
        gone = {name for name, key in keys if key.gone}
        assert {n for n, key in keys if key.read_by(of)} - gone == parts["read"] - gone, file


@pytest.mark.parametrize("of", parsers())
def test_every_key_of_the_golden_files_is_taken_by_the_parser(of: str) -> None:
    files = [*REPOSITORY.glob(f"roles/slurm*/tests/golden/{of}/*.conf")]
    assert len(files) == 8
    for path in files:
        if path.name not in OF_FILE:
            continue  # of gres.conf and topology.conf all releases have the same; a plugin's
        taken = parsers()[of][OF_FILE[path.name]]["taken"]
        lines = [line for line in path.read_text().splitlines() if "=" in line and line[0] != "#"]
        in_lines = path.name in {"nodes.conf", "partitions.conf"}
        words = [word for line in lines for word in (line.split()[1:] if in_lines else [line])]
        assert {word.partition("=")[0].lower() for word in words} - taken <= {"slurmctldhost"}


def keys() -> list[tuple[File, Key]]:
    """Every key of every file, with those of lines and entries."""
    return [(file, key) for file, of in table().items() for key in deep(of)]


def deep(of: Mapping[str, Key]) -> Iterator[Key]:
    for key in of.values():
        yield key
        yield from deep(key.inner)


def test_every_key_and_word_is_well_formed() -> None:
    kinds = {*WORDS, *BITS, *SHAPES, "text", "texts", "line", KEYS, "port", "ports", "port_range"}
    for file, key in keys():
        assert key.kind in kinds, (file, key)
        assert bool(key.words) == (key.kind in WORDS), (file, key)
        assert bool(key.inner) == (key.kind == KEYS), (file, key)
        for known in (key, *key.words.values()):
            assert {known.since, known.until} <= {"", *RELEASES}, (file, known)
            assert not known.until or known.since <= known.until, (file, known)
            assert known.instead == known.instead.strip(" ."), (file, known)
        assert key.instead or not key.gone, (file, key)


def test_what_is_said_of_a_key_or_a_word_is_said_of_one_that_not_all_releases_read() -> None:
    import yaml

    from cluster.slurm.keys import PATH

    document = yaml.safe_load(PATH.read_text())
    for file in File:
        for name in document[file].get("instead", {}):
            of, _, word = name.partition("=")
            key = find(file, of)
            assert key, name
            known = key.word(word) if word else key
            assert known, name
            assert known.bounded, name


def test_how_much_the_table_knows() -> None:
    """A floor: a section that is lost, or a kind that is not read, makes it less."""
    of = [key for _, key in keys()]
    words = [word for key in of for word in key.words.values()]
    typed = [key for key in of if key.kind not in ("text", "texts", "line", KEYS, *WORDS)]
    ranges = [known for known in (*of, *words) if ".." in known.takes]
    assert len(table()) == 22
    assert len(of) >= 720
    assert len(typed) >= 270
    assert len(words) >= 1050
    assert len(ranges) >= 95


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("  Installed: 24.11.5-4\n  Candidate: 26.05.5-1\n", "24.11"),
        ("  Installed: (none)\n  Candidate: 22.05.8-4+deb12u3\n", "22.05"),
        ("  Installed: 1:25.11.7-1\n", "25.11"),
        ("  Installed: (none)\n  Candidate: (none)\n", ""),
        ("", ""),
    ],
)
def test_the_release_is_that_of_the_package_that_is_there_or_comes(
    policy: str, expected: str
) -> None:
    assert release(policy) == expected


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("", "26.05"),
        ("slurmd 26.05.5\nslurmd 26.05.3\n", "26.05"),
        ("slurmd 25.11.7\nslurmd 26.05.5\n", "25.11"),
        ("slurmd (null)\nslurmd N/A\nslurmd \n", "26.05"),
    ],
)
def test_while_nodes_are_upgraded_the_oldest_slurmd_counts(nodes: str, expected: str) -> None:
    assert oldest_release(f"  Installed: 26.05.5-1\n{nodes}") == expected
    assert oldest_release("") == ""


def test_a_version_is_of_a_release() -> None:
    versions = ("25.11.2", "1:24.05.4-2", "slurm", "", "26.5")
    assert [*map(of_version, versions)] == ["25.11", "24.05", "", "", "26.05"]


@pytest.mark.parametrize(
    ("version", "method", "url", "expected"),
    [
        ("25.11.2", "packages", "", "25.11"),
        ("", "build", "https://mirror.example.org/a-1.2/slurm-24.11.5.tar.bz2", "24.11"),
        ("", "packages", "https://mirror.example.org/slurm-24.11.5.tar.bz2", ""),
        ("25.05.1", "build", "file:///slurm-24.11.5.tar.bz2", "25.05"),
        ("", "build", "https://mirror.example.org/latest.tar.bz2", ""),
        ("25.11.2", "distro", "", ""),
    ],
)
def test_the_release_that_a_site_wants(version: str, method: str, url: str, expected: str) -> None:
    assert wanted_release(version, method, url) == expected


def test_a_key_that_is_read_from_to_and_between_releases() -> None:
    since, until = Known("A", since="23.11"), Known("A", until="24.11")
    both = Known("A", since="23.11", until="24.11")
    assert [since.read_by(of) for of in ("23.02", "23.11", "26.11")] == [False, True, True]
    assert [until.read_by(of) for of in ("21.08", "24.11", "25.05")] == [True, True, False]
    assert [both.read_by(of) for of in ("23.02", "24.05", "25.05")] == [False, True, False]
    assert (since.readers, until.readers) == ("23.11 and newer", "24.11 and older")
    assert both.readers == "23.11 to 24.11"


def test_lists_are_what_several_add_to() -> None:
    assert {"prologflags", "schedulerparameters", "accountingstoragetres"} <= lists()
    assert not {"preemptmode", "healthchecknodestate", "selecttype", "prolog"} & lists()


def test_what_a_release_does_not_read_is_left_out_and_the_rest_stays_as_it_is() -> None:
    settings = {
        "metricstype": "metrics/openmetrics",
        "SlurmctldParameters": "enable_configless,enable_stepmgr",
        "CommunicationParameters": ["disable_http"],
        "GresTypes": ["gpu", "nic"],
        "NotInTheTable": "a,b",
        "SelectType": "select/cons_res",
    }
    assert read(settings, File.SLURM, "22.05") == {
        "SlurmctldParameters": "enable_configless",
        "GresTypes": ["gpu", "nic"],
        "NotInTheTable": "a,b",
        "SelectType": "select/cons_res",
    }
    newest = {name: value for name, value in settings.items() if name != "SelectType"}
    assert read(settings, File.SLURM, "26.05") == newest
    # Where nobody knows the release, what every release reads.
    assert set(read(settings, File.SLURM, "")) == {
        "SlurmctldParameters",
        "GresTypes",
        "NotInTheTable",
    }


def test_a_site_wins_whatever_its_case_and_an_empty_value_removes() -> None:
    own = {"LogFile": "/a", "PidFile": "/b", "DbdPort": 6819}
    assert merged(own, {"pidfile": "/c", "DBDPORT": ""}) == {"LogFile": "/a", "pidfile": "/c"}
