"""What goes wrong with Grafana's passwords, keys, packages and runs, one after the other."""

import os
import shlex
from pathlib import Path

import pytest

from roles.grafana.molecule.default.tests.server import SERVICE, Grafana, started
from tests.role_play import refused
from tests.web_listener import SECRETS

ADMIN, KEY = SECRETS / "grafana_admin_password", SECRETS / "grafana_secret_key"
MIRROR = "http://127.0.0.1:8098/grafana"
CLI = (
    "runuser --user=grafana -- /usr/share/grafana/bin/grafana cli --homepath=/usr/share/grafana "
    "--config=/etc/grafana/grafana.ini admin reset-admin-password --password-from-stdin"
)


@pytest.fixture
def grafana(host):
    return Grafana(host, 3000)


@pytest.fixture
def kept():
    """A function that replaces a secret on the control node, or takes it away; for one test."""
    there = {file: file.read_text() for file in (ADMIN, KEY)}

    def put(file: Path, text: str | None) -> None:
        file.unlink()
        if text is not None:
            file.touch(mode=0o600)
            file.write_text(text)

    yield put
    for file, text in there.items():
        file.unlink(missing_ok=True)
        put_back = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(put_back, text.encode())
        os.close(put_back)


def version(host) -> str:
    return host.check_output("dpkg-query --show --showformat='${Version}' grafana")


def listeners(host) -> str:
    return host.check_output("ss --listening --tcp --numeric --no-header sport = :3000")


def test_a_password_that_was_changed_in_grafana_is_the_kept_one_again(host, play, grafana):
    before = started(host)
    with host.sudo():
        host.check_output(f"echo {shlex.quote('changed in a browser')} | {CLI}")
    assert grafana.ask("/api/user").status == 401
    run = play()
    assert run.code == 0, run.output
    assert ADMIN.read_text().strip() not in run.output
    assert grafana.ask("/api/user").status == 200
    assert play().changed == 0
    assert started(host) == before


def test_another_password_reaches_a_database_that_is_there(host, play, grafana, kept):
    before, password = started(host), ADMIN.read_text()
    kept(ADMIN, "another one of the site's\n")
    assert play().code == 0
    assert grafana.ask("/api/user", word="another one of the site's").status == 200
    kept(ADMIN, password)
    assert play().code == 0
    assert grafana.ask("/api/user").status == 200
    assert started(host) == before


def test_lost_secrets_are_taken_over_from_the_host(play, kept):
    password, key = ADMIN.read_text(), KEY.read_text()
    kept(ADMIN, None)
    kept(KEY, None)
    run = play()
    assert run.code == 0, run.output
    assert (ADMIN.read_text().strip(), KEY.read_text().strip()) == (password.strip(), key.strip())
    assert ADMIN.stat().st_mode & 0o777 == 0o600
    assert password.strip() not in run.output


def test_another_key_is_refused(host, play, grafana, kept):
    before = started(host)
    kept(KEY, "another key of twenty letters\n")
    refused(play(), "node has encrypted its database with another key than the one in")
    assert started(host) == before


def test_a_secret_that_would_not_arrive_is_refused(play, kept):
    kept(ADMIN, "it costs $100 in all\n")
    refused(play(), f"the secret in {ADMIN} has a $ or a %, which Grafana reads as the start")


def test_a_password_that_prometheus_does_not_take_is_told(play, tmp_path):
    word = tmp_path / "word"
    word.write_text("no word of prometheus\n")
    word.chmod(0o600)
    run = play(grafana_prometheus_password_file=str(word))
    refused(run, "gets no answer from https://node:9090 as grafana: 401")
    assert play().code == 0


def test_an_interrupted_run_is_mended_by_the_next(host, play, grafana):
    before = started(host)
    configure = {"ansible.builtin.include_role": {"name": "grafana", "tasks_from": "configure"}}
    stop = {"ansible.builtin.fail": {"msg": "interrupted"}}
    variables = {"grafana_scrape_interval": "30s"}
    play([configure, stop], **variables)
    assert started(host) == before
    assert play(**variables).code == 0
    [source] = grafana.ask("/api/datasources").document
    assert source["jsonData"]["timeInterval"] == "30s"
    assert play().code == 0


def test_a_mirror_that_is_away_harms_nobody_who_needs_nothing_from_it(host, play, mirror):
    mirror.down()
    run = play()
    assert (run.code, run.changed) == (0, 0), run.output
    refused(play(grafana_version="1.1.0"), "grafana 1.1.0 is not installed: ")
    assert version(host) == "1.0.0"
    assert host.service(SERVICE).is_running


def test_another_version_is_taken_over_and_stays(host, play, grafana):
    before = started(host)
    assert play(grafana_version="1.1.0").code == 0
    assert version(host) == "1.1.0"
    assert started(host) != before
    assert play(grafana_version="1.1.0").changed == 0
    assert play(grafana_version="").changed == 0
    assert grafana.ask("/api/user").status == 200
    assert play().code == 0
    assert version(host) == "1.0.0"


def test_a_package_by_address_and_hash(host, play, grafana):
    folder = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "mirror/grafana"
    variables = {
        "grafana_source": "package",
        "grafana_package_url": f"{MIRROR}/grafana_1.1.0_all.deb",
    }
    refused(play(**variables), "set grafana_package_url to the address of a package")
    wrong = play(**variables, grafana_package_sha256="0" * 64)
    refused(wrong, "it is another file")
    assert version(host) == "1.0.0"
    variables["grafana_package_sha256"] = (folder / "sha256").read_text()
    run = play(**variables)
    assert run.code == 0, run.output
    assert version(host) == "1.1.0"
    assert play(**variables).changed == 0
    assert grafana.ask("/api/user").status == 200
    assert play().code == 0
    assert version(host) == "1.0.0"


def test_behind_a_proxy_it_listens_for_this_host_alone(host, play):
    proxied = {
        "grafana_protocol": "http",
        "grafana_address": "127.0.0.1",
        "grafana_root_url": "https://show.site.example/",
    }
    run = play(**proxied)
    assert run.code == 0, run.output
    assert "127.0.0.1:3000" in listeners(host)
    local = Grafana(host, 3000, "127.0.0.1")
    assert local.ask("/api/user", scheme="http").status == 200
    assert play(**proxied).changed == 0
    assert play().code == 0


def test_none_leaves_what_is_there(host, play, grafana):
    run = play(grafana_source="none")
    assert (run.code, run.changed) == (0, 0), run.output
    assert "Grafana is not installed: grafana_source is none." in run.output
    assert grafana.ask("/api/user").status == 200
