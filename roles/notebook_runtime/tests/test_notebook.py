"""What a notebook's job does before it becomes JupyterLab, and when it ends."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from roles.notebook_runtime.files.notebook import activity, start
from roles.notebook_runtime.filter_plugins.notebook_runtime import kernel_problems, kernels


def test_keys_go_into_a_private_folder_and_out_of_the_environment(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path), "PLUMBLINE_NOTEBOOK_KEYFILE": "KEY", "OTHER": "1"}
    folder = start.private_folder(environment)
    start.unpack(environment, folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    key = Path(environment["JUPYTERHUB_SSL_KEYFILE"])
    assert key.read_text() == "KEY"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert "PLUMBLINE_NOTEBOOK_KEYFILE" not in environment
    assert "JUPYTERHUB_SSL_CERTFILE" not in environment  # nothing was sent


def test_a_home_without_room_is_a_sentence(tmp_path: Path) -> None:
    assert start.home_problem(str(tmp_path)) == ""
    assert "Nothing can be written to your home" in start.home_problem(str(tmp_path / "none"))
    assert not list(tmp_path.iterdir())


def test_the_kernel_of_a_container(tmp_path: Path) -> None:
    start.container_kernel(tmp_path, "/images/pytorch.sqsh", ["/home/ada", "/tmp/x"])
    spec = json.loads((tmp_path / "share/jupyter/kernels/container/kernel.json").read_text())
    assert "--container-image=/images/pytorch.sqsh" in spec["argv"]
    assert "--container-mounts=/home/ada:/home/ada,/tmp/x:/tmp/x" in spec["argv"]
    assert spec["argv"][-1] == "{connection_file}"


USED = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
NOON = USED.timestamp()


def test_running_code_is_use() -> None:
    busy = {"execution_state": "busy", "last_activity": USED.isoformat()}
    idle = {"execution_state": "idle", "last_activity": USED.isoformat().replace("+00:00", "Z")}
    assert activity.last_use([busy], [0.0], NOON + 5000) == NOON + 5000
    assert activity.last_use([idle], [0.0], NOON + 5000) == NOON


def test_keeping_typing_and_terminals_are_use() -> None:
    assert activity.last_use([], [NOON, NOON + 100], NOON + 5000) == NOON + 100


def test_ends_and_when_to_warn() -> None:
    ends = activity.ends(NOON, 60, str(int(NOON) + 7200))
    assert (ends.idle, ends.limit) == (NOON + 3600, NOON + 7200)
    assert ends.warnings(NOON + 2999) == []
    assert ends.warnings(NOON + 3000) == ["idle"]
    assert ends.warnings(NOON + 6600) == ["idle", "limit"]


def test_without_ends_nothing_is_warned_of() -> None:
    assert activity.ends(NOON, 0, "").warnings(NOON + 1e9) == []


KERNELS = [{"name": "pytorch", "description": "PyTorch", "modules": ["pytorch/2.6.0"]}]


def test_a_kernel_loads_its_modules() -> None:
    files = kernels(KERNELS, "/opt/plumbline/notebook")
    spec = json.loads(files["share/jupyter/kernels/pytorch/kernel.json"])
    assert spec["display_name"] == "PyTorch"
    assert spec["argv"][2].startswith("module load pytorch/2.6.0 && exec python3 /opt/plumbline/")
    assert spec["argv"][-1] == "{connection_file}"
    assert kernel_problems(KERNELS) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": "../x"}, "[1].name is '../x'"),
        ({"name": "pytorch"}, "as that of another kernel"),
        ({"modules": ["a; rm -rf /"]}, "[1].modules has 'a; rm -rf /'"),
    ],
)
def test_kernels_that_cannot_be_written(wrong: dict[str, Any], sentence: str) -> None:
    other = {"name": "other", "modules": ["a/1"]} | wrong
    assert sentence in kernel_problems([*KERNELS, other])[0]
