"""slurm.conf while a run takes daemons away for longer than usual."""

from __future__ import annotations

import pytest

from roles.slurm.plugin_utils.patience import lowered, patient, raised

TEXT = "ClusterName=c\nSlurmdTimeout=300\nInclude nodes.conf\n"
WANTED = {"SlurmdTimeout": 3600, "MessageTimeout": 100}


def settings(text: str) -> dict[str, str]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {line.partition("=")[0].lower(): line.partition("=")[2] for line in lines if "=" in line}


def test_times_are_raised_once_each() -> None:
    text = raised(TEXT, WANTED)
    assert settings(text) == {
        "clustername": "c",
        "slurmdtimeout": "3600",
        "messagetimeout": "100",
    }
    assert text.lower().count("\nslurmdtimeout=") == 1


def test_the_text_comes_back_as_it_was() -> None:
    assert lowered(raised(TEXT, WANTED)) == TEXT
    assert lowered(TEXT) == TEXT


def test_raising_twice_is_raising_once() -> None:
    assert raised(raised(TEXT, WANTED), WANTED) == raised(TEXT, WANTED)


@pytest.mark.parametrize("line", ["SlurmdTimeout=0", "slurmdtimeout = 7200", "SlurmdTimeout=3600"])
def test_a_site_that_waits_longer_does_so_still(line: str) -> None:
    text = TEXT.replace("SlurmdTimeout=300", line)
    assert line in raised(text, WANTED).splitlines()
    assert raised(text, {"SlurmdTimeout": 3600}) == text


def test_a_word_is_set_and_taken_back() -> None:
    text = TEXT + "MpiDefault=pmix\n"
    wanted: dict[str, int | str] = {**WANTED, "MpiDefault": "none"}
    assert settings(raised(text, wanted))["mpidefault"] == "none"
    assert lowered(raised(text, wanted)) == text
    assert raised(TEXT + "mpidefault=none\n", wanted).count("none") == 1
    assert patient({"MpiDefault": "pmix"}, wanted)["MpiDefault"] == "none"


def test_a_comment_is_no_setting() -> None:
    text = TEXT.replace("SlurmdTimeout=300", "#SlurmdTimeout=300")
    assert settings(raised(text, WANTED))["slurmdtimeout"] == "3600"
    assert lowered(raised(text, WANTED)) == text


@pytest.mark.parametrize(
    ("settings", "after"),
    [
        ({"SlurmdTimeout": "300"}, {"SlurmdTimeout": "3600", "MessageTimeout": "100"}),
        ({"slurmdtimeout": "300"}, {"slurmdtimeout": "3600", "MessageTimeout": "100"}),
        ({"SlurmdTimeout": "9000"}, {"SlurmdTimeout": "9000", "MessageTimeout": "100"}),
        ({"SlurmdTimeout": "0"}, {"SlurmdTimeout": "0", "MessageTimeout": "100"}),  # never
    ],
)
def test_settings_are_raised_as_a_site_spells_them(
    settings: dict[str, str], after: dict[str, str]
) -> None:
    assert patient(settings, WANTED) == after
    assert patient(settings, {}) == settings
