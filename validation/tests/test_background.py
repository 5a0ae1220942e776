"""Tests in the background: who is next, what a test says of its node, and what is remembered."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from cluster.errors import UsageError
from cluster.slurm.node_states import NodeState
from validation.background import loop
from validation.background.loop import Trial
from validation.background.state import LastTest, State, Store, unused
from validation.model import (
    INTERRUPTED,
    JobReport,
    Metric,
    Outcome,
    Reply,
    Result,
    Threshold,
    Verdict,
)
from validation.report import metrics
from validation.tests.conftest import make_plan
from validation.tests.sample_reports import healthy
from validation.tests.simulated_cluster import FILES

NOW = datetime(2026, 3, 4, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
NODES = ("gpu1", "gpu2", "gpu3", "gpu4")


def days_ago(days, verdict="pass", run="run", seconds=60.0):
    return LastTest((NOW - days * DAY).isoformat(), verdict, run, seconds)


def states(**words):
    return {name: NodeState(name, words.get(name, "idle")) for name in NODES}


class Cluster:
    """Nodes that are tested in no time. `results`: by node, its verdict; None is pre-empted."""

    def __init__(self, state=None, results=None, words=None, **options):
        self.state, self.results = State(state or {}), results or {}
        self.words, self.tested, self.kept = words or {}, [], []
        self.options = {"every": 7 * DAY, "at_once": 1, **options}

    def test(self, names):
        self.tested.append(list(names))
        return [
            (Trial(name, self.results.get(name, Verdict.PASS)), days_ago(0, run=f"of {name}"))
            for name in names
        ]

    def run(self):
        options = {
            **{"left_s": lambda: 3600.0, "blocked": lambda: "", "now": lambda: NOW},
            "states": lambda: states(**self.words),
            **self.options,
        }
        return loop.loop(NODES, self.state, test=self.test, keep=self.kept.append, **options)


def test_the_untested_come_first_then_the_oldest():
    cluster = Cluster({"gpu1": days_ago(8), "gpu2": days_ago(30), "gpu4": days_ago(9)})
    session = cluster.run()
    assert cluster.tested == [["gpu3"], ["gpu2"], ["gpu4"], ["gpu1"]]
    assert (session.exit_code, session.ended) == (0, "all nodes were tested")
    assert cluster.kept[-1].nodes["gpu1"].run == "of gpu1"


def test_what_was_tested_lately_is_not_due():
    session = Cluster({name: days_ago(6) for name in NODES}).run()
    assert (session.exit_code, session.ended, session.due) == (0, "no node is due", 0)


def test_only_idle_nodes_are_tested_so_many_at_a_time():
    words = {"gpu1": "mixed", "gpu3": "idle*", "gpu4": "idle"}
    cluster = Cluster(words=words, at_once=3)
    session = cluster.run()
    assert cluster.tested == [["gpu2", "gpu4"]]
    assert session.ended == "none of the 2 nodes that are due is idle"


@pytest.mark.parametrize(
    "word",
    [
        "allocated",
        "mixed",
        "drained",
        "down",
        "reserved",
        "maint",
        "idle~",
        "idle*",
        "idle-",
        "planned",
    ],
)
def test_a_node_that_is_not_idle_is_left_alone(word):
    session = Cluster(words=dict.fromkeys(NODES, word)).run()
    assert (session.tests, session.exit_code) == ((), 3)  # nothing was proven, and nodes are due


def test_a_preempted_test_is_no_failure_and_comes_first_the_next_time():
    cluster = Cluster({name: days_ago(9) for name in NODES[1:]}, results={"gpu1": None})
    session = cluster.run()
    assert cluster.tested[0] == ["gpu1"]
    assert session.exit_code == 0
    state = cluster.kept[-1]
    assert "gpu1" not in state.nodes
    assert loop.due(NODES, state, NOW, 7 * DAY) == ["gpu1"]


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ({}, 0),
        ({"gpu2": Verdict.WARN}, 0),
        ({"gpu2": Verdict.FAIL, "gpu3": Verdict.INCONCLUSIVE}, 1),
        ({"gpu3": Verdict.INCONCLUSIVE}, 3),
        (dict.fromkeys(NODES), 3),  # all were pre-empted
    ],
)
def test_the_exit_code(results, code):
    assert Cluster(results=results).run().exit_code == code


def test_it_ends_where_others_wait_and_where_the_time_is_over():
    waiting = iter(["", "2 jobs wait"])
    cluster = Cluster(blocked=lambda: next(waiting))
    assert cluster.run().ended == "2 jobs wait"
    assert len(cluster.tested) == 1
    left = iter([600.0, 59.0])  # the longest test so far took a minute
    cluster = Cluster({"gpu1": days_ago(9)}, left_s=lambda: next(left))
    assert cluster.run().ended == "the time is over"
    assert len(cluster.tested) == 1


# --- what a test says of its node ------------------------------------------------------------

PLAN = make_plan()
JOB = next(job for job in PLAN.node_jobs if job.name == "node-gpu1")
LIMIT = Threshold("=", 1, "", "defined", "")


def result(check, verdict, message=""):
    return Result(check, JOB.tier, JOB.subject, verdict, message, Metric(check, 1), LIMIT)


def reply(outcome=Outcome.EXITED, stderr="", code=0):
    return JobReport(JOB, Reply(JOB.name, outcome, code, stderr=stderr))


PREEMPTED = reply(
    code=143,
    stderr="slurmstepd: error: *** STEP 7.0 ON gpu1 CANCELLED AT 2026-03-04T12:00:00 DUE TO "
    "PREEMPTION ***\n",
)
OWN = JOB.checks[0]


@pytest.mark.parametrize(
    ("found", "job", "verdict"),
    [
        ([result(OWN, Verdict.PASS)], reply(), Verdict.PASS),
        ([result(OWN, Verdict.FAIL, "broken")], reply(), Verdict.FAIL),
        ([result(OWN, Verdict.FAIL, "exit status 143")], PREEMPTED, None),
        ([result(OWN, Verdict.INCONCLUSIVE)], reply(Outcome.QUEUE_LIMIT), None),
        ([result(OWN, Verdict.FAIL)], reply(Outcome.CANCELLED), None),
        # What another job of the node found before counts.
        (
            [result("disk", Verdict.FAIL, "slow"), result(OWN, Verdict.FAIL)],
            PREEMPTED,
            Verdict.FAIL,
        ),
        (
            [result(OWN, Verdict.PASS), result("disk", Verdict.INCONCLUSIVE)],
            reply(),
            Verdict.INCONCLUSIVE,
        ),
        ([result(OWN, Verdict.FAIL)], reply(Outcome.RUN_LIMIT), Verdict.FAIL),
        ([], reply(), Verdict.INCONCLUSIVE),
        # Somebody ended it before the rest was asked.
        ([result(OWN, Verdict.PASS), result("disk", Verdict.FAIL, INTERRUPTED)], reply(), None),
        (
            [result(OWN, Verdict.FAIL, "broken"), result("disk", Verdict.FAIL, INTERRUPTED)],
            reply(),
            Verdict.FAIL,
        ),
    ],
)
def test_the_verdict_of_a_test(found, job, verdict):
    assert loop.judged("gpu1", found, [job]).verdict is verdict


def test_a_test_of_another_node_says_nothing():
    assert loop.judged("gpu9", [result(OWN, Verdict.PASS)], []).verdict is Verdict.INCONCLUSIVE


# --- what is remembered ----------------------------------------------------------------------


def test_the_state_is_one_file_for_one_process(tmp_path):
    store = Store(tmp_path / "background")
    assert store.read() == State()
    state = State({"gpu1": days_ago(1), "gpu2": days_ago(2, "fail")})
    store.write(state)
    assert store.read() == state
    with pytest.raises(UsageError, match="--background: another one works in"):
        Store(tmp_path / "background")
    store.close()
    Store(tmp_path / "background").close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"schema": 2, "nodes": {}}',
        '{"schema": 1, "nodes": {"gpu1": {"at": 7}}}',
        '{"schema": 1, "nodes": {"gpu1": {"at": "x", "verdict": "", "run": "", "seconds": 1}}}',
    ],
)
def test_a_state_that_is_not_ours_is_refused(tmp_path, text):
    store = Store(tmp_path)
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(UsageError, match="remove it, and all nodes count as untested"):
        store.read()
    store.close()


def test_folders_of_good_tests_go_when_newer_ones_come():
    before = State({"gpu1": days_ago(9, run="a"), "gpu2": days_ago(9, "fail", "b")})
    after = before.with_test("gpu1", days_ago(0, run="c")).with_test("gpu2", days_ago(0, run="d"))
    assert unused(before, after) == {"a"}


# --- the whole program -----------------------------------------------------------------------


def start(cluster, *more):
    options = ["--background", "--suite", "quick", "--only", "cpus,memory,network,ddp", *more]
    return cluster.run(*options)


def test_each_node_is_tested_alone_and_remembered(cluster):
    status, out, err = start(cluster.install(), "--qos", "scavenger")
    assert status == 0, out + err
    assert out.splitlines()[:2] == ["gpu1  PASS", "gpu2  PASS"]
    assert "2 of 2 nodes that were due were tested; all nodes were tested · exit 0" in out
    state = json.loads((cluster.output / "state.json").read_text())
    runs = {name: tested["run"] for name, tested in state["nodes"].items()}
    assert list(runs) == ["gpu1", "gpu2"]
    folder = cluster.output / runs["gpu1"]
    assert {path.name for path in folder.iterdir()} == FILES - {"run.json"}
    argv = json.loads((cluster.path / "state" / "argv.node-gpu1").read_text())
    assert "--qos=scavenger" in argv
    status, out, _ = start(cluster, "--qos", "scavenger")
    assert (status, "no node is due" in out) == (0, True)


def test_without_a_qos_that_others_preempt_nothing_starts_before_a_job_that_waits(cluster):
    cluster.install(pending=3)
    status, out, err = start(cluster)
    assert status == 3
    assert "no QOS is given that other jobs pre-empt (--qos): nothing is tested while" in err
    assert "3 jobs wait in the queue, and none of them pre-empts a test" in out
    faults = {"pending": 3, "preempt": "preempt/none"}
    (cluster.path / "state" / "faults.json").write_text(json.dumps(faults))
    status, out, err = start(cluster, "--qos", "low")
    assert (status, "PreemptType=preempt/none" in err) == (3, True)


def test_a_failing_node_is_told_and_a_preempted_one_is_not_accused(cluster):
    preempted = {"stderr": "slurmstepd: error: *** STEP 7.0 CANCELLED DUE TO PREEMPTION ***"}
    few = {"answer": {"measured": {"cpus": 1}}}
    cluster.install(**{"node-gpu1": preempted, "node-gpu2": few})
    status, out, _ = start(cluster, "--qos", "scavenger")
    assert status == 1
    assert "gpu1  untested  pre-empted during node-gpu1" in out
    assert "gpu2  FAIL  cpus: " in out
    state = json.loads((cluster.output / "state.json").read_text())
    assert list(state["nodes"]) == ["gpu2"]


@pytest.mark.long
def test_each_test_tells_prometheus_of_its_nodes(cluster):
    """What other runs found out stays, with its age; a node that was pre-empted is not accused."""
    few = {"answer": {"measured": {"cpus": 1}}}
    cluster.install(**{"node-gpu2": few})
    folder = cluster.path / "textfiles"
    folder.mkdir()
    told = ("--metrics", str(folder), "--qos", "scavenger")
    assert start(cluster, *told)[0] == 1
    path = folder / "plumbline_validation_quick.prom"
    first = {(item.family, item.labels.get("node")): item for item in series(path)}
    assert first["node_verdict", "gpu1"].labels["verdict"] == "pass"
    assert first["node_verdict", "gpu2"].labels["verdict"] == "fail"
    assert first["timestamp_seconds", "gpu1"].value > 0
    assert first["exit_code", None].labels["partial"] == "true"
    # A week later gpu1 is pre-empted, and gpu2 is repaired.
    preempted = {"stderr": "slurmstepd: error: *** STEP 7.0 CANCELLED DUE TO PREEMPTION ***"}
    (cluster.path / "state" / "faults.json").write_text(json.dumps({"node-gpu1": preempted}))
    status, out, err = start(cluster, "--every", "1s", *told)
    assert (status, "gpu1  untested" in out) == (0, True), out + err
    second = {(item.family, item.labels.get("node")): item for item in series(path)}
    assert second["node_verdict", "gpu2"].labels["verdict"] == "pass"
    for family in ("node_verdict", "timestamp_seconds"):
        assert second[family, "gpu1"] == first[family, "gpu1"]
    assert second["timestamp_seconds", "gpu2"].value >= first["timestamp_seconds", "gpu2"].value
    assert not any(item.family == "verdict" for item in series(path))


def series(path):
    return metrics.parse(path.read_text())


def test_where_metrics_cannot_be_put_nothing_is_tested(cluster):
    status, out, err = start(cluster.install(), "--metrics", str(cluster.path / "gone"))
    assert (status, out) == (2, "")
    assert "--metrics: " in err
    assert "is no folder there" in err


def test_what_was_cut_short_is_not_told():
    report = healthy()
    jobs = tuple(
        JobReport(item.job, PREEMPTED.reply) if item.job.name == "node-gpu1" else item
        for item in report.jobs
    )
    report = replace(report, jobs=jobs)
    trials = [Trial("gpu1", Verdict.FAIL), Trial("gpu2", Verdict.PASS)]
    told = loop.told(report, trials)
    assert told is not None
    assert told.verdict is Verdict.FAIL
    assert {r.check for r in told.results if r.subject.name == "gpu1"}.isdisjoint(JOB.checks)
    assert {r.check for r in told.results if r.subject.name == "gpu2"} >= set(JOB.checks)
    only = loop.told(report, [Trial("gpu1", None), Trial("gpu2", Verdict.PASS)])
    assert only is not None
    assert {name for r in only.results for name in r.subject.nodes} == {"gpu2"}
    assert [item.node.name for item in only.nodes] == ["gpu2"]
    assert loop.told(report, [Trial("gpu1", None), Trial("gpu2", None)]) is None


@pytest.mark.long
def test_the_time_limit_ends_a_test_tidily(cluster):
    cluster.install(**{"node-gpu1": "hang"})
    status, out, _ = start(cluster, "--qos", "scavenger", "--at-most", "6s")
    assert "gpu1  untested" in out
    assert "0 of 2 nodes that were due were tested; the time is over · exit 3" in out
    assert status == 3


@pytest.mark.parametrize("option", ["--duration=1h", "--dry-run", "--keep-going", "--every=soon"])
def test_what_makes_no_sense_is_refused(cluster, option):
    status, out, err = cluster.install().run("--background", option)
    assert (status, out) == (2, "")
    assert option.partition("=")[0] in err


def test_fewer_than_one_node_at_a_time_is_refused(cluster):
    with pytest.raises(SystemExit):
        cluster.install().run("--background", "--at-once=0")
