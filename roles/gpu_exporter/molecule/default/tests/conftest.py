import pytest

from tests.health_live import nvml

__all__ = ["nvml"]


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield
