"""The nodes of the cluster with two controllers, through testinfra."""

import os

import pytest
import testinfra

from tests.live_cluster import REPOSITORY

CLUSTER = os.environ.get("PLUMBLINE_ON", "test-cluster-ha")


@pytest.fixture(scope="session")
def node():
    config = REPOSITORY / ".cache/virtual-cluster" / CLUSTER / "ssh_config"

    def host(name):
        return testinfra.get_host(f"ssh://{name}?ssh_config={config}")

    return host
