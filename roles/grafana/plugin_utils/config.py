"""Grafana's files out of the role's variables: grafana.ini, and what it provisions itself with.

Keys and their defaults: https://grafana.com/docs/grafana/latest/setup-grafana/configure-grafana/;
those that a version does not know, it ignores. Provisioning:
https://grafana.com/docs/grafana/latest/administration/provisioning/. Secrets are files on the host:
Grafana replaces `$__file{PATH}` by the text of a file, in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from playbooks.plugin_utils.documents import HEADER

DATASOURCE = "plumbline-prometheus"  # what dashboards name
SECRETS = "/etc/grafana/secrets"
DASHBOARDS = "/var/lib/grafana/dashboards"

Settings = Mapping[str, Any]
Sections = dict[str, dict[str, Any]]

# Nobody outside hears of this Grafana, and nothing of it is fetched from there.
SILENT: Sections = {
    "analytics": {
        "reporting_enabled": False,
        "check_for_updates": False,
        "check_for_plugin_updates": False,
        "feedback_links_enabled": False,
    },
    "news": {"news_feed_enabled": False},
    "plugins": {
        "plugin_admin_enabled": False,
        "preinstall_disabled": True,
        "preinstall_auto_update": False,
        "public_key_retrieval_disabled": True,
    },
    "snapshots": {"enabled": False, "external_enabled": False},
}

# What a variable of the role says, and what is a secret of the role's.
OWN = {
    "paths": ("data", "logs", "plugins", "provisioning"),
    "security": ("admin_user", "admin_password", "secret_key"),
    "server": (
        *("protocol", "http_addr", "http_port", "domain", "root_url", "cert_file", "cert_key"),
    ),
}
# Sections whose `enabled` would let somebody in without a password.
OPEN = ("auth.anonymous", "public_dashboards")

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_SECRET = re.compile(r"(^|_)(password|secret|token|secret_key)$")
_ELSEWHERE = re.compile(r"\$__(file|env|vault)\{[^}]+\}|\$\{[^}]+\}")


def file_of(name: str) -> str:
    """How Grafana is told to read a secret from its file."""
    return f"$__file{{{SECRETS}/{name}}}"


def sections(variables: Settings) -> Sections:
    """What this role sets; `variables` are its variables."""
    https = variables["protocol"] == "https"
    certificate = {"cert_file": variables["certificate"], "cert_key": variables["key_file"]}
    return {
        "paths": {
            "data": "/var/lib/grafana",
            "logs": "/var/log/grafana",
            "plugins": "/var/lib/grafana/plugins",
            "provisioning": "/etc/grafana/provisioning",
        },
        "server": {
            "protocol": variables["protocol"],
            "http_addr": variables["address"],
            "http_port": int(variables["port"]),
            "domain": variables["name"],
            "root_url": variables["root_url"],
            **(certificate if https else {}),
        },
        "security": {
            "admin_user": variables["admin_user"],
            "admin_password": file_of("admin_password"),
            "secret_key": file_of("secret_key"),
            "disable_gravatar": True,
            "cookie_secure": str(variables["root_url"]).startswith("https://"),
            "strict_transport_security": https,
        },
        "auth.anonymous": {"enabled": False, "hide_version": True},
        "public_dashboards": {"enabled": False},
        # It would answer everybody; Prometheus sees whether the service runs.
        "metrics": {"enabled": False},
        "users": {"allow_sign_up": False, "allow_org_create": False},
        # The journal keeps it.
        "log": {"mode": "console"},
        **SILENT,
    }


def merged(ours: Mapping[str, Settings], sites: Mapping[str, Settings]) -> Sections:
    """The site's word wins, key by key."""
    return {
        str(name): {**ours.get(name, {}), **sites.get(name, {})}
        for name in dict.fromkeys([*ours, *sites])
    }


def ini(document: Mapping[str, Settings]) -> str:
    """The text of grafana.ini."""
    lines = [HEADER.rstrip("\n")]
    for name, settings in document.items():
        lines += [
            "",
            f"[{name}]",
            *(f"{key} = {value(setting)}" for key, setting in settings.items()),
        ]
    return "\n".join(lines) + "\n"


def value(setting: Any) -> str:
    """One value as Grafana's reader has it: `#` and `;` begin a comment outside of quotes.

    >>> value(True), value("a;b"), value("")
    ('true', '\"\"\"a;b\"\"\"', '')
    """
    if isinstance(setting, bool):
        return str(setting).lower()
    text = str(setting)
    return f'"""{text}"""' if re.search(r"[#;`\"'\\]|^\s|\s$", text) else text


def settings_problems(sites: Any) -> Iterator[str]:
    """Clauses with their subject: what a site's own settings cannot be."""
    for section, settings in sites.items():
        if not _NAME.fullmatch(str(section)):
            yield f"{section!r} is no section of grafana.ini"
        elif not isinstance(settings, Mapping):
            yield f"{section} is {settings!r}; give its keys and their values"
        else:
            for key, setting in settings.items():
                yield from _problem(str(section), str(key), setting)


def _problem(section: str, key: str, setting: Any) -> Iterator[str]:
    where = f"{section}.{key}"
    if not _NAME.fullmatch(key):
        yield f"{where} is no key of grafana.ini"
    elif key in OWN.get(section, ()):
        yield f"{where} is the role's; its variables say it"
    elif section in OPEN and key == "enabled" and str(setting).lower() not in {"false", "0", "no"}:
        yield f"{where} would show dashboards to whoever asks; leave it out"
    elif isinstance(setting, (Mapping, list, tuple)) or setting is None or "\n" in str(setting):
        yield f"{where} is {setting!r}, which is no value of one line"
    elif _SECRET.search(key) and str(setting) and not _ELSEWHERE.fullmatch(str(setting)):
        yield (
            f"{where} is a secret; put it into a file of grafana_settings_files, "
            f"such as {{name: /a/file}}, and say {file_of('name')} here"
        )


def datasource(variables: Settings) -> dict[str, Any]:
    """Prometheus, over TLS and with a password; a document of provisioning/datasources."""
    prometheus = {
        "name": "Prometheus",
        "uid": DATASOURCE,
        "type": "prometheus",
        "access": "proxy",
        "orgId": 1,
        "url": variables["url"],
        "isDefault": True,
        "editable": False,
        "basicAuth": True,
        "basicAuthUser": variables["user"],
        "jsonData": {
            "httpMethod": "POST",
            "timeInterval": variables["scrape_interval"],
            "tlsAuthWithCACert": True,
        },
        "secureJsonData": {
            "basicAuthPassword": file_of("prometheus_password"),
            "tlsCACert": f"$__file{{{variables['authority']}}}",
        },
    }
    return {"apiVersion": 1, "prune": True, "datasources": [prometheus]}


def provider() -> dict[str, Any]:
    """Folders of files are folders of dashboards; a document of provisioning/dashboards."""
    files = {
        "name": "plumbline",
        "type": "file",
        "orgId": 1,
        "disableDeletion": False,
        "allowUiUpdates": False,
        "updateIntervalSeconds": 10,
        "options": {"path": DASHBOARDS, "foldersFromFilesStructure": True},
    }
    return {"apiVersion": 1, "providers": [files]}
