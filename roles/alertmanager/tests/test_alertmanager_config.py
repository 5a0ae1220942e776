"""Who is told of which alert, asked of Alertmanager's own checker too."""

import subprocess
from typing import Any

import pytest
import yaml

from roles.alertmanager.filter_plugins.alertmanager import exported_files, files_and_checks
from roles.alertmanager.plugin_utils import config
from roles.alertmanager.plugin_utils.problems import problem
from tests.checkers import checker

TIMES: dict[str, Any] = {
    "severities": ["critical", "warning"],
    "group_by": ["alertname", "group", "switch"],
    "group_wait": "30s",
    "group_interval": "5m",
    "repeat_interval": "4h",
    "repeat_intervals": {"warning": "24h"},
}
NOBODY: dict[str, Any] = {
    **TIMES,
    "mail": {},
    "slack": {},
    "webhook": {},
    "webhook_url": "",
    "routes": [],
    "more_receivers": [],
    "deadman": {},
    "gossip": {},
    "tests": [],
    "checker": "/usr/bin/amtool",
}
MAIL = {
    "to": ["a@site", "b@site"],
    "from": "plumbline@site",
    "server": "mail.site:587",
    "user": "plumbline",
    "file": "/etc/plumbline/alertmanager/mail_password",
}
ALL = NOBODY | {
    "mail": MAIL,
    "slack": {"channel": "#gpu", "file": "/etc/plumbline/alertmanager/slack_url"},
    "webhook": {"file": "/etc/plumbline/alertmanager/webhook_url"},
}
PAGER: dict[str, Any] = {
    "routes": [{"receiver": "pager", "matchers": ['severity="critical"'], "continue": True}],
    "more_receivers": [{"name": "pager", "webhook_configs": [{"url": "http://pager.site/"}]}],
}


def document(settings):
    return yaml.safe_load(files_and_checks(settings)["files"]["alertmanager.yml"])


def receiver(configuration, name):
    return next(entry for entry in configuration["receivers"] if entry["name"] == name)


def test_by_default_nobody_is_told():
    configuration = document(NOBODY)
    assert configuration["route"]["receiver"] == "null"
    assert configuration["route"]["routes"] == []
    assert configuration["receivers"] == [{"name": "null"}]


def test_secrets_stay_in_their_files():
    configuration = document(ALL)
    operators = receiver(configuration, "operators")
    assert configuration["global"] == {
        "smtp_smarthost": "mail.site:587",
        "smtp_from": "plumbline@site",
        "smtp_require_tls": True,
        "smtp_auth_username": "plumbline",
        "smtp_auth_password_file": "/etc/plumbline/alertmanager/mail_password",
    }
    assert operators["email_configs"] == [{"to": "a@site, b@site", "send_resolved": True}]
    assert operators["slack_configs"][0]["api_url_file"] == "/etc/plumbline/alertmanager/slack_url"
    assert operators["webhook_configs"][0]["url_file"] == "/etc/plumbline/alertmanager/webhook_url"


def test_a_version_without_url_file_has_the_address_itself():
    operators = receiver(document(ALL | {"webhook_url": "http://hook.site/"}), "operators")
    assert operators["webhook_configs"] == [{"url": "http://hook.site/", "send_resolved": True}]


def test_mail_without_an_account_names_none():
    mail = {key: MAIL[key] for key in ("to", "from", "server")} | {"tls": False}
    assert document(NOBODY | {"mail": mail})["global"] == {
        "smtp_smarthost": "mail.site:587",
        "smtp_from": "plumbline@site",
        "smtp_require_tls": False,
    }


def test_a_sites_routes_are_asked_first():
    routes = document(ALL | PAGER)["route"]["routes"]
    assert [route["receiver"] for route in routes] == ["pager", "operators", "operators"]


def test_each_severity_is_told_again_after_its_own_time():
    def intervals(**changes):
        root = document(ALL | changes)["route"]
        return {
            route["matchers"][0]: route.get("repeat_interval", root["repeat_interval"])
            for route in root["routes"]
        }

    assert intervals() == {'severity=~"critical"': "4h", 'severity=~"warning"': "24h"}
    same = intervals(repeat_intervals={})
    assert same == {'severity=~"critical|warning"': "4h"}
    # What nobody is told of is not told again.
    assert intervals(severities=["critical"]) == {'severity=~"critical"': "4h"}


DEADMAN = {"url": "https://deadman.example/x", "url_file": "", "interval": "6m"}


def test_a_dead_mans_switch_is_asked_before_a_site_and_has_its_own_time():
    everything = {"receiver": "operators"}
    configuration = document(ALL | {"routes": [everything], "deadman": DEADMAN})
    switch, site = configuration["route"]["routes"][:2]
    assert site == everything
    assert switch == {
        "receiver": "deadman",
        "matchers": ['alertname="Watchdog"'],
        "group_by": ["alertname"],
        "group_wait": "0s",
        "group_interval": "60s",
        "repeat_interval": "6m",
    }
    assert receiver(configuration, "deadman")["webhook_configs"] == [
        {"url": "https://deadman.example/x", "send_resolved": False}
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"repeat_interval": "4"}, "alertmanager_repeat_interval is '4'; set a duration"),
        ({"repeat_interval": "0s"}, "alertmanager_repeat_interval is '0s'"),
        (
            {"repeat_intervals": {"warning": "1w"}},
            "alertmanager_repeat_intervals.warning is '1w'; set a duration such as 4h or 2d, 120h",
        ),
        ({"deadman": {"url": "https://x.example/y"}}, ""),
        ({"deadman": {"url_file": "/s/url", "interval": "1h30m"}}, ""),
        ({"deadman": {"interval": "5m"}}, "alertmanager_deadman needs url"),
        ({"deadman": {"url": "https://x/", "url_file": "/s"}}, "and not both"),
        ({"deadman": {"adress": "x"}}, "alertmanager_deadman has adress; it takes url or"),
        ({"deadman": {"url": "deadman.example"}}, "alertmanager_deadman.url is no address"),
        (
            {"deadman": {"url": "https://x/", "interval": "5s"}},
            "alertmanager_deadman.interval is '5s'; set a duration such as 5m, one minute",
        ),
        ({"secret_files": {"pager-token_2.txt": "/s/t"}}, ""),
        ({"secret_files": {"../web.yml": "/s/t"}}, "has the name '../web.yml'"),
        ({"secret_files": {"a/b": "/s/t"}}, "has the name 'a/b'"),
        ({"secret_files": {".hidden": "/s/t"}}, "has the name '.hidden'"),
        ({"secret_files": {"": "/s/t"}}, "has the name ''"),
    ],
)
def test_what_cannot_work_is_one_sentence(changes, words):
    good = {
        "repeat_interval": "4h",
        "repeat_intervals": {"warning": "24h"},
        "deadman": {},
        "secret_files": {},
    }
    said = problem(**(good | changes))
    assert words in said
    assert bool(said) == bool(words)


def test_a_route_to_nobody_is_named():
    inner = {"receiver": "pagr", "routes": [{"receiver": "operators"}, {"receiver": "chat"}]}
    known = ["null", "operators", "pager"]
    assert config.unknown_receivers([inner], known) == ["pagr", "chat"]
    assert config.unknown_receivers(PAGER["routes"], known) == []


def test_a_host_that_is_away_hides_what_is_on_it():
    rules = document(NOBODY)["inhibit_rules"]
    assert [rule["source_matchers"] for rule in rules] == [
        ['alertname="TargetDown"', 'job="node"', 'group!="controller"'],
        ['alertname="NodeRebooted"', 'group="compute"'],
    ]
    for rule in rules:
        assert rule["equal"] == ["node"]
        # Alertmanager takes two alerts without a label for equal: those without a node stay.
        assert 'node=~".+"' in rule["target_matchers"]


BOTH = {"labels": {"severity": "critical"}, "receivers": ["pager", "operators"]}


@pytest.mark.parametrize(
    ("settings", "questions"),
    [
        (
            ALL,
            [
                "operators severity=critical",
                "operators severity=warning",
                "null alertname=Watchdog severity=none",
            ],
        ),
        (ALL | PAGER | {"deadman": DEADMAN}, ["deadman alertname=Watchdog severity=none"]),
        (ALL | PAGER | {"tests": [BOTH]}, ["pager,operators severity=critical"]),
    ],
)
def test_our_own_routes_are_asked_and_a_sites_are_not_guessed(settings, questions):
    assert [" ".join(command[4:]) for command in files_and_checks(settings)["checks"][1:]] == [
        f"--config.file=alertmanager.yml --verify.receivers={question}" for question in questions
    ]


# --- Alertmanager's own checker -------------------------------------------------------------------


@pytest.fixture
def checked(tmp_path):
    """A function that checks as the role does: the output of the check that fails, else ""."""
    program = checker("amtool")

    def check(files, checks):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        for command in checks:
            run = [*program, *command[1:]]
            done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
            if done.returncode:
                return done.stdout + done.stderr
        return ""

    return check


@pytest.fixture
def amtool(checked):
    """The same for what the role writes with these settings."""

    def check(settings):
        parts = files_and_checks(settings)
        return checked(parts["files"], parts["checks"])

    return check


# The oldest amtool knows no url_file.
OLD = {"webhook_url": "http://hook.site/"}


@pytest.mark.parametrize("settings", [NOBODY, ALL | OLD, ALL | PAGER | OLD | {"deadman": DEADMAN}])
def test_amtool_accepts_it(amtool, settings):
    assert amtool(settings) == ""


def test_amtool_answers_a_sites_question(amtool):
    assert amtool(ALL | PAGER | OLD | {"tests": [BOTH]}) == ""
    pager_only = BOTH | {"receivers": ["pager"]}
    assert "did not match" in amtool(ALL | PAGER | OLD | {"tests": [pager_only]})


def test_amtool_refuses_a_route_to_nobody(amtool):
    assert 'undefined receiver "pagr"' in amtool(NOBODY | {"routes": [{"receiver": "pagr"}]})


def test_what_is_for_a_site_tells_its_operators_as_ours_would(checked):
    text = exported_files(TIMES)["plumbline.yml"]
    made = yaml.safe_load(text)
    assert made["receivers"] == [{"name": "null"}, {"name": "operators"}]
    ours = document(ALL)
    assert (made["route"], made["inhibit_rules"]) == (ours["route"], ours["inhibit_rules"])
    program = NOBODY["checker"]
    questions = config.own_questions(made, TIMES["severities"], ())
    asked = [question["labels"]["severity"] for question in questions]
    assert asked == ["critical", "warning", "none"]
    checks = [
        [program, "check-config", "alertmanager.yml"],
        *config.route_checks(questions, program),
    ]
    assert checked({"alertmanager.yml": text}, checks) == ""
