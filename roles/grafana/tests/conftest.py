"""scripts/dashboards, and a Prometheus that was fed the values of sample.py."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from roles.grafana.tests import sample
from tests import fed_prometheus

PROGRAM = Path(__file__).resolve().parents[3] / "scripts/dashboards"


@pytest.fixture(scope="session")
def program() -> Callable[..., CompletedProcess[str]]:
    """A function that runs it."""

    def run(*arguments: str | Path) -> CompletedProcess[str]:
        command = [sys.executable, PROGRAM, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory) -> Iterator[str]:
    """Its address."""
    folder = tmp_path_factory.mktemp("prometheus")
    with fed_prometheus.running(folder, sample.text(), sample.recorded()) as url:
        yield url
