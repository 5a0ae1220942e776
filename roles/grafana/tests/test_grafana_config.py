"""Grafana's files: what the role says, what a site adds, and what it may not."""

import configparser
from typing import Any

import pytest
import yaml

from roles.grafana.filter_plugins import grafana
from roles.grafana.plugin_utils import config
from tests.standins.grafana import program

GIVEN: dict[str, Any] = {
    "protocol": "https",
    "address": "",
    "port": 3000,
    "name": "mon1",
    "root_url": "https://mon1:3000/",
    "certificate": "/etc/plumbline/tls/host.crt",
    "key_file": "/etc/plumbline/tls/host.key",
    "authority": "/etc/plumbline/tls/ca.crt",
    "admin_user": "admin",
    "url": "https://mon1:9090",
    "user": "grafana",
    "scrape_interval": "15s",
}


def read(text: str) -> configparser.RawConfigParser:
    """Not the program that wrote it."""
    reader = configparser.RawConfigParser(comment_prefixes=("#", ";"), delimiters=("=",))
    reader.read_string(text)
    return reader


def ini_of(sites: dict[str, Any] | None = None, **changes: Any) -> configparser.RawConfigParser:
    return read(grafana.ini(GIVEN | changes, sites or {}))


def test_nobody_gets_in_without_a_password():
    settings = ini_of()
    for section in ("auth.anonymous", "public_dashboards", "snapshots", "metrics"):
        assert settings[section]["enabled"] == "false"
    assert settings["users"]["allow_sign_up"] == "false"


def test_nothing_leaves_the_site():
    settings = ini_of()
    off = [("analytics", key) for key in config.SILENT["analytics"]]
    off += [("news", "news_feed_enabled"), ("plugins", "plugin_admin_enabled")]
    off += [("plugins", "preinstall_auto_update"), ("snapshots", "external_enabled")]
    assert {settings[section][key] for section, key in off} == {"false"}
    on = [("plugins", "preinstall_disabled"), ("plugins", "public_key_retrieval_disabled")]
    on += [("security", "disable_gravatar")]
    assert {settings[section][key] for section, key in on} == {"true"}


def test_secrets_are_files():
    security = ini_of()["security"]
    assert security["admin_password"] == "$__file{/etc/grafana/secrets/admin_password}"
    assert security["secret_key"] == "$__file{/etc/grafana/secrets/secret_key}"


def test_with_tls_cookies_and_browsers_stay_with_it():
    settings = ini_of()
    assert settings["server"]["cert_key"] == GIVEN["key_file"]
    assert settings["security"]["cookie_secure"] == "true"
    assert settings["security"]["strict_transport_security"] == "true"


def test_behind_a_proxy_that_speaks_tls_cookies_are_for_tls_alone():
    settings = ini_of(protocol="http", address="127.0.0.1", root_url="https://show.site/g/")
    assert settings["server"]["http_addr"] == "127.0.0.1"
    assert "cert_file" not in settings["server"]
    assert settings["security"]["cookie_secure"] == "true"
    assert settings["security"]["strict_transport_security"] == "false"


def test_the_sites_word_wins_key_by_key():
    settings = ini_of({"analytics": {"feedback_links_enabled": True}, "smtp": {"enabled": True}})
    assert settings["analytics"]["feedback_links_enabled"] == "true"
    assert settings["analytics"]["reporting_enabled"] == "false"
    assert settings["smtp"]["enabled"] == "true"


@pytest.mark.parametrize("value", ["a;b", "a#b", " a ", 'say "a"', "`a`", "$__file{/a}", "a = b"])
def test_a_value_arrives_as_it_is(value):
    [line] = config.ini({"x": {"y": value}}).splitlines()[-1:]
    assert program.unquoted(line.partition(" = ")[2]) == value


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ({"a b": {}}, "'a b' is no section of grafana.ini"),
        ({"smtp": True}, "smtp is True; give its keys and their values"),
        ({"smtp": {"a b": 1}}, "smtp.a b is no key of grafana.ini"),
        ({"smtp": {"host": ["a"]}}, "smtp.host is ['a'], which is no value of one line"),
        ({"smtp": {"host": "a\nb"}}, "smtp.host is 'a\\nb', which is no value of one line"),
        ({"smtp": {"host": None}}, "smtp.host is None, which is no value of one line"),
        ({"server": {"http_port": 80}}, "server.http_port is the role's; its variables say it"),
        ({"security": {"secret_key": "x"}}, "security.secret_key is the role's; its variables"),
        ({"auth.anonymous": {"enabled": "True"}}, "auth.anonymous.enabled would show dashboards"),
        ({"public_dashboards": {"enabled": 1}}, "public_dashboards.enabled would show dashboards"),
        ({"smtp": {"password": "x"}}, "smtp.password is a secret; put it into a file of grafana_"),
        ({"auth.google": {"client_secret": "x"}}, "auth.google.client_secret is a secret; put it"),
    ],
)
def test_what_a_site_cannot_say(sites, words):
    [problem] = grafana.settings_problems(sites)
    assert problem.startswith(words)


def test_what_a_site_can_say():
    sites = {
        "auth.anonymous": {"enabled": False, "org_name": "site"},
        "smtp": {"password": "$__file{/etc/grafana/secrets/mail}", "user": ""},
        "auth.ldap": {"enabled": True, "config_file": "/etc/grafana/ldap.toml"},
        "server": {"serve_from_sub_path": True},
    }
    assert grafana.settings_problems(sites) == []


def test_prometheus_is_asked_over_tls_with_a_password_that_no_file_shows():
    [source] = yaml.safe_load(grafana.datasources(GIVEN))["datasources"]
    assert (source["uid"], source["url"]) == ("plumbline-prometheus", "https://mon1:9090")
    assert source["basicAuth"]
    assert source["jsonData"]["tlsAuthWithCACert"]
    assert source["secureJsonData"] == {
        "basicAuthPassword": "$__file{/etc/grafana/secrets/prometheus_password}",
        "tlsCACert": "$__file{/etc/plumbline/tls/ca.crt}",
    }


def test_dashboards_are_files_that_nobody_changes_in_a_browser():
    [provider] = yaml.safe_load(grafana.provider({}))["providers"]
    folder = "/var/lib/grafana/dashboards"
    assert provider["options"] == {"path": folder, "foldersFromFilesStructure": True}
    assert not provider["allowUiUpdates"]
    assert "folder" not in provider
