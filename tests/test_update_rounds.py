"""scripts/update-nodes: when it begins a round, waits, and ends; with made-up rounds."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from playbooks.plugin_utils import update_rounds as r
from playbooks.plugin_utils import updates as u
from tests.conftest import REPOSITORY
from tests.test_updates import FOUR, IDLE, MINE, progress, slurm

REPORT = r.Report("ctl1", "true", FOUR)
COMMAND = "scripts/update-nodes -i site"


@dataclass
class Made:
    """A world in which a round, and what is seen afterwards, are what a test says."""

    views: list[r.View | Exception]
    reports: list[r.Report | None] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    rounds: list[bool] = field(default_factory=list)
    slept: float = 0

    def world(self) -> r.World:
        return r.World(self.play, self.look, self.held, self.said.append, self.sleep)

    def play(self, first: bool) -> r.Report | None:
        self.rounds.append(first)
        return self.reports.pop(0) if self.reports else REPORT

    def look(self, report: r.Report) -> r.View:
        assert report == REPORT
        view = self.views.pop(0)
        if isinstance(view, Exception):
            raise view
        return view

    def held(self) -> str:
        return self.holders.pop(0) if self.holders else ""

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def waiting(done: int = 1) -> r.View:
    """One node has a job, and all others are done."""
    known = progress(FOUR, done=dict.fromkeys(FOUR[1 : 1 + done], u.RETURNED))
    return r.View(known, u.Plan(waits={"gpu1": "job 7 of ann until 14:05"}))


def work(done: int = 0) -> r.View:
    known = progress(FOUR, done=dict.fromkeys(FOUR[:done], u.RETURNED))
    return r.View(known, u.Plan(drain=("gpu4",)))


OVER = r.View(progress(FOUR, done=dict.fromkeys(FOUR, u.RETURNED), ended=True), u.Plan())


def test_it_ends_when_all_are_done():
    made = Made([work(0), work(1), OVER])
    assert r.drive(made.world(), COMMAND) == r.DONE
    assert made.rounds == [True, False, False]  # only the first takes up what failed
    assert made.slept == 0
    assert made.said[-1].endswith("The update is complete.")


def test_it_waits_for_jobs_without_a_round_and_says_so_once():
    made = Made([waiting(3), waiting(3), waiting(3), work(3), OVER])
    assert r.drive(made.world(), COMMAND) == r.DONE
    assert len(made.rounds) == 2
    assert made.slept == 3 * r.POLL_S
    lines = [line for line in made.said if "wait" in line]
    assert len(lines) == 1
    assert lines[0].endswith(
        "3 of 4 nodes are done; 1 waits for jobs: gpu1 (job 7 of ann until 14:05)"
    )


def test_nobody_waits_where_a_node_failed_or_is_down():
    failed = progress(FOUR, done={"gpu1": u.RETURNED}, failed={"gpu2": "gpu2: no GPU"})
    made = Made([r.View(failed, u.Plan(down={"gpu3": "slurmctld holds it as DOWN"}))])
    assert r.drive(made.world(), COMMAND) == r.FAILED
    assert "gpu2: no GPU" in made.said[-1]
    assert "gpu3: slurmctld holds it as DOWN" in made.said[-1]
    assert COMMAND in made.said[-1]


def test_nodes_that_are_switched_off_are_no_failure():
    known = progress(FOUR, done=dict.fromkeys(FOUR[:3], u.RETURNED), ended=True)
    made = Made([r.View(known, u.Plan(off=("gpu4",)))])
    assert r.drive(made.world(), COMMAND) == r.DONE
    assert "1 switched off: gpu4" in made.said[-1]


def test_another_run_is_waited_for_and_not_counted_as_a_failure():
    made = Made(
        [OVER], reports=[None, REPORT], holders=["ann deploys", "", "bob deploys", "bob", ""]
    )
    assert r.drive(made.world(), COMMAND) == r.DONE
    assert made.rounds == [True, True]
    assert made.slept == 2 * r.POLL_S
    assert [line[6:] for line in made.said[:2]] == [
        "waiting for another run: ann deploys",
        "waiting for another run: bob",
    ]


def test_a_round_that_came_to_no_end_ends_it():
    made = Made([], reports=[None])
    assert r.drive(made.world(), COMMAND) == r.USAGE
    assert "The round was not completed" in made.said[-1]
    assert COMMAND in made.said[-1]


def test_rounds_that_change_nothing_come_to_an_end():
    made = Made([work(1)] * 10)
    assert r.drive(made.world(), COMMAND) == r.USAGE
    assert len(made.rounds) == r.MOST_IN_VAIN + 1
    assert "3 rounds changed nothing" in made.said[-1]


def test_a_controller_that_is_away_is_waited_for():
    made = Made([r.Unanswered("no route"), r.Unanswered("no route"), OVER])
    assert r.drive(made.world(), COMMAND) == r.DONE
    assert made.slept == 2 * r.POLL_S
    assert made.said[0].endswith("ctl1 does not say how far the update is: no route")
    assert len(made.rounds) == 1


# --- the controller's answer ----------------------------------------------------------------------


def answer(known: u.Progress, lines: str = "") -> str:
    slurm_says = "answers\ngpu1 IDLE\n-- slurmd --\n-- jobs --\n" + lines
    return (
        f"ctl1 | CHANGED | rc=0 >>\n{r.BEGIN}\n{u.written(known)}\n{u.RESERVED}\n{r.SLURM}\n"
        f"{slurm_says}"
    )


def test_the_answer_is_decided_on_as_a_round_does():
    known = progress(["gpu1"])
    view = r.viewed(answer(known), ["gpu1"])
    assert view.progress == known
    assert view.plan.drain == ("gpu1",)
    assert not r.viewed(answer(known), ["gpu2"]).plan.work


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("", "it said nothing"),
        ("ctl1 | UNREACHABLE! => {\n  no route\n", "no route"),
        (f"{r.BEGIN}\n{u.RESERVED}\n{r.SLURM}\nanswers\n-- slurmd --\n-- jobs --\n", "no update"),
        (f"{r.BEGIN}\n{u.RESERVED}\n{r.SLURM}\nsilent\n", "no update|slurmctld does not answer"),
        (f"{r.BEGIN}\n{r.SLURM}\nsilent\n", "did not answer"),
    ],
)
def test_what_is_no_answer_is_not_no_work(output, why):
    with pytest.raises(r.Unanswered, match=why):
        r.viewed(output, ["gpu1"])


def test_a_report_is_read_or_is_none():
    text = json.dumps({"controller": "ctl1", "ask": "true", "nodes": list(FOUR)})
    assert r.parsed(text) == REPORT
    assert r.parsed("{}") is None
    assert r.parsed("") is None


def test_ansible_is_asked_in_words_that_it_does_not_read(monkeypatch):
    """The script has quotes, `=`, braces and dollars, and arrives as it is."""
    seen: list[list[str]] = []

    def run(argv: list[str], *_: object, **__: object) -> object:
        seen.append(argv)
        return type("Done", (), {"stdout": answer(progress(["gpu1"]))})

    monkeypatch.setattr(r, "run", run)
    ask = "x='{{ a }}'; echo \"$x=$y\""
    r.Ansible(("site",), more=("-v", "-e", "a=b", "--user=x", "--forks", "3")).look(
        r.Report("ctl1", ask, ("gpu1",))
    )
    (argv,) = seen
    assert argv[1:4] == ["--inventory=site", "ctl1", "--become"]
    assert argv[4:7] == ["-e", "a=b", "--user=x"]
    coded = re.fullmatch(r"echo ([A-Za-z0-9+/]+) \| base64 -d \| bash", argv[-1])
    assert coded
    assert ask in base64.b64decode(coded[1]).decode()


def test_the_command_goes_on_with_what_it_was_given():
    assert r.command_of(["a b"], "gpu*", ["--forks", "3"]) == (
        "scripts/update-nodes -i 'a b' --limit 'gpu*' -- --forks 3"
    )


# --- the program ----------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path, monkeypatch) -> Callable[[str], r.Ansible]:
    """`ansible-playbook` is a script of the test's."""

    def made(script: str) -> r.Ansible:
        file = tmp_path / "ansible-playbook"
        file.write_text(f"#!{sys.executable}\nimport json, sys\n{script}")
        file.chmod(0o755)
        monkeypatch.setattr(r, "_program", lambda name: str(tmp_path / name))
        return r.Ansible(("site",), limit="gpu1", anew=True, more=("--forks", "3"))

    return made


def test_a_round_is_told_where_its_report_goes(program):
    script = """
given = json.loads(sys.argv[sys.argv.index("--extra-vars") + 1])
nodes = [str(given.get("node_update_retry")), str(given.get("node_update_anew")), *sys.argv[1:5]]
report = {"controller": "ctl1", "ask": "true", "nodes": nodes}
open(given["__node_update_report"], "w").write(json.dumps(report))
sys.exit(2)
"""
    ansible = program(script)
    report = ansible.play(True)
    assert report is not None
    assert report.nodes == ("True", "True", "--inventory=site", "--limit=gpu1", "--forks", "3")
    again = ansible.play(False)
    assert again is not None
    assert again.nodes[:2] == ("None", "None")


def test_a_round_without_a_report_came_to_no_end(program):
    assert program("").play(True) is None


def test_an_inventory_that_is_not_there_is_refused():
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts/update-nodes"), "-i", "/nowhere"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (r.USAGE, "")
    assert done.stderr == "update-nodes: there is no inventory /nowhere.\n"


def test_states_of_the_tests_are_what_updates_understand():
    """Or a made-up view would be one that never is."""
    plan = u.decide(
        progress(FOUR), slurm(IDLE | {"gpu1": f"ALLOCATED+DRAIN {MINE}"}, {"gpu1": None})
    )
    assert plan.give_back == ("gpu1",)
