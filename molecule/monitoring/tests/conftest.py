"""What the tests of this scenario share."""

import pytest
import testinfra

from tests.live_cluster import REPOSITORY, under_test
from tests.web_listener import Listener


@pytest.fixture(scope="session")
def alertmanager() -> Listener:
    config = REPOSITORY / ".cache/virtual-cluster" / under_test() / "ssh_config"
    return Listener(testinfra.get_host(f"ssh://ctl1?ssh_config={config}"), 9093, "ctl1")
