"""One round after another, each collector by itself, one file, a clean end."""

import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from cluster import exporter as module
from cluster.exporter import (
    DURATION,
    LAST_RUN,
    SUCCESS,
    Collector,
    Exporter,
    Failed,
    Family,
    Once,
    gauge,
    write,
)
from tests.patience import until


def read(file):
    """Series of a file, as Prometheus understands it."""
    samples = {}
    for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def success(samples):
    return {dict(key[1:])["collector"]: samples[key] for key in samples if key[0] == SUCCESS}


def collector(name, value=1.0):
    return lambda: [gauge(name, "a value", value)]


def exporter(tmp_path, *collectors, say=lambda _: None):
    return Exporter("test", tmp_path / "test.prom", lambda: list(collectors), say=say)


def test_a_collector_that_fails_has_no_series_and_the_others_have_theirs(tmp_path):
    log: list[str] = []
    daemon = exporter(
        tmp_path,
        Collector("before", collector("a")),
        Collector("broken", Mock(side_effect=Failed("the cable is out"))),
        Collector("crashing", Mock(side_effect=KeyError("x"))),
        Collector("after", collector("b", 2.0)),
        say=log.append,
    )
    daemon.round()
    samples = read(daemon.file)
    assert (samples[("a",)], samples[("b",)]) == (1.0, 2.0)
    assert success(samples) == {"before": 1, "broken": 0, "crashing": 0, "after": 1}
    assert log == ["broken: the cable is out", "crashing: KeyError: 'x'"]


def test_what_was_told_half_before_a_failure_is_not_told(tmp_path):
    def half():
        yield gauge("half", "a value", 1)
        raise Failed("then it broke")

    daemon = exporter(tmp_path, Collector("half", half))
    daemon.round()
    assert ("half",) not in read(daemon.file)


def test_no_value_of_the_round_before_stays(tmp_path):
    answers = [collector("a")(), Failed("gone"), collector("a", 3.0)()]
    daemon = exporter(tmp_path, Collector("one", Mock(side_effect=answers)))
    seen = []
    for _ in range(3):
        daemon.round()
        samples = read(daemon.file)
        seen.append((samples.get(("a",)), success(samples)["one"]))
    assert seen == [(1.0, 1.0), (None, 0.0), (3.0, 1.0)]


@pytest.mark.parametrize(
    "families",
    [
        [gauge("a", "x", math.nan)],
        [gauge("a", "x", math.inf)],
        [gauge("a", "x", 1), gauge("a", "x", 2)],
        [Family("a", "x", ("one", "two"), {("1",): 1.0})],
        [gauge("taken", "x", 1)],
        [gauge(SUCCESS, "x", 1)],
    ],
    ids=["nan", "infinite", "twice", "labels", "anothers", "ours"],
)
def test_what_node_exporter_would_not_take_fails_its_collector_alone(tmp_path, families):
    first, bad = Collector("first", collector("taken")), Collector("bad", lambda: families)
    daemon = exporter(tmp_path, first, bad)
    daemon.round()
    samples = read(daemon.file)
    assert success(samples) == {"first": 1, "bad": 0}
    assert ("a",) not in samples


def test_an_exporter_tells_of_itself(tmp_path):
    def collect():
        time.sleep(0.05)
        return ()

    daemon = exporter(tmp_path, Collector("slow", collect))
    begin = time.time()
    daemon.round()
    samples = read(daemon.file)
    assert 0.05 <= samples[(DURATION, ("collector", "slow"), ("exporter", "test"))] < 60
    assert begin <= samples[(LAST_RUN, ("exporter", "test"))] <= time.time()


def test_a_failure_is_said_when_it_begins_changes_and_ends(tmp_path):
    answers = [Failed("a"), Failed("a"), Failed("b"), (), ()]
    log: list[str] = []
    daemon = exporter(tmp_path, Collector("one", Mock(side_effect=answers)), say=log.append)
    for _ in answers:
        daemon.round()
    assert log == ["one: a", "one: b", "one: well again"]


def test_what_two_collectors_need_is_asked_once_and_so_is_what_fails():
    ask = Mock(side_effect=Failed("no"))
    once = Once(ask)
    for _ in range(2):
        with pytest.raises(Failed, match="no"):
            once()
    ask.assert_called_once()
    assert Once(lambda: None)() is None


@settings(deadline=None)  # other work on the machine
@given(st.text(), st.text())
def test_whatever_a_label_holds_is_read_as_it_was(tmp_path_factory, one, two):
    # What UTF-8 cannot say was replaced when it was read from a command.
    one, two = (text.encode("utf-8", "replace").decode() for text in (one, two))
    file = tmp_path_factory.mktemp("label") / "a.prom"
    write(file, [Family("a", "x", ("one", "two"), {(one, two): 1.0})])
    raw = file.read_bytes().decode("utf-8")
    lines = [line for line in raw.split("\n") if line and not line.startswith("#")]
    escaped = [
        text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for text in (one, two)
    ]
    assert lines == [f'a{{one="{escaped[0]}",two="{escaped[1]}"}} 1.0']


def test_a_counter_is_one_under_its_own_name(tmp_path):
    file = tmp_path / "a.prom"
    write(file, [Family("a_seconds_total", "x", ("b",), {("c",): 1.5}, kind="counter")])
    assert "# TYPE a_seconds_total counter\n" in file.read_text(encoding="utf-8")
    assert 'a_seconds_total{b="c"} 1.5\n' in file.read_text(encoding="utf-8")


def test_the_file_can_be_read_by_node_exporter_and_nothing_lies_beside_it(tmp_path):
    before = os.umask(0o077)
    try:
        daemon = exporter(tmp_path, Collector("one", collector("a")))
        daemon.round()
    finally:
        os.umask(before)
    assert daemon.file.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [daemon.file]


def test_a_file_that_cannot_be_written_is_taken_away_and_the_next_round_writes_again(tmp_path):
    log: list[str] = []
    daemon = exporter(tmp_path, Collector("one", collector("a")), say=log.append)
    daemon.round()
    with patch.object(module, "write", side_effect=OSError(28, "No space left on device")):
        daemon.round()
    assert list(tmp_path.iterdir()) == []
    assert log == [f"textfile: {daemon.file}: No space left on device"]
    daemon.round()
    assert daemon.file.exists()


def test_a_round_begins_every_interval_and_a_late_one_is_not_made_up(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    takes = [1.0, 25.0, 2.0]
    waited: list[float] = []

    def collect():
        clock[0] += takes[len(waited)]
        return ()

    def wait(seconds):
        waited.append(seconds)
        clock[0] += seconds
        if len(waited) == 3:
            raise SystemExit(0)

    daemon = exporter(tmp_path, Collector("one", collect))
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit):
            daemon.run(10, wait)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert waited == [9.0, 0.0, 8.0]
    assert list(tmp_path.iterdir()) == []


DAEMON = """
    import sys
    from pathlib import Path
    from cluster.exporter import Collector, Exporter
    from roles.slurm_exporter.files.slurm_exporter.commands import run

    file = Path(sys.argv[1])
    def collect():
        if file.exists():  # the first round is over
            run(("sleep", "86399"), 600)
        return ()
    (file.parent / "test.prom.123.456").touch()
    Exporter("test", file, lambda: [Collector("one", collect)]).run(0.01)
"""


def test_it_ends_at_once_in_the_middle_of_a_command_and_leaves_nothing(tmp_path):
    file = tmp_path / "test.prom"
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(DAEMON), str(file)])
    try:
        sleeping = until(lambda: children(process.pid), 30)
        assert file.exists()
        process.terminate()
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
    assert list(tmp_path.iterdir()) == []
    until(lambda: not any(alive(pid) for pid in sleeping), 10)  # killed is not yet gone


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [child for child in file.read().split() if command(child) == "sleep"]


def command(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def alive(pid):
    return command(pid) == "sleep"
