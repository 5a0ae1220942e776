"""What came of jobs: those that ended within a day, once each, with the GPUs that they had."""

import pytest

from cluster.exporter import Failed
from cluster.slurm.times import moment
from roles.slurm_exporter.files.slurm_exporter import outcomes
from roles.slurm_exporter.files.slurm_exporter.words import Nonsense

NOW = 1_795_000_000.0
HOUR = 3600


def row(state, hours, ago_h, gpus=8):
    tres = f"billing=8,cpu=8,gres/gpu={gpus},gres/gpu:h100={gpus},mem=64G" if gpus else "cpu=1"
    return f"{state}|{hours * HOUR}|{moment(NOW - ago_h * HOUR)}|{tres}"


def told(text):
    return {
        (family.name.removeprefix("plumbline_ended_jobs"), *labels): value
        for family in outcomes.families(text, NOW)
        for labels, value in family.samples.items()
    }


def test_jobs_are_summed_up_by_what_came_of_them():
    lines = [
        row("COMPLETED", 10, 1),
        row("COMPLETED", 1, 2, gpus=0),
        row("CANCELLED by 1000", 2, 3),
        row("TIMEOUT", 24, 4),
        row("FAILED", 3, 5),
        row("OUT_OF_MEMORY", 1, 6, gpus=2),
        row("NODE_FAIL", 48, 7),
        row("FAILED", 99, 25),  # the day before
        f"RUNNING|{HOUR}|Unknown|cpu=8,gres/gpu=8",
        "PENDING|0|Unknown|",
    ]
    assert told("\n".join(lines)) == {
        ("", "completed"): 2,
        ("", "stopped"): 2,
        ("", "failed"): 2,
        ("", "lost"): 1,
        ("_gpu_seconds", "completed"): 80 * HOUR,
        ("_gpu_seconds", "stopped"): 26 * 8 * HOUR,
        ("_gpu_seconds", "failed"): 26 * HOUR,
        ("_gpu_seconds", "lost"): 48 * 8 * HOUR,
    }


def test_a_day_without_jobs_is_zeros():
    assert set(told("").values()) == {0}


@pytest.mark.parametrize("line", ["COMPLETED|3600", "FAILED|soon|2026-11-18T02:00:00|cpu=1"])
def test_nonsense_is_no_number(line):
    with pytest.raises(Nonsense):
        list(outcomes.families(line, 0.0))


def test_an_answer_holds_for_ten_minutes_and_so_does_a_failure():
    asked = []
    answers = [row("FAILED", 1, 1), Failed("sacct ended with exit status 1"), ""]

    def run(words):
        asked.append(words)
        answer = answers[len(asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    ended = outcomes.Outcomes(run)
    assert ended.collect(NOW) == ended.collect(NOW + 599)
    for later in (600, 1100):
        with pytest.raises(Failed, match="exit status 1"):
            ended.collect(NOW + later)
    assert ended.collect(NOW + 1200)
    assert len(asked) == 3
    assert f"--starttime={moment(NOW - 86_400)}" in asked[0]
