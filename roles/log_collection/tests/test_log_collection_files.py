"""What the role refuses, and its files as rsyslog itself reads them."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.checkers import checker
from tests.standins.inventories import good, judged, ready, write

ROLE = Path(__file__).resolve().parents[1]
CONFIGURATION = "etc/rsyslog.d/50-plumbline.conf"
ROTATION = "etc/logrotate.d/plumbline-logs"
HOSTS = ["ctl1", "gpu1", "gpu2"]


def rendered(name: str, host: str, **site: Any) -> str:
    """A file of the role on a host of a site where ctl1 collects."""
    ready()
    variables: dict[str, Any] = {"ansible_managed": "Managed", "inventory_hostname": host}
    loader = DataLoader()
    for file in ("defaults/main.yml", "vars/main.yml"):
        variables |= loader.load_from_file(str(ROLE / file), trusted_as_template=True)
    variables |= {"log_collection_host": "ctl1", "log_collection_hosts": HOSTS} | site
    text = (ROLE / "templates" / f"{name}.j2").read_text(encoding="utf-8")
    return str(Templar(loader, variables).template(trust_as_template(text)))


@pytest.fixture
def rsyslog(tmp_path):
    """A function that has rsyslogd check a configuration, and returns status and output."""
    program = checker("rsyslogd")
    for name in ("host.crt", "host.key", "ca.crt"):
        (tmp_path / name).touch()

    def check(text: str) -> tuple[int, str]:
        file = tmp_path / "rsyslog.conf"
        file.write_text(text.replace("/etc/plumbline/tls", str(tmp_path)), encoding="utf-8")
        done = subprocess.run(
            [*program, "-N1", "-f", file], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return check


@pytest.mark.parametrize("host", ["ctl1", "gpu1"])
def test_rsyslog_accepts_it_without_a_word_of_complaint(rsyslog, host):
    status, output = rsyslog(rendered(CONFIGURATION, host))
    assert status == 0, output
    assert "error" not in output
    assert "warning" not in output


@pytest.mark.parametrize(
    ("host", "broken"),
    [
        ("ctl1", {"log_collection_folder": '/var/log/plumbline"'}),
        ("ctl1", {"log_collection_authority": "/no/such/file"}),
        ("gpu1", {"log_collection_host": 'ctl1" port="1'}),
        ("gpu1", {"log_collection_queue_mb": '1" x="'}),
    ],
)
def test_rsyslog_refuses_what_would_not_do_as_it_says(rsyslog, host, broken):
    status, output = rsyslog(rendered(CONFIGURATION, host, **broken))
    assert status != 0, output


def test_who_collects_hears_the_hosts_of_the_inventory_alone():
    text = rendered(CONFIGURATION, "ctl1", log_collection_port=7514)
    assert 'PermittedPeer=["ctl1", "gpu1", "gpu2"]' in text
    assert 'StreamDriver.AuthMode="x509/name"' in text
    assert 'StreamDriver.Mode="1"' in text  # TLS, and nothing else
    assert 'input(type="imtcp" port="7514" ruleset="plumbline")' in text
    assert "omfwd" not in text


@pytest.mark.parametrize(("count", "sessions", "files"), [(3, 200, 10), (1000, 2000, 1001)])
def test_who_collects_has_room_for_every_host(rsyslog, count, sessions, files):
    hosts = [f"gpu{number}" for number in range(count)]
    text = rendered(CONFIGURATION, "ctl1", log_collection_hosts=hosts)
    assert f'MaxSessions="{sessions}"' in text
    assert f'dynaFileCacheSize="{files}"' in text
    status, output = rsyslog(text)
    assert (status, "warning" in output) == (0, False), output


def test_who_sends_speaks_to_the_one_that_collects_alone():
    text = rendered(CONFIGURATION, "gpu1", log_collection_port=7514)
    action = dict(re.findall(r'^    ([\w.]+)="([^"]*)"$', text, re.MULTILINE))
    assert (action["target"], action["port"], action["protocol"]) == ("ctl1", "7514", "tcp")
    assert action["StreamDriverPermittedPeers"] == "ctl1"
    assert action["StreamDriverAuthMode"] == "x509/name"
    assert action["StreamDriverMode"] == "1"
    # Nobody who logs waits, and nothing is given up while the other is away.
    assert action["queue.timeoutEnqueue"] == "0"
    assert action["action.resumeRetryCount"] == "-1"
    assert action["queue.maxDiskSpace"] == "256m"
    assert "imtcp" not in text


def test_a_name_leads_to_no_other_folder():
    text = rendered(CONFIGURATION, "ctl1", log_collection_folder="/srv/logs")
    assert 'string="/srv/logs/%FROMHOST:::secpath-replace%.log"' in text


def test_logs_are_rotated_where_they_are():
    text = rendered(ROTATION, "ctl1", log_collection_folder="/srv/logs", log_collection_keep_days=7)
    assert "/srv/logs/*.log {" in text
    assert "    rotate 7\n" in text
    assert "    maxsize 1024M\n" in text


def test_who_leaves_removes_every_file():
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
    templates = {f"/{name}" for name in (CONFIGURATION, ROTATION)}
    assert set(variables["__log_collection_files"]) == templates
    paths = {path.relative_to(ROLE / "templates") for path in ROLE.glob("templates/**/*.j2")}
    assert {f"/{path.with_suffix('')}" for path in paths} == templates


def test_who_leaves_forgets_last_what_there_is_to_do():
    *_, last = yaml.safe_load((ROLE / "tasks/leave.yml").read_text(encoding="utf-8"))
    restart, forget = last["block"]
    assert restart["ansible.builtin.systemd_service"]["state"] == "restarted"
    assert forget["daemon_inputs"]["state"] == "absent"


# --- preflight -----------------------------------------------------------------------------------


def sentences(folder: Path, **variables: Any) -> list[str]:
    site = {f"log_collection_{name}": value for name, value in variables.items()}
    return list(judged(write(folder, good(), {"group_vars/all.yml": site})).sentences)


@pytest.mark.sample(1)
@pytest.mark.parametrize("variables", [{"hosts": []}, {"host": "ctl1"}], ids=["off", "on"])
def test_what_can_work_is_not_refused(tmp_path, variables):
    assert sentences(tmp_path, **variables) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"host": "ctl1", "hosts": []}, "log_collection_hosts is empty on ctl1, which collects"),
        ({"host": "ctl2"}, "log_collection_hosts lacks ctl2;"),
        ({"host": "ctl1", "hosts": ["ctl1", "login1", "gpu1"]}, "hosts lacks gpu2;"),
        ({"host": "ctl1", "port": "syslog"}, "log_collection_port"),
    ],
)
def test_what_cannot_work_is_refused_without_a_connection(tmp_path, variables, words):
    problems = sentences(tmp_path, **variables)
    assert any(words in sentence for sentence in problems), problems
