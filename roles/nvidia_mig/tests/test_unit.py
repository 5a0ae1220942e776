"""The unit that cuts GPUs at boot, as it is rendered: what waits for it."""

from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

UNIT = Path(__file__).parents[1] / "templates/etc/systemd/system/plumbline-mig.service.j2"


def words(setting: str, *required_by: str) -> list[str]:
    """All values of a setting in the rendered unit."""
    variables = {
        "ansible_managed": "Managed",
        "nvidia_mig_required_by": list(required_by),
        "__nvidia_mig_program": "/usr/local/sbin/plumbline-mig",
    }
    templar = Templar(DataLoader(), variables)
    lines = str(templar.template(trust_as_template(UNIT.read_text()))).splitlines()
    values = [line.removeprefix(f"{setting}=") for line in lines if line.startswith(f"{setting}=")]
    return " ".join(values).split()


@pytest.mark.parametrize("required_by", [(), ("slurmd.service",)])
def test_what_must_find_the_instances_there_waits_for_them(required_by):
    waiting = {"nvidia-dcgm.service", "nvidia-cdi-refresh.service", *required_by}
    assert set(words("Before", *required_by)) == waiting
    assert words("RequiredBy", *required_by) == list(required_by)
    assert not waiting & set(words("After", *required_by))


def test_the_cdi_specification_follows_a_later_cut_and_holds_none_up():
    command = words("ExecStartPost")
    assert command[0].startswith("-")  # there may be no such unit
    assert command[1:] == ["--no-block", "try-restart", "nvidia-cdi-refresh.service"]
