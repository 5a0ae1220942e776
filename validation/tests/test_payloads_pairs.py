"""TCP segments that are sent again between two nodes: what is counted, and what it is judged by."""

import pytest

from validation import thresholds
from validation.checks import pairs as check
from validation.model import Outcome, Reply, Verdict
from validation.payloads import pairs
from validation.tests import healthy_answers, standin

SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin MaxConn InSegs OutSegs RetransSegs InErrs
Tcp: 1 200 -1 7000 9000 45 0
Udp: InDatagrams
Udp: 3
"""


def test_segments_are_those_of_the_kernel(tmp_path):
    (tmp_path / "snmp").write_text(SNMP)
    assert pairs.segments(tmp_path / "snmp") == pairs.Segments(9000, 45)
    there = pairs.segments()
    assert 0 <= there.again <= there.sent


def judged(*segments):
    job = healthy_answers.healthy("pairs").job
    rows = [{"sent": sent, "again": again} for sent, again in segments]
    answer = standin.pairs(job.hosts, job.config, job.ranks_per_node, tcp=rows)
    reply = Reply(job.name, Outcome.EXITED, 0, "17", standin.line(answer))
    return check.evaluate(job, reply, thresholds.load("virtual"))


@pytest.mark.parametrize(
    ("segments", "verdict", "words"),
    [
        ([(9000, 80), (9000, 0)], Verdict.PASS, ""),
        ([(9000, 450), (9000, 2)], Verdict.FAIL, "gpu1 sent 5.0% of its TCP segments again"),
        ([(9000, 2), (9000, 450)], Verdict.FAIL, "gpu2 sent 5.0% of its TCP segments again"),
        ([(900, 90), (9000, 9)], Verdict.PASS, ""),  # too few to tell
        ([(9000, 0)], Verdict.FAIL, "tcp is of 1 ranks, 2 were asked for"),
        ([(9, 10), (9, 0)], Verdict.FAIL, "10 of 9 TCP segments were sent again"),
    ],
)
def test_a_node_that_sends_again_what_was_lost_fails_its_pair(segments, verdict, words):
    result = judged(*segments)
    assert (result.verdict, result.blamed) == (verdict, None)
    assert result.message.startswith(words)
    assert bool(result.message) == bool(words)
