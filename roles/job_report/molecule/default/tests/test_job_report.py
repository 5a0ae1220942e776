"""job-report on a login node. Slurm and Prometheus are stand-ins: the role is tested."""

import json

import pytest


def test_those_who_may_ask_are_told_of_gpus(host):
    with host.sudo():
        output = host.check_output("job-report 4711")
        document = json.loads(host.check_output("job-report --json 4711"))
    assert "  CPU     50% of 2: 1.0 busy in the mean" in output
    assert "  GPU     1, 50% busy in the mean; found by the job's id" in output
    assert document["gpu_ratio"] == 0.5


def test_others_are_told_the_rest_and_why(host):
    with host.sudo("nobody"):
        output = host.check_output("job-report 4711")
    assert "  CPU     50% of 2" in output
    assert "You may not read /etc/plumbline/job_report.password" in output


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


def test_the_password_is_the_groups_alone(host):
    with host.sudo():
        file = host.file("/etc/plumbline/job_report.password")
        assert (file.mode, file.user, file.group) == (0o640, "root", "root")


@pytest.mark.long
def test_a_run_that_changes_nothing(play):
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert play(None, "--check").changed == 0


@pytest.mark.long
def test_without_a_prometheus_nothing_of_it_stays(host, play):
    run = play(job_report_url="")
    assert run.code == 0, run.output
    with host.sudo():
        assert not host.file("/etc/plumbline/job_report.password").exists
        assert "No Prometheus is named here" in host.check_output("job-report 4711")
    assert play().code == 0
