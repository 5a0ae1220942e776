"""What the kernel says of NVIDIA's driver: the lines of the open and of the proprietary module."""

from __future__ import annotations

import pytest

from playbooks.module_utils.loaded_driver import loaded


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  "
            "(dvs-builder@U22)\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
            ("580.95.05", "open"),
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC\n",
            ("535.129.03", "proprietary"),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  590.44.01\n",
            ("590.44.01", "open"),
        ),
        ("GCC version:  gcc version 12.2.0\n", ("", "")),
        ("", ("", "")),
    ],
)
def test_the_module_that_is_loaded(text: str, module: tuple[str, str]) -> None:
    assert loaded(text) == module
