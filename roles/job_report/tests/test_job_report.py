"""A job's report, from answers of sacct and Prometheus as they have them."""

import json

import pytest

from cluster import prometheus
from roles.job_report.files.job_report import main, report, sacct, usage, words
from roles.job_report.files.job_report.errors import NotKnown
from roles.job_report.tests.recorded import END, FOUR, START, answer, gpu, job, row, steps

# --- sacct ---------------------------------------------------------------------------------------


def test_a_job_is_what_its_row_and_its_steps_say():
    result = job()
    assert (result.id, result.name, result.nodes) == ("4711", "train|big", ("gpu1", "gpu2"))
    assert (result.start, result.end, result.limit_s) == (START, END, 7200)
    assert (result.cpus, result.cpu_s, result.gpus) == (16, 8 * 3600, 4)
    assert (result.memory_bytes, result.memory_peak_bytes) == (64 * 2**30, 8 * 2**30)


def test_the_task_of_an_array_is_known_by_the_id_that_metrics_have():
    task = sacct.parse(row("4711_3", JobIDRaw="4714"), "4711_3", "train")
    assert (task.id, task.shown) == ("4714", "4711_3")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00.012", 0.012),
        ("12:34", 754),
        ("01:02:03", 3723),
        ("2-01:02:03", 176523),
        ("", None),
        ("INVALID", None),
    ],
)
def test_durations(text, seconds):
    assert sacct.duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("64G", 64 * 2**30), ("1.50M", 1572864), ("12345", 12345), ("0", 0), ("", None), ("x", None)],
)
def test_sizes(text, size):
    assert sacct.size(text) == size


@pytest.mark.parametrize(
    ("said", "joules"),
    [("7200000", 7200000), ("", None), ("0", None), ("4294967294", None), (str(2**64 - 2), None)],
)
def test_energy_is_what_slurm_measured_or_nothing(said, joules):
    found = job(ConsumedEnergyRaw=said)
    assert found.energy_j == joules
    text = report.text(report.build(found, lambda _: usage.Measured()))
    assert ("  energy  2.00 kWh, of its nodes as a whole" in text.splitlines()) is bool(joules)
    assert job(ConsumedEnergyRaw=said, End="Unknown", State="RUNNING").energy_j is None


def test_what_is_not_there_yet_is_none():
    begun = row(State="RUNNING", End="Unknown", TimelimitRaw="UNLIMITED", TotalCPU="00:00:00")
    result = sacct.parse(begun, "4711", "train")
    assert result.running
    assert (result.end, result.limit_s, result.cpu_s, result.memory_peak_bytes) == (None,) * 4
    queued = row(Start="Unknown", End="Unknown", NodeList="None assigned", AllocTRES="")
    waiting = sacct.parse(queued, "4711", "train")
    assert not waiting.running
    assert (waiting.nodes, waiting.gpus, waiting.memory_bytes) == ((), 0, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "accounting has no job 4711, or none that you may see"),
        (f"{row('4711_1')}\n{row('4711_2')}", "4711 is 2 jobs; name one of them, such as 4711_1."),
        ("a|b", "sacct says 1 columns where 18 were asked for."),
    ],
)
def test_what_is_no_job_is_one_sentence(text, why):
    with pytest.raises(NotKnown, match=why):
        sacct.parse(text, "4711", "train")


# --- Prometheus ----------------------------------------------------------------------------------


class Answers:
    """Answers by the metric and what is asked of it: `jobs`, `nodes`, or both."""

    def __init__(self, **answers):
        self.answers, self.queries = answers, []

    def __call__(self, query):
        self.queries.append(query)
        kind = "jobs" if "hpc_job=" in query else "nodes"
        for key, series in self.answers.items():
            name, _, wanted = key.partition("__")
            if name in query and wanted in ("", kind):
                return prometheus.parse(answer(*series))
        return []


def test_a_jobs_gpus_are_those_with_its_id():
    ask = Answers(
        GPU_UTIL=FOUR,
        FB_USED=[gpu("gpu1", 0, 100, 500, 300)],
        FB_FREE=[gpu("gpu1", 0, 900, 500, 700)],
        POWER_USAGE=[gpu(node, n, 400, 600) for node in ("gpu1", "gpu2") for n in (0, 1)],
    )
    gpus = usage.gpus(job(), ask)
    assert gpus is not None
    assert gpus.how == "by the job's id"
    assert gpus.each[0] == usage.GpuUse("gpu1", "0", "", 70, 80, 500, 1000, 500)
    numbers = [f"{use.node}:{use.gpu}" for use in gpus.each]
    assert numbers == ["gpu1:0", "gpu1:1", "gpu2:0", "gpu2:1"]
    assert usage.kilowatt_hours(gpus, 3600) == 2.0
    assert all('hpc_job="4711"' in query for query in ask.queries)
    assert gpus.each[1].memory_peak_mb is None


def test_gpus_stand_in_the_order_of_their_numbers():
    gpus = usage.gpus(job(), Answers(GPU_UTIL=[gpu("a", 10, 1), gpu("a", 2, 1)]))
    assert gpus is not None
    assert [use.gpu for use in gpus.each] == ["2", "10"]


def test_without_ids_they_are_those_of_whole_nodes():
    ask = Answers(GPU_UTIL__nodes=FOUR)
    gpus = usage.gpus(job(), ask)
    assert gpus is not None
    assert len(gpus.each) == 4
    assert "for no metrics carry its id" in gpus.how
    assert 'node=~"gpu1|gpu2"' in ask.queries[-1]


def test_without_ids_and_with_others_gpus_nothing_is_said():
    with pytest.raises(NotKnown, match="its nodes have 4 GPUs where it had 2"):
        usage.gpus(job(AllocTRES="gres/gpu=2"), Answers(GPU_UTIL__nodes=FOUR))


def test_no_metrics_at_all():
    with pytest.raises(NotKnown, match="no metrics of the job's GPUs for that time"):
        usage.gpus(job(), Answers())
    assert usage.gpus(job(AllocTRES="cpu=1"), Answers(GPU_UTIL=FOUR)) is None


def test_a_dot_in_a_nodes_name_is_no_pattern():
    ask = Answers()
    with pytest.raises(NotKnown):
        usage.gpus(job(NodeList="gpu1.site"), ask)
    assert 'node=~"gpu1[.]site"' in ask.queries[-1]


def test_the_cpus_of_whole_nodes_are_the_jobs():
    ask = Answers(count=[({}, (16, 16))], sum=[({}, (4, 6))])
    assert usage.node_cpu(job(), ask) == 11


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"count": [({}, (64,))], "sum": [({}, (4,))]}, "16 of the 64 CPUs"),
        ({}, "no metrics of it"),
        ({"count": [({}, (16,))]}, "too short for a rate"),
    ],
)
def test_why_the_cpus_are_not_known(answers, why):
    with pytest.raises(NotKnown, match=why):
        usage.node_cpu(job(), Answers(**answers))


def test_a_long_job_is_asked_in_few_steps():
    assert usage.step_s(job(), END) == 30
    week = job(Start=str(END - 7 * 86400))
    assert usage.step_s(week, END) == 605
    running = job(End="Unknown")
    assert usage.span(running, START + 90.0) == (START, START + 90)
    with pytest.raises(NotKnown, match="has not begun"):
        usage.span(job(Start="Unknown", End="Unknown"), END)


def test_nan_is_no_value():
    (series,) = prometheus.parse(answer(({}, ("NaN", 5, "+Inf")), ({"a": "b"}, ("NaN",))))
    assert series.values == (5,)


# --- the report ----------------------------------------------------------------------------------


def build_report(of_job, gpus=None, cpus_busy=8.0, missing=()):
    not_known = report.sentences(of_job, gpus, missing)
    return report.Report(of_job, cpus_busy, gpus, (), not_known)


def test_a_report_for_people():
    ask = Answers(GPU_UTIL=FOUR, FB_USED=[gpu("gpu1", 0, 40960)], FB_FREE=[gpu("gpu1", 0, 40960)])
    lines = report.text(build_report(job(), usage.gpus(job(), ask))).splitlines()
    assert lines[0] == "Job 4711 (train|big) of alice, account physics: COMPLETED, exit code 0:0"
    assert lines[1].startswith("  time    01:00:00 of 02:00:00 allowed, from 20")
    assert lines[2:6] == [
        "  nodes   gpu[1-2], partition gpu",
        "  CPU     50% of 16: 8.0 busy in the mean",
        "  memory  8.0 GiB at the peak of its largest step, 12% of 64.0 GiB",
        "  GPU     4, 70% busy in the mean; found by the job's id",
    ]
    assert lines[6:8] == [
        "          node  gpu  busy  at most  memory at most        power",
        "          gpu1  0    70%   80%      40.0 GiB of 80.0 GiB  -",
    ]
    assert len(lines) == 11


def test_each_thing_that_is_not_known_has_its_sentence():
    short = job(row("4711.batch"))
    text = report.text(build_report(short, missing=["No Prometheus is named here."]))
    assert "Memory: Slurm has no sample of it" in text
    assert text.endswith("  No Prometheus is named here.\n")
    runs = job(End="Unknown", State="RUNNING")
    assert "Slurm counts CPU and memory of a step when the step ends" in report.text(
        build_report(runs)
    )
    instance = usage.gpus(job(), Answers(FB_USED=[gpu("gpu1", 0, 5, GPU_I_ID="9")]))
    text = report.text(build_report(job(), instance))
    assert "gpu1  0.9  -" in text
    assert "of 3 of its GPUs there are no metrics" in text
    assert "how busy an instance of MIG was is not measured" in text
    assert "Not known" not in report.text(build_report(job()))


def test_a_report_for_programs():
    result = report.document(build_report(job(), usage.gpus(job(), Answers(GPU_UTIL=FOUR))))
    assert json.loads(json.dumps(result)) == result | {
        "job": result["job"] | {"nodes": ["gpu1", "gpu2"]},
        "gpus": result["gpus"] | {"each": list(result["gpus"]["each"])},
        "hints": [],
        "not_known": [],
    }
    assert (result["cpu_ratio"], result["memory_ratio"], result["gpu_ratio"]) == (0.5, 0.125, 0.7)
    assert result["gpu_kwh"] is None


# --- as a whole ----------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("\x1b]0;owned\x07\x1b[2Jtrain\n", "]0;owned [2Jtrain"),
        (f"train{sacct.SEPARATOR}root\n", "train root"),
        (f"train\n{row('4712')}\n", "train 4712 4712 2001 alice"),
    ],
)
def test_a_name_forges_no_row_and_reaches_no_terminal_raw(
    slurm, tmp_path, capsys, name, shown, more
):
    slurm("\n".join([row(), *steps()]), name=name)
    assert main.main(["4711", *more, "--socket", str(tmp_path / "none")]) == 0
    output = capsys.readouterr().out
    assert shown in output
    assert all(character.isprintable() for character in output.replace("\n", ""))
    assert "alice" in output


def test_without_prometheus_slurms_part_is_reported(slurm, tmp_path, capsys):
    slurm("\n".join([row(), *steps()]))
    assert main.main(["4711", "--json", "--socket", str(tmp_path / "none")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["cpu_ratio"] == 0.5
    (why,) = document["not_known"]
    assert why.startswith("Nobody can be asked for GPUs")


def test_a_password_that_one_may_not_read(tmp_path, monkeypatch):
    def refuse(self, **_):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.read_text", refuse)
    where = prometheus.Server("http://x", user="grafana", password=tmp_path / "password")
    with pytest.raises(prometheus.NoAnswer, match="You may not read /"):
        prometheus.over(where, "up", 0, 1, 30)


def test_slurm_that_does_not_answer(slurm, capsys, monkeypatch):
    slurm(status=1, error="sacct: error: Unable to connect to database")
    assert main.main(["4711"]) == 1
    words = "sacct ended with exit status 1: sacct: error: Unable to connect to database.\n"
    assert capsys.readouterr().err == words
    monkeypatch.setenv("PATH", "/nowhere")
    assert main.main(["4711"]) == 1
    assert "sacct cannot be started: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "47 11", "4711;reboot", "all", '4711"} or up'])
def test_what_is_no_job_is_asked_of_nobody(text, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main([text])
    assert ended.value.code == 2
    assert "is no job" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kwh", "shown"), [(2.0, "2.00 kWh"), (0.002485, "2.5 Wh"), (0.0, "0.0 Wh")]
)
def test_energy_is_shown_in_a_unit_that_shows_it(kwh, shown):
    assert words.energy(kwh) == shown
