"""CDI specifications, made by us after the CDI's own words, and the rows of what was found."""

import pytest

from roles.nvidia_container_toolkit.filter_plugins.nvidia_container_toolkit import rows
from roles.nvidia_container_toolkit.plugin_utils import cdi

SPEC = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/dri/card1}]}
- name: GPU-5a3b4c
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: "1:0"
- name: "1:1"
- name: all
containerEdits:
  mounts: [{hostPath: /usr/lib/libcuda.so.580.95.05}]
"""
NAMES = ["toolkit", "base"]
GOOD = "package:toolkit 1.20.1-1\npackage:base 1.20.1-1\nheld 2\npath active"


def test_devices_and_the_driver_are_what_counts():
    gpu, card = "{path: /dev/nvidia0}", "{path: /dev/dri/card1}"
    turned = SPEC.replace(f"{gpu}, {card}", f"{card}, {gpu}")
    assert turned != SPEC
    assert cdi.same(SPEC, turned)
    socket = "  mounts: [{hostPath: /run/nvidia-persistenced/socket}, "
    assert cdi.same(SPEC, SPEC.replace("  mounts: [", socket))
    assert not cdi.same(SPEC, SPEC.replace("580.95.05", "590.44.01"))
    assert not cdi.same(SPEC, SPEC.replace('- name: "1:1"\n', ""))
    driverless = SPEC.replace("libcuda.so.580.95.05", "libother.so")
    assert not cdi.same(driverless, driverless)


@pytest.mark.parametrize("text", ["", "- a", "just words", "{", "\t", "null"])
def test_what_is_no_specification_is_the_same_as_nothing(text):
    assert not cdi.same(text, text)
    assert not cdi.same(text, SPEC)
    assert cdi.gpus(text) == set()


def test_gpus_count_once_with_their_instances_and_other_names():
    assert cdi.gpus(SPEC) == {0, 1}
    assert cdi.gpus(SPEC.replace("nvidia.com/gpu", "vendor.com/net")) == set()


@pytest.mark.parametrize("version", ["", "1.20.1", "1.20.1-1"])
def test_what_is_as_declared_passes(version):
    table = rows(GOOD, [SPEC, SPEC], 2, NAMES, version)
    assert [row["verdict"] for row in table] == ["PASS"] * 5


@pytest.mark.parametrize(
    ("output", "now", "gpus", "failing"),
    [
        (GOOD.replace("base 1.20.1-1", "base 1.21.0-1"), SPEC, 2, "version of the packages"),
        (GOOD.replace("held 2", "held 1"), SPEC, 2, "packages that are held"),
        (GOOD.replace("active", "inactive"), SPEC, 2, "nvidia-cdi-refresh.path"),
        (GOOD, SPEC, 8, "GPUs in the CDI specification"),
        (GOOD, SPEC.replace("580", "590"), 2, "CDI specification"),
        (GOOD, "", 2, "CDI specification"),
    ],
)
def test_what_is_not_fails(output, now, gpus, failing):
    table = rows(output, [SPEC, now], gpus, NAMES, "")
    assert [row["what"] for row in table if row["verdict"] == "FAIL"] == [failing]


@pytest.mark.parametrize("specs", [[], ["", ""]])
def test_nothing_found_is_no_pass(specs):
    assert [row["verdict"] for row in rows("", specs, 8, NAMES, "")] == ["FAIL"] * 5


def test_without_gpus_it_does_not_apply():
    assert [row["verdict"] for row in rows("", [], 0, NAMES, "")] == ["SKIP"]
