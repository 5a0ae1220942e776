"""What DOCA-OFED changes, from what the node said."""

import subprocess

import pytest
import yaml

from roles.rdma.plugin_utils import modules
from tests.conftest import REPOSITORY

LOOK = REPOSITORY / "roles/rdma/tasks/look.yml"


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("package installed doca-ofed\n", []),
        ("package config-files doca-ofed\n", ["doca-ofed"]),
        ("", ["doca-ofed"]),
        ("package installed doca-ofed-userspace\n", ["doca-ofed"]),
    ],
)
def test_what_is_not_installed_would_change(output, names):
    assert modules.lacking(output, ["doca-ofed"]) == names


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("", []),  # no card's module is loaded
        ("module mlx5_core loaded=A file=A\nmodule ib_core loaded= file=\n", []),
        ("module mlx5_core loaded=A file=B\n", ["mlx5_core"]),
        (
            "module mlx5_core loaded= file=B\nmodule ib_core loaded=A file=\n",
            ["mlx5_core", "ib_core"],
        ),
    ],
)
def test_a_module_of_another_source_waits_for_a_reboot(output, names):
    assert modules.stale(output) == names


def test_the_lines_are_those_of_the_shell(tmp_path):
    """The task's own command, on a machine whose mlx5_core is not the one on its disk."""
    command = yaml.safe_load(LOOK.read_text(encoding="utf-8"))[0]["ansible.builtin.shell"]["cmd"]
    command = command.replace("{{ __rdma_folder | quote }}", str(tmp_path))
    assert command.count("{{") == 1
    head, rest = command.split("{{", 1)
    command = f"{head}no-package{rest.split('}}', 1)[1]}"
    (tmp_path / "sys/module/mlx5_core").mkdir(parents=True)
    (tmp_path / "sys/module/mlx5_core/srcversion").write_text("0F0F0F\n")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert "module mlx5_core loaded=0F0F0F file=" in done.stdout
    assert modules.stale(done.stdout) == ["mlx5_core"]
    assert "ib_core" not in done.stdout
