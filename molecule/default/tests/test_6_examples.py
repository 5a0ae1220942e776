"""Every example that users get, as it is, submitted by an ordinary user from the shared home as the
page of its lesson says; and every command of the users' page.

What a program computes it proves itself (roles/user_examples/tests breaks each); here it must end
well, and print what its page shows, numbers aside.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import pytest

from tests import long_tests
from tests.live_cluster import REPOSITORY

PAGE = (REPOSITORY / "docs/use/jobs.md").read_text(encoding="utf-8")
TYPED = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
USER = "ada"
FOLDER = "/opt/examples"


def lines(block: str) -> list[str]:
    return [re.sub(r"\s{2,}#.*$", "", line) for line in block.splitlines()]


COMMANDS = [command for block, _ in TYPED.findall(PAGE) for command in lines(block)]


@dataclass(frozen=True)
class Lesson:
    """A page of the course: what is typed, and after it what the last of that is said to print."""

    typed: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def submits(self) -> str:
        """What is submitted, or nothing."""
        jobs = [line for commands, _ in self.typed for line in commands if "sbatch" in line]
        return jobs[0].removeprefix("sbatch ") if jobs else ""


def read(page: str) -> Lesson:
    """What is printed stands directly below what is typed."""
    found = TYPED.findall(page)
    return Lesson(tuple((tuple(lines(block)), output) for block, output in found))


LESSONS = {
    path.stem: read(path.read_text(encoding="utf-8"))
    for path in sorted((REPOSITORY / "docs/use/course").glob("[0-9]*.md"))
}
# The others are left for --full. What their programs compute is tested without a cluster too.
SHORT = ("01-one-gpu", "02-interactive", "03-container", "04-ddp")
COURSE = read((REPOSITORY / "docs/use/course/README.md").read_text(encoding="utf-8"))
# Examples without a page that submits them, and the tests that do.
OTHERS = {
    "array.sbatch": "test_best_follows_the_array",
    "best.sbatch": "test_best_follows_the_array",
}
ENDED = re.compile(r"COMPLETED|FAILED|CANCELLED|TIMEOUT|OUT_OF_MEMORY|NODE_FAIL|DEADLINE")


@pytest.fixture(scope="module")
def login(node):
    """A function that runs a command as the user, in the copy of the examples."""
    host = node("login1")

    def run(command: str):
        with host.sudo():
            shell = f"cd ~/examples 2>/dev/null || cd; {command}"
            return host.run("runuser --login %s --command %s", USER, shell)

    def say(command: str) -> str:
        done = run(command)
        assert done.rc == 0, done.stdout + done.stderr
        return done.stdout.strip()

    say("rm -rf ~/examples")
    for commands, _ in COURSE.typed:
        say(" && ".join(commands))
    yield say
    say("scancel --me")


def submit(login, options: str) -> str:
    return login(f"sbatch --parsable {options}")


def wait(login, job: str, seconds: int = 300) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        state = login(f"sacct --noheader --parsable2 --allocations --jobs={job} --format=State")
        states = state.splitlines()
        if states and all(ENDED.match(word) for word in states):
            return ",".join(sorted(set(states)))
        time.sleep(1)
    return f"not ended: {login('squeue')}"


@pytest.fixture(scope="module")
def submitted(login):
    """All at once: Slurm has them wait for each other. The one that is queued again comes first."""
    asked = SHORT if long_tests.SHORT else LESSONS
    orders = {name: LESSONS[name].submits for name in asked if LESSONS[name].submits}
    first = sorted(orders, key=lambda name: "checkpoint" not in name)
    return {name: submit(login, orders[name]) for name in first}


def test_every_example_is_run_or_says_why_not(login):
    run = {word for lesson in LESSONS.values() for word in lesson.submits.split()}
    jobs = set(login("ls *.sbatch").split())
    assert jobs == {word for word in run if word.endswith(".sbatch")} | OTHERS.keys()


def test_the_pages_lie_beside_the_examples(login):
    """Of steps that this cluster has; it has no containers."""
    assert set(login("ls *.md").split()) == {"README.md"} | {
        f"{name}.md" for name in LESSONS if "container" not in name
    }


def shape(line: str) -> str:
    """A line without its numbers and the width of its columns."""
    return " ".join(re.sub(r"\d+(\.\d+)?(e[+-]\d+)?", "0", line).split())


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SHORT else [pytest.mark.long]) for name in LESSONS],
)
def test_a_lesson_does_and_prints_what_its_page_says(login, submitted, name):
    job = submitted.get(name, "")
    if job:
        state = wait(login, job, seconds=900)
        assert state == "COMPLETED", login(f"cat *-{job}.out")
    for commands, output in LESSONS[name].typed:
        said = ""
        for command in commands:
            if command.startswith("./"):  # a shell on a node
                said = login(f"script -qec {command} /dev/null <<< 'hostname; exit'")
            elif "sbatch" not in command:
                said = login(command.replace("JOBID", job))
        expected, found = (list(map(shape, text.splitlines())) for text in (output, said))
        assert [line for line in expected if line not in found] == [], said


def test_a_page_that_says_other_than_the_job_is_found():
    """So is a comparison that ignores more than numbers."""
    assert shape("epoch 0: loss 2.274") == shape("epoch 2:  loss 0.1")
    assert shape("the same losses") != shape("the same loss")
    for lesson in LESSONS.values():
        assert not lesson.submits or lesson.typed[0][1].count("\n") > 2


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_users_page_works(login, submitted, command):
    job = submitted["01-one-gpu"]
    assert wait(login, job) == "COMPLETED"
    if command.startswith(("scontrol", "scancel", "sbatch --dependency")):
        # Of jobs that ended Slurm knows only those of the last minutes (MinJobAge).
        job = submit(login, "--hold best.sbatch 1")
    assert not re.search("error|not found", login(command.replace("JOBID", job)), re.IGNORECASE)


@pytest.mark.long
def test_best_follows_the_array(login):
    array = submit(login, "array.sbatch")
    best = submit(login, f"--dependency=afterok:{array} best.sbatch {array}")
    assert wait(login, array) == "COMPLETED"
    assert wait(login, best) == "COMPLETED"
    assert re.search(r"rate 0\.003: (1\.0|0\.9)|rate 0\.01", login(f"cat best-{best}.out"))


def test_what_depends_on_a_failure_does_not_wait_for_ever(login):
    failed = submit(login, "--wrap 'exit 1' --output=/dev/null")
    after = submit(login, f"--dependency=afterok:{failed} best.sbatch {failed}")
    assert wait(login, failed) == "FAILED"
    assert wait(login, after).startswith("CANCELLED")
