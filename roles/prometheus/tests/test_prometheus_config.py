"""Prometheus' files, as they are read by Prometheus' own checker."""

import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from roles.prometheus.filter_plugins import prometheus
from roles.prometheus.plugin_utils import config
from tests.checkers import checker

HOSTS: list[dict[str, Any]] = [
    {"name": "ctl1", "labels": {"group": "controller"}},
    {"name": "gpu1", "labels": {"group": "compute", "partition_group": "h100"}},
]
JOBS = [
    {
        "name": "node",
        "port": 9100,
        "speaks_of_nodes": [
            {"metrics": "slurm_node_(state|reason)", "hosts": ["ctl1", "ctl-2.site"]},
            {"metrics": "plumbline_expected_.+", "hosts": []},
        ],
    },
    {"name": "dcgm", "port": 9400, "hosts": ["gpu1"], "scrape_interval": "30s"},
    {"name": "nobody", "port": 9999, "hosts": []},
    {"name": "alertmanager", "port": 9093, "hosts": ["ctl1"], "server": True},
    {"name": "trusted", "port": 9200, "honor_labels": True},
    {
        "name": "less",
        "port": 9300,
        "metric_relabel_configs": [{"regex": "x", "action": "labeldrop"}],
    },
]
SETTINGS: dict[str, Any] = {
    "user": "server",
    "password_file": "/etc/prometheus/secrets/server_password",
    "scrape_user": "prometheus",
    "scrape_password_file": "/etc/prometheus/secrets/prometheus_password",
    "authority": "/etc/plumbline/tls/ca.crt",
    "alertmanagers": ["ctl1:9093"],
    "scrape_interval": "15s",
    "external_labels": {"cluster": "site", "region": 1},
    "scrape_configs": [{"job_name": "own", "static_configs": [{"targets": ["own:1"]}]}],
    "remote_write": [{"url": "https://long.term/write"}],
    "alertmanager_configs": [],
    "replica_label": "",
    "name": "mon1",
    "runbooks": "",
}


@pytest.fixture
def files():
    return prometheus.files(JOBS, HOSTS, SETTINGS, [])


def test_each_target_has_its_node_and_its_group(files):
    assert json.loads(files["targets/node.json"]) == [
        {"targets": ["ctl1:9100"], "labels": {"node": "ctl1", "group": "controller"}},
        {"targets": ["gpu1:9100"], "labels": {"node": "gpu1"} | HOSTS[1]["labels"]},
    ]
    assert [group["targets"] for group in json.loads(files["targets/dcgm.json"])] == [["gpu1:9400"]]
    assert json.loads(files["targets/nobody.json"]) == []


def test_everything_is_scraped_over_tls_with_a_password(files):
    document = yaml.safe_load(files["prometheus.yml"])
    ours = [entry for entry in document["scrape_configs"] if entry["job_name"] != "own"]
    assert len(ours) == len(JOBS)
    for entry in [*ours, *document["alerting"]["alertmanagers"]]:
        assert entry["scheme"] == "https"
        assert entry["tls_config"] == {"ca_file": "/etc/plumbline/tls/ca.crt"}
        # A node that is scraped learns the password, and may not come to the servers with it.
        of_server = entry.get("job_name", "alertmanager") == "alertmanager"
        user = "server" if of_server else "prometheus"
        assert entry["basic_auth"] == {
            "username": user,
            "password_file": f"/etc/prometheus/secrets/{user}_password",
        }


def test_a_job_has_what_it_says_and_no_more(files):
    written = yaml.safe_load(files["prometheus.yml"])["scrape_configs"]
    by_name = {entry["job_name"]: entry for entry in written}
    assert by_name["dcgm"]["scrape_interval"] == "30s"
    assert {name for name, entry in by_name.items() if "honor_labels" in entry} == {"trusted"}
    assert {name for name, entry in by_name.items() if "metric_relabel_configs" in entry} == {
        *("node", "less"),
    }
    assert by_name["less"]["metric_relabel_configs"] == JOBS[-1]["metric_relabel_configs"]


@pytest.mark.parametrize(
    ("instance", "metric", "exported", "node"),
    [
        ("ctl1:9100", "slurm_node_state", "gpu1", "gpu1"),
        ("ctl-2.site:9100", "slurm_node_state", "gpu1", "gpu1"),
        ("ctl1:9100", "slurm_node_state", "", ""),  # of several nodes
        ("ctl1:9100", "slurm_nodes", "gpu1", "ctl1"),
        ("ctl1:9100", "plumbline_expected_gpus", "gpu1", "ctl1"),
        ("gpu1:9100", "slurm_node_state", "ctl1", "gpu1"),
        ("ctl-2xsite:9100", "slurm_node_state", "gpu1", "ctl-2xsite"),
        ("gpu1:9100", "door", "ctl1", "gpu1"),
        ("ctl11:9100", "slurm_node_state", "gpu1", "ctl11"),
    ],
)
def test_a_host_speaks_of_nodes_in_declared_metrics_alone(files, instance, metric, exported, node):
    [rules] = [
        entry["metric_relabel_configs"]
        for entry in yaml.safe_load(files["prometheus.yml"])["scrape_configs"]
        if entry["job_name"] == "node"
    ]
    labels = {"instance": instance, "__name__": metric, "exported_node": exported}
    labels["node"] = instance.partition(":")[0]
    for rule in rules:
        # As Prometheus does: the whole of the labels' values, joined.
        text = ";".join(labels.get(name, "") for name in rule["source_labels"])
        if match := re.fullmatch(rule["regex"], text):
            text = rule["replacement"].replace("${about}", match["about"])
            labels[rule["target_label"]] = text
    assert labels["node"] == node
    assert labels["exported_node"] == (exported if node == instance.partition(":")[0] else "")


def test_what_a_site_adds_is_there_as_it_is(files):
    document = yaml.safe_load(files["prometheus.yml"])
    assert document["scrape_configs"][-1] == SETTINGS["scrape_configs"][0]
    assert document["remote_write"] == SETTINGS["remote_write"]
    assert document["global"]["external_labels"] == {"cluster": "site", "region": "1"}


def test_a_store_learns_who_sends_and_alertmanager_does_not():
    own = {"source_labels": ["__name__"], "regex": "up", "action": "keep"}
    entries = [{"url": "https://a/write", "write_relabel_configs": [own]}, {"url": "https://b/w"}]
    settings = SETTINGS | {"remote_write": entries, "replica_label": "replica"}
    document = yaml.safe_load(prometheus.files(JOBS, HOSTS, settings, [])["prometheus.yml"])
    told = {"target_label": "replica", "replacement": "mon1"}
    relabelling = [entry["write_relabel_configs"] for entry in document["remote_write"]]
    assert relabelling == [[own, told], [told]]
    assert "replica" not in document["global"]["external_labels"]


def test_a_sites_alertmanager_is_told_beside_ours_or_alone():
    site = {"scheme": "https", "static_configs": [{"targets": ["alerts.site:443"]}]}
    for own, targets in ((["ctl1:9093", "mon2:9093"], ["ctl1:9093", "mon2:9093"]), ([], None)):
        settings = SETTINGS | {"alertmanagers": own, "alertmanager_configs": [site]}
        document = yaml.safe_load(prometheus.files(JOBS, HOSTS, settings, [])["prometheus.yml"])
        *ours, told = document["alerting"]["alertmanagers"]
        assert told == site
        assert [entry["static_configs"][0]["targets"] for entry in ours] == [targets] * bool(own)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"basic_auth": {"password": "x"}}, "prometheus_remote_write[0].basic_auth.password is a"),
        ({"authorization": {"credentials": "x"}}, "and say credentials_file instead"),
        ({"oauth2": {"client_secret": "x"}}, "and say client_secret_file instead"),
        (
            {"basic_auth": {"password_file": "/etc/prometheus/secrets/site/other"}},
            "is /etc/prometheus/secrets/site/other, and prometheus_secret_files has no other",
        ),
    ],
)
def test_a_secret_in_plain_text_or_in_no_file_is_refused(entry, words):
    def problems(entry, secrets):
        entries = {"prometheus_remote_write": [entry]}
        return prometheus.secret_problems(entries, "/etc/prometheus/secrets/site", secrets)

    good = {"basic_auth": {"password_file": "/etc/prometheus/secrets/site/store"}}
    assert problems(good, {"store": "/a"}) == []
    [problem] = problems(entry, {"store": "/a"})
    assert words in problem
    [problem] = problems({}, {"../store": "/a"})
    assert "'../store', which is no name of a file" in problem


def test_without_an_alertmanager_nobody_is_told():
    files = prometheus.files(JOBS, HOSTS, SETTINGS | {"alertmanagers": [], "remote_write": []}, [])
    document = yaml.safe_load(files["prometheus.yml"])
    assert "alerting" not in document
    assert "remote_write" not in document


def test_rules_are_the_roles_and_then_the_sites(tmp_path):
    own, site = tmp_path / "own", tmp_path / "site"
    for folder, names in ((own, ("a.yml", "b.yml", "c.txt")), (site, ("b.yml", "d.yml"))):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(f"{folder.name} {name}")
    texts = config.rule_files(own, [str(site / "b.yml"), str(site / "d.yml")])
    assert texts == {"a.yml": "own a.yml", "b.yml": "site b.yml", "d.yml": "site d.yml"}
    with pytest.raises(ValueError, match=r"2 files of prometheus_rule_files have the name b\.yml"):
        config.rule_files(own, [str(site / "b.yml"), str(own / "b.yml")])


@pytest.mark.parametrize("base", ["https://docs.site/plumbline", "https://docs.site/plumbline/"])
def test_each_alert_of_ours_links_to_its_runbook_where_pages_have_an_address(tmp_path, base):
    site = tmp_path / "site.yml"
    site.write_text("groups: [{name: site, rules: [{alert: X, expr: up, annotations: {}}]}]")
    texts = config.rule_files(prometheus.OWN_RULES, [str(site)], base)
    assert texts.pop("site.yml") == site.read_text()
    rules = [
        rule["annotations"]
        for text in texts.values()
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert len(rules) > 40
    for annotations in rules:
        page = annotations["runbook"]
        assert annotations["runbook_url"] == f"https://docs.site/plumbline/{page}"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"name": "a b", "port": 1}, "'a b' is no name of a job; give it letters, digits, - and _"),
        ({"name": "../x", "port": 1}, "'../x' is no name of a job; give it"),
        ({"name": "node", "port": 1}, "2 jobs have the name node"),
        ({"name": "x", "port": 0}, "the job x has the port 0; give it a number up to 65535"),
        ({"name": "x", "port": True}, "the job x has the port True; give it a number"),
        ({"name": "x"}, "the job x has the port None; give it a number"),
        ({"name": "x", "port": 1, "hosts": ["gpu2"]}, "the job x scrapes gpu2, which is not in"),
    ],
)
def test_a_job_that_cannot_be_is_refused(job, words):
    assert prometheus.problems(JOBS, HOSTS) == []
    [problem] = prometheus.problems([*JOBS, job], HOSTS)
    assert problem.startswith(words)


def test_expected_gpus_are_a_textfile():
    gpu1 = {"node": "gpu1", "model": "h100_sxm", "count": 8, "names": ["NVIDIA H100 80GB HBM3"]}
    text = config.expected_gpus([gpu1, {"node": "cpu1", "model": "none", "count": 0}], 1.5)
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "plumbline_expected_validation_max_age_seconds 129600",
        'plumbline_expected_gpus{node="gpu1",model="h100_sxm"} 8',
        'plumbline_expected_gpus{node="cpu1",model="none"} 0',
        'plumbline_expected_gpu_name{node="gpu1",modelName="NVIDIA H100 80GB HBM3"} 1',
    ]
    assert text.endswith("\n")


# --- Prometheus' own checker ----------------------------------------------------------------------


@pytest.fixture
def promtool(tmp_path, files):
    """A function that checks files as the role does, and returns status and output."""
    program = checker("promtool")

    def check(changed: dict[str, str]) -> tuple[int, str]:
        for name in ("password", "ca.crt"):
            (tmp_path / name).write_text("")
        for name, text in (files | changed).items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            known = text.replace(SETTINGS["password_file"], str(tmp_path / "password"))
            known = known.replace(SETTINGS["scrape_password_file"], str(tmp_path / "password"))
            path.write_text(known.replace(SETTINGS["authority"], str(tmp_path / "ca.crt")))
        command = [*program, "check", "config", "prometheus.yml"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return check


def test_promtool_accepts_it(promtool):
    status, output = promtool({})
    assert status == 0, output


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("rules/broken.yml", "groups: [{name: g, rules: [{alert: A, expr: 'up =='}]}]"),
        ("targets/node.json", "[{]"),
    ],
)
def test_promtool_refuses_a_broken_file_beside_it(promtool, file, text):
    status, output = promtool({file: text})
    assert status != 0
    assert file in output
