"""What users type on the first day, unchanged, by SSH as the demo's ordinary user."""

import re

import pytest

# A command, and what its output has.
WORKS = {
    "a virtual environment": ("python3 -m venv /tmp/v && /tmp/v/bin/pip --version", "^pip "),
    "one on a compute node": ("srun sh -c 'python3 -m venv /tmp/ada-2 && echo made'", "^made$"),
    "tools": (
        "for tool in git jq vim nano tmux man less wget unzip pip; do"
        " command -v $tool >/dev/null || echo no $tool; done; echo seen",
        r"\Aseen$",
    ),
    "MPI without --mpi": ("srun -N2 sh -c 'echo rank $PMIX_RANK' | sort", "^rank 0\nrank 1$"),
    "salloc": ("script -qec 'salloc -w gpu1' /dev/null <<<'hostname -s; exit'", r"^gpu1\s*$"),
    "scrontab": (
        "printf '#SCRON --time=1\\n0 3 1 1 * true\\n' | scrontab - && scrontab -l && scrontab -r",
        "^0 3 1 1 ",
    ),
    "module by ssh": ("module --terse avail 2>&1; echo $LMOD_CMD", r"pytorch/[\s\S]*/libexec/lmod"),
    "ml in bash -c": ("bash -c 'ml --terse avail' 2>&1", "pytorch/"),
    "module in a step of that shell": ("srun bash -c 'module --terse avail' 2>&1", "pytorch/"),
    "examples for what is there": ("ls /opt/examples", r"\A(?!.*(container|mig))[\s\S]*one-gpu"),
    "the message of a login": ("login-message", r"^gpu\*? +\d of \d +\d of \d"),
}
# What the cluster does not have says so.
REFUSED = {
    "a bundle without a runtime": ("srun --container=/tmp hostname", "no runtime for --container"),
    "no bundle": ("srun --container=/none hostname", "no runtime for --container"),
    "no such command": ("bash --login -ic no-such </dev/null", "module spider no-such"),
}


@pytest.mark.parametrize("name", WORKS)
def test_what_a_user_types_works(operator, name):
    command, pattern = WORKS[name]
    done = operator.virtual_cluster("ssh", "ada@login1", command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(pattern, done.stdout, re.MULTILINE), done.stdout + done.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused_with_a_sentence(operator, name):
    command, sentence = REFUSED[name]
    done = operator.virtual_cluster("ssh", "ada@login1", command)
    assert done.returncode != 0, done.stdout
    assert sentence in done.stdout + done.stderr
