"""JUnit XML, as continuous integration reads it.

A failed check is a failure, an inconclusive one an error: neither lets a pipeline go green. A
warning passes, with its message in the output. What a partial run left out stands in its names and
as skipped cases: a pipeline that shows nothing else still shows those.

What is alike on many nodes is one case, so that the file of a large cluster is one that a pipeline
can show; of what did not pass it has each node with its own message.
"""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from cluster.hostlist import compress
from cluster.text import printable
from validation.model import Result, RunReport, Tier, Verdict
from validation.report import words


def render(report: RunReport) -> str:
    partial = " (partial)" if report.left_out else ""
    groups = list(words.alike(report.results))
    attributes = {
        "name": f"plumbline {report.suite}{partial}",
        "time": f"{report.seconds:.1f}",
        **_counts(groups, len(report.left_out)),
    }
    root = ET.Element("testsuites", attributes)
    for tier in Tier:
        of_tier = [group for group in groups if group[0].tier is tier]
        if not of_tier:
            continue
        attributes = {
            "name": f"{tier.value} tier",
            "timestamp": report.started,
            "hostname": printable(report.via),
            **_counts(of_tier),
        }
        suite = ET.SubElement(root, "testsuite", attributes)
        for group in of_tier:
            suite.append(_case(group[0]) if len(group) == 1 else _case_of_many(group))
    if report.left_out:
        root.append(_left_out(report))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _left_out(report: RunReport) -> ET.Element:
    suite = ET.Element("testsuite", {"name": "left out", **_counts((), len(report.left_out))})
    for what in map(printable, report.left_out):
        case = ET.SubElement(suite, "testcase", classname="plumbline.left_out", name=what)
        ET.SubElement(case, "skipped", message="this run was not asked for it")
    return suite


def _counts(groups: Sequence[Sequence[Result]], left_out: int = 0) -> dict[str, str]:
    """Of the cases, as programs that read the file count them."""

    def number_of(verdict: Verdict) -> int:
        return sum(group[0].verdict is verdict for group in groups)

    return {
        "tests": str(len(groups) + left_out),
        "failures": str(number_of(Verdict.FAIL)),
        "errors": str(number_of(Verdict.INCONCLUSIVE)),
        "skipped": str(number_of(Verdict.SKIP) + left_out),
    }


def _case(result: Result) -> ET.Element:
    classname = f"plumbline.{result.tier.value}.{result.subject.name.replace('.', '_')}"
    case = ET.Element("testcase", classname=classname, name=result.check)
    _say(case, result.verdict, printable(result.message), _details(result))
    return case


def _case_of_many(results: Sequence[Result]) -> ET.Element:
    """What is alike on many nodes. The name stays from run to run, whichever nodes these are."""
    first = results[0]
    nodes = [result.subject.name for result in results]
    value, limit = words.range_of(results)
    names = printable(compress(nodes))
    details = [f"nodes: {names} ({len(nodes)})", f"value: {value}", f"threshold: {limit}"]
    name, message = first.check, ""
    if first.verdict is not Verdict.PASS:
        kinds = {words.kind_of(result.message) for result in results}
        kind = kinds.pop() if len(kinds) == 1 else "on many nodes"
        name = printable(f"{first.check} {first.verdict.value}: {kind}")
        messages = [(result.subject.name, printable(result.message)) for result in results]
        message = f"on {words.count(len(nodes), 'node')}: {words.for_all(messages)}"
        details += _each(messages)
    case = ET.Element("testcase", classname=f"plumbline.{first.tier.value}", name=name)
    _say(case, first.verdict, message, "\n".join(details))
    return case


def _each(messages: Sequence[tuple[str, str]]) -> list[str]:
    """What was said of which nodes, where it was not the same of all."""
    nodes: dict[str, list[str]] = {}
    for name, message in messages:
        nodes.setdefault(message, []).append(name)
    if len(nodes) == 1:
        return []
    return [f"{printable(compress(names))}: {message}" for message, names in nodes.items()]


def _say(element: ET.Element, verdict: Verdict, message: str, details: str) -> None:
    match verdict:
        case Verdict.FAIL:
            ET.SubElement(element, "failure", message=message, type="fail").text = details
        case Verdict.INCONCLUSIVE:
            ET.SubElement(element, "error", message=message, type="inconclusive").text = details
        case Verdict.SKIP:
            ET.SubElement(element, "skipped", message=message)
        case Verdict.WARN:
            ET.SubElement(element, "system-out").text = f"warning: {message}\n{details}"
        case Verdict.PASS:
            ET.SubElement(element, "system-out").text = details


def _details(result: Result) -> str:
    parts = [
        f"value: {words.metric(result.value)}",
        f"threshold: {words.threshold(result.threshold)}",
    ]
    if result.proof:
        parts.append(f"ran as: {words.proof(result.proof)}")
    return "\n".join(parts)
