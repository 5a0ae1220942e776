"""NVIDIA's driver that the kernel runs, as modules on a node and plugins read it.

Modules find it as ansible.module_utils.loaded_driver.
"""

from __future__ import annotations

import re

PLACE = "/proc/driver/nvidia/version"

VERSION = re.compile(r"\s(\d{3,}\.\d+(?:\.\d+)*)\s")


def loaded(text: str) -> tuple[str, str]:
    """Version and kind (open, proprietary) of the kernel module, from what it says of itself.

    `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (…)`;
    both are empty where the text says no version.
    """
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    match = VERSION.search(f"{line} ")
    if not match:
        return "", ""
    return match[1], "open" if "Open Kernel Module" in line else "proprietary"
