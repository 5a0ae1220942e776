"""Every example that users get, as it is, submitted by an ordinary user from the shared home; and
every command of the users' page.
"""

from __future__ import annotations

import re
import time

import pytest

from tests.live_cluster import REPOSITORY

PAGE = (REPOSITORY / "docs/use/jobs.md").read_text(encoding="utf-8")
COMMANDS = [
    re.sub(r"\s{2,}#.*$", "", line)
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
USER = "ada"
FOLDER = "/opt/examples"

# What each job's output must have; {user} submits from a copy of the folder.
SAID = {
    "one-gpu.sbatch": r"accuracy on new pictures with rate 0.003: (1.0|0.9)",
    "ddp.sbatch": r"2 processes, gloo.*epoch 2: loss 0\.",
    "scaling.sbatch": r"GPUs +s/epoch +speed-up +efficiency\n +1 .* 100%\n +2 .*%\n +4 .*%",
    "tensor-parallel.sbatch": r"cut over 2 processes the same comes out.*step 40: loss [01]\.",
}
# Seen by tests of their own, and what this cluster lacks.
OTHERS = {
    "array.sbatch": "test_best_follows_the_array",
    "best.sbatch": "test_best_follows_the_array",
    "checkpoint.sbatch": "test_a_stopped_job_goes_on_where_it_was",
    "fsdp.sbatch": "torch 2.6 shards on GPUs alone; roles/user_examples/tests run it with 2.13",
    "pipeline.sbatch": "torch before 2.8 loses sends of Gloo (pytorch#132644); as fsdp.sbatch",
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

    say(f"rm -rf ~/examples && cp -r {FOLDER} ~/examples")
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
    stopped = submit(login, "checkpoint.sbatch --steps 60 --pause 0.2")
    begun = f"grep 'from step 0' checkpoint-{stopped}.out"
    login(f"for second in {{1..60}}; do {begun} && exit; sleep 1; done; exit 1")
    login(f"scancel --signal=USR1 {stopped}")  # as Slurm does before the time limit
    return {"checkpoint.sbatch": stopped} | {name: submit(login, name) for name in SAID}


def test_every_example_is_run_or_says_why_not(login):
    assert set(login("ls *.sbatch").split()) == SAID.keys() | OTHERS.keys()


@pytest.mark.parametrize("name", SAID)
def test_an_example_does_what_it_says(login, submitted, name):
    job = submitted[name]
    state = wait(login, job)
    output = login(f"cat {name.removesuffix('.sbatch')}-{job}.out")
    assert state == "COMPLETED", output
    assert re.search(SAID[name], output, re.DOTALL), output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_users_page_works(login, submitted, command):
    job = submitted["one-gpu.sbatch"]
    assert wait(login, job) == "COMPLETED"
    if command.startswith(("scontrol", "scancel", "sbatch --dependency")):
        # Of jobs that ended Slurm knows only those of the last minutes (MinJobAge).
        job = submit(login, "--hold best.sbatch 1")
    assert not re.search("error|not found", login(command.replace("JOBID", job)), re.IGNORECASE)


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


def test_an_interactive_shell_is_on_a_node(login):
    output = login(
        "script --quiet --return --command ./interactive.sh /dev/null <<< 'hostname; exit'"
    )
    assert re.search(r"^gpu\d\r?$", output, re.MULTILINE), output


def test_a_stopped_job_goes_on_where_it_was(login, submitted):
    job = submitted["checkpoint.sbatch"]
    state = wait(login, job)
    output = login(f"cat checkpoint-{job}.out")
    assert state == "COMPLETED", output
    stopped = re.search(r"stopped after step (\d+)", output)
    assert stopped, output
    assert f"from step {stopped[1]} of 60" in output
    assert "done, loss" in output
