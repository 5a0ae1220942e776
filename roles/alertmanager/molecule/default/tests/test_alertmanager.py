"""Alertmanager on one node: closed to strangers, and never running what its checker refuses."""

import pytest
import yaml

from tests.role_play import Case
from tests.web_listener import SECRETS, Listener

SERVICE = "prometheus-alertmanager"
READER = "a-login-that-only-reads"
FILE = "/etc/plumbline/alertmanager/alertmanager.yml"


@pytest.fixture
def alertmanager(host):
    return Listener(host, 9093)


def started(host) -> str:
    return host.check_output(f"systemctl show {SERVICE} --property=ActiveEnterTimestampMonotonic")


def running(alertmanager):
    """The configuration that it runs, as it says itself."""
    status = alertmanager.ask("/api/v2/status").document
    return yaml.safe_load(status["config"]["original"])


def written(host):
    with host.sudo():
        return host.file(FILE).content_string


def test_nobody_is_answered_without_a_password_over_tls(alertmanager):
    alertmanager.is_closed_to_strangers("/api/v2/status")
    assert alertmanager.ask("/api/v2/status", user="admin").status == 200


def test_by_default_nobody_is_told(alertmanager):
    assert [receiver["name"] for receiver in running(alertmanager)["receivers"]] == ["null"]


def test_it_is_alone(host):
    assert not host.socket("tcp://0.0.0.0:9094").is_listening
    assert not host.socket("tcp://:::9094").is_listening


@pytest.mark.long
def test_a_new_way_is_read_without_a_restart_and_its_secret_stays_in_a_file(
    host, play, alertmanager, tmp_path
):
    before = started(host)
    secret = tmp_path / "url"
    secret.write_text("https://hooks.slack.example/T0/B0/word\n")
    secret.chmod(0o600)
    reader = tmp_path / "reader"
    reader.write_text(READER)
    reader.chmod(0o600)
    users = {user: str(SECRETS / f"monitoring_{user}_password") for user in ("server", "admin")}
    run = play(
        alertmanager_slack={"channel": "#gpu", "url_file": str(secret)},
        alertmanager_secret_files={"pager": str(reader)},
        alertmanager_deadman={"url_file": str(secret)},
        alertmanager_users=users | {"grafana": str(reader)},
    )
    assert run.code == 0, run.output
    # Who has a login may silence; a login that is no longer declared goes with the next run.
    assert alertmanager.ask("/api/v2/silences", user="grafana", word=READER).status == 200
    assert "B0/word" not in run.output
    assert [receiver["name"] for receiver in running(alertmanager)["receivers"]] == [
        "null",
        "operators",
        "deadman",
    ]
    with host.sudo():
        copy = host.file("/etc/plumbline/alertmanager/slack_url")
        assert (copy.group, copy.mode) == ("prometheus", 0o640)
        pager = host.file("/etc/plumbline/alertmanager/secrets/pager")
        assert (pager.user, pager.group, pager.mode) == ("root", "prometheus", 0o640)
        assert pager.content_string == READER
        # Debian 12's Alertmanager takes no address of a webhook out of a file.
        file_ = host.file(FILE).content_string
        assert file_.count("B0/word") == ("alertmanager/deadman_url" not in file_)
    assert play().code == 0
    assert started(host) == before
    assert alertmanager.ask("/api/v2/silences", user="grafana", word=READER).status == 401
    with host.sudo():
        for name in ("slack_url", "deadman_url", "secrets/pager"):
            assert not host.file(f"/etc/plumbline/alertmanager/{name}").exists
        assert host.file("/etc/plumbline/alertmanager/web.yml").exists


def test_what_amtool_refuses_is_not_written(host, attempts, alertmanager):
    before, kept = running(alertmanager), written(host)
    wrong = [{"name": "pager", "webhook_configs": [{"adress": "http://pager.example/"}]}]
    tests = [{"labels": {"severity": "critical"}, "receivers": ["pager"]}]
    outcomes = attempts(
        [
            Case("receiver", {"alertmanager_receivers": wrong}),
            Case("route", {"alertmanager_route_tests": tests}),
        ]
    )
    for outcome in outcomes.values():
        outcome.refuses("stays as it was: amtool refuses it: ")
    assert running(alertmanager) == before
    assert written(host) == kept


def test_it_comes_back_after_a_reboot(host):
    assert host.service(SERVICE).is_enabled
    assert host.service(SERVICE).is_running
