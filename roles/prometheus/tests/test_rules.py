"""The alert rules: promtool's own judgement and tests, and what promtool does not look at.

Cases in rules/*.yml name the labels that an alert has, and no annotations: their texts are held
against those labels here, and their templates against promtool.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.readers import xids
from tests.checkers import checker

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "roles/prometheus/files/etc/prometheus/rules"
CASES = Path(__file__).parent / "rules"
CATALOGUE = Path(__file__).parent / "metrics.yml"
RUNBOOKS = ROOT / "docs/runbooks"
GROUPS = (
    *("meta", "alertmanager", "host", "hardware", "fabric", "gpu", "slurm", "trends"),
    *("operations", "nccl", "node_history", "fleet", "boards"),
)
SEVERITIES = ("critical", "warning", "info", "none")

# What is about no node, or not always about one.
CLUSTER_WIDE = {
    "Watchdog",
    "TargetMissing",  # a job without any target
    "SharedFilesystemLow",
    "FilesystemFillingUp",
    "SlurmCapacityDrained",
    "ValidationFailed",  # a check between nodes
}

_WORDS = {"and", "or", "unless", "on", "ignoring", "group_left", "group_right", "by", "without"}
_WORDS |= {"bool", "offset", "inf", "nan"}


@dataclass(frozen=True)
class Alert:
    """A rule; `cases` are (labels of the alerts that are expected, metrics that are fed)."""

    name: str
    rule: dict[str, Any]
    cases: tuple[tuple[list[dict[str, str]], set[str]], ...]

    @property
    def expression(self) -> str:
        return str(self.rule["expr"])

    @property
    def metrics(self) -> set[str]:
        return {name for name, _ in metrics(self.expression)}

    @property
    def fired(self) -> list[dict[str, str]]:
        """Labels of all alerts that are expected."""
        return [labels for expected, _ in self.cases for labels in expected]


def metrics(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Names of the metrics in PromQL, each with the labels of its matchers.

    >>> list(metrics('max by (node) (rate(x_total{xid=~"1|2"}[5m])) > 0'))
    [('x_total', {'xid'})]
    """
    text = re.sub(r"\[[^]]*\]", "", expression)
    text = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    # No text between quotes is left, so a brace ends the matchers.
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    for match in re.finditer(r"\b([A-Za-z_:][\w:]*)\b(\s*\()?(?:\{([^}]*)\})?", text):
        name, call, matchers = match.groups()
        if not call and name not in _WORDS:
            yield name, set(re.findall(r"\w+", matchers or ""))


def recorded() -> list[dict[str, Any]]:
    """Rules that record a series."""
    files = (read(RULES / f"{name}.yml") for name in GROUPS)
    groups = (group for file in files for group in file["groups"])
    return [rule for group in groups for rule in group["rules"] if "record" in rule]


def series_name(series: str) -> str:
    return series.partition("{")[0]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def alerts() -> list[Alert]:
    result = []
    for name in GROUPS:
        cases: dict[str, list[tuple[list[dict[str, str]], set[str]]]] = {}
        for test in read(CASES / f"{name}.yml")["tests"]:
            fed = {series_name(item["series"]) for item in test["input_series"]}
            for case in test.get("alert_rule_test", ()):
                expected = [alert["exp_labels"] for alert in case["exp_alerts"]]
                cases.setdefault(case["alertname"], []).append((expected, fed))
        for group in read(RULES / f"{name}.yml")["groups"]:
            assert group["name"] == name
            for rule in group["rules"]:
                if "record" in rule:
                    continue
                result.append(Alert(rule["alert"], rule, tuple(cases.pop(rule["alert"], ()))))
        assert not cases, f"{name}.yml: cases of alerts that do not exist"
    return result


ALERTS = alerts()
each_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


def promtool(*arguments: str | Path) -> None:
    command = [*checker("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_is_known():
    assert {path.stem for path in RULES.iterdir()} == set(GROUPS)
    assert {path.stem for path in CASES.iterdir()} == set(GROUPS)


def test_no_alert_is_there_twice():
    names = [alert.name for alert in ALERTS]
    assert len(names) == len(set(names)) > 40


@pytest.mark.parametrize("name", GROUPS)
def test_promtool_accepts_the_rules(name):
    promtool("check", "rules", RULES / f"{name}.yml")


@pytest.mark.parametrize("name", GROUPS)
def test_alerts_fire_when_they_should_and_only_then(name, tmp_path):
    rules = read(RULES / f"{name}.yml")
    for rule in rules["groups"][0]["rules"]:
        rule.pop("annotations", None)  # promtool compares every letter of them
    (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    shutil.copy(CASES / f"{name}.yml", tmp_path / "cases.yml")
    promtool("test", "rules", tmp_path / "cases.yml")


@each_alert
def test_an_alert_is_seen_to_fire(alert):
    assert alert.fired


@each_alert
def test_an_alert_is_seen_not_to_fire_although_its_metrics_are_there(alert):
    if alert.name == "Watchdog":
        return  # it never does that
    quiet = [fed for expected, fed in alert.cases if not expected]
    assert any(alert.metrics & fed for fed in quiet)


@each_alert
def test_every_metric_of_an_alert_is_fed_by_a_case(alert):
    fed = {name for _, names in alert.cases for name in names}
    assert alert.metrics <= fed


@each_alert
def test_an_alert_says_which_node(alert):
    if alert.name in CLUSTER_WIDE:
        assert any("node" not in labels for labels in alert.fired)
    else:
        assert all("node" in labels for labels in alert.fired)


@each_alert
def test_an_alert_is_told_to_people(alert):
    labels, texts = alert.rule["labels"], alert.rule["annotations"]
    assert set(labels) == {"severity"}
    assert labels["severity"] in SEVERITIES
    assert set(texts) == {"summary", "description", "runbook"}
    assert texts["runbook"] == f"docs/runbooks/{alert.name}.md"
    assert not texts["summary"].endswith(".")
    assert texts["description"].endswith(".")
    for text in texts.values():
        assert "\n" not in text


@each_alert
def test_texts_name_labels_that_the_alert_has(alert):
    known = set().union(*alert.fired)
    text = " ".join(alert.rule["annotations"].values())
    # What is not always there is asked for first.
    optional = set(re.findall(r"(?:with|if and) \$labels\.(\w+)", text))
    named = set(re.findall(r"\$labels\.(\w+)", text))
    assert named <= known
    for labels in alert.fired:
        assert named - optional <= set(labels)


def catalogue() -> dict[str, set[str]]:
    """Labels of each metric, those of its target among them."""
    listed = read(CATALOGUE)
    return {item["name"]: {*item["labels"], *listed["target_labels"]} for item in listed["metrics"]}


@each_alert
def test_metrics_and_their_labels_are_in_the_catalogue(alert):
    known = catalogue()
    for name, labels in metrics(alert.expression):
        assert name in known, f"{name} is not in {CATALOGUE.name}"
        assert labels <= known[name]


def test_what_is_recorded_has_a_name_of_the_usual_form_and_is_seen_in_a_case():
    asked = " ".join(
        case["expr"]
        for name in GROUPS
        for test in read(CASES / f"{name}.yml")["tests"]
        for case in test.get("promql_expr_test", ())
    )
    for rule in recorded():
        # https://prometheus.io/docs/practices/rules/: level, metric, operation.
        assert re.fullmatch(r"[a-z_]+:[a-z_]+:[a-z_]+", rule["record"])
        assert rule["record"] in asked


def test_cases_feed_labels_that_the_catalogue_has():
    known = catalogue()
    for group in GROUPS:
        for test in read(CASES / f"{group}.yml")["tests"]:
            for item in test["input_series"]:
                name = series_name(item["series"])
                labels = set(re.findall(r'(\w+)="', item["series"]))
                assert isinstance(item["values"], str), f"{item['values']} is hexadecimal: quote it"
                assert labels <= known[name], item["series"]


def test_the_catalogue_has_nothing_that_no_rule_uses():
    listed = [item["name"] for item in read(CATALOGUE)["metrics"]]
    assert len(listed) == len(set(listed))
    own = {rule["record"] for rule in recorded()}
    of_records = {name for rule in recorded() for name, _ in metrics(rule["expr"])}
    assert set(listed) == set().union(of_records - own, *(alert.metrics for alert in ALERTS))


def test_xids_are_as_bad_as_the_validator_takes_them():
    by_severity: dict[str, set[str]] = {}
    for xid in xids.load().by_code.values():
        by_severity.setdefault(xid.severity, set()).add(str(xid.code))
    lists = {
        alert.name: set(re.findall(r'EXP_XID_ERRORS_COUNT\{xid!?=?~"([^"]*)"', alert.expression))
        for alert in ALERTS
    }
    (critical,), (excluded,) = lists["GpuXidCritical"], lists["GpuXidWarning"]
    bad = by_severity["fatal"] | by_severity["reset"]
    assert set(critical.split("|")) == bad
    # Whatever is not known to be a program's fault is a warning, also an XID that no table has.
    harmless = by_severity["application"] | by_severity["informational"]
    assert set(excluded.split("|")) == bad | harmless


def test_a_gpu_has_replaced_much_where_the_validation_warns_of_it():
    limits = read(ROOT / "validation/thresholds/common.yml")["limits"]
    (alert,) = (alert for alert in ALERTS if alert.name == "GpuMemoryWearing")
    assert [int(limit) for limit in re.findall(r"> (\d+)", alert.expression)] == [
        limits["gpu_remapped_rows"]["warn_above"],
        limits["gpu_retired_pages"]["warn_above"],
    ]


# --- runbooks --------------------------------------------------------------------------------


def test_there_is_a_runbook_for_each_alert_and_no_other():
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == {alert.name for alert in ALERTS}


@each_alert
def test_a_runbook_says_what_it_means_what_to_look_at_and_what_helps(alert):
    text = (RUNBOOKS / f"{alert.name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Meaning", "First command", "Cure"]
    assert f"Severity: {alert.rule['labels']['severity']}." in text
    first = text.partition("## First command")[2].partition("## Cure")[0]
    assert "```sh\n" in first
    for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        assert section.strip()


def test_the_index_has_each_runbook_in_its_group():
    text = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \|", text, re.MULTILINE)
    assert listed == [
        (alert.name, alert.name, alert.rule["labels"]["severity"]) for alert in ALERTS
    ]
