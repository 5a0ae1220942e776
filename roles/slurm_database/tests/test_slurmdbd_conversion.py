"""How long a conversion of the database is waited for, and what is said of it."""

import pytest

from roles.slurm_database.action_plugins import slurmdbd_conversion as m

CONVERTING = """\
ActiveState=active
NRestarts=0
words=pre-converting job table for demo
"""
READY = CONVERTING + "listens\n"
DIED = """\
ActiveState=failed
NRestarts=1
words=fatal: something
errors=error: mysql_query failed: 1054|fatal: issue converting tables
"""


def test_a_slurmdbd_at_work_is_waited_for_and_told_of():
    now = m.state(CONVERTING)
    assert not now.listens
    assert m.failure("ctl1", now, 0) == ""
    assert m.progress_line("ctl1", now, 725) == (
        "  ctl1: slurmdbd is converting the database, 12 min; its log ends: "
        "pre-converting job table for demo"
    )
    assert m.state(READY).listens


def test_an_answer_over_a_terminal_says_the_same():
    assert m.state(READY.replace("\n", "\r\n")) == m.state(READY)


@pytest.mark.parametrize(
    ("answer", "before", "words"),
    [
        (DIED, 0, "does not run while it converts the database: error: mysql_query failed"),
        (CONVERTING.replace("NRestarts=0", "NRestarts=7"), 4, "ended 3 times"),
        ("", 0, "does not run"),
    ],
)
def test_one_that_died_is_one_sentence(answer, before, words):
    sentence = m.failure("ctl1", m.state(answer), before)
    assert words in sentence
    assert sentence.endswith(".")


def test_one_that_died_before_is_waited_for():
    assert m.failure("ctl1", m.state(CONVERTING.replace("NRestarts=0", "NRestarts=7")), 7) == ""
