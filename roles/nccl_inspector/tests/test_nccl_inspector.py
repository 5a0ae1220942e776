"""The program as a whole, and the module that a job of Gloo's starts."""

import importlib
import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from cluster.settings_file import BadConfig
from roles.nccl_inspector.files.nccl_inspector import config, main, sightings
from roles.nccl_inspector.files.nccl_inspector.hangs import after
from roles.nccl_inspector.plugin_utils import archive
from roles.nccl_inspector.tests.test_totals import collective, written
from tests.daemons import free_address

DOCUMENT = {
    "file": "/x/nccl.prom",
    "folder": "/run/plumbline-nccl",
    "interval_s": 30,
    "series": 32,
    "polls": 10,
    "action": "observe",
    "mail_program": "/usr/bin/mail",
}
FOLDER = Path(__file__).parents[1] / "files/usr/local/lib/plumbline/python"


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "jobs").mkdir()

    def write(**values):
        path = tmp_path / "settings.json"
        path.write_text(json.dumps({**DOCUMENT, "folder": str(tmp_path / "jobs"), **values}))
        return path

    return write


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"action": "kill"}, "action is kill; it is one of observe, mail, requeue"),
        ({"interval_s": 0}, "interval_s is 0; it is more than 0"),
        ({"file": "/x/nccl.txt"}, "does not end in .prom"),
        ({"series": "many"}, "many"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(settings, values, words, capsys):
    assert main.main(["--config", str(settings(**values))]) == 2
    assert words in capsys.readouterr().err


def test_settings_that_are_missing_are_named(tmp_path):
    with pytest.raises(BadConfig, match="cannot be read"):
        config.read(tmp_path / "none")
    (tmp_path / "empty").write_text("{}")
    with pytest.raises(BadConfig, match="has no file"):
        config.read(tmp_path / "empty")


def test_one_round_for_a_look(settings, tmp_path, capsys):
    (tmp_path / "jobs" / "4711").mkdir()
    written(tmp_path / "jobs" / "4711" / "gpu1-pid7.log", collective())
    for _ in range(2):
        assert main.main(["--once", "--config", str(settings())]) == 0
        text = capsys.readouterr().out
        assert 'nccl_inspector_collectives_total{collective="AllReduce",comm="0xa"' in text
        assert 'success{collector="watcher",exporter="nccl"} 1.0' in text


def test_a_folder_that_is_missing_fails_both_collectors(settings, tmp_path, capsys):
    assert main.main(["--once", "--config", str(settings(folder="/nowhere"))]) == 1
    text = capsys.readouterr()
    assert 'success{collector="inspector",exporter="nccl"} 0.0' in text.out
    assert "/nowhere: No such file or directory" in text.err


def test_without_polls_no_job_is_watched(settings, capsys):
    assert main.main(["--once", "--config", str(settings(polls=0))]) == 0
    assert "watcher" not in capsys.readouterr().out


def test_the_archive_has_what_the_program_needs():
    text = archive.content()
    for name in (b"cluster/exporter.py", b"cluster/readers/nccl_ras.py", b"watcher.py"):
        assert name in text


# --- the module of a job -------------------------------------------------------------------------


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("plumbline_watch")
    del sys.modules["plumbline_watch"]


def test_without_the_variable_nothing_is_done(module, monkeypatch):
    monkeypatch.delenv("PLUMBLINE_WATCH", raising=False)
    assert module.start() is False


class Store:
    def __init__(self):
        self.values = {}

    def set(self, key, text):
        self.values[key] = text.encode()

    def get(self, key):
        return self.values[key]

    def check(self, keys):
        return all(key in self.values for key in keys)


def test_rank_0_writes_what_the_watcher_reads(module, tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    store = Store()
    first, second, third = (
        module._Watch(tmp_path / "watch.json", number, 3, 10.0) for number in range(3)
    )
    first.store = second.store = third.store = store

    def says(watch, count, beat):
        monkeypatch.setattr(module, "counts", lambda: {"0": {"collectives": count}})
        watch.say(beat) if beat else watch.leave()

    says(third, 9, 0)
    says(second, 8, 1)  # and nothing after that: it is stopped
    for beat in range(1, 6):
        clock[0] += 10
        says(first, 9, beat)
        first.gathered(store)
    first.write(first.gathered(store))
    (found,) = sightings.seen(json.loads((tmp_path / "watch.json").read_text()))
    assert {r.number: (r.answers, dict(r.counts)) for r in found.ranks} == {
        0: (True, {"collectives": 9}), 1: (False, {}), 2: (True, {"collectives": 9}),
    }  # fmt: skip
    assert [odd.rank for odd in after(after(None, (found,), 0), (found,), 1).odd] == [1]


def test_a_rank_that_was_never_heard_of_is_missing(module, tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(module, "counts", dict)
    watch = module._Watch(tmp_path / "watch.json", 0, 2, 1.0)
    watch.store = Store()
    watch.say(1)
    watch.gathered(watch.store)
    clock[0] += 60
    watch.say(2)
    watch.write(watch.gathered(watch.store))
    (found,) = sightings.seen(json.loads((tmp_path / "watch.json").read_text()))
    assert [(rank.number, rank.answers) for rank in found.ranks] == [(0, True), (1, False)]


JOB = """
import os, sys, time
import torch
import torch.distributed as dist
import plumbline_watch

dist.init_process_group("gloo", rank=0, world_size=1)
watched = plumbline_watch.start()
for _ in range(3):
    dist.all_reduce(torch.ones(1))
while watched and not os.path.exists(os.environ["PLUMBLINE_WATCH"]):
    time.sleep(0.01)
time.sleep(0.5)
"""


def job(tmp_path, **environment):
    """One rank over Gloo, whose thread hardly ever rests."""
    host, _, port = free_address().rpartition(":")
    variables = {
        "PYTHONPATH": str(FOLDER),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "PLUMBLINE_WATCH": str(tmp_path / "watch.json"),
        "PLUMBLINE_WATCH_INTERVAL": "0.001",
    }
    return subprocess.run(
        [sys.executable, "-c", JOB],
        env={**os.environ, **variables, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(find_spec("torch") is None, reason="the job is a program of torch's")
def test_a_job_is_watched_by_its_own_torch_and_ends_as_without(tmp_path):
    """Python ended such a thread with SIGABRT, and the job was a failed one."""
    done = job(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (found,) = sightings.seen(json.loads((tmp_path / "watch.json").read_text()))
    assert [(rank.number, dict(rank.counts)) for rank in found.ranks] == [(0, {"collectives": 3})]


def test_what_keeps_a_rank_from_being_watched_is_told_once(module, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "_connected", lambda: 1 / 0)
    watch = module._Watch(tmp_path / "watch.json", 3, 4, 0.001)
    watch.start()
    time.sleep(0.5)
    watch.leave()
    expected = "plumbline_watch: rank 3 is not watched: division by zero\n"
    assert capsys.readouterr().err == expected
