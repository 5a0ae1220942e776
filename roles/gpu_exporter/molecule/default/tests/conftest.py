import pytest

from tests.health_live import nvml
from tests.role_mirror import mirror
from tests.role_play import play

__all__ = ["mirror", "nvml", "play"]


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield
