"""What runs outside of Slurm's control groups, from a folder like /proc."""

import os

import pytest

from validation.payloads import outside

SLURMD = "0::/system.slice/slurmd.service"
JOB = "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
USER = "0::/user.slice/user-1000.slice/session-3.scope"
HZ = os.sysconf("SC_CLK_TCK")
HALF = HZ // 2  # one CPU for half a second


def written(proc, pid, command, group, ticks, parent=1, threads=()):
    """threads: nanoseconds that each ran, and was ready to."""
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    fields = ["S", str(parent), *["0"] * 9, str(ticks), "0", *["0"] * 20]
    (folder / "stat").write_text(f"{pid} ({command}) {' '.join(fields)}")
    (folder / "cgroup").write_text(f"{group}\n")
    for number, (ran, ready) in enumerate(threads):
        thread = folder / "task" / str(pid + number)
        thread.mkdir(parents=True, exist_ok=True)
        (thread / "schedstat").write_text(f"{ran} {ready} 7\n")


class Node:
    """A folder like /proc, in which time passes as each look waits."""

    def __init__(self, proc, own=JOB, self_parent=1):
        self.proc, self.now, self.looks, self.used = proc, 5.0, 0, {}
        written(proc, "self", "python3", own, 0, self_parent)
        (proc / "meminfo").write_text("")
        (proc / "9").mkdir()  # it ended while it was looked at
        (proc / "passwd").write_text(f"me:x:{os.getuid()}:0::/:/bin/sh\n")

    def runs(self, pid, command, group=USER, parent=1, ticks=0, threads=(), until=99):
        """In each of its first `until` looks it uses so much."""
        self.used[pid] = (command, group, parent, ticks, threads, until)

    def wait(self, seconds):
        self.looks += 1
        self.now += seconds
        self.write()

    def write(self):
        for pid, (command, group, parent, ticks, threads, until) in self.used.items():
            times = min(self.looks, until)
            lines = [(times * ran, times * ready) for ran, ready in threads]
            written(self.proc, pid, command, group, 100 + times * ticks, parent, lines)

    def measured(self):
        self.write()
        return outside.measure(self.proc, self.wait, lambda: self.now, self.proc / "passwd")


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_what_slurm_did_not_start_is_counted_and_named(node):
    node.runs(10, "stress) (x", ticks=2 * HALF)
    node.runs(11, "cron", "0::/system.slice/cron.service", ticks=HALF)
    node.runs(12, "slurmd", SLURMD, ticks=4 * HALF)
    node.runs(13, "train", JOB, ticks=8 * HALF)
    node.runs(14, "kworker/0:1", "0::/", parent=2, ticks=16 * HALF)
    answer = node.measured()
    assert (answer["cpus"], answer["asked"]) == (3.0, 3.0)
    first, second = answer["processes"]
    user = "me"
    assert first == {"pid": 10, "user": user, "command": "stress) (x", "cpus": 2.0, "asked": 2.0}
    assert second["command"] == "cron"
    assert answer["seconds"] == outside.MOST_LOOKS * outside.SECONDS


def test_an_idle_node_is_looked_at_once_and_names_nobody(node):
    node.runs(10, "cron")
    answer = node.measured()
    assert (answer["cpus"], answer["asked"], answer["processes"]) == (0.0, 0.0, [])
    assert node.looks == 1


def test_what_ends_while_it_is_looked_at_does_not_count(node):
    node.runs(10, "apt-get", ticks=2 * HALF, until=2)
    answer = node.measured()
    assert answer["asked"] == 0.0
    assert node.looks == 3


def test_a_thread_that_waits_for_a_cpu_asks_for_a_whole_one(node):
    """Two that share a CPU with ten others have a tenth each, and would take two."""
    node.runs(10, "hog", ticks=HALF // 5, threads=[(50_000_000, 440_000_000)] * 2)
    node.runs(11, "exporter", ticks=0, threads=[(1_000_000, 100_000_000)] * 30)
    answer = node.measured()
    assert answer["cpus"] == pytest.approx(0.2, abs=0.05)
    assert answer["asked"] == pytest.approx(2.02, abs=0.03)
    assert answer["processes"][0]["command"] == "hog"


def test_a_user_that_the_node_does_not_know_is_told_by_its_number(node):
    (node.proc / "passwd").write_text("root:x:x\n")
    node.runs(10, "hog", ticks=2 * HALF)
    assert node.measured()["processes"][0]["user"] == f"uid {os.getuid()}"


@pytest.mark.parametrize("own", ["0::/", USER])
def test_outside_of_slurm_nothing_is_told(tmp_path, own):
    node = Node(tmp_path, own)
    node.runs(10, "stress", ticks=HALF)
    assert node.measured() is None


def test_without_groups_of_slurm_a_process_is_its_own_that_descends_from_its_daemons(tmp_path):
    node = Node(tmp_path, "0::/", self_parent=21)
    node.runs(20, "slurmd", "0::/", ticks=HALF)
    node.runs(21, "slurmstepd", "0::/", parent=20, ticks=HALF)
    node.runs(22, "train", "0::/", parent=21, ticks=4 * HALF)
    node.runs(23, "stress", "0::/", ticks=2 * HALF)
    assert [item["command"] for item in node.measured()["processes"]] == ["stress"]


def test_of_this_machine_it_tells_nothing_or_what_is_asked_for():
    answer = outside.measure()
    assert answer is None or answer["asked"] >= 0
