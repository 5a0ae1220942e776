"""JUnit XML, as continuous integration reads it.

A failed check is a failure, an inconclusive one an error: neither lets a pipeline go green. A
warning passes, with its message in the output. What a partial run left out stands in its names and
as skipped cases: a pipeline that shows nothing else still shows those.
"""

import xml.etree.ElementTree as ET

from cluster.text import printable
from validation.model import Result, RunReport, Tier, Verdict
from validation.report import words


def render(report: RunReport) -> str:
    partial = " (partial)" if report.left_out else ""
    attributes = {
        "name": f"plumbline {report.suite}{partial}",
        "time": f"{report.seconds:.1f}",
        **_counts(report.results, len(report.left_out)),
    }
    root = ET.Element("testsuites", attributes)
    for tier in Tier:
        results = tuple(result for result in report.results if result.tier is tier)
        if not results:
            continue
        attributes = {
            "name": f"{tier.value} tier",
            "timestamp": report.started,
            "hostname": printable(report.via),
            **_counts(results),
        }
        suite = ET.SubElement(root, "testsuite", attributes)
        for result in results:
            suite.append(_case(result))
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


def _counts(results: tuple[Result, ...], left_out: int = 0) -> dict[str, str]:
    def number_of(verdict: Verdict) -> int:
        return sum(result.verdict is verdict for result in results)

    return {
        "tests": str(len(results) + left_out),
        "failures": str(number_of(Verdict.FAIL)),
        "errors": str(number_of(Verdict.INCONCLUSIVE)),
        "skipped": str(number_of(Verdict.SKIP) + left_out),
    }


def _case(result: Result) -> ET.Element:
    message = printable(result.message)
    classname = f"plumbline.{result.tier.value}.{result.subject.name.replace('.', '_')}"
    case = ET.Element("testcase", classname=classname, name=result.check)
    match result.verdict:
        case Verdict.FAIL:
            ET.SubElement(case, "failure", message=message, type="fail").text = _details(result)
        case Verdict.INCONCLUSIVE:
            error = ET.SubElement(case, "error", message=message, type="inconclusive")
            error.text = _details(result)
        case Verdict.SKIP:
            ET.SubElement(case, "skipped", message=message)
        case Verdict.WARN:
            ET.SubElement(case, "system-out").text = f"warning: {message}\n{_details(result)}"
        case Verdict.PASS:
            ET.SubElement(case, "system-out").text = _details(result)
    return case


def _details(result: Result) -> str:
    parts = [
        f"value: {words.metric(result.value)}",
        f"threshold: {words.threshold(result.threshold)}",
    ]
    if result.proof:
        parts.append(f"ran as: {words.proof(result.proof)}")
    return "\n".join(parts)
