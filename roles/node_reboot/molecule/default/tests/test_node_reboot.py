"""One node goes out of service, reboots and comes back."""

import pytest

from tests.patience import until

MARK = "[plumbline:reboot]"


@pytest.fixture(autouse=True)
def _root(host):
    with host.sudo():
        yield


def shown(host):
    return host.check_output("scontrol -o show node node")


def boot(host):
    return host.check_output("cat /proc/sys/kernel/random/boot_id")


def boots(host):
    return len(host.file("/var/log/boots").content_string.splitlines())


def test_it_reboots_once_and_returns(host, play):
    before, count = boot(host), boots(host)
    run = play(node_reboot_due=True)
    assert run.code == 0, run.output[-3000:]
    assert boot(host) != before
    assert boots(host) == count + 1
    assert " State=IDLE " in shown(host)


@pytest.mark.long  # molecule/reboot keeps a node out as well
def test_what_an_operator_drained_is_rebooted_and_stays_drained(host, play):
    before = boot(host)
    host.check_output("scontrol update nodename=node state=drain reason='bad fan'")
    try:
        run = play(node_reboot_due=True)
        assert run.code == 0, run.output[-3000:]
        assert "Stays drained, because someone else drained it: bad fan" in run.output
        assert boot(host) != before
        assert "+DRAIN" in shown(host)
        assert "Reason=bad fan" in shown(host)
    finally:
        host.check_output("scontrol update nodename=node state=resume")


def test_what_a_run_left_behind_is_brought_back_without_a_reboot(host, play):
    before = boot(host)
    host.check_output(f"scontrol update nodename=node state=drain reason='{MARK} x, by y'")
    run = play()
    assert run.code == 0, run.output[-3000:]
    assert boot(host) == before
    assert " State=IDLE " in shown(host)


@pytest.mark.long
def test_without_its_slurmctld_no_node_is_touched(host, play):
    before = boot(host)
    host.check_output("systemctl stop slurmctld")
    try:
        run = play(node_reboot_due=True)
        assert run.code != 0
        assert "slurmctld on node does not answer" in run.output
        assert boot(host) == before
    finally:
        host.check_output("systemctl start slurmctld")
        until(lambda: " State=IDLE " in shown(host))  # the node has registered anew


def test_check_mode_does_nothing(host, play):
    before = boot(host)
    run = play(None, "--check", node_reboot_due=True)
    assert run.code == 0, run.output[-3000:]
    assert boot(host) == before
    assert " State=IDLE " in shown(host)
