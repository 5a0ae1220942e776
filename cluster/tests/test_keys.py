"""The table of what Slurm's releases read, held against their own parsers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.slurm.keys import TABLE, File, Key, oldest_release, read, release, unread
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
def test_the_parser_of_a_release_agrees_with_the_table(of: str) -> None:
    wrong = [
        key.name
        for key in TABLE
        if key.file in parsers()[of] and "=" not in key.name
        if key.read_by(of) != (key.name.lower() in parsers()[of][key.file]["read"])
    ]
    assert wrong == []


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


def test_an_entry_has_a_bound_and_says_what_to_do() -> None:
    for key in TABLE:
        assert key.since or key.until, key
        assert not (key.since and key.until) or key.since <= key.until
        assert key.instead[0].islower(), key
        assert key.instead[-1] != "."
        assert key.source
    assert len({(key.file, key.name.lower()) for key in TABLE}) == len(TABLE)


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


def test_a_key_that_is_read_from_to_and_between_releases() -> None:
    since, until = (
        Key(File.SLURM, "A", "x", "y", **bound)
        for bound in ({"since": "23.11"}, {"until": "24.11"})
    )
    both = Key(File.SLURM, "A", "x", "y", since="23.11", until="24.11")
    assert [since.read_by(of) for of in ("23.02", "23.11", "26.11")] == [False, True, True]
    assert [until.read_by(of) for of in ("21.08", "24.11", "25.05")] == [True, True, False]
    assert [both.read_by(of) for of in ("23.02", "24.05", "25.05")] == [False, True, False]
    assert (since.readers, until.readers) == ("23.11 and newer", "24.11 and older")
    assert both.readers == "23.11 to 24.11"


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


def test_a_sentence_has_the_key_the_release_that_was_found_those_that_read_it_and_what_to_do() -> (
    None
):
    sentences = unread(
        {"SelectType": "select/cons_res"}, File.SLURM, "24.11", "slurm_settings", "ctl1"
    )
    assert sentences == [
        "slurm_settings.SelectType: ctl1 has Slurm 24.11, and only 23.02 and older read "
        "SelectType=select/cons_res; set select/cons_tres, or nothing: the role does."
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"SelectType": "select/cons_tres"},
        {"MetricsType": ""},  # removes it
        {"MetricsType": None},
        {"SchedulerParameters": "bf_continue,defer"},
        {"NotInTheTable": 7},
    ],
)
def test_what_is_read_everywhere_or_set_to_nothing_passes(settings: dict[str, Any]) -> None:
    assert unread(settings, File.SLURM, "22.05", "slurm_settings", "ctl1") == []


def test_a_key_of_one_file_means_nothing_in_another() -> None:
    assert unread({"Exclusive": "NODE"}, File.SLURM, "22.05", "w", "h") == []
    assert len(unread({"Exclusive": "NODE"}, File.PARTITION, "22.05", "w", "h")) == 1
    assert len(unread({"preemptparameters": "a,b"}, File.SLURM, "22.05", "w", "h")) == 1


def test_a_site_wins_whatever_its_case_and_an_empty_value_removes() -> None:
    own = {"LogFile": "/a", "PidFile": "/b", "DbdPort": 6819}
    assert merged(own, {"pidfile": "/c", "DBDPORT": ""}) == {"LogFile": "/a", "pidfile": "/c"}
