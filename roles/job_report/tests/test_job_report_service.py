"""Who is told what, and that nobody keeps the others waiting."""

import os
import re
import signal
import socket
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from roles.job_report.files.job_report import client, main, protocol, sacct, service, site, usage
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.tests.recorded import END, START, job, row, steps
from tests.patience import until

ALICE = service.Asker(2001, frozenset({2001}))
BOB = service.Asker(2002, frozenset({2002}))
REFUSED = "none of your own jobs is 4711"


@pytest.fixture
def served(tmp_path):
    """Starts the service with a function that answers; its socket."""
    processes = []

    def start(answer, idle_s=60.0):
        path = tmp_path / "socket"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(128)
            with warnings.catch_warnings():  # the threads of the stand-ins are none of its own
                warnings.simplefilter("ignore", DeprecationWarning)
                process = os.fork()
            if not process:
                try:
                    service.serve(listening, answer, idle_s)
                finally:
                    os._exit(0)
        processes.append(process)
        return path

    yield start
    for process in processes:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


# --- who -----------------------------------------------------------------------------------------


def test_the_kernel_says_who_asks():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        asker = service._asker(ours)
    assert asker.uid == os.geteuid()
    assert asker.groups == frozenset((os.getegid(), *os.getgroups()))


def test_a_user_is_told_of_a_job_of_theirs(slurm, server, tmp_path):
    slurm("\n".join([row(), *steps()]))
    settings, forms = server
    measured = protocol.unpacked(service.answer_of(ALICE, "4711", settings)["measured"])
    assert measured.gpus is not None
    assert len(measured.gpus.each) == 4
    assert not measured.not_known
    arguments = (tmp_path / "asked").read_text().splitlines()
    assert "--uid=2001" in arguments
    assert "--allusers" not in arguments
    span = (f"{START}.000", f"{END}.000", "30")
    assert {(form["start"], form["end"], form["step"]) for form in forms} == {span}


def test_of_anothers_job_one_is_told_what_one_is_told_of_none(slurm, server):
    settings, forms = server
    slurm(row())
    of_another = service.answer_of(BOB, "4711", settings)
    slurm("")
    of_none = service.answer_of(BOB, "4711", settings)
    assert of_another == of_none
    assert REFUSED in of_another["refused"]
    assert not forms


def test_a_sacct_that_tells_more_than_it_was_asked_opens_nothing(slurm, server):
    settings, forms = server
    slurm(row(), uid="2002")
    assert REFUSED in service.answer_of(BOB, "4711", settings)["refused"]
    slurm(row(UID=""), uid="2002")
    assert REFUSED in service.answer_of(BOB, "4711", settings)["refused"]
    assert not forms


def test_anothers_array_is_not_counted(slurm, server):
    slurm(f"{row('4711_1')}\n{row('4711_2')}")
    assert REFUSED in service.answer_of(BOB, "4711", server[0])["refused"]
    assert "is 2 jobs" in service.answer_of(ALICE, "4711", server[0])["refused"]


@pytest.mark.parametrize(
    ("asker", "group"),
    [
        (service.Asker(0, frozenset()), ""),
        (service.Asker(os.geteuid(), frozenset()), ""),
        (service.Asker(2002, frozenset({0})), "root"),
    ],
)
def test_operators_are_told_of_all_jobs(slurm, server, asker, group):
    slurm(row())
    assert "measured" in service.answer_of(asker, "4711", replace(server[0], operators=group))


@pytest.mark.parametrize("group", ["", "nobody-has-this-group"])
def test_a_group_that_there_is_not_opens_nothing(slurm, server, group):
    slurm(row())
    settings = replace(server[0], operators=group)
    assert REFUSED in service.answer_of(BOB, "4711", settings)["refused"]


@pytest.mark.parametrize("text", ["", "4711;reboot", "--allusers", '4711"} or up'])
def test_what_is_no_job_is_asked_of_nobody(slurm, server, tmp_path, text):
    slurm(row())
    assert "names no job" in service.answer_of(ALICE, text, server[0])["refused"]
    assert not (tmp_path / "asked").exists()


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_wrong_password_is_told_once_and_the_rest_reported(slurm, server, served, capsys):
    settings, _ = server
    settings.server.password.write_text("other")
    slurm("\n".join([row(TotalCPU=""), *steps()]))  # so that CPUs are asked for, too
    path = served(lambda asker, question: service.answer(asker, question, settings))
    assert main.main(["4711", "--socket", str(path)]) == 0
    output = capsys.readouterr().out
    assert "memory  8.0 GiB" in output
    assert output.count(" answers with 401: Unauthorized.") == 1


def test_the_program_asks_both_and_reports(slurm, server, served, capsys):
    slurm("\n".join([row(), *steps()]))
    path = served(lambda asker, question: service.answer(asker, question, server[0]))
    assert main.main(["4711", "--socket", str(path)]) == 0
    assert "4, 70% busy in the mean" in capsys.readouterr().out


def test_a_check_says_what_does_not_answer(slurm, server, served, capsys):
    slurm("")
    path = served(lambda asker, question: service.answer(asker, question, server[0]))
    assert main.main(["--check", "--socket", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["service: answers", "accounting: answers", "Prometheus: answers"]
    slurm("", status=1, error="no database")
    server[0].server.password.write_text("other")
    assert main.main(["--check", "--socket", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("accounting: sacct ended with exit status 1: no database")
    assert "answers with 401" in lines[2]
    assert main.main(["--check", "--socket", "/nowhere"]) == 1
    assert "there is no /nowhere" in capsys.readouterr().err


def test_accounting_that_fails_is_told(slurm, server):
    slurm(status=1, error="sacct: error: no database")
    assert "no database" in service.answer_of(ALICE, "4711", server[0])["refused"]


@pytest.mark.parametrize("text", ["", "{", '{"url": "x"}'])
def test_settings_that_are_none(tmp_path, text):
    file = tmp_path / "settings"
    file.write_text(text)
    with pytest.raises(NotKnown, match="is not what the role job_report writes"):
        site.settings("secret", file)
    with pytest.raises(NotKnown, match="cannot be read: No such file"):
        site.settings("secret", tmp_path / "none")


def test_a_question_has_an_end_that_kills_what_it_waits_for(slurm, server, monkeypatch, tmp_path):
    monkeypatch.setattr(service, "LIMIT_S", 0.3)
    slurm(row(), slow=60)
    before = time.monotonic()
    result = service._in_time(lambda: service.answer_of(ALICE, "4711", server[0]))
    assert "did not answer within 0.3 s" in result["refused"]
    assert time.monotonic() - before < 10
    asked = (tmp_path / "asked").read_text()
    time.sleep(0.1)
    assert (tmp_path / "asked").read_text() == asked


def told(path, text=b'{"job": "4711"}\n', wait=5.0):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(wait)
        connection.connect(str(path))
        with suppress(BrokenPipeError):  # who is told to ask again is not listened to
            connection.sendall(text)
        return protocol.read_line(connection, protocol.ANSWER)


def late(seconds, answer):
    def answering(*_):
        time.sleep(seconds)
        return answer

    return answering


def test_one_user_gets_a_few_answers_at_a_time(served):
    path = served(late(2, {"refused": "done"}))
    with ExitStack() as stack:
        asking = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(6)]
        for connection in asking:
            connection.connect(str(path))
            with suppress(BrokenPipeError):
                connection.sendall(b'{"job": "4711"}\n')
        answers = [protocol.read_line(connection, protocol.ANSWER) for connection in asking]
    assert sum("refused" in answer for answer in answers) == service.OF_ONE
    busy = [answer["busy"] for answer in answers if "busy" in answer]
    assert set(busy) == {"The service of job-report still answers your questions; ask again."}
    until(lambda: "refused" in told(path), 20)  # a place is free again


def test_many_questions_of_one_user_are_all_answered_in_the_end(served):
    measured = protocol.packed(usage.Measured(1.5))
    path = served(late(0.05, {"measured": measured}))
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: client.ask(job(), path), range(20)))
    assert {answer.cpus_busy for answer in answers} == {1.5}


def test_who_does_not_ask_does_not_keep_the_service(served, monkeypatch):
    monkeypatch.setattr(service, "QUESTION_S", 3)
    path = served(lambda *_: {"refused": "done"})
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        first.connect(str(path))
        second.connect(str(path))
        assert "busy" in told(path)
        until(lambda: "refused" in told(path), 20)


@pytest.mark.parametrize("text", [b"\n", b"[]\n", b"x" * 70000 + b"\n", b"\xff\n"])
def test_what_is_no_question_gets_no_answer_and_ends_nothing(served, text):
    path = served(lambda *_: {"refused": "done"})
    with pytest.raises((OSError, ValueError)):
        told(path, text)
    assert "refused" in told(path)


def test_an_answer_that_fails_ends_nothing(served):
    path = served(lambda _, question: 1 / 0 if question["job"] == "1" else {"refused": "done"})
    with pytest.raises((OSError, ValueError)):
        told(path, b'{"job": "1"}\n')
    assert "refused" in told(path)


def test_the_service_ends_when_nobody_asks(served):
    path = served(lambda *_: {"refused": "done"}, idle_s=0.2)
    assert "refused" in told(path)
    with pytest.raises(ConnectionRefusedError):
        until(lambda: told(path) and False, 20)


def test_it_starts_by_its_socket_alone(capsys):
    assert service.main({}) == 2
    assert "started by systemd" in capsys.readouterr().err


# --- the other side ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"refused": "No\x1b[2J."}, "No [2J."),
        ({"measured": {"gpus": None}}, "answers with something else"),
        (
            {"measured": {"gpus": {"each": [{}], "how": ""}, "cpus_busy": 1, "not_known": []}},
            "else",
        ),
    ],
)
def test_what_the_service_refuses_is_told(served, answer, sentence):
    with pytest.raises(NotKnown, match=re.escape(sentence)):
        client.ask(job(), served(lambda *_: answer))


def test_a_service_that_stays_busy_is_told(served, monkeypatch):
    monkeypatch.setattr(client, "BUSY_S", 0.3)
    with pytest.raises(NotKnown, match="still busy"):
        client.ask(job(), served(lambda *_: {"busy": "still busy"}))


def test_a_service_that_does_not_answer_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "ANSWER_S", 0.3)
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        with pytest.raises(NotKnown, match=r"cannot be asked: .*refused"):
            client.ask(job(), path)
        listening.listen()
        with pytest.raises(NotKnown, match="does not answer: timed out"):
            client.ask(job(), path)


def test_both_sides_and_the_role_mean_the_same_socket():
    variables = yaml.safe_load(
        (Path(__file__).resolve().parents[1] / "vars/main.yml").read_text(encoding="utf-8")
    )
    assert variables["__job_report_socket"] == str(protocol.SOCKET)
    assert variables["__job_report_config"] == str(site.FILE)


def test_measures_survive_the_way():
    use = usage.GpuUse("gpu1", "0", "", 70.0, 80.0, None, 1000.0, 500.0)
    measured = usage.Measured(2.5, usage.Gpus((use,), "by the job's id"), ("Why.",))
    assert protocol.unpacked(protocol.packed(measured)) == measured
    assert sacct.JOB.fullmatch("4711+1")
