"""Where the packages of a release are, and which of them are pinned."""

from typing import Any

import pytest

from roles.enroot.plugin_utils import release

DIGEST = "0123456789abcdef" * 4
RELEASE: dict[str, Any] = {
    "version": "4.2.1",
    "architecture": "arm64",
    "mirror": "https://github.com/NVIDIA/enroot/releases/download/",
    "packages": ["enroot", "enroot+caps"],
}


def test_addresses_are_upstreams():
    first, second = release.packages(RELEASE, {"4.2.1-arm64-enroot": DIGEST})
    assert first == {
        "name": "enroot",
        "file": "enroot_4.2.1-1_arm64.deb",
        "url": "https://github.com/NVIDIA/enroot/releases/download/v4.2.1/enroot_4.2.1-1_arm64.deb",
        "sha256": DIGEST,
    }
    assert (second["file"], second["sha256"]) == ("enroot+caps_4.2.1-1_arm64.deb", "")


def test_what_is_not_pinned_is_named_with_how_to_pin_it():
    pins = {"4.2.1-arm64-enroot": DIGEST, "4.2.1-amd64-enroot+caps": DIGEST}
    (sentence,) = release.unpinned(RELEASE, pins)
    assert sentence.startswith("enroot_sha256 has no 4.2.1-arm64-enroot+caps; download https://")
    assert "sha256sum enroot+caps_4.2.1-1_arm64.deb prints" in sentence
    assert len(release.unpinned(RELEASE, {})) == 2
    assert release.unpinned({**RELEASE, "packages": ["enroot"]}, pins) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("4.2.1-amd64", DIGEST, "names no package"),
        ("4.2.1-x86_64-enroot", DIGEST, "names no package"),
        ("4.2.1-amd64-enroot-hardened", DIGEST, "names no package"),
        ("4.2.1-amd64-enroot", DIGEST[:-1], "give the 64 hexadecimal digits"),
        ("4.2.1-amd64-enroot", f"sha256:{DIGEST}", "give the 64 hexadecimal digits"),
    ],
)
def test_hashes_that_can_never_fit(key, value, words):
    (sentence,) = release.hash_problems({key: value})
    assert words in sentence
    assert release.hash_problems({"4.2.1-amd64-enroot+caps": DIGEST.upper()}) == []
