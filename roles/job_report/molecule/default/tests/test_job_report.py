"""job-report on a login node. Slurm and Prometheus are stand-ins: the role is tested."""

import json
import time

import pytest

from tests.patience import until

SOCKET = "/run/plumbline-job-report.socket"
# What a client that does not ask Slurm first would send.
ASK = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect("{socket}")
try:
    connection.sendall(b'{{"job": "{job}"}}\\n')
except BrokenPipeError: # answered already: it is busy
    pass
print(connection.makefile().readline())
"""


def ask(host, user, job="4711"):
    with host.sudo(user):
        program = ASK.format(socket=SOCKET, job=job)
        return json.loads(host.check_output("python3 -c %s", program))


@pytest.fixture
def mode(host):
    """Makes Prometheus slow or broken, until the test ends."""

    def become(name):
        with host.sudo():
            host.check_output(f"echo {name} > /etc/scenario/mode")

    yield become
    with host.sudo():
        host.check_output("rm -f /etc/scenario/mode")


@pytest.mark.parametrize("user", ["root", "alice"])
def test_whose_job_it_is_is_told_of_its_gpus(host, user):
    with host.sudo(user):
        output = host.check_output("job-report 4711")
        document = json.loads(host.check_output("job-report --json 4711"))
    assert "  CPU     50% of 2: 1.0 busy in the mean" in output
    assert "  GPU     1, 50% busy in the mean; found by the job's id" in output
    assert document["gpu_ratio"] == 0.5


def test_others_are_told_what_they_are_told_of_a_job_that_there_is_not(host):
    with host.sudo("bob"):
        done = host.run("job-report 4711")
    assert (done.rc, done.stdout) == (1, "")
    assert done.stderr == "Slurm's accounting has no job 4711, or none that you may see.\n"
    of_another, of_none = ask(host, "bob"), ask(host, "bob", "4712")
    assert "none of your own jobs is 4711" in of_another["refused"]
    assert of_another["refused"].replace("4711", "4712") == of_none["refused"]
    assert "measured" in ask(host, "alice")


def test_operators_are_told_of_all(host):
    assert "measured" in ask(host, "carol")


def test_nobody_but_root_may_read_the_password(host):
    with host.sudo():
        file = host.file("/etc/plumbline/job_report.password")
        assert (file.mode, file.user, file.group) == (0o600, "root", "root")
        (process,) = host.process.filter(comm="python3", user="slurm")
    for user in ("alice", "carol", "slurm"):
        with host.sudo("root"):
            for path in ("/etc/plumbline/job_report.password", f"/proc/{process.pid}/fd/0"):
                done = host.run(f"setpriv --reuid {user} --clear-groups cat {path}")
                assert (done.rc, done.stdout) == (1, "")


def test_the_service_may_do_little(host):
    with host.sudo():
        status = host.check_output(
            "systemctl show plumbline-job-report -p User -p NoNewPrivileges "
            "-p ProtectSystem -p CapabilityBoundingSet -p ProtectHome"
        )
        (process,) = host.process.filter(comm="python3", user="slurm")
        kernel = host.file(f"/proc/{process.pid}/status").content_string
        denied = host.run(
            f"nsenter -m -t {process.pid} -- setpriv --reuid slurm --clear-groups "
            "touch /var/lib/x /home/alice/x /etc/x"
        )
    assert "User=slurm" in status
    assert "ProtectSystem=strict" in status
    assert "ProtectHome=yes" in status
    assert "NoNewPrivs:\t1" in kernel
    assert "CapBnd:\t0000000000000000" in kernel
    assert denied.rc == 1
    assert denied.stderr.count("touch: ") == 3


def test_a_prometheus_that_is_broken_leaves_slurms_part(host, mode):
    mode("broken")
    with host.sudo("alice"):
        output = host.check_output("job-report 4711")
    assert "  CPU     50% of 2" in output
    assert "answers with 500: out of memory." in output


@pytest.mark.long
def test_a_slow_prometheus_keeps_nobody_for_long_and_no_user_anothers_answer(host, mode):
    mode("slow")
    started = "for number in $(seq 20); do job-report 4711 > /tmp/slow.$number 2>&1 & done"
    with host.sudo("alice"):
        host.check_output(f"({started}) > /dev/null 2>&1")
    # The service, and both places that one user has.
    serving = "pgrep --count --euid slurm --full 'job-report.pyz serve'"
    until(lambda: host.run(serving).stdout.strip() == "3", 30)
    assert "still answers your questions" in ask(host, "alice")["busy"]
    began = time.monotonic()
    assert "none of your own jobs" in ask(host, "bob")["refused"]
    assert time.monotonic() - began < 10
    late = "grep -l 'accounting and Prometheus did not answer within 30 s' /tmp/slow.*"
    until(lambda: host.run(late).rc == 0, 60)
    assert "  CPU     50% of 2" in host.check_output(f"cat $({late} | head -n 1)")
    with host.sudo():
        host.check_output("systemctl stop plumbline-job-report.service; pkill -u alice python3")


def test_the_mail_of_a_job_has_its_report(host):
    subject = "Slurm Job_id=4711 Name=train Ended, Run time 01:00:00, COMPLETED, ExitCode 0"
    with host.sudo("slurm"):
        assert host.run("/usr/local/sbin/plumbline-job-mail -s %s alice@node", subject).rc == 0
        mail = host.check_output("cat /var/tmp/mail.alice@node")
    assert f"Subject: {subject.split(', ', maxsplit=1)[0]}" in mail
    assert "To: alice@node" in mail
    assert "  GPU     1, 50% busy in the mean; found by the job's id" in mail


def test_many_questions_of_one_user_are_answered(host):
    with host.sudo("alice"):
        output = host.check_output(
            "for number in $(seq 12); do job-report 4711 & done | grep -c '50% busy'; wait"
        )
    assert output == "12"


@pytest.mark.long
def test_seff_is_another_name_for_it_and_not_in_the_place_of_one_that_is_there(host, play):
    with host.sudo():
        assert host.check_output("seff 4711") == host.check_output("job-report 4711")
        host.check_output("rm /usr/local/bin/seff && printf '#!/bin/sh\n' > /usr/bin/seff")
        assert play().code == 0
        assert not host.file("/usr/local/bin/seff").exists
        host.check_output("rm /usr/bin/seff")
    assert play().code == 0
    assert host.file("/usr/local/bin/seff").linked_to == "/usr/local/bin/job-report"


def test_a_job_that_there_is_not(host):
    done = host.run("job-report 1")
    assert (done.rc, done.stdout) == (1, "")
    assert done.stderr == "Slurm's accounting has no job 1, or none that you may see.\n"


@pytest.mark.long
def test_a_run_that_changes_nothing(play):
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert play(None, "--check").changed == 0


@pytest.mark.long
def test_a_service_with_another_password_starts_anew(host, play):
    assert "measured" in ask(host, "alice")
    with host.sudo():
        host.check_output("echo other > /etc/plumbline/job_report.password")
    run = play()
    assert run.code == 0, run.output
    assert "measured" in ask(host, "alice")


@pytest.mark.long
def test_a_socket_that_listens_elsewhere_is_mended(host, play):
    with host.sudo():
        unit = "/etc/systemd/system/plumbline-job-report.socket"
        host.check_output(f"sed -i 's#^ListenStream=.*#ListenStream=/run/elsewhere#' {unit}")
        host.check_output("systemctl daemon-reload; systemctl stop plumbline-job-report.service")
        host.check_output("systemctl restart plumbline-job-report.socket")
    run = play()
    assert run.code == 0, run.output
    assert "measured" in ask(host, "alice")
    assert play().changed == 0


@pytest.mark.long
def test_without_a_prometheus_nothing_of_it_stays(host, play):
    run = play(job_report_url="")
    assert run.code == 0, run.output
    with host.sudo():
        assert not host.file("/etc/plumbline/job_report.password").exists
        assert not host.file(SOCKET).exists
        assert host.run("systemctl list-units --all 'plumbline-job-report*' | grep plumb").rc == 1
        assert "Nobody can be asked for GPUs" in host.check_output("job-report 4711")
    assert play(job_report_url="").changed == 0
    assert play().code == 0
