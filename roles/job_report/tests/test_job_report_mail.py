"""The mail of a job: it always goes, and has the report where there is one."""

import email
import email.policy
import json
import stat

import pytest

from roles.job_report.files.job_report import client, mail, usage
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.tests.recorded import FOUR, answer, row, steps
from roles.job_report.tests.test_job_report import Answers

ENDED = "Slurm Job_id=4711 Name=train Ended, Run time 01:00:00, COMPLETED, ExitCode 0"
MAILER = """\
#!/bin/sh
printf '%s\\n' "$@" > {0}/arguments
cat > {0}/mail
echo x >> {0}/tries
[ "$(wc -l < {0}/tries)" -gt {1} ]
"""


@pytest.fixture
def mailer(tmp_path, monkeypatch):
    """Takes a mail, after it failed for some times; returns what runs the program with it."""
    monkeypatch.setattr(mail, "PAUSE_S", 0.01)
    monkeypatch.setattr(mail, "POLL_S", 0.01)
    monkeypatch.setattr(mail, "ACCOUNTED_S", 0.1)
    monkeypatch.setattr(client, "ask", lambda _: usage.Measured(not_known=("No GPUs.",)))

    def send(*arguments, fails=0, sender="", environ=None):
        program = tmp_path / "mailer"
        program.write_text(MAILER.format(tmp_path, fails))
        program.chmod(stat.S_IRWXU)
        config = tmp_path / "job_mail.json"
        config.write_text(json.dumps({"mailer": [str(program), "-i", "--"], "sender": sender}))
        code = mail.main(arguments, environ or {}, config)
        text = tmp_path / "mail"
        policy = email.policy.default
        return code, email.message_from_bytes(
            text.read_bytes(), policy=policy
        ) if code == 0 else None

    return send


def test_a_job_that_ended_comes_with_its_report(mailer, slurm, tmp_path):
    slurm("\n".join([row(TimelimitRaw="3000"), *steps(peak="512M")]))
    code, message = mailer("-s", ENDED, "alice@example.org", sender="slurm@example.org")
    assert code == 0
    assert (message["Subject"], message["To"]) == (ENDED, "alice@example.org")
    assert (message["From"], message["Auto-Submitted"]) == ("slurm@example.org", "auto-generated")
    assert (tmp_path / "arguments").read_text() == "-i\n--\nalice@example.org\n"
    lines = message.get_content().splitlines()
    assert lines[:3] == [
        ENDED,
        "",
        "Job 4711 (train) of alice, account physics: COMPLETED, exit code 0:0",
    ]
    assert "  CPU     50% of 16: 8.0 busy in the mean" in lines
    assert "  No GPUs." in lines
    hints = lines[lines.index("Hints:") + 1 : lines.index("Not known:")]
    assert [hint.split(":")[0] for hint in hints] == [
        "  It used 1% of its 64.0 GiB of memory",
        "  It ended after 2% of its time limit",
    ]


def test_with_gpus(mailer, slurm, monkeypatch):
    slurm(row())
    measure = Answers(GPU_UTIL=FOUR)
    monkeypatch.setattr(client, "ask", lambda job: usage.Measured(gpus=usage.gpus(job, measure)))
    _, message = mailer("-s", ENDED, "alice")
    assert "  GPU     4, 70% busy in the mean" in message.get_content()
    assert answer()


@pytest.mark.parametrize(
    ("subject", "asked"),
    [
        ("Slurm Array Task Job_id=4711_3 (4714) Name=x Failed, Run time 00:00:01", "4711_3"),
        ("SLURM Job_id=4711 Name=x Ended, Run time 00:00:01", "4711"),
        ("Slurm Job_id=4711 Name=x Reached 90% of time limit, Run time 00:00:01", "4711"),
        ("Slurm Job_id=4711 Name=Slurm Job_id=1 Ended, Run time 00:00:01", "4711"),
    ],
)
def test_which_job_it_is(mailer, slurm, tmp_path, subject, asked):
    slurm(row(asked))
    assert mailer("-s", subject, "alice")[0] == 0
    assert f"--jobs={asked}" in (tmp_path / "asked").read_text().splitlines()


@pytest.mark.parametrize(
    "subject",
    [
        "Slurm Job_id=4711 Name=x Began, Queued time 00:00:01",
        "Slurm Job_id=4711 Name=x Invalid dependency",
        "Slurm Array Summary Job_id=4711_* (4711) Name=x Ended, COMPLETED, ExitCode [0-0]",
        "x Slurm Job_id=4711 Name=x Ended, Run time 00:00:01",
        "",
    ],
)
def test_what_has_no_report(mailer, slurm, tmp_path, subject):
    slurm(row())
    code, message = mailer("-s", subject, "alice")
    assert code == 0
    assert message.get_content().strip() == subject
    assert not (tmp_path / "asked").exists()


def test_slurms_own_word_counts_more_than_the_subject(mailer, slurm, tmp_path):
    slurm(row())
    began = {"SLURM_JOB_MAIL_TYPE": "Began"}
    named = "Slurm Job_id=4711 Name= Ended, x Began, Queued time 00:00:01"
    assert mailer("-s", named, "alice", environ=began)[0] == 0
    assert not (tmp_path / "asked").exists()


def test_a_report_that_fails_holds_no_mail_up(mailer, slurm, monkeypatch):
    slurm("", status=1, error="no database")
    code, message = mailer("-s", ENDED, "alice")
    assert code == 0
    assert "There is no report of the job: sacct ended with exit status 1" in message.get_content()
    slurm(row())
    monkeypatch.setattr(client, "ask", lambda _: 1 / 0)
    assert "ZeroDivisionError" in mailer("-s", ENDED, "alice")[1].get_content()

    def refuse(_):
        raise NotKnown("Nobody can be asked.")

    monkeypatch.setattr(client, "ask", refuse)
    assert "Nobody can be asked." in mailer("-s", ENDED, "alice")[1].get_content()


def test_a_report_that_takes_long_holds_no_mail_up(mailer, slurm, monkeypatch):
    monkeypatch.setattr(mail, "REPORT_S", 0.3)
    slurm(row(), slow=60)
    code, message = mailer("-s", ENDED, "alice")
    assert code == 0
    assert "it took more than 0.3 s" in message.get_content()


def test_accounting_that_is_late_is_waited_for_and_not_for_ever(
    mailer, slurm, tmp_path, monkeypatch
):
    monkeypatch.setattr(mail, "ACCOUNTED_S", 2.0)
    slurm(row(End="Unknown", State="RUNNING"))
    code, message = mailer("-s", ENDED, "alice")
    assert code == 0
    assert "RUNNING" in message.get_content()
    assert (tmp_path / "asked").read_text().count("--jobs=4711") > 2


def test_a_mailer_that_fails_is_tried_again_and_told(mailer, slurm, tmp_path, capsys):
    slurm(row())
    assert mailer("-s", ENDED, "alice", fails=mail.TRIES - 1)[0] == 0
    (tmp_path / "tries").unlink()
    assert mailer("-s", ENDED, "alice", fails=mail.TRIES)[0] == 1
    assert "The mail to alice was not handed over: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x\nBcc: eve@example.org", "\x1b]0;x\x07", "é" * 300])
def test_a_name_makes_no_header(mailer, slurm, name):
    slurm(row(), name=name)
    code, message = mailer("-s", ENDED.replace("train", name), "alice")
    assert code == 0
    assert set(message.keys()) >= {"Subject", "To"}
    assert message["Bcc"] is None
    assert "\x1b" not in message.as_string()


@pytest.mark.parametrize("recipient", ["", "-oQ/tmp", "a\nBcc: eve", "a\x1b"])
def test_nobody_is_no_recipient(mailer, slurm, tmp_path, recipient, capsys):
    slurm(row())
    assert mailer("-s", ENDED, recipient)[0] == 2
    assert not (tmp_path / "mail").exists()
    assert "is nobody whom a mail can go to" in capsys.readouterr().err


def test_a_recipient_that_is_no_address_is_the_mailers_matter(mailer, slurm, tmp_path):
    slurm(row())
    assert mailer("-s", ENDED, "a@b@c; touch x")[0] == 0
    assert (tmp_path / "arguments").read_text().endswith("\na@b@c; touch x\n")


def test_other_arguments_are_none(tmp_path, capsys):
    assert mail.main(["x"], {}) == 2
    assert mail.main(["-x", "y", "z"], {}) == 2
    assert mail.main(["-s", ENDED, "alice"], {}, tmp_path / "none") == 1
    assert "No such file" in capsys.readouterr().err


def test_everything_together_is_within_slurms_two_minutes():
    mailer = mail.TRIES * mail.MAILER_S + (mail.TRIES - 1) * mail.PAUSE_S
    assert mail.REPORT_S + mailer < 115
