import pytest

from roles.package_repositories.molecule.default.tests.lists import candidate, files


@pytest.fixture
def unharmed(host, mirror):
    """What was there before a run that is refused is there afterwards, and APT works with it."""
    there = files(host)
    yield
    assert files(host) == there
    assert (candidate(host, "plumbline-tool"), candidate(host, "plumbline-other")) == ("1.0", "1.0")
    mirror.healed()
    with host.sudo():
        host.check_output("apt-get update --error-on=any")
