"""A fixture of roles' scenarios: the node's own mirror (tests/standins/mirror.py), whole before and
after each test that uses it."""

import pytest

from tests.standins.mirror import OnNode


@pytest.fixture
def mirror(host):
    """The node's mirror, which serves all again afterwards."""
    on_node = OnNode(host)
    on_node.healed()
    on_node.requests()
    yield on_node
    on_node.healed()
