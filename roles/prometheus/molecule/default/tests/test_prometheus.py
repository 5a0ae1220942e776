"""Prometheus on one node, which scrapes itself, the exporter and Alertmanager over TLS."""

import pytest

from tests.patience import until
from tests.role_play import Case
from tests.web_listener import SECRETS, Listener, password

RULES = "/etc/prometheus/rules"


@pytest.fixture
def prometheus(host):
    return Listener(host, 9090)


def started(host) -> str:
    return host.check_output("systemctl show prometheus --property=ActiveEnterTimestampMonotonic")


def rule_names(prometheus) -> set[str]:
    groups = prometheus.ask("/api/v1/rules").document["data"]["groups"]
    return {rule["name"] for group in groups for rule in group["rules"]}


@pytest.fixture
def rules(tmp_path):
    """A function that makes a file of rules on the control node."""

    def write(expression: str, name: str = "site.yml") -> list[str]:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        rule = f"{{alert: OfTheSite, expr: '{expression}'}}"
        file.write_text(f"groups: [{{name: site, rules: [{rule}]}}]\n")
        return [str(file)]

    return write


def test_nobody_is_answered_without_a_password_over_tls(prometheus):
    prometheus.is_closed_to_strangers("/api/v1/status/config")
    assert prometheus.ask("/", user="admin").status == 200


def test_every_target_is_up_and_has_its_labels(prometheus):
    def up():
        targets = prometheus.query("up == 1")
        return len(targets) == 3 and targets

    targets = until(up)
    assert {target["metric"]["job"] for target in targets} == {"node", "prometheus", "alertmanager"}
    assert {target["metric"]["node"] for target in targets} == {"node"}
    assert {target["metric"]["group"] for target in targets} == {"monitoring"}


def test_a_textfile_speaks_of_another_node_in_declared_metrics_alone(host, prometheus):
    file = "/var/lib/prometheus/node-exporter/scenario.prom"
    labels = '{node="other",instance="other:9100",job="prometheus"}'
    with host.sudo():
        host.run(f"echo 'slurm_node_state{labels} 1' > {file}")
    try:
        [forged] = until(lambda: prometheus.query("slurm_node_state"))
        assert forged["metric"] == {
            **{"__name__": "slurm_node_state", "group": "monitoring"},
            **{"job": "node", "instance": "node:9100", "node": "node"},
            **{"exported_job": "prometheus", "exported_instance": "other:9100"},
            "exported_node": "other",
        }
        [series] = until(lambda: prometheus.query("plumbline_expected_gpus"))
        assert series["metric"] == {
            **{"__name__": "plumbline_expected_gpus", "group": "monitoring"},
            **{"job": "node", "instance": "node:9100", "node": "gpu1", "model": "h100_sxm"},
        }
        assert series["value"][1] == "8"
    finally:
        with host.sudo():
            host.run(f"rm {file}")


def test_the_exporters_password_opens_neither_prometheus_nor_alertmanager(host):
    for port, path in ((9090, "/api/v1/query?query=up"), (9093, "/api/v2/status")):
        listener = Listener(host, port)
        assert listener.ask(path, user="prometheus").status == 401
        assert listener.ask(path, user="server").status == 200
    exporter = Listener(host, 9100)
    assert exporter.ask("/metrics", user="prometheus").status == 200
    assert exporter.ask("/metrics", user="server").status == 401


def test_alerts_reach_alertmanager(prometheus):
    managers = prometheus.ask("/api/v1/alertmanagers").document["data"]["activeAlertmanagers"]
    assert [manager["url"] for manager in managers] == ["https://node:9093/api/v2/alerts"]


def test_it_can_neither_be_stopped_nor_emptied(prometheus):
    assert prometheus.ask("/-/quit", method="POST").status == 403
    assert prometheus.ask("/-/reload", method="POST").status == 403
    snapshot = prometheus.ask("/api/v1/admin/tsdb/snapshot", method="POST")
    assert "admin APIs disabled" in snapshot.text


def test_a_changed_rule_is_read_without_a_restart_and_a_broken_one_leaves_it(
    host, play, attempts, prometheus, rules
):
    before = started(host)
    sums = f"sha256sum {RULES}/* /etc/prometheus/prometheus.yml | sha256sum"
    broken = {"prometheus_rule_files": rules("up ==", "broken/site.yml")}
    outcomes = attempts(
        [
            Case("good", {"prometheus_rule_files": rules("up == 2")}, mends=sums),
            Case("broken", broken | {"prometheus_scrape_interval": "7s"}, mends=sums),
        ]
    )
    outcomes["good"].passes()
    outcomes["broken"].refuses(
        "/etc/prometheus stays as it was: promtool refuses it: rules/site.yml: "
    )
    assert outcomes["broken"].left == outcomes["good"].left
    assert "OfTheSite" in rule_names(prometheus)
    assert play().code == 0
    assert "OfTheSite" not in rule_names(prometheus)
    assert started(host) == before


@pytest.mark.long
def test_a_run_that_was_interrupted_before_its_reload_is_mended_by_the_next(
    host, play, prometheus, rules
):
    before = started(host)
    configure = {"ansible.builtin.include_role": {"name": "prometheus", "tasks_from": "configure"}}
    stop = {"ansible.builtin.fail": {"msg": "interrupted"}}
    play([configure, stop], prometheus_rule_files=rules("up == 2"))
    assert "OfTheSite" not in rule_names(prometheus)
    assert play(prometheus_rule_files=rules("up == 2")).code == 0
    assert "OfTheSite" in rule_names(prometheus)
    assert play().code == 0
    assert started(host) == before


@pytest.mark.long
def test_lost_passwords_are_taken_over_from_the_host(play):
    file = SECRETS / "monitoring_admin_password"
    kept = file.read_text()
    file.unlink()
    run = play()
    assert run.code == 0, run.output
    assert file.read_text().strip() == kept.strip()
    assert file.stat().st_mode & 0o777 == 0o600
    assert password("admin") not in run.output


def test_secrets_are_nobody_elses(host):
    with host.sudo():
        for user, group, mode in (
            *((own, "prometheus", 0o640) for own in ("prometheus", "server")),
            ("admin", "root", 0o600),
        ):
            file = host.file(f"/etc/prometheus/secrets/{user}_password")
            assert (file.user, file.group, file.mode) == ("root", group, mode)


def test_it_comes_back_after_a_reboot(host):
    assert host.service("prometheus").is_enabled
    assert host.service("prometheus").is_running
