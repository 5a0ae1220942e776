"""From what NCCL and torch say of a failure to what a result says of it.

Errors of torch are recorded ones, from the issues named beside them. RAS's answers are those of
NVIDIA's user guide (Troubleshooting, RAS) with other addresses; what tells of more ranks is made
from them. The dumps of torch's flight recorder are those of torch 2.13 and Gloo: rank 0 waits
within its second all_reduce, which rank 1 did not call. Those with NCCL's names are made from them.
"""

import json
import os
import socket
import threading
import time

import pytest

from cluster.readers import nccl_ras
from validation.checks import nccl_notes
from validation.checks.nccl_notes import Note
from validation.model import Outcome, Proof, Verdict
from validation.payloads import flight_recorder, nccl_error, nccl_witness, watch
from validation.report import words
from validation.tests.healthy_answers import healthy, result

# --- torch's errors -------------------------------------------------------------------------------

# hkproj/pytorch-transformer-distributed#1
NO_ROUTE = """\
NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.6
ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
Last error:
socketStartConnect: Connect to 192.0.2.14<52822> failed : No route to host
"""  # noqa: E501 - one line of torch's
# pytorch/pytorch#149984: nothing is told, and torch's stack follows
NOTHING = """\
NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.25.1
ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
Last error:

Exception raised from checkForNCCLErrorsInternal at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2501 (most recent call first):
C++ CapturedTraceback:
"""  # noqa: E501


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (NO_ROUTE, "socketStartConnect: Connect to 192.0.2.14<52822> failed : No route to host"),
        (NOTHING, ""),
        ("[1] is setting up NCCL communicator and retrieving ncclUniqueId", ""),
        ("NCCL error\nLast error: Unknown NCCL Error\n", ""),
        ("", ""),
    ],
)
def test_the_last_error_of_nccl_is_found_in_torchs(text, cause):
    assert nccl_error.cause(text) == cause


@pytest.mark.parametrize(
    ("said", "last", "together"),
    [
        (None, "", ""),
        ("a", "", "a"),
        (None, "b", "b"),
        ("a", "a", "a"),
        ("a HINT: h", "a", "a HINT: h"),
        ("a", "b", "a; last error: b"),
    ],
)
def test_a_warning_and_the_last_error_are_told_once(said, last, together):
    assert nccl_error.together(said, last) == together


# --- RAS ------------------------------------------------------------------------------------------


def rank(number, host="192.0.2.1", error=0, init=0, **counts):
    return {
        "rank": number,
        "host": host,
        "pid": 1000 + number,
        "cuda_dev": 0,
        "nvml_dev": 0,
        "status": {
            "init_state": init,
            "async_error": error,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": False,
        },
        "collective_counts": {"AllReduce": 12, **counts},
    }


def missing(number, dead=False):
    status = {"unresponsive": True, "considered_dead": dead}
    return {"rank": number, "host": "192.0.2.2", "pid": 1, "cuda_dev": 0, "nvml_dev": 0} | {
        "status": status
    }


def answer(*ranks, gone=()):
    communicator = {
        "hash": "0xae94423cfbb2ef4a",
        "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
        "size": len(ranks) + len(gone),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(gone),
        "ranks": list(ranks),
        "missing_ranks": list(gone),
    }
    return {
        "nccl_version": "2.29.1",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2025-12-19 13:06:53",
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"collection_time_sec": 0.000, "timeouts_count": 0},
    }


STOPPED = """\
Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 192.0.2.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data
"""


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            answer(rank(0), rank(1), gone=[missing(2)]),
            "rank 2 (192.0.2.2) does not answer",
        ),
        (
            answer(rank(0), gone=[missing(1, dead=True), missing(2, dead=True)]),
            "rank 1 (192.0.2.2), rank 2 (192.0.2.2) are dead",
        ),
        (
            answer(rank(0), rank(1), rank(2, AllReduce=11)),
            "rank 2 (192.0.2.1) launched 11 AllReduce, the others 12",
        ),
        (answer(rank(0), rank(1, error=3)), "rank 1 (192.0.2.1) reports error 3"),
        (answer(rank(0), rank(1, init=7)), "rank 1 (192.0.2.1) is not initialized"),
        (answer(rank(0), rank(1)), "all ranks of 1 communicators answer, as far as each other"),
    ],
)
def test_the_answer_of_ras_is_shortened(document, said):
    assert nccl_ras.shortened(json.dumps(document, indent=2)) == said


def test_a_comma_that_a_release_leaves_out_does_not_matter():
    text = json.dumps(answer(rank(0), gone=[missing(1)]), indent=2)
    without = text.replace('"nvml_dev": 0,\n          "status": {\n            "unres', "X")
    without = without.replace("X", '"nvml_dev": 0\n          "status": {\n            "unres')
    assert without != text
    assert nccl_ras.shortened(without) == "rank 1 (192.0.2.2) does not answer"


def test_an_answer_in_words_is_shortened():
    assert nccl_ras.shortened(STOPPED) == (
        "Missing communicator data from 1 job process; Process 3487984 on node 192.0.2.213 managing"
        " GPU 5; Missing communicator data from 1 rank; The missing rank: 21; Encountered 2"
        " communication timeouts while gathering communicator data"
    )
    healthy_words = STOPPED.partition("Errors\n======")[0]
    assert nccl_ras.shortened(healthy_words) == "no rank is missing or reports an error"
    assert nccl_ras.shortened("HTTP/1.1 400 Bad Request") == "an answer of no known form"


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"communicators": 3}, {"communicators": [1, {}, {"ranks": [{}, 3]}]}],
)
def test_an_answer_of_another_form_raises_nothing(document):
    assert nccl_ras.shortened(json.dumps(document))


class Server:
    """Answers on a port of its own as RAS does: lines, then a document until it hangs up."""

    def __init__(self, replies, document=b"", slow=False):
        self.replies, self.document, self.slow = replies, document, slow
        self.heard = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        connection, _ = self._socket.accept()
        with connection, connection.makefile("rwb") as stream:
            for reply in self.replies:
                self.heard.append(stream.readline().decode().strip())
                stream.write(reply)
                stream.flush()
            if self.slow:
                time.sleep(2)
                return
            self.heard.append(stream.readline().decode().strip())
            stream.write(self.document)

    def close(self):
        self._thread.join(5)
        self._socket.close()


@pytest.mark.parametrize("known", [b"OK\n", b"ERROR: Unknown command SET FORMAT json\n"])
def test_ras_is_asked_in_its_own_words(known):
    server = Server([b"SERVER PROTOCOL 2\n", b"OK\n", known], b"the answer\n")
    assert nccl_ras.ask(server.address, 5) == "the answer\n"
    server.close()
    assert server.heard == ["CLIENT PROTOCOL 2", "TIMEOUT 3", "SET FORMAT json", "STATUS"]


def test_nobody_a_stranger_and_a_silent_one_are_no_ras():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert nccl_ras.ask(f"127.0.0.1:{port}", 1) is None
    assert nccl_ras.ask("no address", 1) is None
    stranger = Server([b"SSH-2.0-OpenSSH_9.2p1\n"])
    assert nccl_ras.ask(stranger.address, 1) is None
    silent = Server([], slow=True)
    began = time.monotonic()
    assert nccl_ras.ask(silent.address, 0.3) is None
    assert time.monotonic() - began < 2
    for server in (stranger, silent):
        server.close()


# --- the flight recorder --------------------------------------------------------------------------


def recorded(number, retired, state="scheduled", name="gloo:all_reduce"):
    return {
        "collective_seq_id": number,
        "input_dtypes": ["Float"],
        "input_sizes": [[4]],
        "is_p2p": False,
        "op_id": number,
        "output_dtypes": ["Float"],
        "output_sizes": [[4]],
        "p2p_seq_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": name,
        "record_id": number - 1,
        "retired": retired,
        "state": state,
        "time_created_ns": 1795828124866690899,
        "timeout_ms": 1800000,
    }


def dumped(*entries):
    return json.dumps({"comm_lib_version": "", "entries": entries, "version": "2.10"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            dumped(recorded(1, True), recorded(2, False)),
            "waits for all_reduce number 2 of [[4]] Float, scheduled; before it all_reduce number 1"
            " of [[4]] Float",
        ),
        (
            dumped(recorded(1, True)),
            "waits for no collective; the last was all_reduce number 1 of [[4]] Float",
        ),
        (
            dumped(
                recorded(7, False, "completed", "nccl:all_reduce"),
                recorded(8, False, "started", "nccl:_all_gather_base"),
                recorded(9, False, "scheduled", "nccl:all_reduce"),
            ),
            "waits for _all_gather_base number 8 of [[4]] Float, started, 1 after it; before it"
            " all_reduce number 7 of [[4]] Float",
        ),
        (dumped(), ""),
        ("", ""),
        ("[]", ""),
        ('{"entries": [3, null]}', ""),
        ('{"entries": [{}]}', "waits for ? number ? of ?, of no known state"),
    ],
)
def test_what_a_rank_waits_for_is_told(text, said):
    assert flight_recorder.shortened(text) == said


@pytest.mark.parametrize(
    ("release", "names"),
    [
        ((2, 9, 0), {"TORCH_FR_BUFFER_SIZE"}),
        ((2, 13, 0), {"TORCH_FR_BUFFER_SIZE"}),
        ((2, 8, 9), {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}),
        (None, {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}),
    ],
)
def test_the_recorder_is_asked_for_by_the_name_that_a_release_knows(release, names):
    environ = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}
    flight_recorder.request(environ, release)
    assert environ == dict.fromkeys(names, "128")


# --- from a rank to the result --------------------------------------------------------------------

LOG = """\
n1:1:1 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>
n1:1:1 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>
n1:1:1 [0] NCCL INFO Using network Socket
n1:1:1 [0] misc/socket.cc:9 (f) NCCL WARN socketStartConnect: Connect to 172.17.0.1 failed
"""


class Store:
    """Of a rank 0 that sees all ranks beat."""

    def __getattr__(self, name):
        return {"check": lambda _: False, "get": lambda _: "[]"}.get(name, lambda *_: None)


def test_a_rank_that_fails_tells_what_its_log_shows(tmp_path, capsys):
    path = tmp_path / "nccl.log"
    path.write_text(LOG)
    here = watch.Watch(Store, ("localhost", 1), 1, ["n1", "n1"], 60, path)
    error = here.explain("unhandled system error", "socketStartConnect: Connect to 172.17.0.1")
    here.stop()
    assert str(error).startswith(
        "NCCL: socketStartConnect: Connect to 172.17.0.1 failed; unhandled system error (while"
    )
    assert capsys.readouterr().err.splitlines() == [
        "plumbline: nccl rank 1 on n1 warned: socketStartConnect: Connect to 172.17.0.1 failed",
        "plumbline: nccl rank 1 on n1 network: Socket docker0",
        "plumbline: nccl rank 1 on n1 bootstrap: docker0",
    ]


def test_a_rank_that_hangs_asks_ras_and_the_recorder_after_its_complaint(
    tmp_path, capsys, monkeypatch
):
    """The first rank of a node asks for all of them."""
    path = tmp_path / "nccl.log"
    path.write_text(LOG)
    server = Server(
        [b"SERVER PROTOCOL 2\n", b"OK\n", b"OK\n"],
        json.dumps(answer(rank(0), gone=[missing(1)])).encode(),
    )
    monkeypatch.setenv("NCCL_RAS_ADDR", server.address)
    monkeypatch.setattr(flight_recorder, "dump", lambda: dumped(recorded(2, False)))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(os, "_exit", lambda status: (_ for _ in ()).throw(SystemExit(status)))
    here = watch.Watch(Store, ("localhost", 1), 1, ["n0", "n1"], 60, path)
    here.stop()
    with pytest.raises(SystemExit):
        here._hang()
    server.close()
    lines = capsys.readouterr().err.splitlines()
    complaint = next(place for place, line in enumerate(lines) if "no progress for 60 s" in line)
    assert lines[complaint + 1 :] == [
        "plumbline: nccl rank 1 on n1 ras: rank 1 (192.0.2.2) does not answer",
        "plumbline: nccl rank 1 on n1 waits: waits for all_reduce number 2 of [[4]] Float,"
        " scheduled",
    ]
    assert nccl_witness.Witness(path, first=False).asked()[0][0] == "waits"
    assert nccl_witness.Witness(None, first=True).asked() == ()


def lines_of(kind, *texts):
    return "".join(
        f"plumbline: nccl rank {rank} on gpu{rank // 2 + 1} {kind}: {text}\n"
        for rank, text in enumerate(texts)
    )


STDERR = (
    "plumbline: stage measuring rank 0 on gpu1\n"
    "plumbline: all_reduce, rank 0 on gpu1: no progress for 120 s; all ranks still respond\n"
    + lines_of("network", *["IB mlx5_0:1"] * 4)
    + lines_of("bootstrap", "eth0", "eth0", "eth0", "docker0")
    + lines_of("warned", *["Call to recv failed"] * 4)
    + "plumbline: nccl rank 0 on gpu1 ras: rank 3 (192.0.2.2) does not answer\n"
    "plumbline: nccl rank 2 on gpu2 no-ras: NCCL's RAS did not answer on localhost:28028\n"
)


@pytest.mark.parametrize("check", ["all_reduce", "ddp"])
@pytest.mark.parametrize("outcome", [Outcome.EXITED, Outcome.RUN_LIMIT])
def test_what_ranks_say_of_nccl_is_folded_into_the_result_of_a_job_that_failed(check, outcome):
    answered = healthy(check)
    changes = {"outcome": outcome, "exit_code": 1, "stderr": STDERR}
    if outcome is Outcome.RUN_LIMIT:
        changes["exit_code"] = None
    told = result(check, answered.job, "", **changes)
    assert told.verdict is Verdict.FAIL
    assert "no progress for 120 s; all ranks still respond" in told.message
    assert told.message.endswith(
        "; NCCL warned: Call to recv failed; NCCL's RAS: rank 3 (192.0.2.2) does not answer;"
        " NCCL's network: IB mlx5_0:1; the ranks met over eth0 on 3 ranks; docker0 on rank 3 on"
        " gpu2"
    )
    assert "more such lines" not in told.message
    assert "did not answer on localhost" not in told.message
    metrics = {metric.name: metric.value for metric in told.metrics}
    assert metrics["NCCL's bootstrap interface"] == "eth0 on 3 ranks; docker0 on rank 3 on gpu2"


def test_without_ras_only_the_details_say_so():
    notes = nccl_notes.read(
        "plumbline: nccl rank 0 on gpu1 no-ras: NCCL's RAS did not answer on localhost:28028\n"
    )
    assert nccl_notes.sentence(notes) == ""
    (metric,) = nccl_notes.details(notes)
    assert (metric.name, metric.value) == (
        "NCCL's RAS",
        "NCCL's RAS did not answer on localhost:28028",
    )


def test_what_the_complaint_says_already_is_not_told_again():
    notes = [Note("warned", "Call to recv failed", 0, "gpu1")]
    assert nccl_notes.sentence(notes, told="NCCL: Call to recv failed; x") == ""


def test_many_ranks_with_a_text_each_stay_short():
    notes = [Note("warned", f"rank {n} lost {'x' * 300}", n, f"gpu{n}") for n in range(1000)]
    assert len(nccl_notes.sentence(notes)) <= nccl_notes.LONGEST_ALL
    assert "and 997 others" in nccl_notes.folded(notes)


@pytest.mark.parametrize(
    "line",
    [
        "plumbline: nccl rank x on gpu1 warned: text",
        "plumbline: nccl rank 1 on gpu1 warned:",
        "plumbline: nccl",
        "nccl rank 1 on gpu1 warned: text",
    ],
)
def test_a_line_of_another_form_is_no_note(line):
    assert nccl_notes.read(line) == []


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("2.99.1", "NCCL 2.99.1 (newer than 2.32.3, the newest whose log is known)"),
        ("2.32.3", "NCCL 2.32.3"),
        ("2.21.5", "NCCL 2.21.5"),
        ("2.4.0", "NCCL 2.4.0"),
        (None, ""),
    ],
)
def test_the_report_says_if_a_release_is_newer_than_all_that_are_known(release, said):
    proof = Proof(("gpu1",), None, "nccl", None, None, release)
    assert words.proof(proof) == ", ".join(filter(None, ("on gpu1", "backend nccl", said)))
