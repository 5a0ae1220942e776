import pytest

from roles.nvidia_container_toolkit.molecule.default.tests.parts import SPEC, versions


@pytest.fixture
def unharmed(host):
    """The parts before a run that is refused are those afterwards, and so is the specification."""
    before = versions(host), host.file(SPEC).content_string
    assert before[0] == {"1.20.1-1"}
    yield
    assert (versions(host), host.file(SPEC).content_string) == before


@pytest.fixture
def gpus(host):
    """A function that tells the stand-in for a driver which GPUs and MIG instances there are."""

    def tell(names: str) -> None:
        with host.sudo():
            host.check_output(f"echo {names} > /etc/fake-gpus")

    yield tell
    tell("0 1")
