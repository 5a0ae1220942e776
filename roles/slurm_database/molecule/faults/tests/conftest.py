import os

import pytest
import testinfra

from tests.live_cluster import REPOSITORY


@pytest.fixture(scope="session")
def node():
    """A function from a node's name to its testinfra host."""
    name = os.environ.get("PLUMBLINE_ON", "test-slurm-database-faults")
    config = REPOSITORY / ".cache/virtual-cluster" / name / "ssh_config"
    return lambda host: testinfra.get_host(f"ssh://{host}?ssh_config={config}")
