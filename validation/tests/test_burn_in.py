"""A burn-in: rounds until its end or its first failure, what is judged over all of them, and how it
goes on after an interruption."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cluster.errors import UsageError
from validation import interrupts, plan, run, suites, tiers
from validation.burn_in import page as pages
from validation.burn_in import rounds
from validation.checks import drift, same_bits, soak, soak_stragglers, soaked
from validation.checks.comparison import ComparedNode
from validation.errors import TransportError
from validation.execution.journal import NotTheSame
from validation.execution.request import seconds_of
from validation.model import Outcome, Reply, Verdict, overall
from validation.tests import standin
from validation.tests.conftest import make_plan
from validation.tests.fake_slurm import FakeSlurm, Silent
from validation.tests.healthy_answers import healthy
from validation.tests.judging import rules_of
from validation.tests.processes import wait_for

PASS, WARN, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.INCONCLUSIVE
REAL = tuple((f"gpu{number}", "h100_sxm", 8, "ib_ndr400") for number in (1, 2, 3, 4, 5))
ROOT = Path(run.__file__).parent.parent
HOUR_NS = 3600 * 10**9


class Loop:
    """A burn-in whose rounds take 100 s of a clock that nobody waits for.

    changes   by round, what to change in the healthy answers of its jobs
    """

    def __init__(self, changes=None, before=(), **options):
        self.plan = make_plan(suite="burn-in")
        self.plan_of = lambda number: self.plan
        self.changes, self.before = changes or {}, before
        self.now, self.kept, self.boots = 1000.0, [], {}
        self.options = {"duration_s": 450, **options}

    def walk(self, number, plan):
        answers = self.changes.get(number, {})
        if isinstance(answers, BaseException):
            raise answers
        # The stand-ins have no speed of virtual nodes.
        replies = {"all_reduce": {"busbw_gbs": 1.2}, **answers}
        slurm = FakeSlurm(plan, replies={k: v for k, v in replies.items() if k != "interrupt"})
        slurm.interrupt_on = answers.get("interrupt")
        self.now += 100
        return tiers.walk(plan, slurm, Silent(), interval_s=0)

    def run(self):
        ended = rounds.loop(
            self.plan,
            self.plan_of,
            self.walk,
            self.kept.append,
            clock=lambda: self.now,
            boots=lambda: dict(self.boots.get(len(self.kept) + 1, {})),
            before=self.before,
            **self.options,
        )
        ended_verdict = overall(self.plan.checks, ended.results)
        return ended, ended_verdict

    def of(self, ended, check, subject):
        (found,) = [r for r in ended.results if (r.check, r.subject.name) == (check, subject)]
        return found


def test_rounds_follow_each_other_until_the_time_is_over():
    loop = Loop()
    ended, verdict = loop.run()
    assert [item.number for item in ended.rounds] == [1, 2, 3, 4, 5]
    assert [item.at_s for item in ended.rounds] == [0, 100, 200, 300, 400]
    assert verdict is PASS
    assert len(ended.results) == len(loop.plan.checks)
    assert ended.notes[0].startswith("5 rounds in 8 min 20 s, ")


def test_the_first_failure_ends_it_and_is_told_with_its_time():
    loop = Loop({3: {"ddp": {"steps": 4}}})
    ended, verdict = loop.run()
    assert (len(ended.rounds), verdict) == (3, FAIL)
    failed = loop.of(ended, "ddp", "virtual")
    assert failed.message.startswith("round 3, 3 min 20 s after the start: ")
    assert ended.notes[1].startswith("first failure: round 3, 3 min 20 s after the start (20")


def test_a_failure_stays_one_where_later_rounds_pass():
    loop = Loop({2: {"ddp": {"steps": 4}}}, keep_going=True)
    ended, verdict = loop.run()
    assert (len(ended.rounds), verdict) == (5, FAIL)
    assert "round 2" in loop.of(ended, "ddp", "virtual").message
    assert "round 2" in ended.notes[1]


def test_what_was_not_judged_in_one_round_is_not_green_in_the_end():
    late = Reply("ddp", Outcome.QUEUE_LIMIT, busy=True)
    ended, verdict = Loop({2: {"ddp": late}}).run()
    assert (len(ended.rounds), verdict) == (5, INCONCLUSIVE)


def test_what_only_the_first_round_makes_counts_for_all(monkeypatch):
    monkeypatch.setattr(rounds, "ONCE", ("cpus",))
    without = make_plan(suite="burn-in", selection=plan.Selection(skip=("cpus",)))
    for cpus, expected in ((2, PASS), (1, FAIL)):
        loop = Loop({1: {"node-gpu1": {"cpus": cpus}}}, keep_going=True)
        loop.plan_of = [None, loop.plan, *[without] * 4].__getitem__
        ended, verdict = loop.run()
        assert (len(ended.rounds), verdict) == (5, expected)
        assert loop.of(ended, "cpus", "gpu1").verdict is expected


def test_collectives_add_along_a_ring_whatever_the_site_declares():
    environments = {name: {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "INFO"} for name, *_ in REAL}
    jobs = {
        job.name: job for job in make_plan(*REAL, suite="burn-in", environments=environments).jobs
    }
    assert dict(jobs["same_sums"].environment) == {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"}
    assert dict(jobs["all_reduce"].environment)["NCCL_ALGO"] == "Tree"
    soak_job = jobs["soak-gpu1"]
    assert soak_job.config["device"] == "cuda"
    assert soak_job.cpus_per_task == soak_job.nodes[0].cpus  # it has the node to itself


@pytest.mark.parametrize(
    ("change", "check", "subject", "words"),
    [
        (
            {f"soak-gpu{number}": {"hashes": ("f" * 16,)} for number in (1, 2)},
            "same_bits",
            "gpu2",
            "one gemm came out in 2 ways in 4 rounds",
        ),
        (
            {"same_sums": {"digest": "f" * 16}},
            "same_sums",
            "virtual",
            "all_reduce came out in 2 ways over the rounds",
        ),
    ],
    ids=["a product", "a sum"],
)
def test_a_round_with_other_bits_than_the_rounds_before_ends_it(change, check, subject, words):
    """Each round is right by itself: all its results are equal."""
    loop = Loop({4: change})
    ended, verdict = loop.run()
    assert (len(ended.rounds), verdict) == (4, FAIL)
    assert words in loop.of(ended, check, subject).message


def test_a_node_that_was_started_again_did_not_last():
    loop = Loop()
    loop.boots = {
        number: {"gpu1": "BootTime=1", "gpu2": "BootTime=1"} for number in (1, 2, 3, 4, 5)
    }
    loop.boots[3] = {"gpu1": "BootTime=9", "gpu2": "BootTime=1"}
    ended, verdict = loop.run()
    assert (len(ended.rounds), verdict) == (3, FAIL)
    assert "gpu1: round" not in ended.notes[1]
    assert "soak gpu1: was started again during the burn-in: BootTime=9" in ended.notes[1]


def test_an_interrupted_burn_in_proves_nothing_and_goes_on():
    ended, verdict = Loop({3: {"interrupt": "ddp"}}).run()
    assert (len(ended.rounds), ended.interrupted, verdict) == (2, True, FAIL)
    assert all("interrupted" in r.message for r in ended.results if r.verdict is FAIL)
    assert not any(r.verdict.green for r in ended.results)
    text = "".join(item.line() for item in ended.rounds)
    before = rounds.read(text + text[:200], "rounds.jsonl")
    assert before == ended.rounds
    again = Loop(before=before)
    ended, verdict = again.run()
    assert [item.number for item in ended.rounds] == [1, 2, 3, 4, 5]
    assert ended.rounds[-1].at_s == 400  # what was done before counts
    assert (ended.interrupted, verdict) == (False, PASS)
    # Bits are held against those of the rounds before.
    odd = Loop({3: {"soak-gpu1": {"hashes": ("f" * 16,)}}}, before=before)
    ended, verdict = odd.run()
    assert (len(ended.rounds), verdict) == (3, FAIL)
    assert "same_bits gpu1: GPU" not in ended.notes[1]
    assert "one gemm came out in 2 ways" in ended.notes[1]


def test_an_interruption_while_a_round_is_written_down_waits_for_it(caplog):
    """The round counts, and the burn-in says how it goes on; once it was lost without a report."""
    loop = Loop()
    kept = []

    def keep(item):
        if item.number == 2:
            os.kill(os.getpid(), signal.SIGINT)
        kept.append(item.number)

    options = {"clock": lambda: loop.now, **loop.options}
    with interrupts.caught():
        ended = rounds.loop(loop.plan, loop.plan_of, loop.walk, keep, **options)
    assert ([item.number for item in ended.rounds], ended.interrupted) == ([1, 2], True)
    assert kept == [1, 2]
    assert [record.getMessage() for record in caplog.records] == ["after round 2: interrupted"]


def test_contact_that_is_lost_between_two_rounds_ends_it_with_what_is_known():
    ended, verdict = Loop({3: TransportError("login1 does not answer")}).run()
    assert (len(ended.rounds), ended.interrupted, verdict) == (2, True, FAIL)
    with pytest.raises(TransportError):
        Loop({1: TransportError("login1 does not answer")}).run()
    with pytest.raises(NotTheSame):
        Loop({2: NotTheSame("gpu1 was started again")}).run()


def test_a_torn_line_costs_its_round_and_any_other_is_refused():
    ended, _ = Loop(duration_s=150).run()
    line = ended.rounds[0].line()
    assert rounds.read(line + line[:-1], "rounds.jsonl") == ended.rounds[:1]
    with pytest.raises(UsageError, match=r"rounds.jsonl, line 1 cannot be read"):
        rounds.read("{}\n" + line, "rounds.jsonl")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("24h", 86400), ("20m", 1200), ("2h30m", 9000), ("1d", 86400), ("90s", 90)],
)
def test_durations(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "0h", "1.5h", "30m2h", "forever"])
def test_what_is_no_duration(text):
    with pytest.raises(UsageError, match="is no duration; give one such as 24h or 2h30m"):
        seconds_of(text)


def test_the_page_shows_each_round_and_the_curves_of_each_node():
    ended, _ = Loop({2: {"ddp": {"steps": 4}}}, keep_going=True).run()
    page = pages.render(ended.rounds, "Burn-in of <plumbline>", ended.notes)
    assert "Burn-in of &lt;plumbline&gt;" in page
    assert page.count("<polyline") == 2 * 2  # speed and clock of two nodes
    assert "CPU of gpu2" in page
    assert page.count('class="v fail"') == 1
    assert "first failure: round 2" in page


# --- what is judged of a node over time ------------------------------------------------------


def node(rates, host="gpu1", real=True, hashes=("0123456789abcdef",)):
    """A node in as many rounds as there are rates, one an hour."""
    plan = make_plan(*(REAL if real else (("gpu1", "virtual", 2),)), suite="burn-in")
    job = next(job for job in plan.jobs if job.name == f"soak-{host}")
    members = []
    for number, rate in enumerate(rates):
        document = standin.soak(
            job.hosts,
            job.config,
            rates=rate if isinstance(rate, tuple) else (rate,),
            hashes=hashes[number % len(hashes)] if isinstance(hashes[0], tuple) else hashes,
            began_ns=10**18 + number * HOUR_NS,
        )
        reply = Reply(job.name, Outcome.EXITED, 0, "7", standin.line(document))
        members.append(ComparedNode(job, reply, rules_of("virtual")))
    nodes, results = soaked.over_time("soak", members)
    assert not results
    whole = nodes[0]
    for later in nodes[1:]:
        whole = whole.and_then(later)
    return whole


@pytest.mark.parametrize(
    ("rates", "real", "verdict"),
    [
        ([100] * 24, True, PASS),
        ([100 - 0.07 * hour for hour in range(24)], True, PASS),
        ([100] * 23 + [97], True, WARN),
        ([100] * 23 + [94], True, FAIL),
        ([100] * 23 + [10], False, WARN),
        ([100] * 23 + [9], False, FAIL),
        ([60, *[100] * 23], True, PASS),  # it became faster
    ],
)
def test_the_last_hour_is_held_against_the_first(rates, real, verdict):
    (result,) = drift.judge([node(rates, real=real)])
    assert result.verdict is verdict, result.message
    if verdict is not PASS:
        assert "at the beginning 100" in result.message


def test_one_gpu_of_eight_that_lost_its_speed_is_named():
    (result,) = drift.judge([node([(100,) * 8] * 23 + [(100, 100, 100, 80, 100, 100, 100, 100)])])
    assert result.message == "GPU 3 does 80 products/s, at the beginning 100"


def test_a_slow_gpu_among_five_nodes():
    good = [node([100 + number] * 6, host=f"gpu{number}") for number in (1, 2, 3, 4)]
    slow = node([(101,) * 7 + (70,)] * 6, host="gpu5")
    *others, bad = soak_stragglers.judge([*good, slow])
    assert {other.verdict for other in others} == {PASS}
    assert bad.verdict is FAIL
    assert bad.message.startswith("GPU 7 does 70 products/s; the median of 40 GPUs is ")
    now_and_then = node([100, 100, 100, 80, 100, 100], host="gpu5")
    *_, unsteady = soak_stragglers.judge([*good, now_and_then])
    assert unsteady.verdict is WARN
    assert "is slow now and then: 17% of the time" in unsteady.message


def test_fewer_than_three_gpus_find_no_straggler():
    (result,) = soak_stragglers.judge([node([100] * 3, real=False)])
    assert (result.verdict, result.blamed) == (INCONCLUSIVE, None)


def test_silent_corruption_is_found_in_the_gpu_that_has_it():
    right, wrong = "0123456789abcdef", "f" * 16
    good = [node([100] * 6, host=f"gpu{number}") for number in (1, 2, 3)]
    rare = node([100] * 6, host="gpu4", hashes=((right,), (right,), (right, wrong)))
    always = node([100] * 6, host="gpu5", hashes=(wrong,))
    *others, once, other = same_bits.judge([*good, rare, always])
    assert {result.verdict for result in others} == {PASS}
    assert (once.verdict, once.blamed) == (FAIL, None)  # its subject is one node
    assert "GPU 0: one gemm came out in 2 ways in 6 rounds" in once.message
    assert "GPU 0: another result of one gemm than most equal GPUs have" in other.message


def test_of_two_nodes_that_differ_nobody_is_accused():
    one = node([100] * 3, host="gpu1")
    other = node([100] * 3, host="gpu2", hashes=("f" * 16,))
    results = same_bits.judge([one, other])
    assert {result.verdict for result in results} == {FAIL}
    assert {result.blamed for result in results} == {()}


# --- what is judged of a round ---------------------------------------------------------------


def soaked_result(**changes):
    answer = healthy("soak")
    document = standin.soak(answer.job.hosts, answer.job.config, rates=(50.0,), **changes)
    reply = Reply(answer.job.name, Outcome.EXITED, 0, "7", standin.line(document))
    return soak.evaluate(answer.job, reply, rules_of("h100_sxm"))


def hot(times, **values):
    samples = [standin.nvml_sample("gpu1", gpu, **(values if gpu == 1 else {})) for gpu in (0, 1)]
    well = [standin.nvml_sample("gpu1", gpu) for gpu in (0, 1)]
    return {"gpus": samples * times + well * (10 - times), "host": []}


BRAKE = {"clock_reasons": {"always": 128, "sometimes": 128, "reasons": "hardware power brake"}}


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({}, PASS, ""),
        ({"samples": hot(5, **BRAKE)}, FAIL, "GPU 1: clocks are reduced: hardware power brake"),
        ({"samples": hot(1, **BRAKE)}, PASS, ""),
        ({"samples": hot(4, temperature_c=88)}, FAIL, "88 °C, the board slows down from 87 °C"),
        ({"samples": {"gpus": [], "host": []}}, INCONCLUSIVE, "NVML was not heard"),
        ({"error": "the process was ended by SIGKILL"}, FAIL, "GPU 0: the process was ended by"),
    ],
    ids=["well", "power brake", "for a moment", "hot", "unseen", "lost"],
)
def test_a_round_of_load(changes, verdict, words):
    result = soaked_result(**changes)
    assert result.verdict is verdict, result.message
    assert words in result.message


@pytest.mark.parametrize(
    ("values", "verdict", "words"),
    [
        ({"ecc_volatile_uncorrected": 1}, FAIL, "GPU 1: 1 uncorrected ECC errors under load"),
        ({"ecc_volatile_corrected": 70}, WARN, "GPU 1: 70 corrected ECC errors under load"),
        ({"remapped_rows": {"pending": "yes"}}, FAIL, "waits for a reset to be remapped"),
    ],
)
def test_counters_that_grow_under_load(values, verdict, words):
    gpus = [standin.nvml_counters(0), standin.nvml_counters(1, **values)]
    net = {"eth0": {"rx_errors": 0, "tx_errors": 0}}
    result = soaked_result(after={"gpus": gpus, "net": net})
    assert (result.verdict, words in result.message) == (verdict, True)


def test_errors_of_a_network_card_under_load_are_a_warning():
    gpus = [standin.nvml_counters(gpu) for gpu in (0, 1)]
    result = soaked_result(after={"gpus": gpus, "net": {"eth0": {"rx_errors": 9, "tx_errors": 0}}})
    assert (result.verdict, result.message) == (WARN, "eth0 counted 9 rx_errors")


def test_a_gpu_that_stopped_early_was_not_under_load():
    answer = healthy("soak")
    document = standin.soak(answer.job.hosts, answer.job.config, rates=(50.0,))
    del document["measured"]["gpus"][1]["soak"]["windows"][-1]
    reply = Reply(answer.job.name, Outcome.EXITED, 0, "7", standin.line(document))
    result = soak.evaluate(answer.job, reply, rules_of("h100_sxm"))
    assert result.verdict is FAIL
    assert "GPU 1 was under load for" in result.message


# --- the whole program -----------------------------------------------------------------------


@pytest.fixture
def short(cluster, monkeypatch):
    """The suite with what is quick of it."""
    suite = yaml.safe_load((suites.FOLDER / "burn-in.yml").read_text())
    suite["checks"] = ["slurm_state", "cpus", "soak", "drift", "same_bits", "same_sums"]
    folder = cluster.path / "suites"
    folder.mkdir()
    (folder / "burn-in.yml").write_text(yaml.safe_dump(suite))
    monkeypatch.setattr(suites, "FOLDER", folder)
    monkeypatch.chdir(cluster.path)
    return cluster.install()


def test_a_burn_in_leaves_its_rounds(short):
    status, out, err = short.run("--suite", "burn-in", "--duration", "2s")
    assert status == 0, err
    count = len(short.lines("rounds.jsonl"))
    assert count >= 1
    assert re.search(rf"note: {count} rounds? in ", out)
    assert "round 1\n" in err
    names = {path.name for path in (short.output / "rounds").iterdir()}
    assert names == {"0001"}  # good rounds are a line each, but for the first
    assert "<polyline" in (short.output / "rounds.html").read_text()
    assert short.lines("passing_nodes.txt") == ["gpu1", "gpu2"]


@pytest.mark.long
def test_a_burn_in_that_fails_keeps_the_round_and_ends_with_1(short):
    state = short.path / "state" / "faults.json"
    state.write_text(json.dumps({"same_sums": {"arguments": {"odd": 1}}}))
    status, out, _ = short.run("--suite", "burn-in", "--duration", "1h")
    assert status == 1
    assert "note: first failure: round 1, 0 s after the start (" in out
    assert "all_reduce came out in 2 ways" in out
    assert (short.output / "rounds" / "0001" / "jobs" / "same_sums.stdout").exists()


@pytest.mark.long
def test_a_killed_burn_in_goes_on_with_its_rounds(short, monkeypatch):
    """In a process with the suite that ships: nobody can patch it there."""
    checks = "soak,drift,same_bits,same_sums"
    arguments = ["--suite", "burn-in", "--duration", "1h", "--only", checks]
    process = subprocess.Popen(
        [sys.executable, "-m", "validation.run", *short.arguments(*arguments)],
        cwd=short.path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    lines = short.output / "rounds.jsonl"
    wait_for(lambda: lines.exists() and len(lines.read_text().splitlines()) >= 1, seconds=90)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(short.lines("rounds.jsonl"))
    begun = json.loads((short.output / "run.json").read_text())
    monkeypatch.setattr(suites, "FOLDER", ROOT / "validation" / "suites")
    words = ["1s" if word == "1h" else word for word in begun["arguments"]]  # one round is enough
    (short.output / "run.json").write_text(json.dumps({**begun, "arguments": words}))
    status = run.main(["--resume", str(short.output)])
    out, err = short.capsys.readouterr()
    assert status == 0, err
    assert [json.loads(line)["number"] for line in short.lines("rounds.jsonl")] == [
        *range(1, done + 2)
    ]
    assert f"note: {done + 1} rounds in " in out
    assert not list(Path("/tmp").glob(f"plumbline-{begun['run']}*"))


def test_what_makes_no_sense_is_refused(short):
    status, _, err = short.run("--keep-going")
    assert (status, "--keep-going: give --duration too" in err) == (2, True)
    status, _, err = short.run("--duration", "soon")
    assert (status, "'soon' is no duration" in err) == (2, True)
