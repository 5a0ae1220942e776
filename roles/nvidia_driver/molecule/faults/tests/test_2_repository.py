"""NVIDIA's repository, of which stand-ins are served on the node: branches, versions and faults."""

import pytest

from roles.nvidia_driver.molecule.default.tests.driver import (
    DESCRIPTION,
    PACKAGES,
    SOURCES,
    described,
)
from tests.standins.mirror import TRUNCATED, WRONG, OnNode


@pytest.fixture(scope="module")
def node(host):
    with described(host):
        yield host


@pytest.fixture
def apply(node, play):
    """Applies the role with this source; NVML answers with the version that it asks for."""

    def run(branch, version="", **more):
        with node.sudo():
            node.check_output("echo driver = %s >> %s", version or f"{branch}.1.1", DESCRIPTION)
        return play(nvidia_driver_branch=branch, nvidia_driver_version=version, **more)

    return run


def installed(host):
    return [host.package(name).version for name in PACKAGES]


def test_the_branch_holds_for_what_is_depended_on_too(node, apply):
    """The newest of the branch, although the archives have 590, which its packages would accept."""
    run = apply(580)
    assert run.code == 0, run.output
    assert installed(node) == ["580.105.08-1"] * len(PACKAGES)
    again = apply(580)
    assert (again.code, again.changed) == (0, 0), again.output


def test_an_older_version_is_a_step_back_when_it_is_asked_for(node, apply):
    run = apply(580, "580.95.05")
    assert run.code == 0, run.output
    assert installed(node) == ["580.95.05-1"] * len(PACKAGES)
    # The archive has a newer one of the branch, which is no reason to change it.
    again = apply(580)
    assert (again.code, again.changed) == (0, 1), again.output  # the preference says the branch
    assert installed(node) == ["580.95.05-1"] * len(PACKAGES)


@pytest.mark.parametrize("fault", [TRUNCATED, WRONG])
def test_a_package_that_does_not_arrive_whole_changes_none(node, apply, fault):
    mirror = OnNode(node)
    mirror.fault("*/nvidia-modprobe_590*", fault)
    with node.sudo():
        node.check_output("apt-get clean")
    before = installed(node)
    try:
        run = apply(590)
    finally:
        mirror.healed()
    assert run.code != 0
    assert "590.44.01-1 is not installed: http://127.0.0.1:8098" in run.output
    assert installed(node) == before
    with node.sudo():
        assert node.check_output("dpkg --audit") == ""


def test_a_branch_that_the_repository_lacks_is_told(node, apply):
    before = installed(node)
    run = apply(610)
    assert run.code != 0
    assert "not 610, and no package was changed; set nvidia_driver_branch" in run.output
    assert installed(node) == before


def test_another_branch_takes_all_of_its_packages_there_and_back(node, apply):
    run = apply(590)
    assert run.code == 0, run.output
    assert installed(node) == ["590.44.01-1"] * len(PACKAGES)
    back = apply(580)
    assert back.code == 0, back.output
    assert installed(node) == ["580.105.08-1"] * len(PACKAGES)


def test_a_node_without_the_repository_is_told_what_is_missing(node, apply):
    with node.sudo():
        node.check_output("apt-get -qq purge --allow-change-held-packages nvidia-driver-cuda")
        node.check_output(f"mv {SOURCES} {SOURCES}.away; apt-get -qq update")
    try:
        run = apply(580)
    finally:
        with node.sudo():
            node.check_output(f"mv {SOURCES}.away {SOURCES}; apt-get -qq update")
    assert run.code != 0
    assert "has nvidia-driver-cuda, and no package was changed" in run.output
    assert "whether package_repositories has the repository of NVIDIA for this system" in run.output
    assert apply(580).code == 0
