import pytest

from roles.nvidia_fabric.molecule.default.tests.nodes import NVML, OLD, ROOT, SWITCHES, Node


@pytest.fixture
def node(host, play):
    """The node; afterwards it is as it was."""
    node = Node(host)
    node.root(f"cp {NVML} /root/nvml.conf")
    yield node
    node.root(f"cp /root/nvml.conf {NVML}; mkdir -p {SWITCHES}/0000:05:00.0")
    node.root(f"rm -rf {ROOT}/sys/bus {ROOT}/sys/module/ib_umad")
    node.root(f"rm -rf /usr/lib/other {ROOT}/dev/nvidia-caps-imex-channels")
    node.install(OLD)
    node.load(OLD)
    mended = play()
    assert mended.code == 0, mended.output
