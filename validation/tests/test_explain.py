"""Every word that a run can print has an answer, and so have logs and former runs."""

import json
import re

import pytest

from cluster import strict
from cluster.errors import UsageError
from cluster.readers import xids
from cluster.slurm import job_reasons
from validation import causes, explain, records
from validation.causes import Cause
from validation.checks.registry import CHECKS
from validation.model import Outcome, Standing, Tier, Verdict
from validation.report import json as json_report
from validation.tests.conftest import GOLDEN
from validation.tests.sample_reports import evil, healthy, mixed_bag

ROOT = GOLDEN.parents[2]
RUNBOOKS = sorted((ROOT / "docs/runbooks").glob("[A-Z]*[a-z].md"))
STATES = ROOT / "cluster/tests/node_states.yml"


def words():
    """Everything that the program can print and that a person may ask about."""
    yield from CHECKS
    yield from (f"{n} {case.name}" for n, c in CHECKS.items() for case in c.info.cases)
    yield from (case.name for case in (*causes.COMMON, causes.UNUSABLE))
    yield from (f"xid {code}" for code in xids.load().by_code)
    for kind in (Cause, Outcome, Verdict, Standing):
        yield from (word.value for word in kind)
    yield from job_reasons.CAUSES
    yield from (name for text in strict.load_yaml(STATES).values() for name in text.split())
    yield from (entry["name"] for entry in explain.known()["lines"])


def test_every_word_has_an_answer():
    """In one test: there are a thousand of them, and each takes a millisecond."""
    asked = sorted({word for word in words() if word != "?"})
    assert len(asked) > 500
    assert {text: wrong for text in asked if (wrong := wrong_in_the_answer_to(text))} == {}


def wrong_in_the_answer_to(text):
    (answer,) = explain.explain(text, ())
    typed = [c for c in answer.commands if "format" not in c and "awk" not in c]
    right = {
        "title": bool(answer.title),
        "meaning": len(answer.meaning) > 10,
        "cure": len(answer.cure) > 10,
        "commands": 1 <= len(answer.commands) <= 3,
        "who": answer.who in explain.known()["who"].values(),
        "a place that nobody filled": not any("{" in command for command in typed),
        "the word itself": text.split()[0].lower() in explain.render(answer, 100).lower(),
    }
    return [what for what, holds in right.items() if not holds]


def test_the_data_has_nothing_that_is_never_asked_for():
    known = explain.known()
    table = xids.load().by_code.values()
    assert set(known["severities"]) == set(xids.SEVERITIES)
    assert set(known["actions"]) == {xid.action for xid in table}
    assert set(known["causes"]) == {cause.value for cause in Cause}
    assert set(known["outcomes"]) == {outcome.value for outcome in Outcome}
    assert set(known["reasons"]) == {cause.value for cause in job_reasons.Cause}
    assert set(known["words"]) == {word.value for word in (*Verdict, *Standing)}
    assert sorted(name for names in known["checks"].values() for name in names) == sorted(CHECKS)
    cases = {case.name for check in CHECKS.values() for case in check.info.cases}
    assert {name for names in known["cases"].values() for name in names} <= cases
    assert set(known["common"]) == {case.name for case in (*causes.COMMON, causes.UNUSABLE)}


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("all_reduc", "near are all_reduce"),
        ("QOSMaxJobsPerUser", "near are .*qosmaxjobsperuserlimit"),
        ("frobnicate the whole thing", "see --help"),
        ("all_reduce lost", "all_reduce has no cause 'lost'; it has too slow, "),
    ],
)
def test_an_unknown_word_is_told_with_those_that_are_near(text, near):
    with pytest.raises(UsageError, match=near) as caught:
        explain.explain(text, ())
    assert "\n" not in str(caught.value)


LINES = {
    "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.": "XID 79",
    "GPU 1: XID 48 3 times (uncorrectable ECC error)": "XID 48",
    "gpu1:12:34 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>": "NCCL uses sockets",
    "gpu1:1:2 [0] NCCL WARN NET/IB : Got completion with error 12": "a connection of NCCL failed",
    "Not responding": "slurmd does not answer",
    "Low RealMemory (reported:1 < 100.00% of configured:2)": "less than slurm.conf has",
    "Kill task failed": "a process cannot be ended",
    "[plumbline:validation/gpus] 1 GPU": "a validation drained the node",
    "[plumbline:munge] munged does not answer": "a health check drained the node",
    "slurmstepd: error: Detected 1 oom_kill event": "the kernel ended a process for want of memory",
    "srun: error: Unable to contact slurm controller": "slurmctld does not answer",
}


@pytest.mark.parametrize(("line", "title"), LINES.items())
def test_a_line_of_a_log_is_known(line, title):
    (answer,) = explain.explain(line, ())
    assert answer.title == title


def test_a_log_is_read_line_by_line(tmp_path):
    log = tmp_path / "dmesg.txt"
    log.write_text("nothing\n" + "\n".join(list(LINES)[:2]) + "\n" + next(iter(LINES)) + "\n\udcff"
                   .encode("utf-8", "replace").decode())  # fmt: skip
    answers = explain.of_file(log)
    assert [answer.title for answer in answers] == ["XID 79", "XID 48"]
    assert answers[0].evidence[0].startswith("2 lines, first: NVRM: Xid")
    log.write_text("nothing\n")
    with pytest.raises(UsageError, match="has no line of which anything is known"):
        explain.of_file(log)


@pytest.fixture
def results(tmp_path):
    for name, report in (("one", healthy()), ("two", mixed_bag()), ("three", evil())):
        (tmp_path / name).mkdir()
        text = "".join(json_report.render(report)).encode("utf-8", "replace")
        (tmp_path / name / "summary.json").write_bytes(text)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn/summary.json").write_text('{"run": 1')
    return tmp_path


def test_a_node_is_told_with_its_last_runs(results):
    (answer,) = explain.explain("gpu3", records.last(results / "two", 1))
    assert "failing" in answer.meaning
    assert answer.cure.startswith("Fewer than declared")
    assert answer.commands[0].startswith("ssh gpu3 ")
    assert "1 GPU device nodes found" in answer.evidence[0]


def test_a_check_is_told_with_what_the_runs_found(results, caplog):
    runs = records.last(results, 10)
    assert len(runs) == 3
    assert "torn" in caplog.text
    (answer,) = explain.explain("gpus fewer than declared", runs)
    assert any("not green, first gpu3: 1 GPU" in text for text in answer.evidence)


def test_a_run_is_told_cause_by_cause(results):
    answers = explain.explain(str(results / "two" / "summary.json"), ())
    titles = [answer.title for answer in answers]
    assert "gpus: fewer than declared" in titles
    assert "all_reduce: a wrong sum" in titles
    assert "ddp: no task" in titles
    (fine,) = explain.explain(str(results / "one"), ())
    assert fine.title.endswith(": pass")


def test_a_run_writes_causes_for_machines():
    document = json.loads("".join(json_report.render(mixed_bag())))
    written = {(item["check"], item.get("cause")) for item in document["results"]}
    assert {("gpus", "fewer than declared"), ("all_reduce", "a wrong sum")} <= written
    assert {("all_reduce", "no threshold"), ("ddp", "no task")} <= written
    assert all(
        bool(item.get("cause")) is (item["verdict"] not in ("pass", "skip"))
        for item in document["results"]
    )


def test_nothing_that_passes_has_a_cause():
    assert {result.cause for result in healthy().results} == {""}
    for result in mixed_bag().results:
        info = CHECKS[result.check].info
        if result.verdict in (Verdict.PASS, Verdict.SKIP):
            assert causes.name(info, result, None) == ""


def test_the_program(results, capsys):
    assert explain.main(["--results", str(results), "xid", "79"]) == 0
    out = capsys.readouterr().out
    assert "GPU has fallen off the bus" in out
    assert "  Call      the vendor" in out
    assert explain.main(["--results", str(results / "no"), "gpus7"]) == 2
    assert capsys.readouterr().err == "explain: nothing is known of 'gpus7'; near are gpus, cpus\n"


def test_every_check_of_the_cluster_tier_names_whom_to_call():
    for name, check in CHECKS.items():
        (answer,) = explain.explain(name, ())
        if check.info.tier is Tier.CLUSTER:
            assert answer.who


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_what_a_runbook_asks_has_an_answer(page):
    asked = re.findall(r"`python -m validation\.explain ([^`]+)`", page.read_text(encoding="utf-8"))
    of_hardware = re.match("Gpu|Infiniband|Nv|SlurmNode|Munge|Clock", page.stem)
    assert asked or not of_hardware
    for words_ in asked:
        assert explain.explain(words_, ())
