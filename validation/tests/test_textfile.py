"""Metrics reach the host that submits the jobs, whole or not at all, and cost no verdict."""

import os
from dataclasses import replace

import pytest

from cluster.errors import UsageError
from validation import textfile
from validation.errors import TransportError
from validation.model import Metric, Verdict
from validation.report import metrics
from validation.tests.sample_reports import healthy
from validation.transport.here import Here

NAME = "plumbline_validation_quick.prom"


class Gone:
    """A login node that answers `answers` times and is away then."""

    via, notes = "login1", ()

    def __init__(self, answers):
        self.left = answers

    def run(self, script, stdin=b"", timeout_s=60):
        if not self.left:
            raise TransportError("login1 is unreachable")
        self.left -= 1
        return Here().run(script, stdin)

    def elsewhere(self):
        return None


def test_they_are_written_at_once_and_for_everybody(tmp_path):
    before = os.umask(0o077)
    try:
        report = textfile.publish(healthy(), tmp_path, Here())
    finally:
        os.umask(before)
    assert report.notes == ()
    (path,) = tmp_path.iterdir()
    assert path.name == NAME
    assert path.read_text() == metrics.render(healthy())
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_partial_run_adds_to_those_that_are_there(tmp_path):
    textfile.publish(healthy(), tmp_path, Here())
    former = (tmp_path / NAME).read_text()
    later = replace(healthy(), results=(), left_out=("checks: all",))
    textfile.publish(later, tmp_path, Here())
    assert (tmp_path / NAME).read_text() == metrics.render(later, former) != former


def test_an_interrupted_run_leaves_them_alone(tmp_path):
    report = textfile.publish(replace(healthy(), interrupted=True), tmp_path, Here())
    assert list(tmp_path.iterdir()) == []
    assert report.notes == ("interrupted: the metrics are still those of the previous run",)


def test_what_somebody_else_wrote_stays_and_the_verdict_too(tmp_path):
    (tmp_path / NAME).write_text("up 1\n")
    report = textfile.publish(replace(healthy(), left_out=("nodes: gpu2",)), tmp_path, Here())
    assert report.verdict is Verdict.PASS
    (note,) = report.notes
    assert note.startswith(f"{tmp_path / NAME} was not updated: ")
    assert (tmp_path / NAME).read_text() == "up 1\n"


def test_a_folder_that_is_gone_costs_no_verdict(tmp_path):
    report = textfile.publish(healthy(), tmp_path / "gone", Here())
    assert report.verdict is Verdict.PASS
    (note,) = report.notes
    assert f"{tmp_path / 'gone' / NAME} was not updated: mktemp: " in note


@pytest.mark.parametrize("answers", [0, 1])
def test_a_host_that_is_gone_costs_no_verdict(tmp_path, answers):
    report = textfile.publish(healthy(), tmp_path, Gone(answers))
    assert report.verdict is Verdict.PASS
    assert report.notes == (f"{tmp_path / NAME} was not updated: login1 is unreachable",)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_stops_halfway_leaves_the_former_file_and_nothing_else(tmp_path, monkeypatch):
    textfile.publish(healthy(), tmp_path, Here())
    former = (tmp_path / NAME).read_text()
    monkeypatch.setattr(textfile, "_WRITE", textfile._WRITE.replace("cat >", "ulimit -f 0; cat >"))
    report = textfile.publish(healthy(), tmp_path, Here())
    assert "was not updated" in report.notes[0]
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).read_text() == former


def test_a_number_that_cannot_be_written_costs_the_metrics_and_not_the_run(tmp_path):
    report = healthy()
    endless = replace(report.results[0], metrics=(Metric("cpus_allowed", 10**400),))
    told = textfile.publish(replace(report, results=(endless,)), tmp_path, Here())
    assert "was not updated" in told.notes[0]
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_asked_for_before_the_run(tmp_path):
    with pytest.raises(UsageError, match=f"--metrics: {tmp_path}/gone on .* is no folder there"):
        textfile.check(tmp_path / "gone", Here())
    textfile.check(tmp_path, Here())


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user: root may write everywhere")
def test_who_may_not_write_there_is_told_before_the_run(tmp_path):
    class Nobody(Here):
        def run(self, script, stdin=b"", timeout_s=60):
            words = script.replace("'", "'\\''")
            return super().run(f"setpriv --reuid=65534 --clear-groups sh -c '{words}'", stdin)

    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    with pytest.raises(UsageError, match="may not be written by nobody there"):
        textfile.check(tmp_path, Nobody())
