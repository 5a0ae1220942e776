"""Stand-ins of our own for NVIDIA's packages and for NVML, and a folder for the devices."""

from roles.nvidia_fabric.molecule.default.tests.nodes import (
    HGX,
    MANAGER,
    NEW,
    OLD,
    REVISIONS,
    SWITCHES,
    Node,
    refused,
)
from tests.role_play import Case


def test_the_drivers_version_although_the_repository_has_a_newer_one(host):
    node = Node(host)
    assert f"Candidate: {NEW}" in node.root(f"apt-cache policy {MANAGER}")
    for package in (MANAGER, "libnvidia-nscq"):
        assert node.version(package) == REVISIONS[OLD]
    assert {MANAGER, "libnvidia-nscq"} <= {*node.root("apt-mark showhold").split()}


def test_the_fabric_manager_runs_also_after_a_reboot(host):
    assert host.service(MANAGER).is_running
    assert host.service(MANAGER).is_enabled
    text = host.file("/usr/share/nvidia/nvswitch/fabricmanager.cfg").content_string
    assert text == "LOG_LEVEL=3\nDAEMONIZE=1\n"


def test_it_follows_the_driver_in_one_go_and_is_not_started_before_the_driver_is(node, play):
    before = node.process()
    node.install(NEW)
    output = refused(play())
    assert f"loaded driver is {OLD}, expected {NEW}; reboot the node" in output
    assert node.version(MANAGER) == node.version("libnvidia-nscq") == REVISIONS[NEW]
    assert node.process() == before  # jobs on the old driver go on

    node.load(NEW)  # as a reboot does
    run = play()
    assert run.code == 0, run.output
    assert node.process() != before
    assert play().changed == 0
    assert MANAGER in node.root("apt-mark showhold")


def test_no_fabric_manager_where_there_is_no_nvswitch(node, attempts):
    node.root(f"rm -r {SWITCHES}/* && apt-get purge --yes --allow-change-held-packages {MANAGER}")
    outcomes = attempts([Case("hgx", HGX), Case("pcie", {"nvidia_fabric_gpu_model": "h100_pcie"})])
    outcomes["hgx"].refuses(
        "nvidia_fabric: NVSwitches is none, expected present; 8 h100_sxm have them"
    )
    outcomes["pcie"].passes(changed=False)
    assert node.version(MANAGER) == ""
