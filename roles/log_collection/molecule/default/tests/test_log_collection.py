"""Logs on one host: its own, and what others send it."""

import time

import pytest

from tests.patience import until

LOGS = "/var/log/plumbline"

# What the role writes on a host that sends, with a socket of its own.
SENDER = """
global(
    workDirectory="/run/scenario/{name}"
    localHostname="{name}"
    DefaultNetstreamDriver="gtls"
    DefaultNetstreamDriverCAFile="/etc/scenario/ca.crt"
    DefaultNetstreamDriverCertFile="/etc/scenario/{name}.crt"
    DefaultNetstreamDriverKeyFile="/etc/scenario/{name}.key"
)
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="/run/scenario/{name}/log" CreatePath="on")
action(type="omfwd" target="localhost" port="6514" protocol="tcp" StreamDriver="gtls"
    StreamDriverMode="1" StreamDriverAuthMode="x509/name" StreamDriverPermittedPeers="localhost"
    TCP_Framing="octet-counted" action.resumeRetryCount="-1" action.resumeInterval="2"
    queue.type="LinkedList" queue.filename="out" queue.saveOnShutdown="on")
"""


@pytest.fixture
def sender(host):
    """Starts an rsyslog that sends as somebody; returns what logs a line there."""
    started = []

    def start(name):
        folder = f"/run/scenario/{name}"
        with host.sudo():
            host.check_output(f"mkdir -p {folder}")
            host.check_output(f"rm -f {folder}/log")  # that of a sender before it, which was killed
            host.check_output(f"printf %%s %s > {folder}/conf", SENDER.format(name=name))
            host.check_output(
                f"systemd-run --unit=scenario-{name} rsyslogd -n -f {folder}/conf -i {folder}/pid"
            )
        started.append(name)

        def log(text):
            with host.sudo():
                host.check_output(f"logger --socket {folder}/log -- %s", text)

        until(lambda: host.file(f"{folder}/log").exists)
        return log

    yield start
    with host.sudo():
        for name in started:
            host.run(f"systemctl kill --signal=KILL scenario-{name}")
            host.run(f"systemctl reset-failed scenario-{name}")


def collected(host, text):
    """Lines with this text, less what sudo logs of the commands of these tests."""
    with host.sudo():
        lines = host.run(f"grep -rh -- %s {LOGS}", text).stdout.splitlines()
    return [line for line in lines if "COMMAND=" not in line]


def test_its_own_are_there_and_not_everybodys(host):
    host.check_output("logger -- words of its own")
    until(lambda: collected(host, "words of its own"))
    with host.sudo():
        assert host.file(LOGS).mode == 0o750


def test_another_hosts_lie_in_a_file_of_where_they_came_from(host, sender):
    """It calls itself node1, and its address has another name."""
    sender("node1")("words of another")
    until(lambda: collected(host, "words of another"))
    (line,) = collected(host, "words of another")
    assert " localhost " in line
    assert "node1" not in line
    with host.sudo():
        assert "words of another" in host.file(f"{LOGS}/localhost.log").content_string
        assert not host.file(f"{LOGS}/node1.log").exists


def test_a_stranger_with_a_certificate_of_the_authority_is_not_heard(host, sender):
    sender("stranger")("words of a stranger")
    time.sleep(10)
    assert collected(host, "words of a stranger") == []


def test_nothing_is_lost_while_nobody_collects(host, sender):
    log = sender("node1")
    log("words before")
    until(lambda: collected(host, "words before"))
    with host.sudo():
        host.check_output("systemctl stop rsyslog.service syslog.socket")
        log("words meanwhile")
        time.sleep(2)
        host.check_output("systemctl start rsyslog.service")
    until(lambda: collected(host, "words meanwhile"))


def test_they_are_rotated_and_written_on(host):
    with host.sudo():
        host.check_output("logrotate --force /etc/logrotate.d/plumbline-logs")
    host.check_output("logger -- words after the rotation")
    until(lambda: collected(host, "words after the rotation"))


@pytest.mark.long
def test_a_run_that_changes_nothing(play):
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert play(None, "--check").changed == 0


def test_what_rsyslog_does_not_accept_is_not_written(host, play):
    run = play(log_collection_folder='/var/log/plumbline"')
    assert run.code != 0
    with host.sudo():
        host.check_output("rsyslogd -N1")
    assert host.service("rsyslog").is_running


@pytest.mark.long
def test_nothing_is_collected_when_nobody_is_named(host, play):
    run = play(log_collection_host="")
    assert run.code == 0, run.output
    assert not host.socket("tcp://0.0.0.0:6514").is_listening
    assert host.service("rsyslog").is_running
    assert play(log_collection_host="").changed == 0
    assert play().code == 0
