"""Real packages of the distribution; limits as a login has them; cards that a folder stands for."""

import base64
import subprocess

import pytest

from tests.role_play import Case
from tests.standins import pci_bus

PORT = "/srv/node/sys/class/infiniband/mlx5_1/ports/1"


@pytest.mark.parametrize(
    ("package", "program"),
    [
        ("rdma-core", "/usr/bin/rdma-ndd"),
        ("ibverbs-utils", "ibv_devinfo"),
        ("infiniband-diags", "ibstat"),
        ("perftest", "ib_write_bw"),
    ],
)
def test_libraries_and_tools_are_there(host, package, program):
    assert host.package(package).is_installed
    with host.sudo():
        assert (
            host.run(f"sh -c 'PATH=$PATH:/usr/sbin; command -v {program.split('/')[-1]}'").rc == 0
        )


def test_verbs_find_their_providers(host):
    """The library loads and asks the kernel, which has no device here, or not even the module."""
    output = host.check_output("ibv_devinfo 2>&1 || true")
    assert output in (
        "No IB devices found",
        "Failed to get IB devices list: Function not implemented",
    )


def test_the_limit_is_what_a_login_has(host):
    with host.sudo():
        assert host.check_output("su nobody -s /bin/sh -c 'ulimit -l'") == "4096"


LIMITS = "/etc/security/limits.d/90-plumbline.conf"
# A slurmd of nobody's, after whatever the role slurm, which this node may have, says of it.
SLURMD = "/etc/systemd/system/slurmd.service"


def look(name, variables=None, breaks="true", mends="true"):
    """The phase that ends the role, on a node that a command breaks."""
    return Case(name, variables or {}, "service", breaks=breaks, mends=mends)


def port(name, file, value, was, variables=None):
    """A port of which the kernel says something else."""
    path = f"{PORT}/{file}"
    return look(name, variables, f"echo '{value}' > {path}", f"echo '{was}' > {path}")


@pytest.mark.long
def test_what_is_not_as_declared_is_a_failure_and_changes_nothing(attempts):
    slurmd = (
        rf"printf '[Service]\nExecStart=/bin/true\n' > {SLURMD} && mkdir -p {SLURMD}.d && "
        rf"printf '[Service]\nLimitMEMLOCK=%s\n' > {SLURMD}.d/99-limit.conf && "
        "systemctl daemon-reload"
    )
    no_slurmd = f"rm -f {SLURMD} {SLURMD}.d/99-limit.conf && systemctl daemon-reload"
    device = "/srv/node/dev/infiniband/uverbs0"
    meant = {"rdma_ports": 1, "rdma_hcas": "^mlx5_1"}
    outcomes = attempts(
        [
            look(
                "login",
                breaks=f"mv {LIMITS} /root/kept; echo '* - memlock 64' > {LIMITS}",
                mends=f"mv /root/kept {LIMITS}",
            ),
            look("slurmd", breaks=slurmd.replace("%s", "65536"), mends=no_slurmd),
            look("slurmd_unlimited", breaks=slurmd.replace("%s", "infinity"), mends=no_slurmd),
            port("down", "state", "1: DOWN", "4: ACTIVE"),
            port("polling", "phys_state", "2: Polling", "5: LinkUp"),
            port("slow", "rate", "200 Gb/sec (4X HDR)", "400 Gb/sec (4X NDR)"),
            port("not_meant", "state", "1: DOWN", "4: ACTIVE", meant),
            look("fewer", {"rdma_ports": 8}),
            look("no_device", breaks=f"rm {device}", mends=f"touch {device}"),
            Case("no_fabric", {"rdma_fabric": "ethernet", "rdma_root": "/nowhere"}),
            Case("other_fabric", {"rdma_fabric": "roce_400"}),
            # The last one: that a reboot is due is a fact of the node from then on.
            look(
                "another_module",
                {"rdma_source": "doca_ofed"},
                "mkdir -p /srv/node/sys/module/mlx5_core && "
                "echo 9A0F > /srv/node/sys/module/mlx5_core/srcversion",
                "rm -r /srv/node/sys/module",
            ),
        ]
    )
    outcomes["login"].refuses("rdma: locked memory of a login is 64, expected 4096")
    outcomes["slurmd"].refuses("locked memory of slurmd is 65536, expected infinity")
    for name, detail in {
        "down": "mlx5_1:1: DOWN, LinkUp",
        "polling": "mlx5_1:1: ACTIVE, Polling",
        "slow": "200 Gbit/s, 400 declared",
    }.items():
        outcomes[name].refuses("rdma: ports of ib_ndr400 in order is 1, expected 2")
        outcomes[name].refuses(detail)
    outcomes["fewer"].refuses("ports of ib_ndr400 in order is 2, expected 8")
    outcomes["no_device"].refuses("devices for jobs (uverbs) is absent, expected present")
    outcomes["other_fabric"].refuses("no Ethernet port that is meant: it has mlx5_0:1 (InfiniBand)")
    for name in ("slurmd_unlimited", "not_meant", "no_fabric", "another_module"):
        outcomes[name].passes()
    due = "A reboot is due before the ports can be verified"
    assert f"{due}: the kernel runs without what is installed or set (mlx5_core)." in (
        outcomes["another_module"].output
    )
    assert {name: outcome.changed for name, outcome in outcomes.items()} == dict.fromkeys(
        outcomes, 0
    )


def test_verification_changes_nothing_and_needs_no_run_before(host, play):
    only = [{"ansible.builtin.include_role": {"name": "rdma", "tasks_from": "verify"}}]
    show = [{"ansible.builtin.debug": {"msg": "{{ __rdma_verified }}"}}]
    run = play(only + show, "--check")
    assert (run.code, run.changed) == (0, 0), run.output
    # Packages, the limit of a login, devices, the GPUs' memory, ports; slurmd's limit where it is.
    assert run.output.count("PASS") == 5 + host.service("slurmd").exists


UNIT, GRUB = (
    "/etc/systemd/system/plumbline-acs.service",
    "/etc/default/grub.d/60-plumbline-rdma.cfg",
)
CONTROL = f"od -An -tx2 -j334 -N2 /srv/node/sys/bus/pci/devices/{pci_bus.TO_GPU}/config"


@pytest.fixture
def bus(host, tmp_path):
    """A switch with ACS between a GPU and a card, on a real machine that GRUB starts."""
    pci_bus.build(tmp_path / "node", {pci_bus.TO_GPU: pci_bus.ISOLATING})
    packed = subprocess.check_output(["tar", "-cz", "-C", str(tmp_path / "node"), "sys"])
    programs = {"systemd-detect-virt": "echo none; exit 1", "update-grub": "echo >> /root/grub"}
    with host.sudo():
        sent = base64.b64encode(packed).decode()
        host.check_output(f"echo {sent} | base64 -d | tar -xz --no-same-owner -C /srv/node")
        for name, does in programs.items():
            path = f"/usr/local/sbin/{name}"
            host.check_output(f"printf '#!/bin/sh\\n{does}\\n' > {path} && chmod 755 {path}")
        yield
        host.check_output(f"rm -rf /srv/node/sys/bus /root/grub {GRUB}")
        host.check_output(f"cd /usr/local/sbin && rm -f {' '.join(programs)}")


@pytest.mark.long
def test_the_way_to_the_gpus_is_set_and_taken_back(host, bus, attempts, play):
    both = {"rdma_clear_acs": True, "rdma_iommu_passthrough": True}
    checked = play(None, "--check", **both)
    assert checked.code == 0, checked.output
    assert checked.changed
    assert not host.file(UNIT).exists
    assert not host.file(GRUB).exists

    says = f"{CONTROL}; systemctl is-enabled plumbline-acs"
    gone = f"ls {UNIT} {GRUB} 2>&-; systemctl is-enabled plumbline-acs; cat /root/grub | wc -l"
    outcomes = attempts(
        [
            Case("acs", {"rdma_clear_acs": True}, mends=says),
            Case("boot", {"rdma_clear_acs": True}, breaks=f"systemctl restart {UNIT[20:]}"),
            Case("iommu", both, shows="__rdma_change, __rdma_reboot", mends=f"tail -n1 {GRUB}"),
            Case("ignored", both, breaks=f"touch -d @1 {GRUB}"),
            Case("back", mends=gone),
        ]
    )
    for name in ("acs", "iommu", "back"):
        outcomes[name].passes(changed=True)
    outcomes["boot"].passes(changed=False)
    assert outcomes["acs"].left == "0011 enabled"
    assert "kernel runs without what is installed or set (iommu=pt)" in outcomes["iommu"].output
    assert outcomes["iommu"].left == 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt"'
    outcomes["ignored"].refuses("has booted without iommu=pt though")
    assert outcomes["back"].left.split()[-1] == "2"  # GRUB was told twice
    assert UNIT not in outcomes["back"].left
    assert GRUB not in outcomes["back"].left
