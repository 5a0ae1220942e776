"""GPUs of one node, which a stand-in for nvidia-smi has: cut as declared, and left alone."""

import pytest

from tests.mig_live import NAMES, names, state, verified, write


def test_every_gpu_is_cut_as_declared(host):
    for gpu in state(host)["gpus"]:
        assert [(one["profile"], one["start"]) for one in gpu["instances"]] == [
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


def test_what_somebody_destroyed_is_seen_and_made_anew(host, play, whole):
    assert verified(play) == "PASS PASS"
    document = state(host)
    document["gpus"][1]["instances"].pop()
    write(host, document)
    assert verified(play) == "FAIL FAIL"
    checked = play(None, "--check")
    assert checked.code == 0, checked.output
    assert checked.changed > 0
    run = play()
    assert run.code == 0, run.output
    assert verified(play) == "PASS PASS"
    assert names(host) == NAMES


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        ({"3g.20gb": 5}, "5 of 3g.20gb on every GPU, for which no a100_sxm has room"),
        ({"1g.24gb": 1}, "has 1g.24gb, which no a100_sxm has"),
    ],
)
def test_what_no_board_can_be_cut_into_is_refused(host, play, layout, sentence):
    run = play(nvidia_mig_layout=layout)
    assert (run.code != 0, run.changed) == (True, 0)
    assert sentence in run.output
    assert names(host) == NAMES


def test_virtual_gpus_are_skipped_by_declaration(play):
    assert verified(play, nvidia_mig_model="virtual") == "SKIP"
