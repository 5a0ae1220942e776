"""What accounts asked for and used, from rows as sacct writes them and answers of Prometheus."""

from __future__ import annotations

import json
import os
from datetime import datetime

import pytest
import yaml

from cluster import prometheus
from roles.job_report.files.job_report import (
    client,
    efficiency,
    efficiency_ask,
    main,
    protocol,
    service,
    site,
)
from roles.job_report.files.job_report.efficiency import Account, Accounts
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.files.job_report.month import Span
from roles.job_report.files.job_report.sacct import SEPARATOR
from tests.checkers import checker
from tests.processes import run

BEGIN = datetime(2026, 10, 1).timestamp()
DAY = Span(BEGIN, BEGIN + 86400)


def row(job="1", **changes):
    """A job of two hours, of 4 CPUs, 8 GiB and two GPUs, of which it had one CPU busy."""
    cells = {
        "JobID": job,
        "Account": "physics",
        "Start": f"{BEGIN:.0f}",
        "End": f"{BEGIN + 7200:.0f}",
        "ElapsedRaw": "7200",
        "AllocCPUS": "4",
        "AllocTRES": "billing=4,cpu=4,gres/gpu:h100=2,gres/gpu=2,mem=8G,node=1",
        "TotalCPU": "02:00:00",
        "TRESUsageInTot": "",
    }
    assert set(changes) <= set(cells)
    return {**cells, **changes}


def step(job="1.0", memory="2048M", **changes):
    return row(job, TRESUsageInTot=f"cpu=01:00:00,mem={memory},vmem=9G", **changes)


def counted(*rows, span=DAY):
    accounts: dict[str, Account] = {}
    efficiency.count(efficiency.together(rows), span, accounts)
    return accounts


def test_what_was_asked_for_and_what_was_used():
    physics = counted(row(), step("1.batch", "100M"), step())["physics"]
    assert physics.jobs == 1
    assert (physics.gpu.asked, physics.gpu.counted, physics.gpu.ratio) == (4, 0, None)
    assert (physics.cpu.asked, physics.cpu.used, physics.cpu.ratio) == (8, 2, 0.25)
    assert (physics.memory.asked, physics.memory.used, physics.memory.ratio) == (16, 4, 0.25)


def test_what_was_not_counted_is_neither_used_nor_wasted():
    running = row("2", End="Unknown", TotalCPU="00:00:00")
    physics = counted(running, row("3", TotalCPU=""), step("3.0", "0"))["physics"]
    assert physics.jobs == 1
    assert physics.cpu.asked == 4 * 24 + 4 * 2
    assert (physics.cpu.counted, physics.memory.counted) == (0, 0)
    assert efficiency.document(Accounts("2026-10", DAY, True, {"physics": physics}))["accounts"][0][
        "cpu_hours"
    ] == {"asked": 104, "counted": 0, "used": 0, "ratio": None, "unused": 0}


def test_a_job_of_two_days_is_divided_between_them():
    long = row(End=f"{BEGIN + 2 * 86400:.0f}", ElapsedRaw="172800", TotalCPU="1-00:00:00")
    days = [DAY, Span(DAY.end, DAY.end + 86400)]
    found = [counted(long, step(), span=day)["physics"] for day in days]
    assert [account.jobs for account in found] == [0, 0]  # it ended as the third day began
    assert [account.cpu.used for account in found] == [12, 12]
    assert [account.gpu.asked for account in found] == [48, 48]
    assert counted(long, span=Span(days[1].end, days[1].end + 1))["physics"].jobs == 1


def test_no_more_is_used_than_was_asked_for():
    """Slurm counts threads of a core as it likes, and memory of two tasks twice."""
    physics = counted(row(TotalCPU="99:00:00"), step(memory="99G"))["physics"]
    assert (physics.cpu.ratio, physics.memory.ratio) == (1, 1)


def test_rows_of_steps_alone_and_of_a_job_that_never_began_are_nothing():
    waiting = row("2", Start="Unknown", End="Unknown", ElapsedRaw="0")
    assert counted(step("9.0"), waiting) == {}


def test_gpus_use_is_added_by_account():
    accounts = counted(row())
    efficiency.measured({"physics": (3.5, 0.7), "chemistry": (1, 2)}, accounts)
    assert accounts["physics"].gpu.ratio == pytest.approx(0.2)
    assert accounts["chemistry"].gpu.used == 1  # of rounding


def test_a_table_has_what_stood_idle_first_and_no_unknown_as_a_zero():
    accounts = counted(row(), step(), row("2", Account="chemistry"), row("3", Account=""))
    efficiency.measured({"chemistry": (4, 1)}, accounts)
    text = efficiency.text(Accounts("2026-10", DAY, False, accounts, ("GPUs' use: nobody asked.",)))
    head, titles, first, second, third, missing = text.splitlines()
    assert head.startswith("Accounts in 2026-10 so far")
    assert titles.split()[:2] == ["account", "jobs"]
    assert first.split() == ["chemistry", "1", "4", "25%", "3", "8", "25%", "6", "16", "?"]
    assert second.split() == ["-", "1", "4", "?", "?", "8", "25%", "6", "16", "?"]
    assert third.split() == ["physics", "1", "4", "?", "?", "8", "25%", "6", "16", "25%"]
    assert missing == "Not known: GPUs' use: nobody asked."


@pytest.mark.parametrize("name", ['"x"\\', "a\x1b[31mb", "x\u202ey", "a\nb", "=cmd|' /C calc'!A0"])
def test_a_hostile_name_of_an_account_is_one_visible_line(name):
    accounts = counted(row(Account=name))
    efficiency.measured({name: (4, 1)}, accounts)
    assert len(accounts) == 1
    text = efficiency.text(Accounts("2026-10", DAY, True, accounts))
    assert len(text.splitlines()) == 3
    assert all(line.isprintable() for line in text.splitlines())


# --- asked for -----------------------------------------------------------------------------------


@pytest.fixture
def sacct(tmp_path, monkeypatch):
    """A sacct that writes these rows, whatever it is asked."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def writes(*rows, status=0):
        lines = [SEPARATOR.join(cells[name] for name in efficiency_ask.COLUMNS) for cells in rows]
        (tmp_path / "rows").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        program = tmp_path / "sacct"
        script = f"#!/bin/sh\necho $* >>{tmp_path}/asked\ncat {tmp_path}/rows\nexit {status}\n"
        program.write_text(script)
        program.chmod(0o755)
        return tmp_path / "asked"

    return writes


def test_a_month_is_asked_for_a_day_at_a_time(sacct):
    asked = sacct(row(), step())
    found = efficiency_ask.read("2026-10", lambda day: {"physics": (1, 0.5)})
    assert found.each["physics"].jobs == 1
    assert found.each["physics"].cpu.used == 2
    days = len(asked.read_text().splitlines())
    assert found.each["physics"].gpu.counted == days
    assert "--starttime=2026-10-01T00:00:00 --endtime=2026-10-02T00:00:00" in asked.read_text()


def test_gpus_of_a_part_of_a_month_are_not_told(sacct):
    sacct(row())
    days = iter(range(100))

    def ask(day):
        if next(days):
            raise NotKnown("Prometheus keeps thirty days.")
        return {"physics": (1, 0.5)}

    found = efficiency_ask.read("2026-10", ask)
    assert found.each["physics"].gpu.ratio is None
    assert found.missing == ("GPUs' use: Prometheus keeps thirty days.",)


def test_a_sacct_that_fails_is_no_month(sacct, capsys, tmp_path):
    sacct(status=3)
    assert main.main(["--accounts", "2026-10", "--socket", str(tmp_path / "none")]) == 1
    assert "sacct ended with exit status 3" in capsys.readouterr().err


def test_the_program_prints_a_table_or_a_document(sacct, capsys, tmp_path):
    sacct(row(), step())
    arguments = ["--accounts", "2026-10", "--socket", str(tmp_path / "none")]
    assert main.main(arguments) == 0
    assert "Not known: GPUs' use: Nobody can be asked" in capsys.readouterr().out
    assert main.main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["accounts"][0]["memory_gib_hours"]["ratio"] == 0.25
    assert document["version"] == 1


# --- the service ---------------------------------------------------------------------------------

SETTINGS = site.Settings(prometheus.Server("https://nowhere"), "")


def test_users_are_not_told_of_accounts(monkeypatch):
    monkeypatch.setattr(efficiency_ask, "gpu_hours", lambda *_: {"physics": (4.0, 1.0)})
    question = {"gpu_hours": [DAY.begin, DAY.end]}
    user, root = service.Asker(4711, frozenset()), service.Asker(0, frozenset())
    assert service.answer(user, question, SETTINGS) == {
        "refused": "What accounts used is for operators."
    }
    told = service.answer(root, question, SETTINGS)
    again = json.loads(protocol.line(told))["gpu_hours"]
    assert protocol.unpacked_hours(again) == {"physics": (4.0, 1.0)}


@pytest.mark.parametrize("day", [[0, 10**9], [5, 5], [5, 4]])
def test_no_more_than_a_day_is_asked_of_prometheus(day):
    answer = service.answer(service.Asker(0, frozenset()), {"gpu_hours": day}, SETTINGS)
    assert answer == {"refused": "GPU-hours are told of a day."}


def test_hours_are_those_of_moments(monkeypatch):
    series = {
        efficiency_ask.COUNTED: [prometheus.Series({"account": "physics"}, ((0, 2.0), (300, 2.0)))],
        efficiency_ask.BUSY: [prometheus.Series({"account": "physics"}, ((0, 1.0), (300, 0.5)))],
    }
    monkeypatch.setattr(prometheus, "over", lambda _server, expr, **_: series[expr])
    hours = efficiency_ask.gpu_hours(SETTINGS.server, 0, 600)
    assert hours["physics"] == pytest.approx((4 / 12, 1.5 / 12))


def test_prometheus_takes_the_questions_and_means_by_them_what_we_do(tmp_path):
    """Two jobs of physics, one on two nodes, a GPU that no job has, and an instance of MIG."""
    busy = [
        ("1", "gpu1", "0", 100),
        ("1", "gpu2", "0", 50),
        ("2", "gpu2", "1", 0),
    ]
    series = [
        {
            "series": f'DCGM_FI_DEV_GPU_UTIL{{hpc_job="{job}",node="{node}",gpu="{gpu}"}}',
            "values": value,
        }
        for job, node, gpu, value in busy
    ]
    instance = 'hpc_job="2",node="gpu2",gpu="2",GPU_I_ID="3"'
    for labels in ('node="gpu1",gpu="7"', instance):
        series.append({"series": f"DCGM_FI_DEV_GPU_UTIL{{{labels}}}", "values": 90})
    series += [
        {
            "series": f'slurm_job_gpu_info{{hpc_job="{job}",account="physics",node="{node}"}}',
            "values": 1,
        }
        for job, node in (("1", "gpu1"), ("1", "gpu2"), ("2", "gpu2"))
    ]
    tests = [
        {
            "expr": expr,
            "eval_time": "0m",
            "exp_samples": [{"labels": '{account="physics"}', "value": value}],
        }
        for expr, value in ((efficiency_ask.COUNTED, 3), (efficiency_ask.BUSY, 1.5))
    ]
    file = tmp_path / "tests.yml"
    file.write_text(
        yaml.safe_dump(
            {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": tests}]}
        )
    )
    done = run(*checker("promtool"), "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("answer", [[], {"physics": 1}, {"physics": ["a", "b"]}])
def test_another_answer_is_a_sentence(answer, monkeypatch):
    monkeypatch.setattr(client, "_ask_until", lambda *_: {"gpu_hours": answer})
    with pytest.raises(NotKnown, match="something else"):
        client.gpu_hours(DAY)
