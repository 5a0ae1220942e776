"""Reports of made-up runs: complete, well-formed, and harmless whatever a node says."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from validation import tiers
from validation.checks import CHECKS
from validation.model import (
    NodeState,
    Outcome,
    Reply,
    RunReport,
    Verdict,
    node_reports,
    overall,
    settle,
)
from validation.report import console, html, junit, nodes
from validation.report import json as json_report
from validation.tests.conftest import make_plan
from validation.tests.test_tiers import FakeSlurm, Silent

EVIL = "</script><script>alert(1)</script>\x1b[31m\x00 & \"'\ud800"


def report_of(slurm, **changes):
    walk = tiers.walk(slurm.plan, slurm, Silent(), interval_s=0)
    results = tuple(settle(slurm.plan.checks, walk.results))
    report = RunReport(
        run_id=slurm.plan.run_id,
        suite="quick",
        cluster="plumbline",
        via="login1",
        slurm=walk.slurm,
        started="2026-01-02T03:04:05+00:00",
        seconds=21.4,
        verdict=overall(slurm.plan.checks, walk.results),
        results=results,
        nodes=node_reports(slurm.plan.nodes, walk.states, results),
        jobs=walk.jobs,
        checks={name: check.info for name, check in CHECKS.items()},
        repeat="python -m validation.run --here",
        output="results/x",
    )
    return replace(report, **changes)


def healthy():
    slurm = FakeSlurm(make_plan())
    slurm.replies = {f"node-gpu{number}": {"time_ns": 10**18} for number in (1, 2)}
    return report_of(slurm)


def mixed_bag():
    """One of each: a drained node, a node without a GPU, a wrong sum, no threshold, a skip."""
    plan = make_plan(
        *((f"gpu{number}", "virtual", 2) for number in range(1, 9)),
        ("h1", "h100_sxm", 4),
        ("c1", "none", 0),
    )
    names = ["NVIDIA H100 80GB HBM3"] * 4
    replies: dict[str, Any] = {f"node-gpu{number}": {"time_ns": 10**18} for number in range(1, 9)}
    replies["node-gpu3"] = {"gpus": 1, "time_ns": 10**18}
    replies["node-h1"] = {"gpus": 4, "names": names, "time_ns": 10**18}
    replies["node-c1"] = {"gpus": 0, "time_ns": 10**18}
    replies["all_reduce-virtual"] = {"wrong": 5}
    replies["ddp-virtual"] = Reply("ddp-virtual", Outcome.RUN_LIMIT, job_id="9")
    states = {"gpu2": NodeState("gpu2", "drained", 2, 2000, "gpu:2", "bad <fan>")}
    return report_of(FakeSlurm(plan, states, replies))


def evil():
    states = {"gpu1": NodeState("gpu1", "down", 2, 2000, "gpu:2", EVIL)}
    report = report_of(FakeSlurm(make_plan(), states))
    bad = replace(report.results[0], message=EVIL)
    return replace(report, results=(bad, *report.results[1:]), notes=(EVIL,), via=EVIL)


REPORTS = {"healthy": healthy, "mixed": mixed_bag, "evil": evil}


@pytest.fixture(params=REPORTS)
def report(request):
    return REPORTS[request.param]()


def test_the_table_of_a_healthy_run(golden):
    golden("console_healthy.txt", console.render(healthy()))


def test_the_table_of_a_run_with_every_verdict(golden):
    golden("console_mixed.txt", console.render(mixed_bag(), width=100))


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
    assert len(cases) == len(report.results) == int(root.get("tests", ""))
    for tag, attribute, verdict in (
        ("failure", "failures", Verdict.FAIL),
        ("error", "errors", Verdict.INCONCLUSIVE),
        ("skipped", "skipped", Verdict.SKIP),
    ):
        expected = sum(result.verdict is verdict for result in report.results)
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
    assert "5 elements of the sum" in failed["plumbline.cluster.virtual", "all_reduce"]


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
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_needs_nothing_else(report):
    page = Page(html.render(report))
    assert page.open == []
    assert set(page.tags).isdisjoint({"script", "link", "img", "iframe"})
    assert all(link.startswith("jobs/") for link in page.links)


def test_the_page_escapes_what_nodes_say():
    text = html.render(evil())
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    text.encode()


def test_the_page_says_verdict_proof_and_source():
    text = html.render(mixed_bag())
    assert '<span class="v fail">FAIL</span>' in text
    assert "What to do" in text
    assert "jobs/all_reduce-virtual.stderr" in text
    text = html.render(healthy())
    assert '<span class="v pass">PASS</span>' in text
    assert "job 7, 2 ranks on 2 nodes (gpu[1-2]), backend gloo, torch 2.6.0" in text
    assert "A floor, not a target" in text


# --- data ------------------------------------------------------------------------------------


def test_summary_json_is_complete(report):
    text = json_report.render(report)
    document = json.loads(text)
    assert document["verdict"] == report.verdict.value
    assert document["exit_code"] == report.exit_code
    assert sum(document["counts"].values()) == len(document["results"]) == len(report.results)
    named = document["passing_nodes"] + document["failing_nodes"]
    assert sorted(named) == sorted(item.node.name for item in report.nodes)


def test_every_result_is_one_line(report):
    for result in report.results:
        line = json_report.line(result)
        assert line.count("\n") == 1
        assert json.loads(line)["check"] == result.check


def test_the_node_lists():
    report = mixed_bag()
    # h1's all_reduce has no threshold, c1 passes alone, all virtual ones took part in a wrong sum.
    assert nodes.passing(report) == "c1\n"
    assert nodes.failing(report).split() == [*(f"gpu{n}" for n in range(1, 9)), "h1"]
    good = healthy()
    assert (nodes.passing(good), nodes.failing(good)) == ("gpu1\ngpu2\n", "")
