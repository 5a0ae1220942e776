"""XIDs that drained nobody: what a real Prometheus says of them, and what the ledger gets."""

from collections.abc import Iterator, Mapping

import pytest

from cluster.exporter import Failed
from cluster.prometheus import NoAnswer, Server
from roles.slurm_exporter.files.slurm_exporter.history import incidents, ledger, xids
from roles.slurm_exporter.files.slurm_exporter.history.collect import BACK_S
from roles.slurm_exporter.files.slurm_exporter.history.incidents import Entry, Known, LoggedXid
from tests import fed_prometheus

START = 1_794_999_600  # a multiple of five minutes
END = 90  # minutes
NOW = START + 60 * END + xids.SETTLED_S
BUS, OTHER = "00000000:1B:00.0", "00000000:43:00.0"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
AWAY = {"gpu1": range(50, 57), "gpu2": range(40, 50)}
CONTAINED = f"XID 94 of the GPU {BUS}"


def at(minute: int) -> float:
    return START + 60 * minute


def family(name: str, kind: str, series: Mapping[str, Mapping[int, float]]) -> Iterator[str]:
    yield f"# TYPE {name.removesuffix('_total')} {kind}"
    for labels, values in series.items():
        for minute, value in sorted(values.items()):
            yield f"{name}{{{labels}}} {value} {START + 60 * minute}"


def count(node: str, bus: str, kind: str, code: int, verdict: str) -> str:
    return f'node="{node}",pci_bus_id="{bus}",kind="{kind}",xid="{code}",verdict="{verdict}"'


def lines() -> Iterator[str]:
    """Four nodes over an hour and a half, scraped once a minute."""
    there = {
        node: {m: 1.0 for m in range(END + 1) if m not in AWAY.get(node, ())}
        for node in ("gpu1", "gpu2", "gpu3", "gpu4")
    }
    yield from family(
        "plumbline_kernel_xid_total",
        "counter",
        {
            # Twice, once more, and again two minutes after the boot of minute 56.
            count("gpu1", BUS, "xid", 94, "warn"): {
                **dict.fromkeys(range(12, 31), 2.0),
                **dict.fromkeys(range(31, 50), 3.0),
                **dict.fromkeys(range(58, END + 1), 1.0),
            },
            # Its exporter was away for ten minutes, in which nothing happened.
            count("gpu2", BUS, "xid", 79, "fail"): {
                m: 1.0 for m in range(21, END + 1) if m not in AWAY["gpu2"]
            },
            # A program's own fault.
            count("gpu2", OTHER, "xid", 31, "none"): dict.fromkeys(range(20, END + 1), 7.0),
            # The log forgot its first line, and the exporter began anew.
            count("gpu3", OTHER, "sxid", 20034, "fail"): {
                **dict.fromkeys(range(75, 83), 2.0),
                **dict.fromkeys(range(83, END + 1), 1.0),
            },
            # From before the first look.
            count("gpu4", BUS, "xid", 94, "warn"): dict.fromkeys(range(END + 1), 9.0),
        },
    )
    name = "plumbline_exporter_collector_success"
    yield from family(name, "gauge", {f'node="{n}",collector="xid"': v for n, v in there.items()})
    board = f'UUID="{UUID}",pci_bus_id="{BUS}"'
    yield from family("DCGM_FI_DEV_GPU_TEMP", "gauge", {f'node="gpu1",{board}': there["gpu1"]})
    boots = {m: START + 60.0 * (56 if m > 56 else -1440) for m in there["gpu1"]}
    yield from family("node_boot_time_seconds", "gauge", {'node="gpu1"': boots})
    yield "# EOF"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with fed_prometheus.running(tmp_path_factory.mktemp("prometheus"), lines()) as url:
        yield Server(url)


def test_what_prometheus_counted_is_told_once_each_when_it_rose(server: Server) -> None:
    found = list(xids.rises(server, START, START + 60 * END))
    assert sorted((xid.node, xid.at, xid.text, xid.gpu) for xid in found) == [
        ("gpu1", at(15), CONTAINED, UUID),
        ("gpu1", at(35), CONTAINED, UUID),
        ("gpu1", at(60), CONTAINED, UUID),
        ("gpu2", at(25), f"XID 79 of the GPU {BUS}", ""),
        ("gpu3", at(75), f"SXID 20034 of the NVSwitch {OTHER}", ""),
    ]
    # However the time is cut.
    parts = [xids.rises(server, START + 300 * n, START + 300 * n) for n in range(END // 5 + 1)]
    assert sorted((x.node, x.at) for part in parts for x in part) == sorted(
        (x.node, x.at) for x in found
    )


def test_the_ledger_has_each_once_whoever_looks_and_however_often(server, tmp_path) -> None:
    path = tmp_path / "node-history.sqlite"
    with ledger.opened(path, write=True) as book:
        book.write([], [Known(f"gpu{n}", START) for n in (1, 2, 3)])
    first, second = xids.Xids(path, server), xids.Xids(path, server)
    for now in (NOW - 1800, NOW, NOW + 60, NOW + 600, NOW - 3600):
        assert first.collect(now) == ()
    second.collect(NOW)
    with ledger.opened(path, write=False) as book:
        written = [(entry.node, entry.at, entry.kind, entry.gpu) for entry in book.entries()]
    assert written == [
        ("gpu1", at(15), "xid", UUID),
        ("gpu2", at(25), "xid", ""),
        ("gpu3", at(75), "xid", ""),
    ]


def test_prometheus_is_asked_anew_after_ten_minutes_or_where_it_did_not_answer(
    tmp_path, monkeypatch
) -> None:
    asked: list[tuple[float, float]] = []
    answers = iter([False, True, True, True])

    def rises(server: Server, begin: float, end: float) -> list[LoggedXid]:
        asked.append((begin, end))
        if not next(answers):
            raise NoAnswer("Prometheus does not answer.")
        return []

    monkeypatch.setattr(xids, "rises", rises)
    collector = xids.Xids(tmp_path / "node-history.sqlite", Server("http://127.0.0.1:1"))
    with pytest.raises(Failed, match=r"^Prometheus does not answer\.$"):
        collector.collect(NOW)
    for later in (60, 120, 599, 660, 10 * 86400):
        collector.collect(NOW + later)
    until = NOW - xids.SETTLED_S
    assert asked == [
        (until - BACK_S + 300, until),
        (until - BACK_S + 300, until),
        (until + 300, until + 600),
        (until + 10 * 86400 - BACK_S + 300, until + 10 * 86400),
    ]


XID = LoggedXid("gpu1", NOW, CONTAINED, UUID)


@pytest.mark.parametrize(
    ("entry", "new"),
    [
        (Entry("a", NOW + 300, "gpu1", "xid", "[plumbline:gpu_xid] XID 79", by="root"), 0),
        (Entry("a", NOW + 3600, "gpu1", "xid", "[plumbline:gpu_xid] XID 79", by="root"), 1),
        (Entry("a", NOW + 3600, "gpu1", "xid", "[plumbline:gpu_xid] XID 94", by="root"), 0),
        (Entry("a", NOW + 3600, "gpu1", "xid", "GPU 3: XID 94", "3", by="root"), 0),
        (Entry("a", NOW + 3600, "gpu1", "xid", "XID 94", "GPU-another-board", by="root"), 1),
        (Entry("a", NOW + 90000, "gpu1", "xid", "[plumbline:gpu_xid] XID 94", by="root"), 1),
        (Entry("a", NOW + 300, "gpu2", "xid", "[plumbline:gpu_xid] XID 79", by="root"), 1),
        (Entry("a", NOW + 300, "gpu1", "check", "[plumbline:munge] no answer", by="root"), 1),
        (Entry("a", NOW - 300, "gpu1", "xid", "XID 94 of another GPU", by=incidents.LOG), 1),
        (Entry("a", NOW - 80000, "gpu1", "xid", CONTAINED, by=incidents.LOG), 0),
        (Entry("a", NOW - 90000, "gpu1", "xid", CONTAINED, by=incidents.LOG), 1),
    ],
)
def test_an_xid_is_written_where_nothing_says_it_yet(entry: Entry, new: int) -> None:
    found = list(incidents.xids([XID], [entry], {"gpu1": START, "gpu2": START}))
    assert len(found) == new
    assert not any(entry.interruption for entry in found)


def test_a_node_that_was_not_known_then_has_none() -> None:
    assert not list(incidents.xids([XID], [], {"gpu1": NOW + 1}))
    assert not list(incidents.xids([XID], [], {"gpu2": START}))
