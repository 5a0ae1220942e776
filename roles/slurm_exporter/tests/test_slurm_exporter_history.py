"""The ledger: what is written down of two looks, how lemons are named, and the command."""

import csv
import io
import json
import sqlite3
from dataclasses import replace

import pytest

from cluster.exporter import Failed
from cluster.slurm.outages import Event
from roles.slurm_exporter.files.slurm_exporter import main
from roles.slurm_exporter.files.slurm_exporter.history import (
    collect,
    command,
    incidents,
    ledger,
    lemons,
)
from roles.slurm_exporter.files.slurm_exporter.history.incidents import (
    Entry,
    Known,
    LostJob,
    Seen,
)
from roles.slurm_exporter.files.slurm_exporter.nodes import SlurmNode, from_json, from_text
from roles.slurm_exporter.tests.test_slurm_exporter_series import recorded
from validation.history import runs, store

NOW = 1_795_000_000.0
DAY = lemons.DAY_S
XID = "[plumbline:gpu_xid] GPU 3: XID 79, fell off the bus"
IDLE = frozenset({"idle"})
DRAIN = frozenset({"idle", "drain"})


def looked(*looks, known=None):
    """Entries of several looks, each one of nodes at a time."""
    found = dict(known or {})
    entries = []
    for now, *seen in looks:
        new, changed = incidents.look(found, seen, now)
        entries += new
        found.update({node.node: node for node in changed})
    return entries, found


# --- what is written down ------------------------------------------------------------------------


def test_an_outage_begins_and_ends_once_however_often_one_looks():
    healthy, drained = Seen("gpu1", IDLE), Seen("gpu1", DRAIN, XID, "root", NOW + 100)
    entries, known = looked(
        (NOW, healthy), (NOW + 120, drained), (NOW + 180, drained), (NOW + 900, healthy)
    )
    assert [(entry.kind, entry.at) for entry in entries] == [
        ("xid", NOW + 100),
        ("return", NOW + 900),
    ]
    xid = entries[0]
    assert (xid.gpu, xid.by, xid.interruption) == ("3", "root", True)
    assert known["gpu1"] == Known("gpu1", NOW)
    assert incidents.look(known, [healthy], NOW + 960) == ([], [])


def test_a_node_that_is_silent_and_then_drained_is_interrupted_once():
    down = frozenset({"down", "not_responding"})
    entries, _ = looked(
        (NOW, Seen("gpu1", IDLE)),
        (NOW + 60, Seen("gpu1", down, "Not responding", "slurm", NOW + 50)),
        (NOW + 120, Seen("gpu1", DRAIN, XID, "root", NOW + 110)),
        (NOW + 180, Seen("gpu1", DRAIN, f"{XID} (and gpu_ecc)", "root", NOW + 170)),
    )
    assert [(entry.kind, entry.interruption) for entry in entries] == [
        ("down", True),
        ("xid", False),
    ]


def test_a_boot_is_told_once_though_clocks_move():
    entries, _ = looked(
        (NOW, Seen("gpu1", IDLE, boot=NOW - 1000)),
        (NOW + 60, Seen("gpu1", IDLE, boot=NOW - 999)),
        (NOW + 400, Seen("gpu1", IDLE, boot=NOW + 300)),
        (NOW + 460, Seen("gpu1", IDLE, boot=None)),
        (NOW + 520, Seen("gpu1", IDLE, boot=NOW + 300)),
    )
    assert [(entry.kind, entry.at) for entry in entries] == [("reboot", NOW + 300)]


@pytest.mark.parametrize("states", [{"down", "powered_down"}, {"idle", "maintenance"}])
def test_power_saving_and_maintenance_are_no_outages(states):
    assert not Seen("gpu1", frozenset(states)).out


def test_an_outage_that_nobody_saw_is_taken_from_accounting_and_no_other():
    out, known = frozenset({"drain"}), {"gpu1": NOW - DAY}
    seen = [
        Entry("a", NOW, "gpu1", "xid", XID, outage=True),
        Entry("b", NOW + 600, "gpu1", "return", ""),
    ]
    events = [
        Event("gpu1", NOW - 2, NOW + 600, out, XID, "root"),
        Event("gpu1", NOW + 300, NOW + 600, out, "another word of it", "root"),
        Event("gpu1", NOW + 5000, NOW + 5100, out, "[plumbline:munge] no answer", "root"),
        Event("gpu1", NOW + 9000, None, out, "the next look sees it", "root"),
        Event("gone", NOW, NOW + 1, out, "not of this cluster any more", "root"),
    ]
    found = list(incidents.missed(events, seen, known))
    assert [(entry.kind, entry.at, entry.outage) for entry in found] == [
        ("check", NOW + 5000, True),
        ("return", NOW + 5100, False),
    ]
    assert list(incidents.missed(events, [*seen, *found], known)) == []


def test_a_job_belongs_to_the_node_that_failed():
    fault = Entry("a", NOW, "gpu2", "down", "", outage=True)
    lost = [
        LostJob("1", NOW + 500, ("gpu1", "gpu2")),
        LostJob("2", NOW + 700, ("gpu1", "gpu2")),
        LostJob("4", NOW - 400, ("gpu1", "gpu2")),
        LostJob("3", NOW - 10 * DAY, ("gpu1",)),
    ]
    found = list(incidents.jobs(lost, [fault]))
    assert [(entry.node, entry.text) for entry in found] == [
        ("gpu2", "job 1 of 2 nodes ended with NODE_FAIL"),
        ("gpu1", "job 3 ended with NODE_FAIL"),
    ]


# --- lemons --------------------------------------------------------------------------------------


def outages(node, count, kind="xid", first=NOW - 20 * DAY):
    for number in range(count):
        begin = first + number * DAY
        yield Entry(f"{node}{begin}", begin, node, kind, "", outage=True)
        yield Entry(f"{node}{begin}r", begin + 3600, node, "return", "")


def of_nodes(entries, count=100, first_seen=NOW - 365 * DAY):
    known = [Known(f"gpu{number}", first_seen) for number in range(count)]
    ordered = sorted(entries, key=lambda entry: entry.at)
    return {record.node: record for record in lemons.records(known, ordered, NOW)}


def test_time_between_interruptions_and_out_of_service():
    found = of_nodes(outages("gpu1", 2), count=2)
    record = found["gpu1"]
    assert (record.interruptions, record.out_s, record.observed_s) == (2, 7200, 28 * DAY)
    assert record.between_s == (28 * DAY - 7200) / 2
    assert found["gpu0"].between_s is None
    assert lemons.between_s(found.values()) == (56 * DAY - 7200) / 2


def test_a_node_that_was_out_before_the_window_is_out_in_it():
    begun = Entry("a", NOW - 40 * DAY, "gpu0", "down", "", outage=True)
    known = [Known("gpu0", NOW - 50 * DAY, out=True)]
    (record,) = lemons.records(known, [begun], NOW)
    assert (record.out_s, record.interruptions, record.served_s) == (28 * DAY, 0, 0)


@pytest.mark.parametrize(("count", "lemon"), [(2, ()), (5, ("out_count", "xid_cnt"))])
def test_again_and_again_is_a_lemon_and_twice_is_none(count, lemon):
    found = of_nodes(outages("gpu7", count))
    assert found["gpu7"].lemon == lemon
    assert [node for node, record in found.items() if record.lemon and node != "gpu7"] == []


def test_in_a_small_cluster_twice_is_not_again_and_again():
    assert lemons.tail(2, lemons.RATE * lemons.WINDOW_S) * 2 < lemons.CHANCE
    assert not of_nodes(outages("gpu1", 2), count=2)["gpu1"].lemon
    assert of_nodes(outages("gpu1", 3), count=2)["gpu1"].lemon


def test_of_a_thousand_nodes_one_fails_three_times_by_chance():
    assert not of_nodes(outages("gpu1", 3), count=1000)["gpu1"].lemon
    assert of_nodes(outages("gpu1", 4), count=1000)["gpu1"].lemon


def test_where_all_nodes_fail_often_none_is_a_lemon():
    entries = [entry for number in range(100) for entry in outages(f"gpu{number}", 5)]
    assert not [node for node, record in of_nodes(entries).items() if record.lemon]


def test_planned_outages_and_quarantine_name_nobody():
    entries = [*outages("gpu1", 9, "planned"), *outages("gpu2", 9, "quarantine")]
    assert not [record for record in of_nodes(entries).values() if record.lemon]


def test_drains_by_people_count_as_out_and_not_as_interruptions():
    record = of_nodes(outages("gpu1", 9, "drain"))["gpu1"]
    assert (record.interruptions, record.lemon) == (0, ("out_count",))


def test_tickets_of_people_count():
    entries = [
        Entry(str(n), NOW - n * DAY, "gpu1", "ticket", "the same fan again") for n in range(1, 6)
    ]
    assert of_nodes(entries)["gpu1"].lemon == ("tickets",)


# --- the file ------------------------------------------------------------------------------------


def entry(key="a", **changes):
    return replace(Entry(key, NOW, "gpu1", "note", "hello"), **changes)


def test_an_entry_is_written_once_and_stays(tmp_path):
    path = tmp_path / "new/node-history.sqlite"
    with ledger.opened(path, write=True) as book:
        assert book.write([entry(), entry("b")]) == 2
        assert book.write([entry(), entry("c")], [Known("gpu1", NOW)]) == 1
    assert path.stat().st_mode & 0o777 == 0o640
    with ledger.opened(path, write=False) as book:
        assert [found.key for found in book.entries()] == ["a", "b", "c"]
        assert book.counts() == {("gpu1", "note"): 3}
        assert book.known() == {"gpu1": Known("gpu1", NOW)}
    for statement in ("DELETE FROM entries", "UPDATE entries SET text = ''"):
        connection = sqlite3.connect(path)
        with pytest.raises(sqlite3.IntegrityError, match="entries of the ledger"):
            connection.execute(statement)
        connection.close()


def test_a_file_that_is_none_is_one_sentence(tmp_path):
    path = tmp_path / "node-history.sqlite"
    for write in (False, True):
        if write:
            path.write_bytes(b"no database" * 100)
        with pytest.raises(Failed), ledger.opened(path, write=write):
            pass
    path.unlink()
    with ledger.opened(path, write=True):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(Failed, match="newer Plumbline"), ledger.opened(path, write=True):
        pass


# --- a round -------------------------------------------------------------------------------------

NODE = SlurmNode("gpu1", IDLE, "", "", 2, 2, 0, 8, 0, ("gpu",))
LOST = "4711|2026-11-18T02:00:00|gpu1\n4712|Unknown|gpu1\n4713|2026-11-18T02:00:00|None assigned\n"


def slurm(events="", lost="", asked=None):
    def run(words):
        if asked is not None:
            asked.append(words[0])
        return {"sacctmgr": events, "sacct": lost}[words[0]]

    return run


def numbers(families):
    return {
        (family.name, *labels): value
        for family in families
        for labels, value in family.samples.items()
    }


def test_rounds_write_and_tell_and_ask_accounting_now_and_then(tmp_path):
    asked: list[str] = []
    path = tmp_path / "node-history.sqlite"
    history = collect.History(path, True, slurm("", LOST, asked), -DAY)
    history.round([NODE], NOW)
    out = replace(NODE, states=DRAIN, reason=XID, user="root", reason_at=NOW + 50)
    told = numbers(history.round([out], NOW + 60))
    assert told["plumbline_node_incidents_total", "gpu1", "xid"] == 1
    assert told["plumbline_node_interruptions", "gpu1"] == 1
    assert told["plumbline_node_lemon", "gpu1"] == 0
    assert told["plumbline_node_incidents_total", "gpu1", "job"] == 1
    assert asked == ["sacctmgr", "sacct"]
    assert history.round([out], NOW + 120) == history.round([out], NOW + 180)
    history.round([out], NOW + 700)
    assert asked == ["sacctmgr", "sacct"] * 2
    again = collect.History(path, False, slurm())
    told = numbers(again.round([out, replace(NODE, name="gpu2")], NOW + 760))
    assert told["plumbline_node_incidents_total", "gpu1", "xid"] == 1
    assert told["plumbline_node_interruptions", "gpu2"] == 0
    assert told["plumbline_nodes_between_interruptions_seconds",] > 0


def test_a_node_that_left_slurm_is_told_no_more_and_remembered(tmp_path):
    path = tmp_path / "node-history.sqlite"
    history = collect.History(path, False, slurm())
    history.round([replace(NODE, states=DRAIN, reason=XID)], NOW)
    told = numbers(history.round([replace(NODE, name="gpu2")], NOW + 700))
    assert not [key for key in told if "gpu1" in key]
    with ledger.opened(path, write=False) as book:
        assert [found.node for found in book.entries()] == ["gpu1"]


def test_slurms_events_are_read_with_what_operators_write():
    text = (
        "gpu1|2026-11-18T02:00:00|2026-11-18T03:00:00|DOWN*|slurm(64030)|Not responding\n"
        "gpu2|2026-11-18T02:00:00|Unknown|DRAIN|alice(1000)|a | b\nand a second line\n"
    )
    first, second = collect.events(slurm(text), NOW)
    assert (first.states, first.user) == (frozenset({"down"}), "slurm")
    assert (second.end, second.user, second.reason) == (None, "alice", "a | b")
    with pytest.raises(Failed, match="began"):
        list(collect.events(slurm("gpu1|soon|later|DOWN|root(0)|\n"), NOW))


def test_when_nodes_booted_and_reasons_were_set_is_read_of_either_form():
    for nodes in (
        from_text(recorded("22.05", "nodes.txt")),
        from_json(recorded("26.05", "nodes.json")),
    ):
        booted = {node.name: node.boot_at is not None for node in nodes}
        assert booted == {"cpu1": True, "gpu1": True, "gpu2": True, "gpu3": False}
    document = json.loads(recorded("26.05", "nodes.json"))
    told = {"set": True, "infinite": False, "number": int(NOW)}
    document["nodes"][0]["reason_changed_at"] = told
    assert from_json(json.dumps(document))[0].reason_at == NOW
    of_text = from_text(recorded("22.05", "nodes.txt"))
    assert [bool(node.reason_at) for node in of_text] == [bool(node.reason) for node in of_text]


def test_a_thousand_nodes_with_a_year_behind_them_cost_little(tmp_path):
    path = tmp_path / "node-history.sqlite"
    with ledger.opened(path, write=True) as book:
        book.write(
            (
                Entry(f"{n}", NOW - n * 3000, f"gpu{n % 1000}", "xid", XID, "3", "root", n % 2 == 0)
                for n in range(10_000)
            ),
            (Known(f"gpu{n}", NOW - 365 * DAY) for n in range(1000)),
        )
    nodes = [replace(NODE, name=f"gpu{n}") for n in range(1000)]
    told = numbers(collect.History(path, False, slurm()).round(nodes, NOW))
    assert len(told) < 8 * 1000
    assert path.stat().st_size < 4 * 2**20


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def said(tmp_path, capsys):
    """Runs node-history on a ledger of its own: exit status, output and complaints."""
    path = tmp_path / "node-history.sqlite"
    history = collect.History(path, False, slurm())
    history.round([NODE], NOW)
    history.round([replace(NODE, states=DRAIN, reason=f"{XID}\x1b[31m", user="root")], NOW + 60)

    def run(*words):
        status = main.main(["history", "--ledger", str(path), *words])
        return (status, *capsys.readouterr())

    return run


def test_an_entry_by_hand_is_shown_of_its_node_and_of_its_gpu(said, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "alice")
    assert said("add", "gpu1", "new\x07 board", "--kind", "repair", "--gpu", "165052")[0] == 0
    for what in ("gpu1", "165052"):
        status, output, _ = said("show", what)
        assert status == 0
        assert "gpu1  repair     [GPU 165052] new board (alice)" in output
    assert "xid        [GPU 3] [plumbline:gpu_xid]" in said("show", "gpu1")[1]
    assert "\x1b" not in said("show", "gpu1")[1]
    assert said("show", "gpu9")[0] == 1


def test_the_list_has_each_node_and_the_cluster(said):
    _, output, _ = said("list")
    assert output.splitlines()[0].split()[0] == "node"
    assert "1 nodes in 28 days" in output
    assert "gpu1" not in said("list", "--lemons")[1]


def test_export_for_programs_and_for_spreadsheets(said):
    said("add", "gpu1", "=HYPERLINK(1)", "--gpu", "+1")
    documents = [json.loads(line) for line in said("export")[1].splitlines()]
    assert [document["kind"] for document in documents] == ["xid", "note"]
    rows = list(csv.DictReader(io.StringIO(said("export", "--csv")[1])))
    assert (rows[-1]["text"], rows[-1]["gpu"]) == ("'=HYPERLINK(1)", "'+1")
    assert said("export", "--since", "1d")[1].count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["add", "gpu 1", "x"], ["add", "gpu1", "\n"], ["show", "gpu1", "--since", "ever"], []],
)
def test_wrong_words_are_usage(said, words):
    with pytest.raises(SystemExit) as ended:
        said(*words)
    assert ended.value.code == 2


def test_without_a_ledger_or_settings_there_is_one_sentence(tmp_path, capsys):
    assert command.main(["--ledger", str(tmp_path / "none"), "list"]) == 1
    assert "the exporter makes it in its first round" in capsys.readouterr().err
    assert command.main(["--config", str(tmp_path / "none"), "list"]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_failures_of_a_validation_are_taken_over_once(said, tmp_path):
    file = tmp_path / "history.sqlite"
    judged = [
        runs.Judged("gemm", "node", "gpu1", "fail", "GPU-0a1b2c3d: 400 TFLOPS"),
        runs.Judged("ecc", "node", "gpu1", "pass", "none"),
        runs.Judged("all_reduce", "cluster", "h100", "fail", "slow"),
    ]
    run = runs.Run("r1", "gpu", "c", NOW, 60.0, "fail", "1", False, False, tuple(judged), ())
    with store.opened(file) as history:
        history.add(run)
    assert said("import", str(file))[1] == "1 of 1 failures are new in the ledger\n"
    assert said("import", str(file))[1] == "0 of 1 failures are new in the ledger\n"
    assert "gemm of suite gpu" in said("show", "GPU-0a1b2c3d")[1]
    assert said("import", str(tmp_path / "none"))[0] == 1
    (tmp_path / "other").write_text("x" * 4096)
    assert "is no history of a validation" in said("import", str(tmp_path / "other"))[2]
