"""Alertmanager's configuration out of the role's variables, and the tests of its routes.

Only keys that Alertmanager 0.25 knows, the oldest that is met (Debian 12), but for `url_file` of a
webhook, which came with 0.26: https://prometheus.io/docs/alerting/0.25/configuration/. Secrets are
files on the host; older versions get a webhook's address in the configuration, which is none the
more to be read by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

NOBODY, OPERATORS = "null", "operators"

# A host that is away, or a compute node that has just booted, has one alert and not one for each
# thing on it. Of TargetDown only the host's own exporter counts: a stopped exporter hides no full
# disk. What a controller lacks is told in any case, so nothing of it hides anything.
AWAY = (
    ['alertname="TargetDown"', 'job="node"', 'group!="controller"'],
    ['alertname="NodeRebooted"', 'group="compute"'],
)
HIDDEN = ['alertname!~"TargetDown|NodeRebooted|Watchdog"', 'node=~".+"']

# Of a group with more alerts a message has the first of them.
SHOWN = 10
# Slack's own text is empty (https://prometheus.io/docs/alerting/0.25/notifications/).
TEXT = (
    f"{{{{ range $number, $alert := .Alerts }}}}{{{{ if lt $number {SHOWN} }}}}"
    "*{{ $alert.Annotations.summary }}*\n{{ $alert.Annotations.description }}\n"
    "{{ or $alert.Annotations.runbook_url $alert.Annotations.runbook }}\n"
    "{{ end }}{{ end }}"
    f"{{{{ if gt (len .Alerts) {SHOWN} }}}}All {{{{ len .Alerts }}}}: "
    "{{ .ExternalURL }}/#/alerts{{ end }}"
)

Settings = Mapping[str, Any]


def receivers(
    mail: Settings, slack: Settings, webhook: Settings, webhook_url: str
) -> list[dict[str, Any]]:
    """Nobody, and the operators where there is a way to tell them.

    `webhook_url` is the address itself for versions without url_file, else empty.
    """
    ways: dict[str, Any] = {}
    if mail:
        ways["email_configs"] = [{"to": ", ".join(mail["to"]), "send_resolved": True}]
    if slack:
        ways["slack_configs"] = [
            {
                "channel": slack["channel"],
                "api_url_file": slack["file"],
                "send_resolved": True,
                "text": TEXT,
            }
        ]
    if webhook:
        address = {"url": webhook_url} if webhook_url else {"url_file": webhook["file"]}
        ways["webhook_configs"] = [{**address, "send_resolved": True}]
    return [{"name": NOBODY}, *([{"name": OPERATORS, **ways}] if ways else [])]


def mail_settings(mail: Settings) -> dict[str, Any]:
    """The part of `global` that says how mail is sent; encrypted unless the site says otherwise."""
    if not mail:
        return {}
    account = {
        "smtp_auth_username": mail.get("user", ""),
        "smtp_auth_password_file": mail.get("file", ""),
    }
    return {
        "smtp_smarthost": mail["server"],
        "smtp_from": mail["from"],
        "smtp_require_tls": bool(mail.get("tls", True)),
        **(account if mail.get("user") else {}),
    }


def document(
    *,
    mail: Settings,
    slack: Settings,
    webhook: Settings,
    webhook_url: str,
    severities: Sequence[str],
    routes: Sequence[Settings],
    more_receivers: Sequence[Settings],
    group_by: Sequence[str],
    group_wait: str,
    group_interval: str,
    repeat_interval: str,
) -> dict[str, Any]:
    """The document alertmanager.yml. A site's own routes are asked first."""
    ours = receivers(mail, slack, webhook, webhook_url)
    own_routes = [
        {"receiver": OPERATORS, "matchers": [f'severity=~"{"|".join(severities)}"']}
        for receiver in ours
        if receiver["name"] == OPERATORS and severities
    ]
    return {
        **({"global": mail_settings(mail)} if mail else {}),
        "route": {
            "receiver": NOBODY,
            "group_by": list(group_by),
            "group_wait": group_wait,
            "group_interval": group_interval,
            "repeat_interval": repeat_interval,
            "routes": [*routes, *own_routes],
        },
        "receivers": [*ours, *more_receivers],
        "inhibit_rules": [
            {"source_matchers": source, "target_matchers": HIDDEN, "equal": ["node"]}
            for source in AWAY
        ],
    }


def unknown_receivers(routes: Iterable[Settings], known: Iterable[str]) -> list[str]:
    """The receivers that routes name and nobody defines, in their order."""
    defined = {*known}
    return [name for name in dict.fromkeys(_named(routes)) if name not in defined]


def _named(routes: Iterable[Settings]) -> Iterator[str]:
    for route in routes:
        if "receiver" in route:
            yield str(route["receiver"])
        yield from _named(route.get("routes") or ())


def own_questions(settings: Settings, severities: Sequence[str], routes: Sequence[Settings]) -> Any:
    """What must hold where all routes are ours: operators hear what they should, and no more."""
    if (
        routes
        or not severities
        or all(receiver["name"] != OPERATORS for receiver in settings["receivers"])
    ):
        return []
    return [
        {"labels": {"severity": severities[0]}, "receivers": [OPERATORS]},
        {"labels": {"alertname": "Watchdog", "severity": "none"}, "receivers": [NOBODY]},
    ]


def route_checks(questions: Iterable[Settings], checker: str) -> list[list[str]]:
    """The commands that ask amtool who is told of an alert.

    A question is `{labels: {severity: critical}, receivers: [pager]}`.
    """
    return [
        [
            checker,
            "config",
            "routes",
            "test",
            "--config.file=alertmanager.yml",
            f"--verify.receivers={','.join(question['receivers'])}",
            *(f"{name}={value}" for name, value in question["labels"].items()),
        ]
        for question in questions
    ]
