"""Playbooks that silence, as they run; Alertmanager is a real one, behind TLS and a password."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from playbooks.plugin_utils import documents, monitoring, web
from roles.alertmanager.plugin_utils.silences import unsilenced
from roles.alertmanager.tests.live_alertmanager import certify, command, configure, new_authority
from tests import ansible_processes, daemons

WORD = "a-password-for-the-test"
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Secured:
    port: str
    folder: Path

    def silences(self) -> list[dict[str, Any]]:
        tls = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        request = urllib.request.Request(f"https://localhost:{self.port}/api/v2/silences")
        request.add_header("Authorization", f"Basic {b64encode(f'admin:{WORD}'.encode()).decode()}")
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )
        with opener.open(request, timeout=10) as answer:
            documents: list[dict[str, Any]] = json.load(answer)
        return [entry for entry in documents if entry["status"]["state"] == "active"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certify(folder, new_authority())
    configure(folder)
    listener = web.web_config(
        {"admin": web.hashed("admin", WORD)}, str(folder / "host.crt"), str(folder / "host.key")
    )
    (folder / "web.yml").write_text(documents.to_yaml(listener))
    word = folder / "admin_password"
    word.write_text(WORD + "\n")
    word.chmod(0o600)
    address = daemons.free_address()
    started = [*command(folder, address), f"--web.config.file={folder / 'web.yml'}"]
    with daemons.running(started, address, folder / "log", authority=folder / "ca.crt"):
        yield Secured(address.rpartition(":")[2], folder)


def users(secured: Secured) -> dict[str, Any]:
    return {
        "alertmanager_users": {"admin": str(secured.folder / "admin_password")},
        "alertmanager_authority": str(secured.folder / "ca.crt"),
    }


def inventory(secured: Secured, folder: Path, *hosts: str) -> Path:
    """Two compute nodes and a controller that is one too; hosts of Alertmanager in this order."""
    local = {"ansible_connection": "local", "alertmanager_name": "localhost"}
    away = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_connection": "ssh"}
    document = {
        "all": {
            "vars": {
                "ansible_become": False,
                "ansible_python_interpreter": "{{ ansible_playbook_python }}",
                "alertmanager_port": secured.port,
                "alertmanager_hosts": list(hosts),
                "cluster_has_alertmanager": True,
                **users(secured),
            },
            "children": {
                "slurm_cluster": {
                    "children": {
                        "slurm_controller": {"hosts": {"ctl1": local}},
                        "slurm_compute": {"hosts": {"gpu1": local, "gpu2": local, "ctl1": None}},
                        "monitoring": {"hosts": {"mon1": local, "off1": away}},
                    }
                }
            },
        }
    }
    path = folder / "hosts.yml"
    path.write_text(yaml.safe_dump(document))
    return path


def run(
    secured: Secured, folder: Path, *hosts: str, tasks: Sequence[Any], options: Any = ()
) -> str:
    """What a play of compute nodes with these tasks says; `hosts` have Alertmanager."""
    play = {"hosts": "slurm_compute", "gather_facts": False, "tasks": [*tasks]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    done = ansible_processes.run(
        "-i", inventory(secured, folder, *hosts), folder / "play.yml", *options, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert WORD not in done.stdout + done.stderr
    return " ".join(done.stdout.split())


def work(*, lift: bool = False) -> list[Any]:
    """As reboot-nodes.yml does it."""
    facts = {"__node_reboot_draining": True, **({"__node_reboot_done": True} if lift else {})}
    return [{"ansible.builtin.set_fact": facts}, include("silence_nodes", lift=lift)]


def include(name: str, *, lift: bool = False, **variables: Any) -> dict[str, Any]:
    return {
        "ansible.builtin.include_tasks": str(ROOT / f"playbooks/tasks/{name}.yml"),
        "vars": {**variables, **({"__silence_state": "absent"} if lift else {})},
    }


def test_nodes_are_silent_until_they_are_back_and_a_controller_never(
    secured: Secured, tmp_path: Path
) -> None:
    run(secured, tmp_path, "mon1", tasks=work(), options=["--check"])
    assert secured.silences() == []
    # The first host with Alertmanager is off: the second one is asked, once.
    said = run(secured, tmp_path, "off1", "mon1", tasks=work())
    (silence,) = secured.silences()
    assert silence["matchers"][0]["value"] == "gpu1|gpu2"
    assert silence["comment"] == "reboot"
    # A boot, its registration with Slurm, and half an hour of other work.
    length = datetime.fromisoformat(silence["endsAt"]) - datetime.fromisoformat(silence["startsAt"])
    assert abs(length - timedelta(seconds=1800 + 300 + 1800)) < timedelta(seconds=2)
    assert "not silenced" not in said
    run(secured, tmp_path, "mon1", tasks=work(lift=True))
    assert secured.silences() == []


def test_work_goes_on_where_nothing_can_be_silenced(secured: Secured, tmp_path: Path) -> None:
    away = Secured(daemons.free_address().rpartition(":")[2], secured.folder)
    said = run(away, tmp_path, "off1", "mon1", tasks=work())
    assert (
        "Alerts of gpu[1-2] are not silenced, and the work goes on: off1 cannot be reached; "
        in said
    )
    assert "mon1 has an Alertmanager that does not answer (" in said
    assert said.count("are not silenced") == 1


@pytest.mark.long
def test_upgrades_and_new_passwords_silence_what_they_stop_and_nothing_else(
    secured: Secured, tmp_path: Path
) -> None:
    def both(*, lift: bool) -> list[Any]:
        hosts: dict[str, Any] = {"__silence_hosts": ["ctl1", "gpu1", "gpu2"]}
        return [
            include("silence_upgrade", lift=lift, **hosts),
            include("silence_rotation", lift=lift),
        ]

    run(secured, tmp_path, "mon1", tasks=both(lift=False))
    silent = {s["matchers"][0]["value"]: s["matchers"][1]["value"] for s in secured.silences()}
    assert silent == {
        "ctl1": "Slurm.*|AccountingDatabaseDown|Exporter.*",
        "gpu1|gpu2": "Slurm.*|AccountingDatabaseDown|Exporter.*|TargetDown",
        "ctl1|gpu1|gpu2|mon1|off1": "TargetDown|Exporter.*|NotificationsFailing",
    }
    run(secured, tmp_path, "mon1", tasks=both(lift=True))
    assert secured.silences() == []


def window(secured: Secured, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """playbooks/silence.yml, as an operator starts it."""
    told = {"alertmanager_port": secured.port, "alertmanager_hosts": ["mon1"]}
    done = ansible_processes.run(
        *("-i", inventory(secured, folder, "mon1"), ROOT / "playbooks/silence.yml"),
        *("-e", json.dumps(told | users(secured)), *options),
        timeout=120,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, " ".join(done.stdout.split()), done.stderr
    )


def test_an_operator_opens_a_window_and_closes_it(secured: Secured, tmp_path: Path) -> None:
    unnamed = window(secured, tmp_path)
    assert unnamed.returncode == 2
    assert "silence: say with --limit which hosts are to be silent" in unnamed.stdout
    endless = window(secured, tmp_path, "--limit=gpu1", "-e", "alertmanager_silence_hours=1000")
    assert endless.returncode == 2
    assert "alertmanager_silence_hours is 1000 and alertmanager_silence_why is" in endless.stdout
    assert secured.silences() == []
    asked = ("--limit=gpu1,gpu2", "-e", "alertmanager_silence_hours=1.5")
    opened = window(secured, tmp_path, *asked, "-e", "alertmanager_silence_why='new PDU'")
    assert opened.returncode == 0, opened.stdout
    assert "Alerts of gpu[1-2] are silent for 1.5 hours." in opened.stdout
    (silence,) = secured.silences()
    assert (silence["comment"], silence["createdBy"]) == ("new PDU", "Plumbline, silence.yml")
    # What a playbook lifts is its own.
    run(secured, tmp_path, "mon1", tasks=work(lift=True))
    assert secured.silences() == [silence]
    closed = window(secured, tmp_path, *asked, "-e", "alertmanager_silence_lift=true")
    assert "Alerts of gpu[1-2] are told again." in closed.stdout
    assert secured.silences() == []
    away = Secured(daemons.free_address().rpartition(":")[2], secured.folder)
    failed = window(away, tmp_path, *asked)
    assert failed.returncode == 2
    assert "mon1 has an Alertmanager that does not answer (" in failed.stdout
    assert "not all was done; the line above says why" in failed.stdout


@pytest.mark.long
def test_an_alertmanager_of_the_site_is_silenced_from_here(
    secured: Secured, tmp_path: Path
) -> None:
    """Without one of the cluster's own; the second in the list stands in for the first."""
    address = {
        "user": "admin",
        "password_file": str(secured.folder / "admin_password"),
        "authority": str(secured.folder / "ca.crt"),
    }
    nobody = {"url": f"https://localhost:{daemons.free_address().rpartition(':')[2]}", **address}
    site = [nobody, {"url": f"https://localhost:{secured.port}", **address}]
    options = ["-e", json.dumps({"alertmanager_of_site": site})]
    said = run(secured, tmp_path, tasks=work(), options=options)
    (silence,) = secured.silences()
    assert silence["matchers"][0]["value"] == "gpu1|gpu2"
    assert "not silenced" not in said
    run(secured, tmp_path, tasks=work(lift=True), options=options)
    assert secured.silences() == []
    away = run(
        secured,
        tmp_path,
        tasks=work(),
        options=["-e", json.dumps({"alertmanager_of_site": [nobody]})],
    )
    assert f"{nobody['url']} has an Alertmanager that does not answer (" in away


@pytest.mark.parametrize("name", ["silence_upgrade", "silence_rotation"])
def test_what_is_silenced_by_name_there_is(name: str) -> None:
    """A rule that gets another name would be told in the middle of the work."""
    tasks = yaml.safe_load((ROOT / f"playbooks/tasks/{name}.yml").read_text())
    named = tasks[0]["vars"]["__alertmanager_silence_alerts"]
    patterns = named if isinstance(named, list) else re.findall(r"'([^']+)'", named)
    rules = (ROOT / "roles/prometheus/files/etc/prometheus/rules").glob("*.yml")
    alerts = [rule for path in rules for rule in re.findall(r"alert: (\w+)", path.read_text())]
    assert patterns
    for pattern in patterns:
        assert any(re.fullmatch(pattern, alert) for alert in alerts), pattern


def test_the_defaults_of_a_boot_are_those_of_the_role() -> None:
    defaults = yaml.safe_load((ROOT / "roles/node_reboot/defaults/main.yml").read_text())
    text = (ROOT / "playbooks/tasks/silence_nodes.yml").read_text()
    for name in ("node_reboot_timeout", "node_reboot_return_timeout"):
        assert f"{name} | default({defaults[name]})" in text


def test_who_others_depend_on_is_not_silenced() -> None:
    groups = {"slurm_controller": ["ctl1"], "monitoring": ["mon1"]}
    out = {"__node_reboot_draining": True}
    back = out | {"__node_reboot_done": True}
    hosts = {"ctl1": out, "gpu1": out, "gpu2": back, "gpu3": {}, "mon1": back}
    assert monitoring.nodes_to_silence(hosts, hosts, groups) == ["gpu1"]
    assert monitoring.nodes_to_silence(hosts, hosts, groups, back=True) == ["gpu2"]


def test_what_was_not_done_is_one_sentence() -> None:
    refused = {"__alertmanager_host": "mon1", "note": "refuses the password of admin"}
    broken = {"__alertmanager_host": "mon2", "failed": True, "msg": "no python3\n"}
    assert unsilenced([{"results": [refused, broken]}], ["gpu1"], "absent") == (
        "Alerts of gpu1 go on being silenced until that ends, and the work goes on: mon1 has an "
        "Alertmanager that refuses the password of admin; mon2 cannot ask its Alertmanager "
        "(no python3)."
    )
    done = {"results": [refused, {"answered": True}]}
    assert unsilenced([done, {"skipped": True}], ["gpu1"], "present") == ""
    site = {"results": [{"__alertmanager_host": {"url": "https://alerts"}, "note": "is asleep"}]}
    assert unsilenced([done, site], ["gpu1"], "present") == (
        "Alerts of gpu1 are not silenced, and the work goes on: https://alerts has an Alertmanager "
        "that is asleep."
    )
