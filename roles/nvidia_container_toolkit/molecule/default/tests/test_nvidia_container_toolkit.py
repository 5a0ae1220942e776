"""The toolkit on one node. Its packages are stand-ins: what is tested is the role."""

from roles.nvidia_container_toolkit.molecule.default.tests.parts import SPEC, versions


def test_all_parts_have_the_version_and_are_held(host):
    assert versions(host) == {"1.20.1-1"}
    with host.sudo():
        host.check_output("apt-get update")
        host.check_output("apt-get upgrade --yes")
    assert versions(host) == {"1.20.1-1"}  # though there is a 1.21.0


def test_the_specification_has_the_gpus_and_is_renewed_after_a_reboot(host):
    spec = host.file(SPEC).content_string
    assert "name: '0'" in spec
    assert "name: '1'" in spec
    assert host.service("nvidia-cdi-refresh.service").is_enabled
    assert host.service("nvidia-cdi-refresh.path").is_enabled
    assert host.service("nvidia-cdi-refresh.path").is_running


def test_a_specification_that_is_gone_or_of_another_driver_is_renewed(host, play, mirror):
    with host.sudo():
        host.check_output(f"rm {SPEC}")
        assert play().changed == 2  # noticed, and renewed by the handler
        assert host.file(SPEC).exists
        host.check_output("systemctl stop nvidia-cdi-refresh.path")
        host.check_output("echo 590.44.01 > /etc/fake-driver")
    assert play().code == 0
    assert "libcuda.so.590.44.01" in host.file(SPEC).content_string
    # A daemon that came later than the specification is none of a GPU's.
    socket = "/run/nvidia-persistenced/socket"
    with host.sudo():
        host.check_output(f"mkdir -p {socket.rpartition('/')[0]} && touch {socket}")
        assert socket in host.check_output("nvidia-ctk cdi generate")
    mirror.requests()
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert socket not in host.file(SPEC).content_string
    assert mirror.requests() == []
