"""TCP segments that are lost between two nodes: what is counted, and what it is judged by."""

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
NETSTAT = """TcpExt: SyncookiesSent TCPDSACKRecv{}
TcpExt: 0 7{}
IpExt: InNoRoutes
IpExt: 0
"""


@pytest.mark.parametrize(
    ("name", "value", "needless"), [("", "", 7), (" TCPDSACKRecvSegs", " 41", 41)]
)
def test_segments_are_those_of_the_kernel(tmp_path, name, value, needless):
    (tmp_path / "snmp").write_text(SNMP)
    (tmp_path / "netstat").write_text(NETSTAT.format(name, value))
    assert pairs.segments(tmp_path) == pairs.Segments(9000, 45, needless)
    there = pairs.segments()
    assert 0 <= there.again <= there.sent
    assert there.since(there) == pairs.Segments(0, 0, 0)


def judged(*segments):
    job = healthy_answers.healthy("pairs").job
    rows = [dict(zip(("sent", "again", "needless"), each, strict=True)) for each in segments]
    answer = standin.pairs(job.hosts, job.config, job.ranks_per_node, tcp=rows)
    reply = Reply(job.name, Outcome.EXITED, 0, "17", standin.line(answer))
    return check.evaluate(job, reply, thresholds.load("virtual"))


@pytest.mark.parametrize(
    ("segments", "verdict", "words"),
    [
        ([(9000, 80, 0), (9000, 0, 0)], Verdict.PASS, ""),
        ([(9000, 450, 0), (9000, 2, 0)], Verdict.FAIL, "5.0% of the TCP segments from gpu1 were"),
        ([(9000, 2, 0), (9000, 550, 100)], Verdict.FAIL, "5.0% of the TCP segments from gpu2 were"),
        ([(9000, 450, 445), (9000, 450, 460)], Verdict.PASS, ""),  # they were only late
        ([(900, 90, 0), (9000, 9, 0)], Verdict.PASS, ""),  # too few to tell
        ([(9000, 0, 0)], Verdict.FAIL, "tcp is of 1 ranks, 2 were asked for"),
        ([(9, 10, 0), (9, 0, 0)], Verdict.FAIL, "10 of 9 TCP segments were sent again"),
    ],
)
def test_a_way_that_loses_segments_fails_its_pair(segments, verdict, words):
    result = judged(*segments)
    assert (result.verdict, result.blamed) == (verdict, None)
    assert result.message.startswith(words)
    assert bool(result.message) == bool(words)
