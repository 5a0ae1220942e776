"""Grafana's files on one node, held against a stand-in that reads them as Grafana does, and that
asks a real Prometheus."""

import json

import pytest

from roles.grafana.molecule.default.tests.server import INI, SERVICE, Grafana, started
from tests.patience import until
from tests.role_play import Case
from tests.web_listener import SECRETS


@pytest.fixture
def grafana(host):
    return Grafana(host, 3000)


@pytest.fixture
def site(tmp_path):
    """A function that puts a dashboard into a folder of the site's."""

    def put(name: str, document) -> dict[str, str]:
        text = document if isinstance(document, str) else json.dumps(document)
        (tmp_path / name).write_text(text)
        return {"Site": str(tmp_path)}

    return put


def uids(grafana) -> dict[str, str]:
    return {item["uid"]: item["folderTitle"] for item in grafana.ask("/api/search").document}


def test_nobody_is_answered_without_a_password_over_tls(grafana):
    grafana.is_closed_to_strangers("/api/search", user="admin")
    for word in ("admin", "deepops"):
        assert grafana.ask("/api/user", user="admin", word=word).status == 401
    assert grafana.ask("/metrics", user="").status == 401


def test_strangers_learn_no_version(grafana):
    assert grafana.ask("/api/health", user="").document == {"database": "ok"}


def test_it_gets_from_prometheus_what_it_is_to_show(grafana):
    health = grafana.ask("/api/datasources/uid/plumbline-prometheus/health")
    assert (health.status, health.document["status"]) == (200, "OK"), health.text
    [source] = grafana.ask("/api/datasources").document
    assert source["url"] == "https://node:9090"
    assert source["isDefault"]
    assert not source["editable"]
    assert source["jsonData"]["timeInterval"] == "15s"


def test_it_shows_the_sites_dashboards_and_nobody_changes_them(grafana):
    assert uids(grafana)["site-up"] == "Site"
    shown = grafana.ask("/api/dashboards/uid/site-up").document
    assert shown["meta"] == {"provisioned": True, "canSave": False}


def test_no_secret_is_in_a_configuration_or_anybody_elses_to_read(host):
    names = ("grafana_admin_password", "grafana_secret_key", "monitoring_grafana_password")
    words = [(SECRETS / name).read_text().strip() for name in names]
    with host.sudo():
        text = host.check_output("cat /etc/grafana/grafana.ini /etc/grafana/provisioning/*/*")
        assert "$__file{" in text
        assert not any(word in text for word in words)
        for path in (INI, "/etc/grafana/secrets/admin_password", "/etc/grafana/secrets/secret_key"):
            file = host.file(path)
            assert (file.user, file.group, file.mode) == ("root", "grafana", 0o640), path
    for name in names:
        assert (SECRETS / name).stat().st_mode & 0o777 == 0o600


def test_it_tells_nobody_and_fetches_nothing(grafana):
    settings = grafana.ask("/api/admin/settings").document
    assert settings["analytics"] == {
        "reporting_enabled": "false",
        "check_for_updates": "false",
        "check_for_plugin_updates": "false",
        "feedback_links_enabled": "false",
    }
    assert settings["plugins"]["preinstall_disabled"] == "true"
    assert settings["security"]["disable_gravatar"] == "true"
    assert settings["users"]["allow_sign_up"] == "false"
    assert settings["security"]["cookie_secure"] == "true"


@pytest.mark.long
def test_a_new_dashboard_is_there_without_a_restart_and_goes_again(host, play, grafana, site):
    before = started(host)
    run = play(grafana_dashboard_folders=site("more.json", {"uid": "more", "title": "More"}))
    assert run.code == 0, run.output
    assert uids(grafana) == {**uids(grafana), "more": "Site"}
    until(lambda: "site-up" not in uids(grafana))  # it may be gone with Grafana's next look only
    assert play().code == 0
    until(lambda: "more" not in uids(grafana))
    assert started(host) == before


@pytest.mark.long
def test_a_setting_of_the_sites_and_its_secret(host, play, grafana, tmp_path):
    secret = tmp_path / "mail"
    secret.write_text("word of the mail\n")
    secret.chmod(0o600)
    settings = {"smtp": {"enabled": True, "password": "$__file{/etc/grafana/secrets/mail}"}}
    run = play(grafana_settings=settings, grafana_settings_files={"mail": str(secret)})
    assert run.code == 0, run.output
    assert "word of the mail" not in run.output
    smtp = until(lambda: grafana.ask("/api/admin/settings").document)["smtp"]
    assert smtp == {"enabled": "true", "password": "*********"}
    assert play().code == 0
    assert "smtp" not in grafana.ask("/api/admin/settings").document
    with host.sudo():
        assert not host.file("/etc/grafana/secrets/mail").exists


def test_what_cannot_work_is_one_sentence_and_changes_nothing(host, attempts, grafana):
    before = started(host)
    outcomes = attempts(
        [
            Case("secret", {"grafana_settings_files": {"mail": "/nowhere/mail"}}),
            Case("port", {"grafana_port": 9090}),
            Case("name", {"grafana_name": "other"}),
        ]
    )
    outcomes["secret"].refuses(
        "/nowhere/mail must be a file on the control node of mode 0600; there is no such file"
    )
    outcomes["port"].refuses("port 9090 is taken by prometheus")
    outcomes["name"].refuses("host.crt on node is not a certificate for other")
    assert started(host) == before
    assert grafana.ask("/api/user").status == 200


def test_it_comes_back_after_a_reboot(host):
    assert host.service(SERVICE).is_enabled
    assert host.service(SERVICE).is_running
