"""What is set is refused in one sentence where nothing could come of it."""

from typing import Any

import pytest

from roles.slurm_install.plugin_utils import install as m

SHA256 = "e1a5547edd212c38b5e3230a284133f777b32746551f094aaa81cc4af375e332"
NOTHING = dict.fromkeys(("version", "repository", "folder", "url", "sha256"), "")
DISTRO: dict[str, Any] = {"method": "distro", "repositories": ["site"], "options": [], **NOTHING}
TARBALL = "https://mirror.example.org/slurm-24.11.5.tar.bz2"
BUILD = DISTRO | {"method": "build", "url": TARBALL, "sha256": SHA256}
PACKAGES = DISTRO | {"method": "packages", "repository": "site", "version": "25.11.2"}


@pytest.mark.parametrize(
    "settings",
    [
        DISTRO,
        BUILD,
        BUILD | {"options": ["--with-nvml=/usr/local/cuda-12.9", "--without-rpath"]},
        BUILD | {"url": "file:///srv/slurm-wlm_24.11.5.orig.tar.gz"},
        BUILD | {"url": "https://mirror.example.org/latest.tar.gz", "version": "24.11.5"},
        PACKAGES,
        DISTRO | {"method": "packages", "folder": "/srv/debs"},
    ],
)
def test_what_can_work_is_not_refused(settings):
    assert m.problems(settings) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (DISTRO | {"method": "rpm"}, "slurm_install_method is rpm; set it to one of distro"),
        (BUILD | {"url": ""}, "slurm_install_url is empty"),
        (BUILD | {"sha256": ""}, "slurm_install_sha256 is empty, which is no SHA-256"),
        (BUILD | {"sha256": SHA256[:-1]}, "which is no SHA-256; set it to what `curl"),
        (BUILD | {"sha256": SHA256.upper()}, "which is no SHA-256"),
        (BUILD | {"url": "https://mirror.example.org/slurm.tar.gz"}, "does not say a version"),
        (BUILD | {"url": "https://site/slurm-22.05.8.tar.bz2"}, "Slurm 22.05.8 cannot be built:"),
        (BUILD | {"options": ["--with-nvml; reboot"]}, "which is no option of configure"),
        (BUILD | {"options": ["CFLAGS=-O3"]}, "which is no option of configure"),
        (PACKAGES | {"repository": ""}, "neither slurm_install_repository nor"),
        (PACKAGES | {"folder": "/srv"}, "both slurm_install_repository and slurm_install_folder"),
        (PACKAGES | {"repository": "sites"}, "the hosts have no such repository (site)"),
        (PACKAGES | {"version": ""}, "slurm_install_version is empty; say which version"),
        (PACKAGES | {"version": "newest"}, "slurm_install_version is newest, which is no version"),
    ],
)
def test_what_cannot_is_one_sentence(settings, words):
    (sentence,) = m.problems(settings)
    assert words in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("url", "version"),
    [
        ("https://mirror.example.org/slurm/slurm-24.11.5.tar.bz2", "24.11.5"),
        ("https://mirror.example.org/archive/slurm-24-11-5-1.tar.gz", "24.11.5"),
        ("file:///srv/slurm-wlm_26.05.5.orig.tar.gz", "26.05.5"),
        ("https://mirror.example.org/24.11.5/slurm.tar.gz", ""),
    ],
)
def test_the_name_of_a_tarball_says_its_version(url, version):
    assert m.wanted_version(BUILD | {"url": url}) == version


LISTING = """\
slurm-smd_24.11.5-1_amd64.deb 5000 1
slurm-smd-client_24.11.5-1_amd64.deb 900 1
slurm-smd-torque_24.11.5-1_all.deb 90 1
"""


def test_a_folder_says_its_version():
    contents = m.folder(LISTING, "x86_64")
    assert (contents["version"], contents["wrong"], len(contents["files"])) == ("24.11.5-1", "", 3)


def test_another_file_is_another_kind():
    assert m.folder(LISTING, "x86_64") == m.folder(LISTING, "x86_64")
    newer = LISTING.replace("900 1", "900 2")
    assert m.folder(newer, "x86_64")["kind"] != m.folder(LISTING, "x86_64")["kind"]


MIXED = LISTING + "slurm-smd-dev_25.05.1-1_amd64.deb 1 1\n"


@pytest.mark.parametrize(
    ("listing", "machine", "words"),
    [
        ("", "x86_64", "has no slurm-smd_VERSION_amd64.deb"),
        (LISTING, "aarch64", "has no slurm-smd_VERSION_arm64.deb"),
        (MIXED, "x86_64", "has packages of 24.11.5-1 and 25.05.1-1;"),
    ],
)
def test_a_folder_that_cannot_work_says_why(listing, machine, words):
    assert words in m.folder(listing, machine)["wrong"]


def test_one_host_of_each_kind_builds():
    hosts = [("gpu1", "a", True), ("gpu2", "a", True), ("login1", "b", True), ("ctl1", "c", False)]
    assert m.builders(hosts) == {"a": "gpu1", "b": "login1"}
    assert m.builders(hosts, "gpu2") == {"a": "gpu2", "b": "login1"}
    assert m.builders(hosts, "ctl1") == {"a": "gpu1", "b": "login1"}
