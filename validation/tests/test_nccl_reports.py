"""What an operator reads where NCCL says what is wrong, in the lines of its newest release."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import pytest

from validation.model import Outcome, Reply, Verdict
from validation.payloads import nccl_log
from validation.report import console
from validation.tests.conftest import make_plan
from validation.tests.fake_slurm import FakeSlurm
from validation.tests.sample_reports import report_of
from validation.tests.test_nccl_releases import IB, RELEASES, Log, filled

NODES = tuple((name, "h100_sxm", 2, "ib_ndr400") for name in ("n1", "n2"))
HEALTHY = {
    f"node-{name}": {"gpus": 2, "names": ["NVIDIA H100 80GB HBM3"] * 2, "time_ns": 10**18}
    for name, *_ in NODES
}
JOB = "all_reduce"
NEWEST = RELEASES[-1]


def logs(change: Callable[[str], str] = str, *more: tuple[object, ...]) -> dict[str, Any]:
    """The measured transport of a job, of logs in other words, or with more lines in rank 0's."""
    ranks = [IB.log(NEWEST, rank) for rank in range(4)]
    for words in more:
        ranks[0].say(*words, level="WARN")  # type: ignore[arg-type]
    summaries = [nccl_log.summarize(change(rank.text)).to_json() for rank in ranks]
    return {"transport": json.loads(json.dumps(summaries))}


def in_words_of_tomorrow(text: str) -> str:
    return text.replace(" via NET/", " over net:").replace(NEWEST, "2.99.1")


def failed(outcome: Outcome, *lines: str) -> Reply:
    code = None if outcome is Outcome.RUN_LIMIT else 1
    stderr = "".join(f"plumbline: {line}\n" for line in lines)
    return Reply(JOB, outcome, code, "7", stderr=stderr)


def complained() -> str:
    """What a rank says of a log with a warning and the hint below it."""
    log = Log(NEWEST)
    log.tell(filled("completion", NEWEST), "WARN")
    log.tell(filled("hint", NEWEST))
    complaint = nccl_log.complaint(log.text)
    assert complaint
    return complaint


CASES: dict[str, tuple[Verdict, str, Callable[[], Any]]] = {
    "words of a release to come": (
        Verdict.INCONCLUSIVE,
        "NCCL's log shows no connection over the network on n1, n2",
        lambda: logs(in_words_of_tomorrow),
    ),
    "a rail that was lost": (
        Verdict.FAIL,
        "a port of the network failed during the job, as NCCL on n1 tells",
        lambda: logs(str, ("failed port", 1, "send", 4096)),
    ),
    "a hang, and what RAS answers": (
        Verdict.FAIL,
        "NCCL's RAS: rank 3 (192.0.2.2) does not answer",
        lambda: failed(
            Outcome.RUN_LIMIT,
            "stage measuring rank 0 on n1",
            "all_reduce, rank 0 on n1: no progress for 120 s; all ranks still respond",
            "nccl rank 0 on n1 ras: rank 3 (192.0.2.2) does not answer",
        ),
    ),
    "a hint": (
        Verdict.FAIL,
        "HINT: In many cases this error indicates that NCCL_IB_TIMEOUT is set too short",
        lambda: failed(
            Outcome.EXITED,
            "stage measuring rank 0 on n1",
            f"all_reduce, rank 0 on n1: NCCL: {complained()}",
        ),
    ),
}


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    return {
        name: report_of(FakeSlurm(make_plan(*NODES), replies={**HEALTHY, JOB: reply()}))
        for name, (*_, reply) in CASES.items()
    }


def test_each_has_its_verdict(reports: dict[str, Any]) -> None:
    for name, (verdict, words, _) in CASES.items():
        (found,) = [result for result in reports[name].results if result.check == "all_reduce"]
        assert found.verdict is verdict, (name, found.message)
        assert words in found.message


def test_the_report_says_it(reports: dict[str, Any], golden: Callable[[str, str], None]) -> None:
    """The lines of the tables that are about the job."""
    shown = []
    for name, report in reports.items():
        lines = console.render(report, width=100).splitlines()
        begin = next(place for place, line in enumerate(lines) if " all_reduce " in line)
        said = takewhile(lambda line: line.startswith("        "), lines[begin + 1 :])
        shown += [f"# {name}", lines[begin], *said, ""]
    golden("console_nccl.txt", "\n".join(shown))
