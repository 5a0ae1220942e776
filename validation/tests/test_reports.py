"""Reports of made-up runs: complete, well-formed, and harmless whatever a node says."""

import base64
import functools
import hashlib
import json
import re
import shlex
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cluster.slurm.node_states import NodeState
from cluster.text import duration
from validation import causes
from validation.causes import Cause
from validation.checks.registry import CHECKS
from validation.model import (
    Key,
    Metric,
    Outcome,
    Reply,
    Result,
    RunReport,
    Standing,
    Start,
    Subject,
    Threshold,
    Tier,
    Verdict,
    exit_status,
    node_reports,
    worst,
)
from validation.plan import Selection
from validation.report import advice, console, html, junit, metrics, nodes, words
from validation.report import json as json_report
from validation.slurm.client import SlurmDown
from validation.tests.conftest import make_plan
from validation.tests.fake_slurm import FakeSlurm
from validation.tests.large_reports import large
from validation.tests.sample_reports import evil, healthy, mixed_bag, report_of
from validation.tests.standin import GPU

BEGAN = 1767323045


REPORTS = {"healthy": healthy, "mixed": mixed_bag, "evil": evil}


@pytest.fixture(params=REPORTS)
def report(request):
    return REPORTS[request.param]()


def test_the_tables_of_a_healthy_run_and_of_one_with_every_verdict(golden):
    golden("console_healthy.txt", console.render(healthy()))
    golden("console_mixed.txt", console.render(mixed_bag(), width=100))


def of_states(**states):
    """A run on virtual nodes of which Slurm says this."""
    plan = make_plan(*((name, "virtual", 2) for name in states))
    said = {name: NodeState(name, text, 2, 2000, "gpu:2", "x") for name, text in states.items()}
    return report_of(FakeSlurm(plan, said))


def test_what_fails_alike_on_many_nodes_is_one_row():
    """500 nodes of a hall without power; one beside them with a fault of its own."""
    down = {f"gpu{number}": "down*" for number in range(1, 501)}
    report = of_states(**{**down, "gpu7": "drained"})
    table = [row for row in words.rows(report.results) if row.check.startswith("slurm_state")]
    assert [row.subject for row in table] == ["gpu[1-6,8-500]", "gpu7"]
    assert len(console.render(report).splitlines()) < 60


@pytest.mark.parametrize(
    ("check", "message", "name"),
    [
        ("all_reduce", "busbw 1 MiB is 3 GB/s, at least 9 expected", "too slow"),
        ("all_reduce", "5 elements of the sum over 1 MiB are wrong", "a wrong sum"),
        # The failure that counts stands first.
        (
            "all_reduce",
            "5 elements of the sum are wrong; NCCL ran over sockets on gpu1",
            "a wrong sum",
        ),
        ("gpus", "NVML says NVIDIA T4; h100_sxm is known as x", "another name"),
        ("infiniband", "mlx5_3:1: 800 Gbit/s, 400 declared, and is faster", "faster than declared"),
        ("munge", "another sentence", None),
    ],
)
def test_a_finding_is_of_the_case_that_its_message_is_about(check, message, name):
    info = CHECKS[check].info
    value = Metric("seen", 1)
    result = Result(check, info.tier, Subject.node("gpu1"), Verdict.FAIL, message, value)
    found = causes.case(info, result)
    assert (found and found.name) == name
    told = advice.of_finding(info, result)
    assert told.text == (found.advice if found else info.advice)
    assert told.text.count(": ") >= 1 if found else told.text == info.advice


def test_a_judge_may_name_the_case_itself():
    info = CHECKS["all_reduce"].info
    result = Result("all_reduce", info.tier, Subject.node("gpu1"), Verdict.FAIL, "x")
    found = causes.case(info, replace(result, cause="too fast"))
    assert found
    assert found.advice.startswith("Too fast: check the clocks")


@pytest.mark.parametrize("check", CHECKS)
def test_the_cases_of_a_check_are_parts_of_its_advice(check):
    info = CHECKS[check].info
    parts = [case.advice for case in info.cases]
    assert all(part in info.advice for part in parts)
    assert len({case.name for case in info.cases}) == len(parts)
    for case in info.cases:
        assert case.commands == info.commands or 1 <= len(case.commands) <= 2
        for command in case.commands:
            command.format(node="gpu1", found="79")


def test_advice_names_what_the_message_names():
    info = CHECKS["xid"].info
    text = "GPU 1: XID 79 (GPU has fallen off the bus)"
    result = Result("xid", info.tier, Subject.node("gpu1"), Verdict.FAIL, text)
    assert advice.of_finding(info, result).commands[0] == "python -m validation.explain xid 79"


def test_what_differs_in_its_numbers_alone_is_one_row():
    """Each of 500 nodes counts another number of CPUs; one beside them has too few GPUs too."""
    names = [f"gpu{number}" for number in range(1, 501)]
    plan = make_plan(*((name, "virtual", 2) for name in names))
    said = {
        name: NodeState(name, "idle", 10 + number, 2000, "gpu:virtual:2")
        for number, name in enumerate(names)
    }
    said["gpu7"] = replace(said["gpu7"], gres="gpu:virtual:1")
    report = report_of(FakeSlurm(plan, said))
    table = [row for row in words.rows(report.results) if row.check.startswith("slurm_state")]
    assert [row.subject for row in table] == ["gpu[1-6,8-500]", "gpu7"]
    assert table[0].message == (
        "Slurm counts 10 CPUs, 2 are declared (on gpu1; with other numbers on the others)"
    )
    assert len(console.render(report).splitlines()) < 60
    assert len(html._nodes(report)) < 5


def test_nodes_whose_list_is_long_are_counted():
    report = of_states(**{f"rack{number}-gpu{number}": "down" for number in range(1, 9)})
    assert next(iter(words.rows(report.results))).subject == "8 nodes"


def test_colour_changes_no_word():
    plain, coloured = (console.render(mixed_bag(), colour=flag) for flag in (False, True))
    assert "\x1b[" not in plain
    for code in ("0", "32", "33", "2", "1;31", "1;33"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == plain


def test_nothing_that_a_node_says_reaches_the_terminal_raw():
    text = console.render(evil())
    assert "\x1b" not in text
    assert "\x00" not in text
    text.encode()


# --- JUnit -----------------------------------------------------------------------------------


def test_junit_is_well_formed_and_counts_right(report):
    root = ET.fromstring(junit.render(report).encode())
    cases = root.findall("./testsuite/testcase")
    groups = list(words.alike(report.results))
    assert sum(map(len, groups)) == len(report.results)
    assert len(cases) == len(groups) == int(root.get("tests", ""))
    for tag, attribute, verdict in (
        ("failure", "failures", Verdict.FAIL),
        ("error", "errors", Verdict.INCONCLUSIVE),
        ("skipped", "skipped", Verdict.SKIP),
    ):
        expected = sum(group[0].verdict is verdict for group in groups)
        assert len(root.findall(f"./testsuite/testcase/{tag}")) == expected
        assert int(root.get(attribute, "")) == expected
        assert sum(int(suite.get(attribute, "")) for suite in root) == expected


def test_junit_names_node_and_check():
    root = ET.fromstring(junit.render(mixed_bag()).encode())
    failed = {
        (case.get("classname"), case.get("name")): failure.get("message", "")
        for case in root.iter("testcase")
        for failure in case.iter("failure")
    }
    assert failed["plumbline.node.gpu3", "gpus"] == "1 GPU device nodes found, 2 declared"
    assert "elements of the sum" in failed["plumbline.cluster.virtual", "all_reduce"]


def test_junit_of_many_nodes_stays_small_and_has_what_each_said():
    """1,024 nodes: see docs/understand/scale.md; this is a sixteenth of it."""
    for failing, most in ((False, 16 << 10), (True, 48 << 10)):
        _, report = large(64, failing)
        text = junit.render(report)
        assert len(text.encode()) < most
        root = ET.fromstring(text.encode())
        cases = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
        assert len(set(cases)) == len(cases)
        assert {result.verdict for result in report.results} == {
            *((Verdict.FAIL,) if failing else ()),
            Verdict.PASS,
        }
        said = [line for case in root.iter("failure") for line in (case.text or "").splitlines()]
        for result in report.results:
            if result.verdict is Verdict.FAIL and result.check != "cpus":
                assert f"{result.subject.name}: {result.message}" in said
    (cpus,) = [
        case for case in root.iter("testcase") if (case.get("name") or "").startswith("cpus")
    ]
    assert cpus.get("name") == "cpus fail: # CPUs found, # declared"
    (failure,) = cpus
    assert failure.get("message") == "on 64 nodes: 1 CPUs found, 2 declared"
    assert (failure.text or "").startswith("nodes: gpu[1-64] (64)\nvalue: 1 CPUs\nthreshold: ")


def test_junit_has_one_case_for_a_check_that_many_nodes_pass():
    passed = next(r for r in healthy().results if r.check == "cpus")
    for number, expected in ((words.FOLD, words.FOLD), (words.FOLD + 1, 1)):
        nodes = [Subject.node(f"gpu{n}") for n in range(number)]
        results = tuple(replace(passed, subject=subject) for subject in nodes)
        root = ET.fromstring(junit.render(replace(healthy(), results=results)).encode())
        assert len(list(root.iter("testcase"))) == expected
    (case,) = root.iter("testcase")
    assert (case.get("classname"), case.get("name")) == ("plumbline.node", "cpus")
    assert (case[0].text or "").startswith(f"nodes: gpu[0-{words.FOLD}] ({words.FOLD + 1})\n")


def test_junit_says_of_many_nodes_what_has_no_value():
    (result, *_) = mixed_bag().results
    said = {"verdict": Verdict.INCONCLUSIVE, "message": "not run: no answer", "value": None}
    results = tuple(
        replace(result, subject=Subject.node(f"gpu{number}"), threshold=None, **said)
        for number in range(9)
    )
    root = ET.fromstring(junit.render(replace(healthy(), results=results)).encode())
    (error,) = root.iter("error")
    assert error.get("message") == "on 9 nodes: not run: no answer"
    assert error.text == "nodes: gpu[0-8] (9)\nvalue: –\nthreshold: –"


# --- HTML ------------------------------------------------------------------------------------


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_needs_nothing_else(report):
    page = Page(html.render(report))
    assert page.open == []
    assert set(page.tags).isdisjoint({"link", "img", "iframe"})
    assert all(link.startswith("jobs/") for link in page.links)


def test_the_page_escapes_what_nodes_say():
    text = html.render(evil())
    assert text.count("<script") == 1
    assert "&lt;script&gt;" in text
    text.encode()


def test_a_browser_runs_the_pages_own_script_and_no_other(report):
    text = html.render(report)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in text
    assert script == (html.TEMPLATES / "filter.js").read_text(encoding="utf-8")


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [80, 120, None])
def test_a_large_run_in_which_every_node_fails_is_a_hundred_lines_and_a_page(width):
    _, report = large(96, failing=True)
    assert len(console.render(report, width=width).splitlines()) <= 100
    rows = [row for row in words.rows(report.results) if row.verdict is Verdict.FAIL]
    assert len(rows) <= 4 * words.FOLD
    text = html.render(report)
    failures = sum(result.verdict is Verdict.FAIL for result in report.results)
    assert f"Each node by itself: {failures} rows" in text
    for result in report.results[::50]:
        if result.verdict is Verdict.FAIL:
            assert result.message in text
    assert "compute-… (96 jobs)" in text
    assert len(text) < 400_000


def test_the_page_says_verdict_proof_and_source():
    text = html.render(mixed_bag())
    assert '<p class="v fail">FAIL</p>' in text
    assert "What to do" in text
    assert "jobs/all_reduce-virtual.stderr" in text
    text = html.render(healthy())
    assert '<p class="v pass">PASS</p>' in text
    assert "job 7, 2 ranks on 2 nodes (gpu[1-2]), backend gloo, torch 2.6.0" in text
    assert "A floor, not a target" in text


# --- data ------------------------------------------------------------------------------------


def test_summary_json_is_complete(report):
    text = "".join(json_report.render(report))
    document = json.loads(text)
    assert document["verdict"] == report.verdict.value
    assert document["exit_code"] == report.exit_code
    assert sum(document["counts"].values()) == len(document["results"]) == len(report.results)
    named = [name for which in Standing for name in document[f"{which.value}_nodes"]]
    assert sorted(named) == sorted(item.node.name for item in report.nodes)


def test_summary_json_of_many_nodes_stays_small():
    """10.3 MB for 1,024 nodes; this is a sixteenth of it. See docs/understand/scale.md, whose
    figures are of two checks less: each is 10 kB of these 64 nodes."""
    _, report = large(64, failing=True)
    assert sum(len(piece.encode()) for piece in json_report.render(report)) < 10_300_000 / 16


def test_every_result_is_one_line(report):
    for result in report.results:
        line = json_report.line(result)
        assert line.count("\n") == 1
        assert json.loads(line)["check"] == result.check


def listing(report):
    return {which.value: nodes.render(report, which).split() for which in Standing}


def test_the_node_lists_keep_faults_suspects_and_the_unproven_apart():
    # h1's all_reduce has no threshold, c1 has nobody to communicate with, all virtual ones took
    # part in a wrong sum.
    assert listing(mixed_bag()) == {
        "passing": [],
        "failing": ["gpu2", "gpu3"],
        "suspect": ["gpu1", *(f"gpu{n}" for n in range(4, 9))],
        "unproven": ["h1", "c1"],
    }
    none: dict[str, list[str]] = {which.value: [] for which in Standing}
    assert listing(healthy()) == {**none, "passing": ["gpu1", "gpu2"]}
    assert nodes.render(healthy(), Standing.PASSING) == "gpu1\ngpu2\n"


def samples(text):
    """Series and values of a file in Prometheus' text format, which must be well-formed."""
    types = set()
    for line in text.splitlines():
        if line.startswith("#"):
            _, kind, name, _ = line.split(" ", 3)
            assert kind in ("HELP", "TYPE")
            types.add(name)
            continue
        match = re.fullmatch(
            r'((\w+)\{\w+="(?:[^"\\]|\\.)*"(?:,\w+="(?:[^"\\]|\\.)*")*\}) (\S+)', line
        )
        assert match, line
        assert match[2] in types
        yield match[1], float(match[3])


def told_in(text):
    """Verdicts by check and subject, of all that a file tells by itself or as not run."""
    told = {}
    for item in metrics.parse(text):
        if item.family == "verdict":
            told[item.judged] = item.labels["verdict"]
        elif item.family == "not_run":
            for check in item.labels["checks"].split(","):
                told[check, item.labels["node"]] = item.labels["verdict"]
    return told


def test_metrics_have_every_verdict_and_node(report):
    text = metrics.render(report)
    pairs = list(samples(text))
    series = dict(pairs)
    assert len(series) == len(pairs), "a series is there twice"

    def values(name):
        return [v for text, v in pairs if text.startswith(f"plumbline_validation_{name}{{")]

    assert sum(values("results")) == len(report.results)
    assert sum(values("nodes")) == len(report.nodes)
    assert values("exit_code") == [report.exit_code]
    assert values("last_run_timestamp_seconds") == [BEGAN]
    alone = [result for result in report.results if result.tier is Tier.NODE]
    assert sum(values("judged")) == len(alone)
    fine = (Verdict.PASS, Verdict.SKIP)
    assert told_in(text) == {
        (result.check, result.subject.name): result.verdict.value
        for result in report.results
        if result.tier is Tier.CLUSTER or result.verdict not in fine
    }
    for node in report.nodes:
        name = node.node.name
        own = worst(result.verdict for result in alone if result.subject.name == name)
        what = f'suite="quick",subject="{name}",node="{name}"'
        assert series[f'plumbline_validation_node_verdict{{{what},verdict="{own.value}"}}'] == 1
        assert series[f"plumbline_validation_timestamp_seconds{{{what}}}"] == BEGAN


def test_what_did_not_run_on_a_node_is_one_series():
    report = of_states(gpu1="drained", gpu2="idle")
    told = [item for item in metrics.parse(metrics.render(report)) if item.family == "not_run"]
    (of_gpu1,) = [item for item in told if item.labels["node"] == "gpu1"]
    assert of_gpu1.labels["checks"].startswith("hostname,cpus,")
    verdicts = [
        item.labels["check"]
        for item in metrics.parse(metrics.render(report))
        if item.family == "verdict" and item.labels["node"] == "gpu1"
    ]
    assert verdicts == ["slurm_state"]
    # Without the failure that it follows from, each stands for itself: alerts read those.
    (first, *others) = [r for r in report.results if r.subject.name == "gpu1"]
    passed = replace(healthy().results[0], verdict=Verdict.WARN)
    assert passed.key == first.key
    assert "not_run{" not in metrics.render(replace(report, results=(passed, *others)))


def test_a_file_of_many_nodes_stays_small():
    """1,024 nodes: see docs/understand/scale.md; this is a sixteenth of it."""
    for failing, most in ((False, 128 << 10), (True, 180 << 10)):
        _, report = large(64, failing)
        text = metrics.render(report)
        assert len(text.encode()) < most
        failures = {r.key for r in report.results if r.verdict is Verdict.FAIL}
        assert len(failures) == (256 if failing else 0)
        assert {Key(*key) for key, v in told_in(text).items() if v == "fail"} == failures


def of(check, subject, tier=Tier.NODE):
    node = subject if tier is Tier.NODE else ""
    return f'suite="quick",check="{check}",subject="{subject}",node="{node}"'


def test_what_is_about_several_nodes_is_told_of_no_host():
    """Not of the one that serves the file, which a missing label would mean."""
    of_checks = [series for series in metrics.parse(metrics.render(healthy())) if series.judged]
    assert {series.labels["node"] for series in of_checks} == {"gpu1", "gpu2", ""}
    together = {series.labels["check"] for series in of_checks if not series.labels["node"]}
    assert together == {"accounting", "all_reduce", "ddp", "pipeline"}


def test_metrics_have_what_a_failure_was_held_against():
    report = healthy()
    (result,) = [r for r in report.results if r.key == Key("cpus", "gpu1")]
    failed = replace(result, verdict=Verdict.FAIL)
    series = dict(samples(metrics.render(replace(report, results=(failed,)))))
    what = of("cpus", "gpu1")
    measured = f'metric="{result.value.name}",unit="{result.value.unit}"'
    assert series[f"plumbline_validation_value{{{what},{measured}}}"] == result.value.value
    limit = f'metric="{result.value.name}",unit="{result.threshold.unit}",op="="'
    assert series[f"plumbline_validation_threshold{{{what},{limit}}}"] == result.threshold.value


def test_of_what_fails_on_many_nodes_the_first_have_their_values():
    _, report = large(96, failing=True)
    text = metrics.render(report)
    assert text.count('_verdict{suite="gpu",check="gemm"') == 96
    assert text.count('_value{suite="gpu",check="gemm"') == 64


def test_what_passing_nodes_measured_is_one_spread():
    report = healthy()
    (first, second) = [r for r in report.results if r.check == "cpus"]
    loads = {"gpu1": (3.0, 5.0), "gpu2": (7.0, 9.0)}
    first, second = (
        replace(
            result,
            metrics=tuple(
                Metric(f"GPU {index}, load", load, "x")
                for index, load in enumerate(loads[result.subject.name])
            ),
        )
        for result in (first, second)
    )
    series = dict(samples(metrics.render(replace(report, results=(first, second)))))
    alike = 'suite="quick",partial="false",check="cpus",metric="GPU load",unit="x"'
    spread = f"plumbline_validation_spread{{{alike},statistic="
    told = {name: value for name, value in series.items() if "load" in name}
    assert told == {f'{spread}"{name}"}}': n for name, n in (("min", 3), ("median", 6), ("max", 9))}
    failed = replace(second, verdict=Verdict.FAIL)
    series = dict(samples(metrics.render(replace(report, results=(first, failed)))))
    assert series[f'{spread}"max"}}'] == 5.0  # of the node that passed


def test_the_margin_is_what_was_judged_divided_by_its_threshold():
    report = healthy()
    limits = {"gpu1": 8.0, "gpu2": 4.0}  # of hardware that is not alike
    results = tuple(
        replace(
            result,
            value=Metric("speed", 10.0, "GB/s"),
            threshold=Threshold("≥", limits[result.subject.name], "GB/s", "declared", "test"),
        )
        for result in report.results
        if result.check == "cpus"
    )
    series = dict(samples(metrics.render(replace(report, results=results))))
    what = 'suite="quick",partial="false",check="cpus",metric="speed",op="≥",statistic='
    told = {name: value for name, value in series.items() if "_margin{" in name}
    assert told == {
        f'plumbline_validation_margin{{{what}"{name}"}}': value
        for name, value in (("min", 1.25), ("median", 1.875), ("max", 2.5))
    }


def test_a_margin_of_zero_is_a_margin():
    report = healthy()
    (result,) = [
        replace(
            result,
            value=Metric("difference", 0.0, "s"),
            threshold=Threshold("≤", 1.0, "s", "declared", "test"),
        )
        for result in report.results
        if (result.check, result.subject.name) == ("clock", "gpu1")
    ]
    series = dict(samples(metrics.render(replace(report, results=(result,)))))
    margins = [value for name, value in series.items() if "_margin{" in name]
    assert margins == [0.0, 0.0, 0.0]


def test_metrics_name_the_node_at_fault_among_several():
    report = healthy()
    (result,) = [r for r in report.results if r.check == "all_reduce"]
    names = []
    for blamed in (("gpu2",), (), None):
        failed = replace(result, verdict=Verdict.FAIL, blamed=blamed)
        text = metrics.render(replace(report, results=(failed,)))
        names.append(
            [series.labels["node"] for series in metrics.parse(text) if series.family == "blamed"]
        )
    assert names == [["gpu2"], [], []]
    text = metrics.render(replace(report, results=(replace(result, blamed=("gpu2",)),)))
    assert "blamed" not in text  # it passed


def test_metrics_never_have_a_series_twice():
    report = healthy()
    result = report.results[0]
    twice = replace(result, metrics=(Metric("load", 1.0, "x"), Metric("load", 2.0, "x")))
    names = [name for name, _ in samples(metrics.render(replace(report, results=(twice,))))]
    assert len(names) == len(set(names))


def test_metrics_are_read_as_they_were_written(report):
    later = replace(report, results=(), left_out=("checks",))
    before = metrics.render(report)
    text = metrics.render(later, before)
    assert told_in(text) == told_in(before)
    for family in ("node_verdict", "timestamp_seconds"):
        assert text.count(f"validation_{family}{{") == before.count(f"validation_{family}{{")
    with pytest.raises(ValueError, match="not written by a validation: 'up 1'"):
        metrics.parse("up 1")


# --- metrics of a partial run ------------------------------------------------------------------

LATER = "2026-01-03T03:04:05+00:00"


def began(text):
    """When a run judged each node, and nodes together by check."""
    return {
        item.judged: item.value
        for item in metrics.parse(text)
        if item.family == "timestamp_seconds"
    }


def with_verdicts(report, verdicts):
    """A run that gave these verdicts, by check and subject."""
    results = [r for r in report.results if (r.check, r.subject.name) in verdicts]
    changed = [replace(r, verdict=verdicts[r.check, r.subject.name]) for r in results]
    return replace(report, results=tuple(changed))


@pytest.mark.parametrize(
    ("check", "tier", "before", "after", "stands"),
    [
        ("cpus", Tier.NODE, Verdict.FAIL, Verdict.PASS, ""),
        ("cpus", Tier.NODE, Verdict.PASS, Verdict.FAIL, "fail"),
        ("cpus", Tier.NODE, Verdict.PASS, Verdict.INCONCLUSIVE, None),
        ("cpus", Tier.NODE, Verdict.FAIL, Verdict.SKIP, ""),
        ("cpus", Tier.NODE, Verdict.FAIL, Verdict.INCONCLUSIVE, None),
        ("all_reduce", Tier.CLUSTER, Verdict.PASS, Verdict.FAIL, "fail"),
        ("all_reduce", Tier.CLUSTER, Verdict.FAIL, Verdict.PASS, None),
    ],
)
def test_a_partial_run_replaces_what_it_can_judge(check, tier, before, after, stands):
    report = healthy()
    (subject, *_) = [r.subject.name for r in report.results if r.check == check]
    assert {r.tier for r in report.results if r.check == check} == {tier}
    whole = with_verdicts(report, {(check, subject): before, ("munge", "gpu2"): Verdict.WARN})
    later = with_verdicts(report, {(check, subject): after})
    later = replace(later, left_out=("nodes: gpu2",), started=LATER)
    former = metrics.render(whole)
    text = metrics.render(later, former)
    told, times = told_in(text), began(text)
    assert told["munge", "gpu2"] == "warn"
    assert times["", "gpu2"] == BEGAN
    of_subject = ("" if tier is Tier.NODE else check, subject)
    if stands is None:
        assert told.get((check, subject)) == told_in(former).get((check, subject))
        assert times[of_subject] == BEGAN
    else:
        assert told.get((check, subject), "") == stands
        assert times[of_subject] == BEGAN + 86400
    if tier is Tier.NODE:
        worst_of = {
            item.labels["node"]: item.labels["verdict"]
            for item in metrics.parse(text)
            if item.family == "node_verdict"
        }
        assert worst_of == {"gpu1": told.get((check, subject), "pass"), "gpu2": "warn"}
    runs = {
        series.labels["partial"]: series.value
        for series in metrics.parse(text)
        if series.family == "last_run_timestamp_seconds"
    }
    assert runs == {"false": BEGAN, "true": BEGAN + 86400}


def test_what_did_not_run_is_replaced_check_by_check():
    """gpu1 was drained; a run of two checks finds it in service, and the others stay open."""
    former = metrics.render(of_states(gpu1="drained", gpu2="idle"))
    later = with_verdicts(
        healthy(),
        {("slurm_state", "gpu1"): Verdict.PASS, ("cpus", "gpu1"): Verdict.PASS},
    )
    text = metrics.render(replace(later, left_out=("checks",), started=LATER), former)
    told = told_in(text)
    before = {key: v for key, v in told_in(former).items() if key[1] == "gpu1"}
    assert {key: v for key, v in told.items() if key[1] == "gpu1"} == {
        key: v for key, v in before.items() if key[0] not in ("slurm_state", "cpus")
    }
    (worst_of,) = [
        item.labels["verdict"]
        for item in metrics.parse(text)
        if item.family == "node_verdict" and item.labels["node"] == "gpu1"
    ]
    assert worst_of == before["cpus", "gpu1"]
    # A node that no run judged before is told with all that the run says of it.
    new = with_verdicts(healthy(), {("cpus", "gpu2"): Verdict.INCONCLUSIVE})
    lone = with_verdicts(healthy(), {("cpus", "gpu1"): Verdict.PASS})
    text = metrics.render(replace(new, left_out=("checks",)), metrics.render(lone))
    assert told_in(text) == {("cpus", "gpu2"): "inconclusive"}


def test_a_second_partial_run_takes_the_place_of_the_first():
    report = replace(healthy(), left_out=("nodes: gpu2",))
    once = metrics.render(report, metrics.render(healthy()))
    twice = metrics.render(replace(report, started=LATER), once)
    names = [name for name, _ in samples(twice)]
    assert len(names) == len(set(names)) == len(list(samples(once)))


def test_a_whole_run_forgets_all_that_was_before():
    report = healthy()
    former = metrics.render(replace(report, results=report.results[:3]))
    assert metrics.render(report, former) == metrics.render(report)
    assert metrics.render(report, "something else") == metrics.render(report)


def test_metrics_have_the_bandwidth_of_each_size():
    series = dict(samples(metrics.render(healthy())))
    bandwidths = {name: v for name, v in series.items() if "_value{" in name and "busbw" in name}
    assert len(bandwidths) == 3
    assert set(bandwidths.values()) == {1.2}


def test_a_stand_in_for_nvml_is_called_one_in_every_report():
    report = report_of(FakeSlurm(make_plan()))
    assert "stand-in" not in words.title(report)
    nodes = tuple(
        replace(item, node=replace(item.node, gpus=replace(item.node.gpus, nvml=True)))
        for item in report.nodes
    )
    report = replace(report, nodes=nodes)
    assert "(ethernet, virtual, a stand-in for NVML)" in words.title(report)
    assert "a stand-in for NVML" in html.render(report)


# --- a partial run ---------------------------------------------------------------------------

LEFT_OUT = ("checks: ddp, pipeline", "nodes: gpu[3-4]")


def partial():
    plan = make_plan(selection=Selection(skip=("ddp", "pipeline")))
    replies = {f"node-gpu{number}": {"time_ns": 10**18} for number in (1, 2)}
    return report_of(FakeSlurm(plan, replies=replies), left_out=LEFT_OUT)


def test_what_a_partial_run_left_out_stands_in_every_report():
    report = partial()
    assert "(partial: without checks: ddp, pipeline; nodes: gpu[3-4])" in words.title(report)
    sentence = "This was a partial run. Left out: checks: ddp, pipeline; nodes: gpu[3-4]."
    assert sentence in console.render(report)
    assert sentence in html.render(report)
    document = json.loads("".join(json_report.render(report)))
    assert (document["partial"], document["left_out"]) == (True, list(LEFT_OUT))
    series = dict(samples(metrics.render(report)))
    scope = 'cluster="plumbline",suite="quick",partial="true"'
    for what in LEFT_OUT:
        assert series[f'plumbline_validation_left_out{{{scope},what="{what}"}}'] == 1
    assert series[f"plumbline_validation_exit_code{{{scope}}}"] == 0
    root = ET.fromstring(junit.render(report).encode())
    assert root.get("name") == "plumbline quick (partial)"
    left = [case.get("name") for case in root.findall("./testsuite[@name='left out']/testcase")]
    assert left == list(LEFT_OUT)
    cases = len(report.results) + len(LEFT_OUT)
    assert int(root.get("tests", "")) == len(root.findall("./testsuite/testcase")) == cases
    assert int(root.get("skipped", "")) == len(root.findall("./testsuite/testcase/skipped")) == 4


def test_a_whole_run_says_nothing_of_that():
    report = healthy()
    assert "left_out" not in metrics.render(report)
    assert 'partial="false"' in metrics.render(report)
    for render in (console.render, html.render, junit.render):
        assert "partial" not in render(report)
    assert json.loads("".join(json_report.render(report)))["partial"] is False


def test_no_node_of_a_partial_run_is_passing():
    report = partial()
    assert report.verdict is Verdict.PASS
    assert listing(report)["passing"] == []
    assert listing(report)["unproven"] == ["gpu1", "gpu2"]
    assert report.nodes[0].reason == "not judged: ddp, pipeline"


# --- the headline ----------------------------------------------------------------------------


def test_the_headline_is_what_a_person_would_say():
    assert words.headline(healthy()) == ["All 2 nodes pass."]
    assert words.headline(mixed_bag()) == [
        "2 of 10 nodes fail: gpu[2-3].",
        "One of gpu[1,4-8] is at fault in all_reduce and ddp; which one is not known.",
        "Not proven: c1,h1.",
    ]
    assert words.headline(partial())[0] == "Nothing that was tested failed."
    down = FakeSlurm(make_plan())
    down.down = SlurmDown("sinfo: no controller")
    assert words.headline(nobodys(report_of(down)))[0] == (
        "Something failed, but no node is at fault."
    )
    interrupted = words.headline(replace(healthy(), interrupted=True))
    assert interrupted[0] == "The run was interrupted before its end."


def test_times_are_what_a_person_reads():
    assert words.moment("2026-01-02T03:04:05+00:00") == "2 January 2026, 03:04 UTC"
    assert words.moment("yesterday") == "yesterday"
    assert duration(21.4) == "21 s"
    assert duration(59.6) == "1 min 00 s"
    assert duration(61) == "1 min 01 s"
    assert duration(3725) == "1 h 02 min"


# --- advice ----------------------------------------------------------------------------------


def nobodys(report):
    """The same run, in which nothing that failed is a node's fault."""
    results = tuple(replace(r, blamed=None if r.verdict.green else ()) for r in report.results)
    states = {item.node.name: item.state for item in report.nodes}
    suite = [result.check for result in results]
    reports = node_reports([item.node for item in report.nodes], states, results, suite)
    return replace(report, results=results, nodes=reports)


STARTED = (Start("gpu1", 1, 1), Start("gpu2", 1, 1))
TWO, THREE, FOUR = (
    tuple((f"gpu{number}", "virtual", 2) for number in range(1, count + 1)) for count in (2, 3, 4)
)


def run_of(replies, nodes=THREE, later=None, down=None):
    """later: what Slurm says of gpu2 when it is asked again; down: what its controller says."""
    slurm = FakeSlurm(make_plan(*nodes), replies=replies)
    if later:
        slurm.later["gpu2"] = NodeState("gpu2", later, 2, 2000, "gpu:virtual:2")
    slurm.down = SlurmDown(down) if down else None
    return report_of(slurm)


def of_gpu2(outcome, exit_code=None, later=None, **reply):
    return run_of({"node-gpu2": Reply("node-gpu2", outcome, exit_code, **reply)}, later=later)


def of_the_sum(outcome, exit_code=None, **reply):
    ended = Reply("all_reduce", outcome, exit_code, "9", starts=STARTED, **reply)
    return run_of({"all_reduce": ended}, TWO)


def of_a_crash(check, stderr="Killed\n"):
    return run_of({check: Reply(check, Outcome.EXITED, 1, "9", stderr=stderr, starts=STARTED)}, TWO)


def of_a_wrong_sum(nodes=TWO, blamed=None):
    report = run_of({"all_reduce": {"wrong": 1}}, nodes)
    if blamed is None:
        return report
    results = tuple(
        replace(result, blamed=blamed) if result.verdict is Verdict.FAIL else result
        for result in report.results
    )
    plan = make_plan(*nodes)
    known = node_reports(plan.nodes, {}, results, plan.suite_checks)
    return replace(report, results=results, nodes=known)


def of_a_lost_result():
    report = healthy()
    lost = Result("ddp", Tier.CLUSTER, report.results[-1].subject, Verdict.FAIL, "no result")
    return replace(report, jobs=(), results=(*report.results[:-2], lost))


def of_an_interruption():
    slurm = FakeSlurm(make_plan())
    slurm.interrupt_on = "ddp"
    return report_of(slurm, interrupted=True)


DOWN = "sinfo: no controller"
REFUSED = "srun: error: Unable to allocate resources: "
BUSY = "ReqNodeNotAvail, May be reserved for other job"
SILENT = (
    "plumbline: all_reduce, rank 0 on gpu1: no sign of life from rank 1 on gpu2: nothing went on "
    "for 60 s (while timing 65536 bytes)\n"
)
LATE = "plumbline: all_reduce, rank 0 on gpu1: rank 1 on gpu2 did not come in 60 s\n"
BLAMED = "plumbline: ddp, rank 1 on gpu2: torch cannot be imported\nplumbline: blamed gpu2\n"
QUEUE, RUN, EXITED = Outcome.QUEUE_LIMIT, Outcome.RUN_LIMIT, Outcome.EXITED

# Runs by what happened in them; the golden file has what an operator is told of each.
RUNS: dict[str, Callable[[], RunReport]] = {
    "no task started": lambda: of_gpu2(RUN, job_id="9"),
    "a task hangs": lambda: of_gpu2(RUN, job_id="9", starts=STARTED[1:]),
    "the controller is down": lambda: run_of({}, TWO, down=DOWN),
    "the controller is down, by nobody's fault": lambda: nobodys(run_of({}, TWO, down=DOWN)),
    "not submitted": lambda: of_gpu2(Outcome.NOT_SUBMITTED, reason="no srun"),
    "an invalid partition": lambda: of_gpu2(
        EXITED, 1, stderr="srun: error: Invalid partition name specified"
    ),
    "an invalid account": lambda: of_gpu2(
        EXITED, 1, stderr=f"{REFUSED}Invalid account or account/partition combination specified"
    ),
    "an invalid QOS": lambda: of_gpu2(EXITED, 1, stderr=f"{REFUSED}Invalid qos specification"),
    "the login node is lost": lambda: of_gpu2(Outcome.LOST, reason="login1 is gone"),
    **{
        f"waited in vain: {reason}": functools.partial(of_gpu2, QUEUE, reason=reason)
        for reason in (
            *("InvalidAccount", "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail", "Resources"),
            "SystemFailure",
        )
    },
    # What Slurm says of the job is that of a busy node, and the node's munge had stopped.
    **{
        f"waited in vain, and the node is {state}": functools.partial(
            of_gpu2, QUEUE, reason=BUSY, later=state
        )
        for state in ("completing*", "down*", "drained")
    },
    "hangs, and the node is down*": lambda: of_gpu2(
        RUN, job_id="9", starts=STARTED[1:], later="down*"
    ),
    "ended, and the node is down*": lambda: of_gpu2(
        EXITED, 1, "down*", job_id="9", starts=STARTED[1:], stderr="Node failure"
    ),
    "no answer": lambda: of_gpu2(EXITED, 0, job_id="9"),
    "ranks: did not end": lambda: of_the_sum(RUN),
    "ranks: one did not come": lambda: of_the_sum(EXITED, 1, stderr=LATE),
    "ranks: one is silent": lambda: of_the_sum(EXITED, 1, stderr=SILENT),
    **{
        f"{check}: crashed": functools.partial(of_a_crash, check)
        for check in ("all_reduce", "ddp", "pipeline")
    },
    "ddp: a rank that is blamed crashed": lambda: of_a_crash("ddp", BLAMED),
    "ddp: other steps than asked": lambda: run_of({"ddp": {"steps": 4}}, TWO),
    "pipeline: other steps than asked": lambda: run_of({"pipeline": {"steps": 4}}, TWO),
    "a wrong sum of two nodes": of_a_wrong_sum,
    "a wrong sum of four nodes": lambda: of_a_wrong_sum(FOUR),
    "a wrong sum of a known node": lambda: of_a_wrong_sum(blamed=("gpu2",)),
    "a GPU is missing": lambda: run_of({"node-gpu3": {"gpus": 1}}),
    "a GPU is missing on each node": lambda: run_of(
        {f"node-gpu{n}": {"gpus": 1} for n in (1, 2, 3)}
    ),
    "no threshold": lambda: run_of(
        {"node-h1": {"gpus": 4, "names": [GPU] * 4}}, (("h1", "h100_sxm", 4),)
    ),
    "nothing explains it": of_a_lost_result,
    "interrupted": of_an_interruption,
    "all kinds": mixed_bag,
    "all kinds, by nobody's fault": lambda: nobodys(mixed_bag()),
}
# A drain is proposed for what was measured, and is a known node's own fault.
DRAINED = {
    "a wrong sum of a known node",
    "a GPU is missing",
    "a GPU is missing on each node",
    "all kinds",
}


def of_it(step):
    return {f"check {name}" for name in CHECKS if re.search(rf"\b{name}\b", step.title)}


def kind_of(step):
    """Whose words a step has: a cause's or a check's; and those that stand behind them."""
    texts = {f"cause {cause.value}": entry.text for cause, entry in advice.ADVICE.items()}
    texts |= {f"check {name}": check.info.advice for name, check in CHECKS.items()}
    texts |= {
        f"check {name}, case {case.name}": case.advice
        for name, check in CHECKS.items()
        for case in check.info.cases
    }
    common = (*causes.COMMON, causes.UNUSABLE)
    texts |= {f"case {case.name}": case.advice for case in common}
    fitting = [name for name, text in texts.items() if step.advice.startswith(text)]
    # Checks may have a case in common.
    kind = max(fitting, key=lambda name: (len(texts[name]), name.split(",")[0] in of_it(step)))
    return f"{kind} {step.advice.removeprefix(texts[kind])}".rstrip()


def test_what_an_operator_is_told(golden):
    lines = []
    for name, run in RUNS.items():
        steps = advice.next_steps(run())
        commands = [command for step in steps for command in step.commands]
        assert any("state=drain" in command for command in commands) is (name in DRAINED), name
        lines.append(f"# {name}")
        for step in steps:
            lines += [step.title, f"  {kind_of(step)}", *(f"  $ {c}" for c in step.commands)]
    golden("advice.txt", "\n".join(lines) + "\n")


def test_no_drain_is_proposed_with_what_a_node_says_of_itself():
    assert not any("drain" in command for s in advice.next_steps(evil()) for command in s.commands)


def test_one_message_is_told_once():
    names = ("all_reduce", "ddp", "pipeline")
    replies = {name: Reply(name, Outcome.RUN_LIMIT, job_id="9", starts=STARTED) for name in names}
    report = report_of(FakeSlurm(make_plan(), replies=replies))
    # ddp and pipeline have the same limit here.
    same = tuple(
        replace(result, message="did not end") if result.check in names else result
        for result in report.results
    )
    report = replace(report, results=same)
    text = console.render(report)
    assert text.count("did not end") == 2  # in the table, and with what to do
    assert "all_reduce and 2 more" in text
    (step,) = advice.next_steps(report)
    assert step.commands[-1].endswith("--only all_reduce,ddp,pipeline")


def test_a_drain_command_quotes_cleanly_and_harmlessly():
    refused = {"munge_decoded": 'Invalid `reboot` $(reboot) "credential" \\ !x (5)'}
    (step,) = advice.next_steps(run_of({"node-gpu2": refused}))
    (drain,) = (command for command in step.commands if "drain" in command)
    assert "node's credential" in drain
    assert "'\"'" not in drain
    assert not set("`$\\!") & set(drain)
    reason = shlex.split(drain)[-1].removeprefix("reason=")
    assert reason.startswith(
        "[plumbline:validation/munge] the node refuses the login node's credential: Inv"
    )
    # And a shell agrees.
    shown = subprocess.run(
        ["bash", "-c", drain.replace("scontrol", "printf '%s\\n'", 1)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.splitlines()[-1] == f"reason={reason}"


def test_every_cause_has_words():
    own = {Cause.FINDING, Cause.INTERRUPTED}
    assert set(advice.ADVICE) == set(Cause) - own
    assert all(len(entry.text) > 20 for entry in advice.ADVICE.values())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exit status 0"),
        (1, "exit status 1"),
        (143, "exit status 143 (a task was ended, usually by srun after another task failed)"),
        (255, "exit status 255"),
    ],
)
def test_an_exit_status_that_srun_made_is_explained(code, text):
    assert exit_status(code) == text
    slurm = FakeSlurm(make_plan(), replies={"ddp": Reply("ddp", Outcome.EXITED, code, "9")})
    assert text in html.render(report_of(slurm))
