"""scripts/completion: what a shell completes, in the shell."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, load_script
from tests.processes import passes

completion = load_script("completion")

# Of each kind: in bash; in Python with verbs; a module with verbs; with stages; with files.
PROGRAMS = ("scripts/demo", "scripts/virtual-cluster", "validation.thresholds", "scripts/test")
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}


@pytest.fixture(scope="module")
def entries() -> list[tuple[str, list[str]]]:
    modules = [name for name in PROGRAMS if not name.startswith("scripts/")]
    parts = [completion.entries(name) for name in PROGRAMS]
    return [("python -m", modules), *(entry for part in parts for entry in part)]


@pytest.fixture(scope="module", params=SHELLS)
def shell(
    request: pytest.FixtureRequest,
    entries: list[tuple[str, list[str]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    name = request.param
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    path = tmp_path_factory.mktemp("completion") / name
    programs = [program for program in PROGRAMS if program.startswith("scripts/")]
    path.write_text(completion.script(name, entries, programs))
    return name, path


def read(terminal: int, until: bytes, seconds: float = 20) -> bytes:
    """What a terminal shows until it shows what this expression finds."""
    seen, end = b"", time.monotonic() + seconds
    while not re.search(until, seen) and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 4096)
    return seen


@pytest.fixture
def terminal(shell: tuple[str, Path]) -> Iterator[int]:
    """A shell in the checkout that has read its completion."""
    name, path = shell
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        SHELLS[name],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(path.parent), "PS1": "> "},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    begin = "autoload -U compinit && compinit -u -D; " if name == "zsh" else ""
    os.write(ours, f"{begin}. {path} && echo re''ady\n".encode())
    # Once it has shown its prompt again, zsh reads keys itself.
    prompt = rb"(?s)ready\r\n.*> " + (rb"\x1b\[\?2004h" if name == "zsh" else b"")
    assert re.search(prompt, read(ours, prompt))
    yield ours
    process.kill()
    process.wait()
    os.close(ours)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("scripts/demo --o", "scripts/demo --os "),
        ("scripts/demo --os debian12", "scripts/demo --os debian12 "),
        ("scripts/demo --os debian12 --c", "scripts/demo --os debian12 --compute "),
        ("scripts/virtual-cluster sta", "scripts/virtual-cluster sta"),  # start, status
        ("scripts/virtual-cluster up --si", "scripts/virtual-cluster up --single "),
        ("python -m validation.t", "python -m validation.thresholds "),
        ("python -m validation.thresholds sc", "python -m validation.thresholds schema "),
        ("scripts/test l", "scripts/test lint "),
        ("scripts/test --changed CONTRIB", "scripts/test --changed CONTRIBUTING.md "),
    ],
)
def test_a_key_completes_the_word(terminal: int, typed: str, shown: str) -> None:
    os.write(terminal, f"{typed}\t@".encode())  # which comes after the completed word
    seen = read(terminal, b"@").replace(b"\x07", b"").decode()
    assert f"{shown}@" in re.sub(r".\x08", "", seen)  # zsh goes back over its blank


def test_bash_knows_whose_completion_it_is(shell: tuple[str, Path]) -> None:
    name, path = shell
    if name != "bash":
        pytest.skip("zsh has no complete -p")
    words = "COMP_WORDS=(./scripts/demo --); COMP_CWORD=1; _plumbline ./scripts/demo"
    said = passes("bash", "-c", f'. {path}; complete -p ./scripts/demo; {words}; echo "$COMPREPLY"')
    assert said.startswith("complete -o bashdefault -o default -F _plumbline ./scripts/demo\n")
    assert said.endswith("\n--help\n")


def test_of_a_help_text_every_option_and_its_values_are_read() -> None:
    text = """usage: x [-h] [-i INVENTORY | --here | --local] [--only {ddp,pipeline}]
         [--nvml [FILE]]

    x --not-an-option    an example

options:
  -h, --help            show this, as --neither does
  -i INVENTORY, --inventory INVENTORY
                        where
  --srun-option --NAME=VALUE
                        such as --srun-option=--comment=x
"""
    assert completion.options(text) == {
        "--help": None,
        "--here": None,
        "--local": None,
        "--only": ("ddp", "pipeline"),
        "--nvml": (),
        "--inventory": (),
        "--srun-option": (),
    }


@pytest.mark.long  # it starts each program, some with each of their verbs
def test_every_program_is_completed() -> None:
    said = passes(REPOSITORY / "scripts/completion", "bash")
    programs = [p.name for p in (REPOSITORY / "scripts").iterdir() if p.is_file()]
    for name in set(programs) - completion.WITHOUT_HELP:
        assert f"'scripts/{name}'" in said
        assert f" ./scripts/{name}" in said
    assert "'python -m validation.run'" in said
