"""What DOCA-OFED changes, from what the node said."""

import os
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


@pytest.mark.parametrize(
    ("words", "file", "state"),
    [
        ("ro quiet iommu=pt", False, "passthrough"),
        ("ro quiet", False, "absent"),
        ("ro intel_iommu=pt_not", False, "absent"),
        ("ro quiet", "new", "waits"),
        ("ro quiet", "old", "ignored"),
    ],
)
def test_the_kernels_parameter_waits_for_a_boot_or_was_ignored_by_one(tmp_path, words, file, state):
    command = yaml.safe_load(LOOK.read_text(encoding="utf-8"))[1]["ansible.builtin.shell"]["cmd"]
    written = tmp_path / "60-plumbline-rdma.cfg"
    command = command.replace("{{ __rdma_folder | quote }}", str(tmp_path))
    command = command.replace("/etc/default/grub.d/60-plumbline-rdma.cfg", str(written))
    assert "{{" not in command
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text(f"{words}\n")
    if file:
        written.write_text("")
        if file == "old":
            os.utime(written, (1, 1))
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == f"iommu {state}"
