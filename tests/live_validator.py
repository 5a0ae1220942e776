"""Runs of the validator against a live cluster with a fault in it, for scenarios of Molecule.

A fault is put into one node, or into the way to it, just before or in the middle of a run, and
taken out again. What every run made of its fault is written to .cache/test/live-SCENARIO.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live_cluster import PLAIN, REPOSITORY, sources, under_test, virtual_cluster

SCENARIO = os.environ["MOLECULE_SCENARIO_NAME"]
CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
TABLE = REPOSITORY / f".cache/test/live-{SCENARIO}.md"
RUN_SECONDS = 900

VALIDATE = [*(sys.executable, "-m", "validation.run"), *sources(INVENTORY)]
# Where the distribution's Python looks, also with -I: code that each start of it runs.
SITE = "/usr/lib/python3/dist-packages"


# --- the cluster ---------------------------------------------------------------------------------


def on(node: str, command: str) -> str:
    """What a command of root's prints on a node."""
    done = virtual_cluster(CLUSTER, "ssh", node, f"sudo bash -c {shlex.quote(command)}")
    assert done.returncode == 0, f"{node}: {command}\n{done.stdout}{done.stderr}"
    return done.stdout


def of_container(node: str, *command: str) -> str:
    """What a command of this machine's prints; {pid} is that of the node's init."""
    name = f"plumbline-{CLUSTER}-{node}"
    shown = ["podman", "inspect", "--format={{.State.Pid}}", name]
    pid = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.strip()
    filled = [word.replace("{pid}", pid).replace("{name}", name) for word in command]
    return subprocess.run(filled, capture_output=True, text=True, check=True).stdout


def wait_until(what: str, condition, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(AssertionError):
            if condition():
                return
        time.sleep(1)
    pytest.fail(f"{what} did not come within {seconds:.0f} s")


def idle() -> bool:
    """All nodes are idle and nobody has a job: what a run must leave behind."""
    shown = on("ctl1", "sinfo -h -N -o %T; squeue -h").split("\n")
    return set(shown) == {"idle", ""}


@dataclass(frozen=True)
class Run:
    """What a run of the validator came to."""

    code: int
    output: str
    folder: Path

    def nodes(self, standing: str) -> list[str]:
        path = self.folder / f"{standing}_nodes.txt"
        return path.read_text().split() if path.exists() else []

    def failed(self) -> dict[str, str]:
        """What failed, and each failure's message, by check."""
        return self._messages("fail")

    def passed(self) -> set[str]:
        """The checks of which something passed."""
        return set(self._messages("pass"))

    def _messages(self, verdict: str) -> dict[str, str]:
        lines = (self.folder / "results.jsonl").read_text().splitlines()
        results = [json.loads(line) for line in lines]
        return {item["check"]: item["message"] for item in results if item["verdict"] == verdict}

    def fails(self, *nodes: str) -> None:
        """These nodes, and for them alone."""
        assert self.code == 1, self.output[-4000:]
        assert self.nodes("failing") == list(nodes)

    def write_row(self, fault: str) -> None:
        words = [", ".join(self.nodes(s)) or "–" for s in ("failing", "suspect", "passing")]
        head = "| fault | exit | failing | suspects | passing |\n|---|---|---|---|---|\n"
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        text = TABLE.read_text() if TABLE.exists() else head
        TABLE.write_text(f"{text}| {fault} | {self.code} | {' | '.join(words)} |\n")


@dataclass(frozen=True)
class Started:
    process: subprocess.Popen[str]
    folder: Path

    def end(self) -> Run:
        output, _ = self.process.communicate(timeout=RUN_SECONDS)
        return Run(self.process.returncode, output, self.folder)


def start(folder: Path, *arguments: str) -> Started:
    process = subprocess.Popen(
        [*VALIDATE, "--output", str(folder), *arguments],
        cwd=REPOSITORY,
        env=os.environ | PLAIN,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Started(process, folder)


class Validation:
    """Validates, and writes the row of what the run made of its fault."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._request, self._folder = request, folder

    def __call__(self, *arguments: str) -> Run:
        return self.written(start(self._folder, *arguments).end())

    def written(self, done: Run) -> Run:
        params = getattr(self._request.node, "callspec", None)
        test = str(self._request.node.name).removeprefix("test_").replace("_", " ")
        done.write_row(params.id if params and " " in params.id else test)
        return done


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Validation]:
    """Validates when it is called; afterwards the cluster must be idle."""
    yield Validation(request, tmp_path / "run")
    wait_until("an idle cluster", idle)


@contextlib.contextmanager
def fault(node: str, put_in: str, take_out: str) -> Iterator[None]:
    on(node, put_in)
    try:
        yield
    finally:
        on(node, take_out)


def when_a_payload_runs(node: str, payload: str, then: str) -> subprocess.Popen[str]:
    """Waits on the node for a payload's process, whose number `then` has as $p."""
    words = f"'[{payload[0]}]{payload[1:]} [{{]\"'"
    loop = (
        f"for i in $(seq 3000); do if p=$(pgrep -f {words}); then {then}; exit; fi; "
        "sleep 0.05; done; exit 9"
    )
    wait = f"sudo bash -c {shlex.quote(loop)}"
    return subprocess.Popen(
        ["scripts/virtual-cluster", "ssh", f"--name={CLUSTER}", node, wait],
        cwd=REPOSITORY,
        text=True,
    )


@contextlib.contextmanager
def in_the_payload(nodes: tuple[str, ...], payload: str, code: str) -> Iterator[None]:
    """Code that runs in each process of a payload before the payload does."""
    module = f"import sys\nif {payload!r} in sys.orig_argv:\n" + textwrap.indent(
        textwrap.dedent(code), "    "
    )
    for node in nodes:
        on(
            node,
            f"cat > {SITE}/plumbline_fault.py <<'END'\n{module}\nEND\n"
            f"echo 'import plumbline_fault' > {SITE}/plumbline_fault.pth",
        )
    try:
        yield
    finally:
        for node in nodes:
            on(node, f"rm {SITE}/plumbline_fault.*")
