import pytest

from roles.dcgm.molecule.default.tests.parts import started, version


@pytest.fixture
def unharmed(host, mirror):
    """Version and service before a run that is refused are those afterwards."""
    before = version(host), started(host)
    assert before[0] == "1:4.5.2-1"
    yield
    assert (version(host), started(host)) == before
    assert host.service("nvidia-dcgm").is_running
