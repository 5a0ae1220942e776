"""DCGM on one node. Its packages are stand-ins: what is tested is the role, not DCGM."""

import json

import pytest

from roles.dcgm.molecule.default.tests.parts import CORE, OLD, diagnose, version
from tests.role_play import Case, refused

FAILURES = "__dcgm_verified | verify_failures"


def test_all_parts_have_the_version_and_are_held(host):
    parts = [CORE, *(CORE.replace("core", kind) for kind in ("cuda13", "proprietary"))]
    assert {version(host, part) for part in parts} == {"1:4.5.2-1"}
    assert not version(host, CORE.replace("core", "cuda12"))
    with host.sudo():
        host.check_output("apt-get update")
        host.check_output("apt-get upgrade --yes")
    assert version(host) == "1:4.5.2-1"  # though there is a 4.7.0


def test_the_service_comes_back_after_a_reboot(host):
    assert host.service("nvidia-dcgm").is_enabled
    assert host.service("nvidia-dcgm").is_running


def test_the_diagnostic_passes_on_healthy_gpus(host):
    done = diagnose(host)
    assert (done.rc, done.stdout) == (0, "dcgmi diag level 1 passes: 2 GPUs passed\n")


def test_the_diagnostic_fails_and_is_unknown_closed(host):
    warning = {"warning": "Persistence mode for GPU 1 is disabled.", "error_id": 29}
    bad = {"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings": [warning]}
    good = {"entity_group": "GPU", "entity_id": 0, "status": "Pass"}
    test = {"name": "software", "results": [good, bad], "test_summary": {"status": "Fail"}}
    category = {"category": "Deployment", "tests": [test]}
    document = json.dumps({"DCGM Diagnostic": {"test_categories": [category]}})
    with host.sudo():
        try:
            host.check_output("printf %%s %s > /etc/fake-dcgm.json", document)
            done = diagnose(host)
            assert done.rc == 1
            assert "GPU 1: software: Persistence mode for GPU 1 is disabled." in done.stdout
            host.check_output("echo nonsense > /etc/fake-dcgm.json")
            assert diagnose(host).rc == 2
        finally:
            host.check_output("rm -f /etc/fake-dcgm.json")
        host.check_output("systemctl stop nvidia-dcgm")
        done = diagnose(host)
        host.check_output("systemctl start nvidia-dcgm")
    assert done.rc == 2
    assert "unable to establish a connection" in done.stdout


@pytest.mark.long
def test_a_run_that_changes_nothing_asks_no_mirror(play, mirror):
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert mirror.requests() == []


@pytest.mark.long
def test_dcgm_3_goes_in_one_transaction_and_is_said(host, play, mirror):
    with host.sudo():
        parts = f"'{CORE.replace('core', '*')}'"
        host.check_output(f"apt-get remove --yes --allow-change-held-packages {parts}")
        host.check_output(f"apt-get install --yes {OLD}")
        host.check_output("systemctl start nvidia-dcgm")
    checked = play(None, "--check")
    assert checked.code == 0, checked.output
    assert f"DCGM 4 for this driver would replace {OLD} 1:3.3.9." in checked.output
    mirror.fault("*core_4.5.2*", "404")
    # What was downloaded before is not asked for again.
    with host.sudo():
        host.check_output("apt-get clean")
    refused(play(), "is not installed: http://127.0.0.1:8098")
    assert version(host, OLD) == "1:3.3.9"
    assert host.service("nvidia-dcgm").is_running

    mirror.healed()
    run = play()
    assert run.code == 0, run.output
    assert f"DCGM 4 for this driver replaces {OLD} 1:3.3.9." in run.output
    assert (version(host, OLD), version(host)) == ("", "1:4.5.2-1")
    assert play().changed == 0


@pytest.mark.long
def test_it_verifies_what_is_there_and_what_is_not_and_mends_it(host, attempts, play):
    spoil = f"apt-mark unhold {CORE} && systemctl stop nvidia-dcgm"
    outcomes = attempts(
        [
            Case("well", {}, "verify", FAILURES),
            Case("not_well", {"dcgm_version": "4.7.0"}, "verify", FAILURES, breaks=spoil),
        ],
        "--check",
    )
    assert "msg: []" in outcomes["well"].output
    for sentence in (
        "version of the packages is 1:4.5.2-1, expected 4.7.0",
        "packages that are held is 3, expected 4",
        "service nvidia-dcgm is inactive, expected active",
        "GPUs that the host engine sees is nothing, expected 2",
    ):
        assert sentence in outcomes["not_well"].output
    assert [outcome.changed for outcome in outcomes.values()] == [0, 0]
    assert play().code == 0
    assert host.service("nvidia-dcgm").is_running


def test_fewer_gpus_than_declared_and_none_at_all(attempts):
    outcomes = attempts(
        [
            Case("fewer", {"dcgm_gpus": 8}),
            Case("none", {"dcgm_gpus": 0, "dcgm_driver_branch": 0}),
        ]
    )
    outcomes["fewer"].refuses("GPUs that the host engine sees is 2, expected 8; see dcgmi")
    outcomes["none"].passes(changed=False)
