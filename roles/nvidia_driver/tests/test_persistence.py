"""How the persistence daemon is started so that persistence mode is on."""

from __future__ import annotations

import pytest

from roles.nvidia_driver.plugin_utils import persistence

UBUNTU = """\
# /usr/lib/systemd/system/nvidia-persistenced.service
[Unit]
StopWhenUnneeded=true
[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced{} --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
DROP_IN = """
# /etc/systemd/system/nvidia-persistenced.service.d/50-plumbline.conf
[Service]
ExecStart=
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --persistence-mode --verbose
"""


@pytest.mark.parametrize("drop_in", ["", DROP_IN])
def test_the_option_that_leaves_persistence_mode_off_is_turned_round(drop_in: str) -> None:
    said = persistence.command(UBUNTU.format(" --no-persistence-mode") + drop_in)
    assert said == (
        "/usr/bin/nvidia-persistenced --user nvidia-persistenced --persistence-mode --verbose"
    )


@pytest.mark.parametrize("unit", [UBUNTU.format(""), "", "No files found\n", "ExecStart=\n"])
def test_a_unit_without_it_keeps_its_own_command(unit: str) -> None:
    assert persistence.command(unit) == ""
