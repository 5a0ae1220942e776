"""Real packages of the distribution; limits as a login has them; cards that a folder stands for."""

import pytest

PORT = "/srv/node/sys/class/infiniband/mlx5_1/ports/1"


@pytest.fixture
def broken(host):
    """Runs a command as root, and another one when the test has ended."""
    after = []

    def command(breaks, mends):
        with host.sudo():
            host.check_output("sh -c %s", breaks)
        after.append(mends)

    yield command
    with host.sudo():
        for mends in after:
            host.check_output("sh -c %s", mends)


def refused(run) -> str:
    assert run.code != 0, run.output
    assert run.changed == 0
    return run.output


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
    said = host.check_output("ibv_devinfo 2>&1 || true")
    assert said in (
        "No IB devices found",
        "Failed to get IB devices list: Function not implemented",
    )


def test_the_limit_is_what_a_login_has(host):
    with host.sudo():
        assert host.check_output("su nobody -s /bin/sh -c 'ulimit -l'") == "4096"


def test_a_limit_that_is_lost_is_a_failure(broken, play):
    limits = "/etc/security/limits.d/90-plumbline.conf"
    broken(f"mv {limits} /root/kept; echo '* - memlock 64' > {limits}", f"mv /root/kept {limits}")
    said = refused(play())
    assert "rdma: locked memory of a login is 64, expected 4096" in said


def test_a_slurmd_with_a_limit_is_a_failure(broken, play):
    """After whatever the role slurm, which this node may have, says of it."""
    unit = "/etc/systemd/system/slurmd.service"
    limit = f"{unit}.d/99-limit.conf"
    broken(
        rf"printf '[Service]\nExecStart=/bin/true\n' > {unit} && mkdir -p {unit}.d && "
        rf"printf '[Service]\nLimitMEMLOCK=65536\n' > {limit} && systemctl daemon-reload",
        f"rm -f {unit} {limit} && systemctl daemon-reload",
    )
    assert "locked memory of slurmd is 65536, expected infinity" in refused(play())
    broken(f"sed -i s/65536/infinity/ {limit} && systemctl daemon-reload", "true")
    assert play().code == 0


@pytest.mark.parametrize(
    ("file", "value", "was", "said"),
    [
        ("state", "1: DOWN", "4: ACTIVE", "mlx5_1:1: DOWN, LinkUp"),
        ("phys_state", "2: Polling", "5: LinkUp", "mlx5_1:1: ACTIVE, Polling"),
        ("rate", "200 Gb/sec (4X HDR)", "400 Gb/sec (4X NDR)", "200 Gbit/s, 400 declared"),
    ],
)
def test_a_port_that_is_not_as_declared_is_a_failure(broken, play, file, value, was, said):
    broken(f"echo '{value}' > {PORT}/{file}", f"echo '{was}' > {PORT}/{file}")
    output = refused(play())
    assert "rdma: ports of ib_ndr400 in order is 1, expected 2" in output
    assert said in output


def test_fewer_ports_than_there_must_be_are_a_failure(play):
    assert "ports of ib_ndr400 in order is 2, expected 8" in refused(play(rdma_ports=8))


def test_a_port_that_is_not_meant_does_not_count(broken, play):
    broken(f"echo '1: DOWN' > {PORT}/state", f"echo '4: ACTIVE' > {PORT}/state")
    assert play(rdma_ports=1, rdma_hcas="^mlx5_1").code == 0


def test_cards_without_a_device_for_jobs_are_a_failure(broken, play):
    device = "/srv/node/dev/infiniband/uverbs0"
    broken(f"rm {device}", f"touch {device}")
    assert "devices for jobs (uverbs) is absent, expected present" in refused(play())


def test_a_node_without_such_a_fabric_is_left_alone(play):
    run = play(rdma_fabric="ethernet", rdma_root="/nowhere")
    assert (run.code, run.changed) == (0, 0), run.output


def test_another_fabric_than_the_cards_is_a_failure(play):
    output = refused(play(rdma_fabric="roce_400"))
    assert "no Ethernet port that is meant: it has mlx5_0:1 (InfiniBand)" in output


def test_no_port_at_all_is_not_what_can_be_asked_for(play):
    assert "rdma_ports is 0, with which a node without any port" in refused(play(rdma_ports=0))


def test_verification_changes_nothing_and_needs_no_run_before(host, play):
    only = [{"ansible.builtin.include_role": {"name": "rdma", "tasks_from": "verify"}}]
    show = [{"ansible.builtin.debug": {"msg": "{{ __rdma_verified }}"}}]
    run = play(only + show, "--check")
    assert (run.code, run.changed) == (0, 0), run.output
    # Packages, the limit of a login, devices and ports; slurmd's limit where there is a slurmd.
    assert run.output.count("PASS") == 4 + host.service("slurmd").exists
