"""DCGM's packages for a driver, and the rows of what was found."""

import pytest
import yaml

from roles.dcgm.filter_plugins.dcgm import rows
from roles.dcgm.plugin_utils.packages import cuda_major, of_other_drivers, packages
from roles.gpu_exporter.plugin_utils import pairs
from tests.conftest import REPOSITORY

NAMES = packages(580, diagnostics=False)
GOOD = "".join(f"package:{name} 1:4.5.2-1\n" for name in NAMES) + "held 2\nservice active\nengine 8"


@pytest.mark.parametrize(
    ("branch", "major"), [(610, 13), (580, 13), (575, 12), (525, 12), (470, 11), (418, 0), (0, 0)]
)
def test_the_driver_decides_the_cuda(branch, major):
    assert cuda_major(branch) == major


def test_the_names_are_upstreams():
    # As dpkg lists them on a node with DCGM 4.5.2: https://github.com/NVIDIA/DCGM/issues
    parts = ("core", "cuda13", "proprietary", "proprietary-cuda13")
    names = [f"datacenter-gpu-manager-4-{part}" for part in parts]
    assert packages(580, diagnostics=True) == names
    assert packages(0, diagnostics=True) == []
    # Plugins of other drivers are in the way.
    others = set(of_other_drivers(580))
    assert {names[1].replace("13", "12"), names[3].replace("13", "11")} <= others
    assert not others & set(names)


@pytest.mark.parametrize("version", ["", "4.5.2", "4.5.2-1", "1:4.5.2-1"])
def test_what_is_as_declared_passes(version):
    assert [row["verdict"] for row in rows(GOOD, 8, NAMES, version)] == ["PASS"] * 4


@pytest.mark.parametrize(
    ("output", "gpus", "version", "failing"),
    [
        (GOOD, 8, "4.7.0", "version of the packages"),
        (GOOD.replace("cuda13 1:4.5.2-1", "cuda13 1:4.7.0-1"), 8, "", "version of the packages"),
        (GOOD.replace("held 2", "held 1"), 8, "", "packages that are held"),
        (GOOD.replace("active", "failed"), 8, "", "service nvidia-dcgm"),
        (GOOD, 4, "", "GPUs that the host engine sees"),
        (GOOD.replace("engine 8", ""), 8, "", "GPUs that the host engine sees"),
    ],
)
def test_what_is_not_fails(output, gpus, version, failing):
    table = rows(output, gpus, NAMES, version)
    assert [row["what"] for row in table if row["verdict"] == "FAIL"] == [failing]


@pytest.mark.parametrize("version", ["", "4.5.2"])
def test_nothing_found_is_no_pass(version):
    assert [row["verdict"] for row in rows("", 8, NAMES, version)] == ["FAIL"] * 4


def test_without_gpus_it_does_not_apply():
    assert [row["verdict"] for row in rows("", 0, [], "")] == ["SKIP"]


def test_the_default_is_the_newest_that_has_an_exporter():
    """Else the next release of DCGM would break fresh installations that have monitoring."""
    defaults = yaml.safe_load((REPOSITORY / "roles/dcgm/defaults/main.yml").read_text())
    assert defaults["dcgm_version"] == pairs.newest()
    assert pairs.exporter_of(defaults["dcgm_version"])
