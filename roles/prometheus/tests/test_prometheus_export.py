"""What is exported for a monitoring of the site's, by a run of Ansible."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from roles.alertmanager.plugin_utils import config
from roles.grafana.filter_plugins import grafana
from roles.prometheus.filter_plugins import prometheus
from tests import ansible_processes

JOBS = [
    {"name": "node", "port": 9100},
    {"name": "prometheus", "port": 9090, "server": True},
]
HOSTS = [{"name": "gpu1", "labels": {"rack": "r1"}}]


def play(folder: Path, *options: str) -> str:
    """The roles' exports, on a host that is this machine; what Ansible says."""
    word = folder / "prometheus_password"
    word.write_text("a-password-for-the-test\n")
    word.chmod(0o600)
    authority = folder / "ca.crt"
    authority.write_text("an authority\n")
    (folder / "textfiles").mkdir(exist_ok=True)
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "ansible_become": False,
        "prometheus_jobs": JOBS,
        "prometheus_hosts": HOSTS,
        "prometheus_users": {"prometheus": str(word)},
        "prometheus_authority": str(authority),
        "prometheus_textfile_folder": str(folder / "textfiles"),
        "prometheus_expected_gpus": [{"node": "gpu1", "model": "h100_sxm", "count": 8}],
        "prometheus_export_folder": str(folder / "site/prometheus"),
        "alertmanager_export_folder": str(folder / "site/alertmanager"),
        "grafana_export_folder": str(folder / "site/grafana"),
    }
    tasks = [
        {"ansible.builtin.include_role": {"name": role, "tasks_from": "export.yml"}}
        for role in ("prometheus", "alertmanager", "grafana")
    ]
    (folder / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"hosts": {"ctl1": variables}}}), "utf-8"
    )
    (folder / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]), "utf-8"
    )
    done = ansible_processes.run(
        "-i", folder / "hosts.yml", folder / "play.yml", *options, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a-password-for-the-test" not in done.stdout + done.stderr
    return done.stdout


def changed(output: str) -> int:
    (count,) = re.findall(r"changed=(\d+)", output)
    return int(count)


@pytest.mark.long
@pytest.mark.heavy("four runs of Ansible")
def test_all_is_exported_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    play(tmp_path, "--check")
    assert not (tmp_path / "site").exists()
    play(tmp_path)
    scraped, boards = tmp_path / "site/prometheus", tmp_path / "site/grafana"
    settings = {
        "authority": "x", "user": "x", "password_file": "x", "scrape_user": "prometheus",
        "scrape_configs": [], "runbooks": "",
    }  # fmt: skip
    wanted = prometheus.exported(JOBS, HOSTS, settings, [])
    own = {"ca.crt": "an authority\n", "scrape_password": "a-password-for-the-test"}
    files = {str(path.relative_to(scraped)): path for path in scraped.rglob("*") if path.is_file()}
    assert {name: path.read_text("utf-8") for name, path in files.items()} == wanted | own
    assert files["scrape_password"].stat().st_mode & 0o777 == 0o600
    (target,) = json.loads(files["targets/node.json"].read_text("utf-8"))
    assert target["labels"] == {"node": "gpu1", "rack": "r1"}
    found = {
        str(path.relative_to(boards)): path.read_text("utf-8") for path in boards.rglob("*.json")
    }
    assert found == grafana.dashboard_files({})
    (routes,) = (tmp_path / "site/alertmanager").iterdir()
    made = yaml.safe_load(routes.read_text("utf-8"))
    assert [route["receiver"] for route in made["route"]["routes"]] == ["operators"] * 2
    assert [rule["target_matchers"] for rule in made["inhibit_rules"]] == [config.HIDDEN] * 2
    assert len(found) >= 7
    textfile = (tmp_path / "textfiles/plumbline_expected.prom").read_text("utf-8")
    assert 'plumbline_expected_gpus{node="gpu1",model="h100_sxm"} 8' in textfile
    # What a former release had there goes, and no more changes.
    (scraped / "rules/gone.yml").write_text("groups: []\n", "utf-8")
    assert changed(play(tmp_path)) == 1
    assert not (scraped / "rules/gone.yml").exists()
    assert changed(play(tmp_path)) == 0
