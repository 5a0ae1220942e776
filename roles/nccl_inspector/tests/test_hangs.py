"""A hang, a slow rank, a checkpoint; and what is done about the first."""

import json
import os
import socket
import time

import pytest

from cluster.readers import nccl_ras
from roles.nccl_inspector.files.nccl_inspector import actions, folders, hangs, sightings
from roles.nccl_inspector.files.nccl_inspector.actions import Action, Undone
from roles.nccl_inspector.files.nccl_inspector.sightings import Communicator, Kept, Rank, Ras
from roles.nccl_inspector.files.nccl_inspector.watcher import FIRST, MISSED, Watcher

POLLS = 3


def alike(*counts, silent=(), name="0xa"):
    """A communicator whose rank n launched the nth number of AllReduce."""
    ranks = tuple(
        Rank(number, f"gpu{number // 8 + 1}", {"AllReduce": count} if number not in silent else {},
             number not in silent)
        for number, count in enumerate(counts)
    )  # fmt: skip
    return (Communicator(name, ranks),)


def course(*looks):
    found = None
    for second, sighting in enumerate(looks):
        found = hangs.after(found, sighting, float(30 * second))
    return found


def words(found):
    return [f"{one.rank} {one.why}" for one in found.odd]


# --- the judgement -------------------------------------------------------------------------------


def test_a_rank_that_is_behind_and_does_not_move_is_a_hang():
    looks = [alike(7, 7, 7, 7), *[alike(9, 9, 8, 9)] * (POLLS + 1)]
    assert not course(*looks[:-1]).hangs(POLLS)
    found = course(*looks)
    assert found.hangs(POLLS)
    assert words(found) == ["2 launched 8 AllReduce, others 9"]
    assert found.moved == 30.0


def test_a_rank_that_is_silent_is_named_when_the_others_stand_still():
    found = course(alike(9, 9, 9), *[alike(9, 9, 9, silent=(1,))] * POLLS)
    assert found.hangs(POLLS)
    assert words(found) == ["1 does not answer"]


def test_a_slow_rank_is_none():
    looks = [alike(n, n, n - 1, n) for n in range(1, 30) for _ in range(POLLS)]
    for number in range(1, len(looks) + 1):
        assert not course(*looks[:number]).hangs(POLLS)


def test_ranks_that_are_alike_and_stand_still_write_a_checkpoint():
    found = course(*[alike(9, 9, 9)] * 50)
    assert not found.hangs(1)
    assert found.moved == 0


def test_a_rank_that_was_silent_for_a_moment_is_none():
    calm, silent = alike(9, 9), alike(9, 9, silent=(1,))
    assert not course(calm, silent, silent, calm, silent, silent).hangs(POLLS)


def test_new_communicators_are_progress():
    hang = alike(9, 8)
    other = alike(0, 0, name="0xb")
    assert not course(hang, hang, hang, hang + other, hang + other).hangs(POLLS)


def test_one_that_is_ahead_of_most_is_the_odd_one():
    assert words(course(*[alike(9, 8, 8, 8)] * 2)) == ["0 launched 9 AllReduce, others 8"]


def test_of_two_halves_the_one_behind_is_named():
    assert words(course(*[alike(9, 8)] * 2)) == ["1 launched 8 AllReduce, others 9"]


def test_no_more_than_eight_are_named():
    assert len(course(*[alike(*[1] * 50, *[2] * 60)] * 2).odd) == hangs.NAMED


# --- the sources ---------------------------------------------------------------------------------

# NVIDIA's user guide (Troubleshooting, RAS) with other addresses, and less of it.
ANSWER = {
    "nccl_version": "2.28.7",
    "communicators": [
        {
            "hash": "0xae94423cfbb2ef4a",
            "size": 3,
            "ranks_count": 2,
            "missing_ranks_count": 1,
            "ranks": [
                {"rank": 0, "host": "192.0.2.1", "collective_counts": {"AllReduce": 12}},
                {"rank": 1, "host": "192.0.2.1", "collective_counts": {"AllReduce": 11}},
            ],
            "missing_ranks": [
                {"rank": 2, "host": "192.0.2.2", "status": {"unresponsive": True}},
            ],
        }
    ],
}


@pytest.fixture
def job(tmp_path):
    (tmp_path / "4711").mkdir()
    return folders.JobFolder("4711", os.getuid(), tmp_path / "4711")


def test_ras_and_the_file_have_one_shape(job):
    (job.path / sightings.WATCH_FILE).write_text(json.dumps(ANSWER))
    kept = Kept(60).look(job)
    assert kept == sightings.seen(nccl_ras.document_of(json.dumps(ANSWER)) or {})
    (communicator,) = kept
    assert [(rank.number, rank.answers) for rank in communicator.ranks] == [
        (0, True), (1, True), (2, False),
    ]  # fmt: skip


def test_a_file_that_grows_old_tells_that_its_writer_is_silent(job):
    path = job.path / sightings.WATCH_FILE
    path.write_text(json.dumps({**ANSWER, "keeper": 0}))
    (communicator,) = Kept(60, now=lambda: time.time() + 61).look(job) or ()
    assert [rank.answers for rank in communicator.ranks] == [False, True, False]
    (communicator,) = Kept(60).look(job) or ()
    assert [rank.answers for rank in communicator.ranks] == [True, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "[" * 9999, '{"communicators": 1}', '{"communicators": [1, null]}',
        '{"communicators": [{"ranks": {"rank": 1}, "missing_ranks": "x"}]}',
        '{"communicators": [{"ranks": [1, "x"]}]}',
    ],
)  # fmt: skip
def test_what_is_no_answer_is_none(job, text):
    (job.path / sightings.WATCH_FILE).write_text(text)
    assert not Kept(60).look(job)


def test_what_users_write_has_limits(monkeypatch):
    monkeypatch.setattr(sightings, "MOST_RANKS", 100)
    row = {"rank": True, "host": 'x"} 1\nup{node="gpu1"} 0' + "y" * 99, "collective_counts": {
        f"kind{number}": 10**30 for number in range(999)}}  # fmt: skip
    (found,) = sightings.seen({"communicators": [{"hash": "<b>", "ranks": [row] * 200}]})
    assert len(found.ranks) == sightings.MOST_RANKS
    rank = found.ranks[0]
    assert (rank.number, len(rank.counts), set(rank.counts.values())) == (0, 32, {0})
    assert found.name == "_b_"
    assert len(rank.place) == 64
    assert not set(rank.place) & set('"{}\n ')


def test_only_the_owners_ras_is_asked(job, tmp_path):
    address = nccl_ras.address_of(job.job)
    port = int(address.rpartition(":")[2])
    asked = []

    def ask(where):
        asked.append(where)
        return json.dumps(ANSWER)

    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    table = tmp_path / "tcp"

    def listening(*owners, state="0A"):
        table.write_text(head + "".join(
            f"   0: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000"
            f" 00000000  {owner}        0 1 1\n"
            for owner in owners
        ))  # fmt: skip

    source = Ras(ask=ask, sockets=(table, tmp_path / "none"))
    for owners in ((), (job.owner + 1,), (job.owner, job.owner + 1)):
        listening(*owners)
        assert source.look(job) is None
    listening(job.owner, state="01")
    assert source.look(job) is None
    assert not asked
    listening(job.owner)
    assert source.look(job)
    assert asked == [address]


def test_the_kernels_own_table_is_understood():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert sightings.listeners(port, Ras().sockets) == set()
        listener.listen()
        assert sightings.listeners(port, Ras().sockets) == {os.getuid()}


def test_an_answer_in_words_has_no_numbers(job, tmp_path):
    source = Ras(ask=lambda _: "Communicators... (0.00s)\n===\n", sockets=())
    assert source.look(job) is None


# --- the watcher ---------------------------------------------------------------------------------


class Told:
    """A source that tells what it was given, then always the last of it."""

    name = "told"

    def __init__(self, *looks):
        self.looks = list(looks)

    def look(self, job):
        del job
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def watcher(source, action="observe", run=None):
    said: list[str] = []
    clock = iter(range(0, 10**6, 10))
    acts = Action(action, "/usr/bin/mail", run or (lambda command, text: None))
    return Watcher([source], POLLS, acts, said.append, lambda: float(next(clock))), said


def series(found, job):
    return {
        (family.name, *labels): value
        for family in found.families([job])
        for labels, value in family.samples.items()
    }


@pytest.fixture
def first(job):
    (job.path / FIRST).touch()
    return job


def test_a_hang_is_told_once_with_its_rank_and_its_end(first):
    calm = alike(9, 9)
    found, said = watcher(Told(calm, *[alike(10, 9)] * 6, alike(10, 10)))
    for _ in range(POLLS + 1):
        assert series(found, first)["nccl_job_hanging", "4711"] == 0
    assert not said
    for _ in range(3):
        samples = series(found, first)
        assert samples["nccl_job_hanging", "4711"] == 1
        assert samples["nccl_job_odd_rank_info", "4711", "1", "gpu1"] == 1
        assert samples["nccl_job_watched", "4711", "told"] == 1
    samples = series(found, first)
    assert samples["nccl_job_hanging", "4711"] == 0
    assert not [key for key in samples if key[0] == "nccl_job_odd_rank_info"]
    assert [text.partition(":")[0] for text in said] == ["job 4711 hangs", "job 4711 goes on"]
    assert "rank 1 on gpu1 launched 9 AllReduce, others 10" in said[0]


def test_another_node_than_the_first_does_not_look(job):
    found, _ = watcher(Told(alike(9, 8)))
    assert series(found, job) == {}


def test_an_answer_that_is_late_does_not_end_the_counting(first):
    hang = alike(9, 8)
    found, said = watcher(Told(hang, hang, None, hang, hang))
    samples = [series(found, first) for _ in range(5)]
    assert samples[2]["nccl_job_watched", "4711", "told"] == 0
    assert ("nccl_job_hanging", "4711") not in samples[2]
    assert samples[4]["nccl_job_hanging", "4711"] == 1
    assert len(said) == 1


def test_a_job_that_nobody_tells_of_is_forgotten(first):
    found, _ = watcher(Told(alike(9, 9), None))
    for _ in range(MISSED + 1):
        assert series(found, first)
    assert series(found, first) == {}


def ran(action, result=None):
    done = []

    def run(command, text):
        done.append((command, text))
        if result:
            raise Undone(result)

    return Action(action, "/usr/bin/mail", run), done


ODD = (hangs.Odd(3, "gpu2", "does not answer"),)


def test_observing_starts_nothing(job):
    action, done = ran("observe")
    assert action.do(job, ODD, 300) == "nothing was done"
    assert not done


def test_the_user_is_written_to(job):
    action, done = ran("mail")
    assert action.do(job, ODD, 300) == "told root"
    ((command, text),) = done
    assert command == ["/usr/bin/mail", "-s", "Slurm job 4711 hangs", "root"]
    assert "rank 3 on gpu2 does not answer" in text
    assert "scancel 4711" in text


def test_the_job_is_requeued(job):
    action, done = ran("requeue")
    assert action.do(job, ODD, 300) == "requeued it"
    assert done == [(["scontrol", "requeue", "4711"], "")]


def test_what_could_not_be_done_is_told_and_not_tried_again(first):
    action, done = ran("requeue", "scontrol ended with exit status 1: job is not requeueable")
    said: list[str] = []
    found = Watcher([Told(alike(9, 8))], POLLS, action, said.append, lambda: 0.0)
    for _ in range(9):
        series(found, first)
    assert len(done) == len(said) == 1
    assert said[0].endswith("(scontrol ended with exit status 1: job is not requeueable)")


def test_a_program_that_is_missing_is_one_sentence():
    with pytest.raises(Undone, match="cannot be started"):
        actions.run(["/nowhere/mail"], "text")
