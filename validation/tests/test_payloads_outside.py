"""What runs outside of Slurm's control groups, from a folder like /proc."""

import os

import pytest

from validation.payloads import outside

SLURMD = "0::/system.slice/slurmd.service"
JOB = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
USER = "0::/user.slice/user-1000.slice/session-3.scope"


def written(proc, pid, command, group, ticks, parent=1):
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    fields = ["S", str(parent), *["0"] * 9, str(ticks), "0", *["0"] * 20]
    (folder / "stat").write_text(f"{pid} ({command}) {' '.join(fields)}")
    (folder / "cgroup").write_text(f"{group}\n")


def measured(tmp_path, ticks, own=JOB):
    """Of these processes: (command, group, parent) -> ticks in half a second."""
    written(tmp_path, "self", "python3", own, 0)
    (tmp_path / "meminfo").write_text("")
    for pid, (command, group, parent) in enumerate(ticks, start=10):
        written(tmp_path, pid, command, group, 100, parent)
    (tmp_path / "9").mkdir()  # it ended while it was looked at

    def wait(seconds):
        for pid, ((command, group, parent), used) in enumerate(ticks.items(), start=10):
            written(tmp_path, pid, command, group, 100 + used, parent)

    clock = iter([5.0, 5.5])
    return outside.measure(tmp_path, wait, lambda: next(clock))


TICKS = os.sysconf("SC_CLK_TCK") // 2  # one CPU for half a second


def test_what_slurm_did_not_start_is_counted_and_the_largest_named(tmp_path):
    answer = measured(
        tmp_path,
        {
            ("stress) (x", USER, 1): 2 * TICKS,
            ("cron", "0::/system.slice/cron.service", 1): TICKS,
            ("slurmd", SLURMD, 1): 4 * TICKS,
            ("train", JOB, 1): 8 * TICKS,
            ("kworker/0:1", "0::/", 2): 16 * TICKS,
        },
    )
    assert answer == {"cpus": 3.0, "largest": "stress) (x"}


def test_an_idle_node_has_no_largest(tmp_path):
    assert measured(tmp_path, {("cron", USER, 1): 0}) == {"cpus": 0.0, "largest": ""}


@pytest.mark.parametrize("own", ["0::/", USER])
def test_where_slurm_has_no_groups_nothing_is_told(tmp_path, own):
    assert measured(tmp_path, {("stress", USER, 1): TICKS}, own) is None
