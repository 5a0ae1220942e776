"""enroot.conf: what enroot reads of it."""

import pytest

from roles.enroot.plugin_utils import settings


def test_a_sites_settings_win_and_empty_ones_are_upstreams():
    own = {"ENROOT_MOUNT_HOME": False, "ENROOT_TEMP_PATH": "/tmp", "ENROOT_A": 1}
    site = {"ENROOT_MOUNT_HOME": True, "ENROOT_A": "", "https_proxy": "http://p:3128"}
    assert settings.composed(own, site) == {
        "ENROOT_MOUNT_HOME": "yes",
        "ENROOT_TEMP_PATH": "/tmp",
        "https_proxy": "http://p:3128",
    }
    assert settings.composed({"ENROOT_MOUNT_HOME": False}, {}) == {"ENROOT_MOUNT_HOME": "no"}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MOUNT_HOME", "yes", "has MOUNT_HOME, which enroot does not read"),
        ("ENROOT_mount", "yes", "which enroot does not read"),
        ("ENROOT_A", "a\nENROOT_B b", "no plain text for ENROOT_A"),
        ("ENROOT_A", ["a"], "no plain text for ENROOT_A"),
    ],
)
def test_what_enroot_would_leave_out(name, value, words):
    (sentence,) = settings.problems({name: value})
    assert words in sentence
    assert settings.problems({"MELLANOX_VISIBLE_DEVICES": "all", "no_proxy": "x"}) == []
