"""Alertmanager's configuration out of the role's variables, and the tests of its routes.

Only keys that Alertmanager 0.25 knows, the oldest that is met (Debian 12), but for `url_file` of a
webhook, which came with 0.26: https://prometheus.io/docs/alerting/0.25/configuration/. Secrets are
files on the host; older versions get a webhook's address in the configuration, which is none the
more to be read by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from roles.alertmanager.plugin_utils.durations import seconds

NOBODY, OPERATORS, DEADMAN = "null", "operators", "deadman"

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

# Of a group that has not changed Alertmanager asks itself at each group_interval whether it is time
# to tell it again, so that of a switch is a fraction of the interval, and no word is late by more.
SHARE = 6

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


def deadman_receiver(deadman: Settings) -> list[dict[str, Any]]:
    """Who expects a word of ours at each interval, and nothing else."""
    if not deadman:
        return []
    address = {key: deadman[key] for key in ("url", "url_file") if deadman.get(key)}
    return [{"name": DEADMAN, "webhook_configs": [{**address, "send_resolved": False}]}]


def deadman_route(deadman: Settings) -> list[dict[str, Any]]:
    """Before a site's own routes, of which one may be for everything: it is not for people."""
    if not deadman:
        return []
    interval = str(deadman["interval"])
    return [
        {
            "receiver": DEADMAN,
            "matchers": ['alertname="Watchdog"'],
            "group_by": ["alertname"],
            "group_wait": "0s",
            "group_interval": f"{max(1, int(seconds(interval) / SHARE))}s",
            "repeat_interval": interval,
        }
    ]


def operators_routes(
    severities: Sequence[str], repeat_interval: str, repeat_intervals: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A route for the severities of each interval after which they are told again."""
    by_interval: dict[str, list[str]] = {}
    for severity in severities:
        by_interval.setdefault(repeat_intervals.get(severity, repeat_interval), []).append(severity)
    return [
        {
            "receiver": OPERATORS,
            "matchers": [f'severity=~"{"|".join(names)}"'],
            **({"repeat_interval": interval} if interval != repeat_interval else {}),
        }
        for interval, names in by_interval.items()
    ]


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
    routes: Sequence[Settings],
    more_receivers: Sequence[Settings],
    deadman: Settings,
    **times: Any,
) -> dict[str, Any]:
    """The document alertmanager.yml; `times` are those of `routing`."""
    ours = receivers(mail, slack, webhook, webhook_url)
    told = any(receiver["name"] == OPERATORS for receiver in ours)
    return {
        **({"global": mail_settings(mail)} if mail else {}),
        "receivers": [*ours, *deadman_receiver(deadman), *more_receivers],
        **routing([*deadman_route(deadman), *routes], told, **times),
    }


def exported(**times: Any) -> dict[str, Any]:
    """One for an Alertmanager of the site: how ours tells, and `operators` without an address."""
    return {"receivers": [{"name": NOBODY}, {"name": OPERATORS}], **routing((), True, **times)}


def routing(
    first: Sequence[Settings],
    told: bool,
    *,
    severities: Sequence[str],
    group_by: Sequence[str],
    group_wait: str,
    group_interval: str,
    repeat_interval: str,
    repeat_intervals: Mapping[str, str],
) -> dict[str, Any]:
    """Routes and inhibitions. `first` are asked first; operators are `told` where there are any."""
    return {
        "route": {
            "receiver": NOBODY,
            "group_by": list(group_by),
            "group_wait": group_wait,
            "group_interval": group_interval,
            "repeat_interval": repeat_interval,
            "routes": [
                *first,
                *operators_routes(severities if told else (), repeat_interval, repeat_intervals),
            ],
        },
        "inhibit_rules": [
            {"source_matchers": source, "target_matchers": HIDDEN, "equal": ["node"]}
            for source in AWAY
        ],
    }


def gossip(*, certificate: str, key: str, authority: str) -> dict[str, Any]:
    """How Alertmanagers know each other: both ends show a certificate of the cluster's authority.

    Only their hosts have one that is for who asks, so that no other host joins them. Known since
    0.24: https://prometheus.io/docs/alerting/0.25/https/#gossip-traffic.
    """
    files = {"cert_file": certificate, "key_file": key}
    return {
        "tls_server_config": {
            **files,
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": authority,
        },
        "tls_client_config": {**files, "ca_file": authority},
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
    """What must hold where all routes are ours: operators hear what they should, and no more.

    A dead man's switch is asked first, so that it hears of its alert alone whatever a site's are.
    """
    names = {receiver["name"] for receiver in settings["receivers"]}
    watchdog = {"alertname": "Watchdog", "severity": "none"}
    if DEADMAN in names:
        questions = [{"labels": watchdog, "receivers": [DEADMAN]}]
    elif routes or not severities or OPERATORS not in names:
        questions = []
    else:
        questions = [{"labels": watchdog, "receivers": [NOBODY]}]
    if not routes and OPERATORS in names:
        questions = [
            *({"labels": {"severity": name}, "receivers": [OPERATORS]} for name in severities),
            *questions,
        ]
    return questions


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
