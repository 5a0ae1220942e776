"""Why a node was out of service, and when that interrupted somebody."""

import pytest

from cluster.slurm import outages, times
from cluster.slurm.outages import Event

XID_79 = "[plumbline:gpu_xid] GPU 3: XID 79, fell off the bus"
NOW = 1_795_000_000.0


@pytest.mark.parametrize(
    ("reason", "states", "user", "kind"),
    [
        (XID_79, "drain", "root", "xid"),
        ("[plumbline:gpu_xid] NVSwitch 0: SXID 20034", "drain", "root", "xid"),
        ("[plumbline:gpu_ecc] GPU 0: 3 uncorrectable errors", "drain", "root", "check"),
        ("[plumbline:validation/gemm] 400 TFLOPS", "drain", "root", "validation"),
        ("[plumbline:reboot] new kernel", "drain", "root", "planned"),
        ("[plumbline:unfit] dropped out", "drain", "root", "drain"),
        ("[plumbline:quarantine] lemon", "drain", "root", "quarantine"),
        ("Not responding", "down", "slurm", "down"),
        ("Node unexpectedly rebooted", "down", "slurm", "down"),
        ("Prolog error", "drain", "root", "check"),
        ("gres/gpu count reported lower than configured (7 < 8)", "drain", "slurm", "check"),
        ("new cable", "drain", "alice", "drain"),
        ("new cable", "drain", "root", "drain"),
        ("new cable", "down", "alice", "drain"),
        ("", "down+powered_down", "slurm", "planned"),
        ("reboot ASAP", "down+reboot_issued", "root", "planned"),
    ],
)
def test_the_kind_of_an_outage(reason, states, user, kind):
    assert outages.kind(reason, states.split("+"), user) == kind


def event(begin: float, end: float | None, states: str = "drain", reason: str = XID_79) -> Event:
    return Event("gpu1", begin, end, frozenset(states.split("+")), reason, "root")


def test_what_is_said_of_a_node_until_it_returns_is_one_outage():
    silent = event(NOW, NOW + 300, "down+not_responding", "Not responding")
    drained = event(NOW + 301, NOW + 9000)
    within = [event(NOW + at, NOW + at + 100, reason="another word of it") for at in (400, 8000)]
    again = event(NOW + 9010, None)
    for_good = event(NOW + 20000, NOW + 20100)
    assert list(outages.first_events([silent, drained, *within, again, for_good])) == [
        silent,
        again,
    ]


@pytest.mark.parametrize("states", ["down+powered_down", "maint", "reserved"])
def test_a_node_that_is_away_or_reserved_is_no_outage_and_hides_none(states):
    fault = event(NOW + 600, NOW + 900)
    assert list(outages.first_events([event(NOW, NOW + 3600, states), fault])) == [fault]


ANSWER = (
    "gpu2|{begin}|{end}|DOWN*|slurm(64030)|Not responding\n"
    "gpu1|{begin}|{never}|DRAIN|root(0)|a reason | with it\x1b[31m\n"
    "and a line more\n"
)


@pytest.mark.parametrize("seconds", [False, True])
def test_events_are_read_with_either_kind_of_time(seconds):
    def shown(at: float) -> str:
        return str(int(at)) if seconds else times.moment(at)

    never = "0" if seconds else "Unknown"
    answer = ANSWER.format(begin=shown(NOW), end=shown(NOW + 60), never=never)
    first, second = outages.events(answer)
    assert first == Event("gpu2", NOW, NOW + 60, frozenset({"down"}), "Not responding", "slurm")
    assert (second.end, second.states, second.user) == (None, frozenset({"drain"}), "root")
    assert second.reason.startswith("a reason | with it")
    assert "\x1b" not in second.reason


def test_an_event_without_a_begin_is_refused():
    with pytest.raises(ValueError, match="an event of 'gpu1' began 'yesterday'"):
        list(outages.events("gpu1|yesterday|Unknown|DOWN|root(0)|\n"))


def test_accounting_is_asked_for_a_span_or_until_now():
    assert f"start={times.moment(NOW)}" in outages.question(NOW)
    assert not [word for word in outages.question(NOW) if word.startswith("end=")]
    assert f"end={times.moment(NOW + 60)}" in outages.question(NOW, NOW + 60)
