"""Verdicts on what DCGM's diagnostic says.

The answers are made by us after DCGM's own tests (testing/python3/tests/test_dcgm_diag.py) and the
words of dcgmi/Diag.cpp; none was recorded from a GPU.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import CannotRun
from validation import thresholds
from validation.checks import dcgm as check
from validation.model import Result, Verdict
from validation.payloads import dcgm
from validation.payloads import dcgm_diag as diag
from validation.tests import standin_health as standin


def result(gpu: int = 1, status: Any = "Pass", *warnings: str, **changed: Any) -> dict[str, Any]:
    said = {"warnings": [{"warning": text} for text in warnings]} if warnings else {}
    return {"entity_group": "GPU", "entity_id": gpu, "status": status, **said, **changed}


def of_test(name: str, *results: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "results": list(results), **more}


def diagnostic(*tests: Any) -> dict[str, Any]:
    categories = [{"category": "Deployment", "tests": [each]} for each in tests]
    return {"DCGM Diagnostic": {"test_categories": categories}, "metadata": {"version": "4.5.2"}}


PASSED = {"test_summary": {"status": "Pass"}}
SOFTWARE = of_test("software", result(0), result(1), **PASSED)
HEALTHY = diagnostic(SOFTWARE)


def answer(status: Any = "Pass", *warnings: str, **changed: Any) -> dict[str, Any]:
    """A healthy answer, but for GPU 1's result."""
    return diagnostic(
        of_test("software", result(0), result(1, status, *warnings, **changed), **PASSED)
    )


def judged(document: Any, gpus: int = 2) -> tuple[int, str]:
    verdict = diag.judge(document, gpus)
    return verdict.status, verdict.reason


SUMMARY = {"status": "Fail", "warnings": [{"warning": "All of them."}]}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (HEALTHY, (0, "2 GPUs passed")),
        (answer("Fail", "A page is\nretired.", "Twice."),
         (1, "GPU 1: software: A page is retired.; Twice.")),
        (diagnostic({**SOFTWARE, "test_summary": SUMMARY}), (1, "software: All of them.")),
        (diagnostic(of_test("software", result(0, "Fail", "Another."), result(1, "Fail", "One."))),
         (1, "GPU 0: software: Another. (and 1 more)")),
        (diagnostic(SOFTWARE, of_test("pcie", result(1, "Warn", "Slow."))),
         (0, "2 GPUs passed; GPU 1: pcie: Slow.")),
        (diagnostic(SOFTWARE, of_test("memory", {"status": "Not Run"})), (2, "memory was not run")),
    ],
    ids=["all passed", "a failure", "of the summary alone", "two", "a warning", "not run"],
)  # fmt: skip
def test_the_status_and_what_is_told(document: Any, expected: tuple[int, str]) -> None:
    assert judged(document) == expected


@pytest.mark.parametrize(
    ("document", "gpus", "words"),
    [
        (HEALTHY, 8, "2 of 8 GPUs passed a test, none failed one"),
        (answer("Skip"), 2, "1 of 2 GPUs passed"),
        (answer("Not Run"), 2, "1 of 2 GPUs passed"),
        (answer("Fine"), 2, "software has the status 'Fine'"),
        (answer(status=None), 2, "software has the status None"),
        (answer(entity_group="CPU"), 2, "1 of 2 GPUs passed"),
        (answer(entity_id="1"), 2, "'1', which is no number"),
        (answer(warnings="x"), 2, "warnings that are no list"),
        ({"DCGM GPU Diagnostic": {}}, 2, "has no DCGM Diagnostic, as DCGM 4 writes it"),
        ({"DCGM Diagnostic": {"runtime_error": "No GPU"}}, 2, "could not run it: No GPU"),
        ({"DCGM Diagnostic": {}}, 2, "no list test_categories"),
        ({"DCGM Diagnostic": {"test_categories": []}}, 2, "0 of 2 GPUs passed"),
        ({"DCGM Diagnostic": {"test_categories": [{}]}}, 2, "no list tests"),
        (diagnostic({}), 2, "no list results"),
        (diagnostic("x"), 2, "x is no test"),
        (diagnostic({"results": ["x"]}), 2, "is no object"),
        ([], 2, "no DCGM Diagnostic"),
        (None, 2, "no DCGM Diagnostic"),
    ],
)
def test_what_is_not_understood_is_no_pass(document: Any, gpus: int, words: str) -> None:
    status, reason = judged(document, gpus)
    assert status == 2
    assert words in reason


KEYS = "DCGM Diagnostic,test_categories,tests,results,status,warnings,entity_id,test_summary"
_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS.split(",")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_anything)
def test_nothing_random_passes_or_ends_in_an_exception(document: Any) -> None:
    assert judged(document)[0] in (1, 2)


# --- the program ----------------------------------------------------------------------------------


SAYS_HEALTHY = f"cat <<'END'\n{json.dumps(HEALTHY)}\nEND"


def dcgmi(folder: Path, script: str) -> Path:
    """A program in its place, which also notes what it was asked."""
    program = folder / "dcgmi"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/asked\n{script}\n')
    program.chmod(0o755)
    return program


def called(tmp_path: Path, script: str, *options: str) -> tuple[int, list[str]]:
    program = dcgmi(tmp_path, script)
    status = diag.main(["--gpus=2", f"--dcgmi={program}", *options])
    return status, (tmp_path / "asked").read_text().split()


def test_it_asks_for_the_level_and_takes_an_answer_with_any_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"echo 'a line before'; {SAYS_HEALTHY}\nexit 226"
    status, argv = called(tmp_path, script, "--level=3")
    assert (status, argv) == (0, ["diag", "--run", "3", "--json"])
    assert capsys.readouterr().out == "dcgmi diag level 3 passes: 2 GPUs passed\n"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "dcgmi ended with 0 and said nothing"),
        ("echo no connection >&2; exit 1", "dcgmi ended with 1 and said no connection"),
        ("echo '{\"DCGM Diagnostic\": '", "dcgmi ended with 0 and said"),
        ("exec sleep 60", "no answer within 0.3 s"),
    ],
)
def test_no_answer_is_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, words: str
) -> None:
    status, _ = called(tmp_path, script, "--limit=0.3")
    out = capsys.readouterr().out
    assert status == 2
    assert "gives no verdict" in out
    assert words in out
    assert out.count("\n") == 1


def test_without_dcgm_there_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert diag.main(["--gpus=2", "--dcgmi=/nowhere/dcgmi"]) == 2
    assert "is DCGM installed?" in capsys.readouterr().out


def test_a_reason_is_one_short_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = answer("Fail", "x\ny " * 500)
    called(tmp_path, f"cat <<'END'\n{json.dumps(document)}\nEND")
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert len(out) <= diag.LONGEST + 1


# --- the payload and the check --------------------------------------------------------------------


def test_the_payload_answers_with_a_verdict_whatever_happens(tmp_path: Path) -> None:
    program = dcgmi(tmp_path, SAYS_HEALTHY)
    config = dcgm.Config(gpus=2, level=3, limit_s=60)
    good = {"level": 3, "status": 0, "reason": "2 GPUs passed", "passed": 2}
    assert dcgm.measure(config, str(program)) == good
    assert dcgm.measure(config, "/nowhere/dcgmi")["status"] == 2


@pytest.mark.parametrize("wrong", [{"gpus": 0}, {"level": 0}, {"level": 5}, {"limit_s": 0}])
def test_a_configuration_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CannotRun):
        dcgm.Config(**({"gpus": 8} | wrong))


def checked(**measured: Any) -> Result:
    """The check's result on a node that declares two GPUs."""
    answered = {"level": 3, "status": 0, "reason": "2 GPUs passed", "passed": 2} | measured
    job = standin.job_for()
    config = {"level": 3, "gpus": 2, "nonce": job.config["nonce"]}
    job = replace(job, payload="dcgm", config=config, checks=("dcgm",))
    reply = standin.reply_to(job, answered)
    reply = replace(reply, stdout=reply.stdout.replace('"health"', '"dcgm"'))
    return check.evaluate(job, reply, thresholds.load("h100_sxm"))


def test_the_check_passes_when_every_declared_gpu_did() -> None:
    assert checked().verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"status": 1, "reason": "GPU 1: bad cell", "passed": 1}, "GPU 1: bad cell"),
        ({"status": 1, "reason": "software: all", "passed": 2}, "software: all"),
        ({"status": 2, "reason": "no answer within 2400 s"}, "gives no verdict: no answer within"),
        ({"status": 0, "passed": 1}, "2 GPUs passed"),
        ({"status": 7}, "gives no verdict"),
        ({"level": 1}, "ran at level 1, not 3"),
        ({"status": None}, "status is no whole number"),
    ],
)
def test_the_check_fails_for_all_else(measured: dict[str, Any], words: str) -> None:
    found = checked(**measured)
    assert not found.verdict.green
    assert words in found.message
