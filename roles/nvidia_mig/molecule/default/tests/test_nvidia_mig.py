"""GPUs of one node, which a stand-in for nvidia-smi has: cut as declared, and left alone."""

import json

import pytest

from tests.mig_live import NAMES, names, state, write
from tests.role_play import Case

VERDICTS = "__nvidia_mig_verified | map(attribute='verdict') | join(' ') ~ ' done'"


def test_every_gpu_is_cut_as_declared(host):
    for gpu in state(host)["gpus"]:
        assert [(instance["profile"], instance["start"]) for instance in gpu["instances"]] == [
            ("3g.20gb", 0),
            ("3g.20gb", 4),
        ]
        assert gpu["on"]


def test_names_are_device_files_with_the_kernels_numbers(host):
    assert names(host) == NAMES
    shown = host.check_output("stat --format='%t %T %a' /dev/plumbline-mig/gpu1-3g.20gb-0.gi")
    [minor] = [
        line.split()[1]
        for line in host.file("/proc/driver/nvidia-caps/mig-minors").content_string.splitlines()
        if line.startswith("gpu1/gi1/access ")
    ]
    assert shown == f"{477:x} {int(minor):x} 444"


def test_it_is_done_before_the_daemon_that_needs_it_at_every_boot(host):
    shown = host.check_output("systemctl show needs-instances --property=Requires --property=After")
    assert shown.count("plumbline-mig.service") == 2
    assert host.service("plumbline-mig").is_enabled
    assert host.service("needs-instances").is_running


def test_a_second_time_makes_nothing_anew(host):
    before = state(host)
    with host.sudo():
        host.run_expect([0], "systemctl restart plumbline-mig")
    assert state(host) == before
    assert names(host) == NAMES
    assert host.service("needs-instances").is_running


def test_after_a_boot_the_instances_come_back(host):
    """A boot takes the instances and the names; the service is what runs then."""
    document = state(host)
    for gpu in document["gpus"]:
        gpu["instances"] = []
    write(host, document)
    with host.sudo():
        host.run_expect(
            [0], "systemctl stop plumbline-mig && rm -r /dev/plumbline-mig /run/plumbline-mig.json"
        )
        assert not host.service("needs-instances").is_running
        host.run_expect([0], "systemctl start needs-instances")
    assert names(host) == NAMES
    assert host.service("plumbline-mig").is_running


@pytest.mark.long
def test_what_somebody_destroyed_is_seen_and_made_anew(host, attempts):
    document = state(host)
    document["gpus"][1]["instances"].pop()
    destroy = f"echo '{json.dumps(document)}' > /var/lib/nvidia-smi.json"
    virtual = {"nvidia_mig_model": "virtual"}
    outcomes = attempts(
        [
            Case("well", {}, "verify", VERDICTS),
            # Virtual GPUs are skipped by declaration.
            Case("virtual", virtual, "verify", VERDICTS),
            Case("destroyed", {}, "verify", VERDICTS, breaks=destroy),
            Case("predicted"),
        ],
        "--check",
    )
    assert "msg: PASS PASS done" in outcomes["well"].output
    assert "msg: SKIP done" in outcomes["virtual"].output
    assert "msg: FAIL FAIL done" in outcomes["destroyed"].output
    assert [outcomes[name].changed for name in ("well", "virtual", "destroyed")] == [0, 0, 0]
    outcomes["predicted"].passes(changed=True)
    assert state(host) == document

    later = attempts([Case("anew"), Case("after", {}, "verify", VERDICTS)])
    later["anew"].passes()
    assert "msg: PASS PASS done" in later["after"].output
    assert names(host) == NAMES
