"""OpenSM on a host without a card: a stand-in starts, with what the role gives to the real one."""

import pytest

from tests.role_play import Case

PORTS = "systemctl list-units --plain --no-legend 'opensm@*' | cut -d' ' -f1"


def test_each_port_has_a_subnet_manager_with_the_priority(host):
    assert host.service("opensm").is_enabled
    assert host.check_output(PORTS).split() == [
        "opensm@0x0000000000000001.service",
        "opensm@0x0000000000000002.service",
    ]
    shown = host.check_output("systemctl show opensm@0x0000000000000001 --property=ExecStart")
    assert "--guid 0x0000000000000001 --priority 14 " in shown


@pytest.mark.long
def test_ports_priority_and_what_does_not_run(host, attempts):
    one, broken = "0x0000000000000001", "0x00000000000000ff"
    outcomes = attempts(
        [
            Case("one", {"opensm_ports": [one], "opensm_priority": 3}, mends=PORTS),
            Case("broken", {"opensm_ports": [one, broken]}),
            Case("back", {}, mends=PORTS),
            Case("none", {"opensm_priority": -1}, mends=PORTS),
        ]
    )
    outcomes["one"].passes(changed=True)
    assert outcomes["one"].left == f"opensm@{one}.service"
    outcomes["broken"].refuses("OpenSM does not run on all ports of")
    outcomes["back"].passes(changed=True)
    assert len(outcomes["back"].left.split()) == 2
    outcomes["none"].passes(changed=False)
    assert outcomes["none"].left == outcomes["back"].left, "who runs one by hand keeps it"
