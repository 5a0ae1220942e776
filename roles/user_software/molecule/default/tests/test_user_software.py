"""What users find, and that nothing is half there after a download of something else."""

import os
from pathlib import Path

import pytest

from tests.role_play import Case

MIRROR = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "mirror/user_software"
HOME = "/opt/nccl/2.99.1-cuda13"
VERSION = f"""import ctypes
version = ctypes.c_int()
ctypes.CDLL('{HOME}/lib/libnccl.so').ncclGetVersion(ctypes.byref(version))
print(version.value)"""


def test_users_have_the_packages(host):
    assert host.package("tree").is_installed
    assert host.check_output("apptainer --version") == "apptainer version 1.4.5"


def test_an_ordinary_user_loads_nccl_and_compiles_with_its_header(host):
    with host.sudo("nobody"):
        assert host.check_output(f'python3 -c "{VERSION}"') == "29901"
        assert "NCCL_MAJOR" in host.file(f"{HOME}/include/nccl.h").content_string
    assert host.check_output("ls -A /opt/nccl") == "2.99.1-cuda13"


@pytest.mark.long
def test_what_is_another_file_or_another_version_gets_no_name(attempts):
    other = {"user_software_nccl_version": "2.99.2"}
    pinned = (MIRROR / "other.sha256").read_text(encoding="utf-8")
    url = "http://127.0.0.1:8098/user_software/other.whl"
    left = "ls /opt/nccl"
    outcomes = attempts(
        [
            Case(
                "wrong",
                {
                    "user_software_nccl_folder": "/opt/nccl-wrong",
                    "user_software_nccl_sha256": "0" * 64,
                },
                mends="ls /opt/nccl-wrong",
            ),
            Case(
                "old",
                {**other, "user_software_nccl_url": url, "user_software_nccl_sha256": pinned},
                mends=left,
            ),
        ]
    )
    outcomes["wrong"].refuses("THESE PACKAGES DO NOT MATCH THE HASHES")
    outcomes["old"].refuses("the library says that it is 2.98.0, not 2.99.2")
    assert outcomes["wrong"].left == ""
    assert outcomes["old"].left == "2.99.1-cuda13"
