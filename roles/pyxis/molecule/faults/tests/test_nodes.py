"""Three nodes after the first run. It comes first: later tests have other nodes build pyxis."""

from tests.pyxis_nodes import COMPUTE, CONTROLLER, NODES


def test_one_node_built_it_for_all(node):
    compilers = [name for name in NODES if node(name).package("gcc").is_installed]
    assert len(compilers) == 1
    assert not node(COMPUTE).package("slurmctld").is_installed
    assert not node(CONTROLLER).package("slurmd").is_installed


def test_compute_nodes_have_no_file_of_it(node):
    assert not node(COMPUTE).file("/etc/slurm/plugstack.conf").exists
