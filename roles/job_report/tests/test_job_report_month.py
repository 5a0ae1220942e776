"""A month: what is counted, of whom, and how it is shown."""

import csv
import io
import json
import os
import re
import stat
import subprocess
import sys
import time
from datetime import datetime

import pytest

from cluster.slurm.outages import Event
from roles.job_report.files.job_report import month, month_ask, month_page, sacct
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.files.job_report.main import main
from roles.job_report.files.job_report.month import Span, Sums

HOSTILE = "=cmd|' /C calc'!A0"
SCRIPT = "<script>alert(1)</script>"


def at(day, hour=0, number=10):
    return datetime(2026, number, day, hour).timestamp()


def job(begin, end, state="COMPLETED", user="alice", account="physics", **other):
    elapsed = (end or at(31)) - begin
    return {
        "JobIDRaw": "4711",
        "Account": account,
        "User": user,
        "State": state,
        "Start": str(int(begin)),
        "End": "Unknown" if end is None else str(int(end)),
        "ElapsedRaw": str(int(elapsed)),
        "AllocCPUS": "16",
        "AllocTRES": "billing=16,cpu=16,gres/gpu=8,mem=64G",
        "TotalCPU": "00:00:00",
        "ConsumedEnergyRaw": "0",
        **other,
    }


def counted(*rows, spans=None):
    sums: dict[month.By, Sums] = {}
    for span in spans or month.days("2026-10", at(1, number=12)):
        month.count(rows, span, sums)
    return sums


def test_the_days_of_a_month_end_now():
    days = month.days("2026-10", at(1, number=12))
    assert (len(days), days[0].begin, days[-1].end) == (31, at(1), at(1, number=11))
    assert [span.end for span in month.days("2026-10", at(2, 12))] == [at(2), at(2, 12)]
    with pytest.raises(NotKnown, match=r"2026-13.*write it as 2026-10"):
        month.days("2026-13", at(1))
    with pytest.raises(NotKnown, match=r"2026-11 has not begun"):
        month.days("2026-11", at(1))


def test_a_job_of_three_days_is_counted_once():
    rows = [job(at(2, 12), at(4, 12), TotalCPU="16-00:00:00", ConsumedEnergyRaw="7200000")]
    (sums,) = counted(*rows).values()
    assert (sums.jobs, sums.gpu_hours, sums.cpu_given) == (1, 8 * 48, 16 * 48)
    assert sums.cpu_efficiency == pytest.approx(0.5)
    assert (sums.energy_kwh, sums.metered) == (pytest.approx(2), True)


def test_what_is_before_and_after_the_month_belongs_to_others():
    (sums,) = counted(job(at(30, number=9), at(2))).values()
    assert (sums.jobs, sums.gpu_hours) == (1, 8 * 24)
    (sums,) = counted(job(at(31, 12), at(2, number=11))).values()
    assert (sums.jobs, sums.gpu_hours) == (0, 8 * 12)
    assert counted(job(at(2, number=11), at(3, number=11))) == {}


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("COMPLETED", "completed"),
        ("CANCELLED by 1000", "stopped"),
        ("TIMEOUT", "stopped"),
        ("OUT_OF_MEMORY", "failed"),
        ("NODE_FAIL", "lost"),
        ("PREEMPTED", "lost"),
        ("SOMETHING_NEW", "failed"),
    ],
)
def test_what_became_of_gpu_hours(state, outcome):
    (sums,) = counted(job(at(2), at(2, 1), state)).values()
    assert {name for name, hours in sums.given.items() if hours} == {outcome}
    assert sums.wasted == (8 if outcome in ("failed", "lost") else 0)


def test_a_job_that_runs_is_counted_until_now():
    days = month.days("2026-10", at(2, 6))
    (sums,) = counted(job(at(2), None, "RUNNING"), spans=days).values()
    assert (sums.jobs, sums.given["running"], sums.cpu_efficiency) == (0, 8 * 6, None)


def test_a_suspended_job_has_its_own_time_alone_and_a_waiting_one_none():
    (sums,) = counted(job(at(2), at(2, 4), ElapsedRaw="3600")).values()
    assert sums.gpu_hours == pytest.approx(8)
    assert counted({**job(at(2), None, "PENDING"), "Start": "Unknown"}) == {}


def test_energy_that_nothing_measures_is_none():
    (sums,) = counted(job(at(2), at(2, 1), ConsumedEnergyRaw=str(2**64 - 2))).values()
    assert not sums.metered


# --- nodes ---------------------------------------------------------------------------------------


def found(rows=(), events=(), known=("gpu1", "gpu2"), missing=()):
    days = month.days("2026-10", at(1, number=12))
    span = Span(days[0].begin, days[-1].end)
    nodes = month.nodes(events, span, known)
    return month.Month("2026-10", span, True, counted(*rows), nodes, 5952.0, missing)


def event(node, begin, end, states, reason, user="root"):
    return Event(node, begin, end, frozenset(states.split("+")), reason, user)


def test_nodes_out_of_service_and_planned_maintenance():
    xid = "[plumbline:gpu_xid] GPU 3: XID 79"
    events = [
        event("gpu2", at(30, number=9), at(2), "down", "Not responding", "slurm"),
        event("gpu2", at(5), at(5, 2), "down", "Not responding", "slurm"),
        event("gpu2", at(5, 2), at(5, 12), "drain", xid),
        event("gpu2", at(9), at(9, 1), "drain", "new cable", "alice"),
        event("gpu1", at(7), at(7, 18), "maint", "new firmware"),
        event("gpu1", at(8), at(8, 6), "drain", "[plumbline:reboot] new kernel (since ...)"),
        event("gpu1", at(20), at(20, 4), "down+powered_down", "", "slurm"),
    ]
    result = found(events=events)
    first, second = result.nodes
    assert (first.node, first.down_h, first.interruptions) == ("gpu2", 37, 1)
    assert first.last_reason == "Not responding"
    assert (second.node, second.down_h, second.planned_h) == ("gpu1", 0, 28)
    hours = result.span.seconds / 3600
    assert result.availability == pytest.approx(1 - 37 / (2 * hours - 28))
    assert result.between_interruptions_h == pytest.approx(2 * hours - 65)


def test_a_node_that_never_came_back_is_down_until_the_end():
    (node,) = found(events=[event("gpu1", at(31), None, "down", "")], known=["gpu1"]).nodes
    assert node.down_h == (at(1, number=11) - at(31)) / 3600


# --- how it is shown -----------------------------------------------------------------------------


def test_hostile_names_are_words_everywhere():
    rows = [
        job(at(2), at(2, 1), user=SCRIPT, account=HOSTILE),
        job(at(2), at(2, 1), user="\x1b[31mred\x07", account="+1"),
    ]
    events = [event("gpu1", at(5), at(6), "down", f"@SUM(1)\x1b]0;x\x07{SCRIPT}")]
    result = found(rows, events)
    page = month_page.page(result)
    assert SCRIPT not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page + month_page.text(result) + month_page.rows(result)
    cells = [cell for row in csv.reader(io.StringIO(month_page.rows(result))) for cell in row]
    assert f"'{HOSTILE}" in cells
    assert "'+1" in cells
    assert not [cell for cell in cells if re.match(r"[=+@\t\r]|-\D", cell)]


def test_the_page_needs_nothing_from_elsewhere():
    page = month_page.page(found([job(at(2), at(2, 1))], missing=("Nodes: sinfo & co.",)))
    assert not re.search(r"(src|href)=|url\(|@import", page)
    assert "default-src 'none'" in page
    assert "sinfo &amp; co." in page
    assert "<td>physics</td>" in page
    assert "99." not in page


def test_nothing_at_all_is_a_report_too():
    result = found(known=())
    assert "0 jobs ended" in month_page.text(result)
    assert "Use of the cluster" in month_page.page(result)
    assert len(month_page.rows(result).splitlines()) == 2


def test_the_sum_is_that_of_all_rows():
    rows = [
        job(at(day), at(day, 1), user=f"u{day % 3}", account=f"a{day % 2}") for day in (1, 2, 3)
    ]
    records = list(month_page.records(found(rows)))
    by_kind = {
        kind: sum(row["gpu_hours"] for row in records if row["kind"] == kind)
        for kind in ("total", "account", "user")
    }
    assert by_kind == {"total": 24, "account": 24, "user": 24}


# --- Slurm's commands ----------------------------------------------------------------------------

SLURM = """\
#!/bin/sh
printf '%s %s %s\\n' "$SLURM_TIME_FORMAT" "${{0##*/}}" "$*" >> {0}/asked
case ${{0##*/}} in
    sacct) case $* in *--starttime=2026-10-02*) cat {0}/jobs ;; esac ;;
    sacctmgr) cat {0}/events ;;
    sinfo) printf 'gpu1\\ngpu1\\ngpu2\\n' ;;
    sreport) echo 'cpu|100'; echo 'gres/gpu|5952' ;;
esac
[ "$(cat {0}/fails)" != "${{0##*/}}" ] || {{ echo "no database" >&2; exit 1; }}
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sacct", "sacctmgr", "sinfo", "sreport"):
        (folder / name).write_text(SLURM.format(tmp_path))
        (folder / name).chmod(stat.S_IRWXU)
    row = job(at(2), at(2, 1))
    line = sacct.SEPARATOR.join(row.values())
    step = line.replace("4711", "4711.batch", 1)
    (tmp_path / "jobs").write_text(f"{line}\n{step}\n")
    reason = f"gpu2|{int(at(5))}|{int(at(6))}|DOWN|slurm(64030)|a reason | with it\nand more\n"
    (tmp_path / "events").write_text(reason)
    (tmp_path / "fails").write_text("")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return tmp_path


def test_a_month_is_asked_for_day_by_day(slurm, capsys):
    html, sheet = slurm / "month.html", slurm / "month.csv"
    assert main(["--month", "2026-10", "--html", str(html), "--csv", str(sheet)]) == 0
    shown = capsys.readouterr().out
    assert "2026-10: 1 jobs ended" in shown
    assert "8 given of 5,952 (0%)" in shown
    asked = (slurm / "asked").read_text().splitlines()
    days = [line for line in asked if " sacct " in line]
    assert len(days) == 31
    assert all(line.startswith("%s ") for line in asked)
    assert "--duplicates" in days[0]
    assert "JobName" not in days[0]
    assert "a reason | with it" in html.read_text()
    assert "gpu2" in sheet.read_text()


def test_a_month_for_programs(slurm, capsys):
    assert main(["--month", "2026-10", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gpu_hours_there"] == 5952
    assert document["whole"] is True
    assert {row["kind"] for row in document["rows"]} == {"total", "account", "user", "node"}


def test_without_accounting_there_is_none_and_without_events_a_sentence(slurm, capsys):
    (slurm / "fails").write_text("sacct")
    assert main(["--month", "2026-10"]) == 1
    assert "sacct ended with exit status 1: no database" in capsys.readouterr().err
    (slurm / "fails").write_text("sacctmgr")
    assert main(["--month", "2026-10"]) == 0
    assert "Nodes: sacctmgr ended with exit status 1: no database" in capsys.readouterr().out


def test_rows_with_other_columns_are_refused(slurm, capsys):
    (slurm / "jobs").write_text("4711\x1fphysics\n")
    assert main(["--month", "2026-10"]) == 1
    assert "says 2 columns where 11" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told(slurm, capsys):
    assert main(["--month", "2026-10", "--csv", str(slurm / "none/month.csv")]) == 1
    assert "cannot be written: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--month", "October"], ["4711", "--html", "x"]])
def test_wrong_words_are_usage(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_accounting_that_hangs_is_ended(slurm, monkeypatch):
    (slurm / "bin/sacct").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(month_ask, "DAY_LIMIT_S", 0.1)
    begin = time.monotonic()
    with pytest.raises(NotKnown, match=r"did not tell a day's jobs within 0\.1 s"):
        month_ask.read("2026-10")
    assert time.monotonic() - begin < 5


def test_memory_does_not_grow_with_jobs(slurm):
    """A day of 30,000 jobs and their steps, as a site of a million jobs a month has."""
    made = (
        "import sys; row = sys.argv[1]\n"
        "for n in range(30000): print(str(n) + row); print(f'{n}.batch' + row)\n"
    )
    row = "\x1f".join(["", *list(job(at(2), at(2, 1)).values())[1:]])
    (slurm / "make.py").write_text(made)
    (slurm / "row").write_text(row)
    script = f'#!/bin/sh\nexec {sys.executable} -I {slurm}/make.py "$(cat {slurm}/row)"\n'
    (slurm / "bin/sacct").write_text(script)
    measured = (
        "import resource\n"
        "from roles.job_report.files.job_report import month, month_ask\n"
        f"day = month.Span({at(2)}, {at(3)}); sums = {{}}\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "month.count(month_ask.jobs(day), day, sums)\n"
        "(one,) = sums.values()\n"
        "print(one.jobs, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", measured], capture_output=True, text=True, check=True, env=os.environ
    )
    jobs, grown_kb = map(int, done.stdout.split())
    assert jobs == 30000
    assert grown_kb < 8 * 1024


def test_sums_are_added():
    one, other = Sums(jobs=1, cpu_given=2.0, metered=True), Sums(jobs=2, energy_kwh=1.5)
    one.add(other)
    assert (one.jobs, one.cpu_given, one.energy_kwh, one.metered) == (3, 2.0, 1.5, True)
