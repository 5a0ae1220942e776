"""What befalls a node's fabric, one thing after the other; each takes runs of the role."""

from roles.nvidia_fabric.molecule.default.tests.nodes import (
    GB200,
    MANAGER,
    NEW,
    NVML,
    OLD,
    REVISIONS,
    ROOT,
    SWITCHES,
    refused,
    verified,
)


def test_a_fabric_manager_of_another_version_is_repaired_also_downwards(node, play):
    wrong = f"{MANAGER}={REVISIONS[NEW]}"
    node.root(f"apt-get install --yes --allow-change-held-packages {wrong}")
    node.host.run(f"sudo systemctl restart {MANAGER}")  # fails, as the real one would
    output = verified(play)
    assert f"Fabric Manager is {NEW}, expected {OLD}" in output
    assert f"service {MANAGER} is failed, expected active; without it CUDA ends" in output
    run = play()
    assert run.code == 0, run.output
    assert node.version(MANAGER) == REVISIONS[OLD]
    assert node.host.service(MANAGER).is_running


def test_a_version_that_cannot_be_had_changes_nothing(node, play):
    node.root("mkdir -p /usr/lib/other && touch /usr/lib/other/libnvidia-ml.so.580.999.01")
    before = node.process()
    run = play()
    output = refused(run)
    assert f"{MANAGER} cannot be had in version 580.999.01: there is {REVISIONS[NEW]}" in output
    assert run.changed == 0
    assert (node.version(MANAGER), node.process()) == (REVISIONS[OLD], before)


def test_nvswitches_that_are_not_declared_are_a_failure(play):
    output = refused(play(nvidia_fabric_gpu_model="l40s"))
    assert "NVSwitches is present, expected none; 2 l40s have none: correct node_gpus" in output


def test_a_gpu_that_has_not_joined_the_fabric_is_a_failure(node, play):
    node.says("gpu.1.fabric_state = 2")
    output = refused(play())
    assert "GPUs in the fabric is 1, expected 2; GPU 1: in progress, status 0" in output


def test_an_nvml_that_does_not_answer_is_a_failure(node, play):
    node.says("error.nvmlInit = DRIVER_NOT_LOADED")
    assert "GPUs in the fabric is unknown (" in refused(play())


def test_one_that_ends_at_once_is_a_failure_with_its_name(node, play):
    node.root(f"systemctl stop {MANAGER} && mv /usr/bin/nv-fabricmanager /usr/bin/kept")
    program = r"#!/bin/sh\necho 580.95.05\n"
    node.root(
        f"printf '{program}' > /usr/bin/nv-fabricmanager; chmod 755 /usr/bin/nv-fabricmanager"
    )
    try:
        output = refused(play())
    finally:
        node.root("mv /usr/bin/kept /usr/bin/nv-fabricmanager")
    assert f"service {MANAGER} is" in output
    assert "without it CUDA ends with error 802" in output


def bridge(node):
    """A network function through which NVSwitches of NVLink 5 are managed."""
    device = f"{ROOT}/sys/bus/pci/devices/0000:05:00.0"
    node.root(
        f"rm -r {SWITCHES}/*; mkdir -p {device} && cd {device} && echo 0x15b3 > vendor && "
        "echo 0x020700 > class && echo SMDL=SW_MNG > vpd"
    )


def test_nvlink_5_has_its_subnet_manager_too(node, play):
    bridge(node)
    node.root(f"mkdir -p {ROOT}/sys/module/ib_umad")
    run = play()
    assert run.code == 0, run.output
    assert node.version("nvlsm") == "2025.10.12-1"
    assert node.version("infiniband-diags")  # the distribution's own
    assert "ib_umad" in node.root("cat /etc/modules-load.d/plumbline-nvidia-fabric.conf")

    node.root("dpkg --remove nvlsm")
    output = verified(play)
    assert "NVLink subnet manager is not installed, expected installed" in output


def test_imex_on_nodes_of_an_nvlink_domain(node, play):
    node.root(f"rm -r {SWITCHES}/*")
    output = refused(play(**GB200))
    assert "IMEX channel 0 is absent, expected present" in output
    channels = f"{ROOT}/dev/nvidia-caps-imex-channels"
    node.root(f"mkdir -p {channels} && touch {channels}/channel0")
    run = play(**GB200)
    assert (run.code, run.changed) == (0, 0), run.output
    assert node.version("nvidia-imex") == REVISIONS[OLD]
    assert node.root("cat /etc/nvidia-imex/nodes_config.cfg") == "192.0.2.11\n192.0.2.12"
    options = node.root("grep -v '^#' /etc/modprobe.d/plumbline-nvidia-imex.conf")
    assert options == "options nvidia NVreg_CreateImexChannel0=1"

    before = node.root("systemctl show nvidia-imex --property=ExecMainStartTimestampMonotonic")
    run = play(**GB200 | {"nvidia_fabric_imex_nodes": ["192.0.2.11", "192.0.2.13"]})
    assert run.code == 0, run.output
    assert before != node.root(
        "systemctl show nvidia-imex --property=ExecMainStartTimestampMonotonic"
    )


def test_an_nvlink_domain_without_nodes_is_refused(play):
    output = refused(play(**GB200 | {"nvidia_fabric_imex_nodes": []}))
    assert "set nvidia_fabric_imex_domain to the group of the inventory" in output
    output = refused(play(**GB200 | {"nvidia_fabric_imex_nodes": ["192.0.2.11", "192.0.2.11"]}))
    assert "has an address twice" in output


def test_a_driver_is_installed_first(node, play):
    node.root("apt-get purge --yes libnvidia-ml1")
    checked = play(None, "--check")  # it may come in this run
    assert (checked.code, checked.changed) == (0, 0), checked.output
    assert "no NVIDIA driver is installed, and these packages need its version" in refused(play())


def test_it_is_not_restarted_below_a_job(node, play):
    before = node.process()
    node.says("gpu.1.process.0 = 4711 1024 python3")
    output = refused(play(nvidia_fabric_manager_settings={"LOG_LEVEL": 2}))
    assert "the Fabric Manager must restart, but processes use the GPUs of node" in output
    assert node.process() == before

    node.root(f"cp /root/nvml.conf {NVML}")  # the job has ended
    run = play(nvidia_fabric_manager_settings={"LOG_LEVEL": 2})
    assert run.code == 0, run.output
    assert node.process() != before


def test_a_node_without_gpus_is_left_alone(play):
    run = play(nvidia_fabric_gpu_model="", nvidia_fabric_root="/nowhere")
    assert (run.code, run.changed) == (0, 0), run.output
