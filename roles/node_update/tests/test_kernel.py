"""When a node has to reboot for what was installed."""

from __future__ import annotations

import pytest

from roles.node_update.plugin_utils.kernel import newest_of, reboot_due

OLD, NEW = "6.12.48+deb13-amd64", "6.12.57+deb13-amd64"


def said(running: str = OLD, kernels: str = OLD, asked: str = "", modules: str = "") -> str:
    return f"{running}\n-- kernels --\n{kernels}\n-- asked --\n{asked}\n-- modules --\n{modules}\n"


def test_nothing_new_needs_no_reboot():
    assert reboot_due(said()) == ""
    assert reboot_due(said(modules="mlx5_core A1B2 A1B2")) == ""


def test_a_newer_kernel_does():
    assert reboot_due(said(kernels=f"{NEW}\n{OLD}")) == f"kernel {NEW} is installed, and {OLD} runs"


@pytest.mark.parametrize(
    ("kernels", "running", "newest"),
    [
        (["6.1.0-9-amd64", "6.1.0-37-amd64"], "6.1.0-9-amd64", "6.1.0-37-amd64"),
        (["6.1.0-37-amd64"], "6.1.0-40-amd64", "6.1.0-40-amd64"),  # removed, and runs
        (["6.8.0-90-generic", "6.14.0-1-oem"], "6.8.0-88-generic", "6.8.0-90-generic"),
        (["6.12.57+deb13-cloud-amd64"], OLD, OLD),
        ([], "6.8.0-88-generic", "6.8.0-88-generic"),  # a container
    ],
)
def test_the_newest_of_the_same_kind_counts(kernels, running, newest):
    assert newest_of(kernels, running) == newest


def test_what_packages_ask_for():
    assert reboot_due(said(asked="dbus\nlibc6\ndbus")) == "dbus, libc6 ask for it"
    assert reboot_due(said(asked="a b c d e f g")) == "a, b, c, d, e and 2 more ask for it"


@pytest.mark.parametrize("line", ["mlx5_core A1B2 C3D4", "ib_core A A\nmlx5_core A B"])
def test_a_module_that_was_replaced(line):
    """Without a new kernel, as DOCA-OFED does it."""
    expected = "another build of the module mlx5_core is installed than is loaded"
    assert reboot_due(said(modules=line)) == expected


@pytest.mark.parametrize("output", ["", OLD, f"{OLD}\n-- kernels --\n{NEW}\n-- asked --\n"])
def test_what_is_no_answer_is_not_no_reboot(output):
    with pytest.raises(ValueError, match="the answer is cut off"):
        reboot_due(output)
