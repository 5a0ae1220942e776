"""An image built for real on login1 and brought to the other nodes; what is in it runs.

Not by enroot: unpacked by unsquashfs, and entered by chroot.
"""

import base64
import io
import json
import os
import zipfile
from pathlib import Path

import pytest
import testinfra

from playbooks.plugin_utils import packed

testinfra_hosts = ["ansible://login1"]

IMAGE, UNPACKED = "/srv/images/validation.sqsh", "/var/tmp/unpacked"
STAMP = f"unsquashfs -cat {IMAGE} etc/plumbline-image"
ON_LOGIN1 = "--limit=login1"
# A torch of our own, as far as the probe looks at it.
TORCH = {
    "torch/__init__.py": "",
    "torch/distributed/__init__.py": "",
    "torch/distributed/pipelining.py": "",
    "torch-2.99.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\n",
    "torch-2.99.0.dist-info/WHEEL": (
        "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
    "torch-2.99.0.dist-info/RECORD": "",
}


@pytest.fixture
def root(host):
    def run(command: str) -> str:
        with host.sudo():
            return host.check_output("sh -ec %s", command)

    return run


@pytest.fixture(scope="module")
def unpacked(request):
    """The image's files in a folder, as `enroot create` would have them."""
    host = request.getfixturevalue("host")
    with host.sudo():
        host.check_output(f"rm -rf {UNPACKED}; unsquashfs -no-progress -d {UNPACKED} {IMAGE}")
    yield UNPACKED
    with host.sudo():
        host.check_output(f"rm -rf {UNPACKED}")


def archive(files) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return written.getvalue()


def bring(play, content: bytes, dest: str) -> None:
    copy = {"content": base64.b64encode(content).decode(), "dest": f"{dest}.64", "mode": "0644"}
    command = {"cmd": f"base64 --decode {dest}.64 > {dest}; rm {dest}.64"}
    tasks = [{"ansible.builtin.copy": copy}, {"ansible.builtin.shell": command}]
    assert play(tasks, ON_LOGIN1).code == 0


def test_the_image_is_one_that_every_kernel_reads(root):
    output = root(f"unsquashfs -s {IMAGE}")
    assert "Compression gzip" in output
    listed = root(f"unsquashfs -ll {IMAGE}")
    assert "/usr/bin/python3" in listed
    assert root(f"stat --format='%a %U' {IMAGE}") == "644 root"


def test_containers_of_it_ask_for_gpus(root):
    environment = root(f"unsquashfs -cat {IMAGE} etc/environment").splitlines()
    assert "NVIDIA_VISIBLE_DEVICES=all" in environment
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in environment


def test_nothing_of_the_building_is_in_it_or_left(root):
    listed = root(f"unsquashfs -ll {IMAGE}")
    assert "squashfs-root/wheels" not in listed
    assert "var/lib/apt/lists/deb" not in listed
    assert root("ls -d /var/tmp/site-image.* /srv/images/*.part.* 2>/dev/null | cat") == ""


def test_a_payload_of_the_validation_answers_inside(root, play, unpacked):
    """What a job does in a container of it, but for Slurm and enroot."""
    payloads = packed.own("import validation.payloads.__main__")
    bring(play, archive(payloads), f"{unpacked}/tmp/payloads.zip")
    root(f"mount --types proc proc {unpacked}/proc")
    try:
        answer = root(
            f"chroot {unpacked} env PYTHONPATH=/tmp/payloads.zip "
            """python3 -m validation.payloads node '{"nonce": "of-the-test"}'"""
        )
    finally:
        root(f"umount {unpacked}/proc")
    reply = json.loads(answer.splitlines()[-1])
    assert reply["nonce"] == "of-the-test"
    assert reply["measured"]["hostname"] == "login1"
    assert reply["measured"]["torch_error"] is None


def test_the_other_nodes_have_the_same_image(root):
    inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
    other = testinfra.get_host(f"ansible://gpu1?ansible_inventory={inventory}")
    assert other.check_output(f"sha256sum {IMAGE}") == root(f"sha256sum {IMAGE}")


@pytest.mark.long
def test_a_second_run_does_nothing_and_another_recipe_builds(root, play, unpacked):
    """From a folder, which takes seconds: the stamp is of the recipe."""
    own = {"site_image_rootfs": unpacked, "site_image_torch": "none"}
    before = root(STAMP)
    run = play(None, ON_LOGIN1, **own)
    assert run.code == 0, run.output
    assert root(STAMP) != before
    assert play(None, ON_LOGIN1, **own).changed == 0
    again = play(None, ON_LOGIN1, **own, site_image_serial=2)
    assert (again.code, again.changed) == (0, 1), again.output


@pytest.mark.long
def test_a_tar_is_as_good(root, play, unpacked):
    root(f"tar --create --file=/var/tmp/rootfs.tar --directory={unpacked} .")
    run = play(None, ON_LOGIN1, site_image_rootfs="/var/tmp/rootfs.tar", site_image_torch="none")
    root("rm /var/tmp/rootfs.tar")
    assert run.code == 0, run.output
    assert "/usr/bin/python3" in root(f"unsquashfs -ll {IMAGE}")


def test_an_image_without_torch_does_not_get_the_name(root, play, unpacked):
    before = root(f"sha256sum {IMAGE}")
    run = play(None, ON_LOGIN1, site_image_rootfs=unpacked, site_image_torch="included")
    assert run.code != 0
    assert (
        f"login1 cannot build {IMAGE}: ModuleNotFoundError: No module named 'torch'" in run.output
    )
    assert "the earlier image is still there." in run.output
    assert root(f"sha256sum {IMAGE}") == before
    test_nothing_of_the_building_is_in_it_or_left(root)


@pytest.mark.long
def test_what_fails_without_a_word_is_named_all_the_same(play, unpacked):
    own = {"site_image_rootfs": unpacked, "site_image_torch": "none"}
    run = play(None, ON_LOGIN1, **own, site_image_python="/bin/false")
    assert run.code != 0
    assert f"login1 cannot build {IMAGE}: no error was printed (chroot in line " in run.output
    assert "ended with status 1); the earlier image is still there." in run.output


@pytest.mark.long
def test_wheels_of_a_folder_are_installed_without_an_index(root, play, unpacked):
    root("mkdir -p /var/tmp/wheels")
    bring(play, archive(TORCH), "/var/tmp/wheels/torch-2.99.0-py3-none-any.whl")
    own = {
        "site_image_rootfs": unpacked,
        "site_image_torch": "pip",
        "site_image_wheel_folder": "/var/tmp/wheels",
    }
    run = play(None, ON_LOGIN1, **own, site_image_pip_packages=["torch==2.99.0"])
    assert run.code == 0, run.output
    assert "torch/distributed/pipelining.py" in root(f"unsquashfs -ll {IMAGE}")
    assert root("ls /var/tmp/wheels") == "torch-2.99.0-py3-none-any.whl"  # the site's own stay
    missing = play(None, ON_LOGIN1, **own, site_image_pip_packages=["torch==3.99.0"])
    assert missing.code != 0
    assert "No matching distribution found for torch==3.99.0" in missing.output
    assert root("ls /var/tmp/wheels") == "torch-2.99.0-py3-none-any.whl"


@pytest.mark.long
def test_a_node_that_does_not_reach_the_image_is_told(root, play):
    hidden = [{"ansible.builtin.command": f"mv {IMAGE} {IMAGE}.kept"}]
    back = [{"ansible.builtin.command": f"mv {IMAGE}.kept {IMAGE}"}]
    assert play(hidden, "--limit=gpu1").code == 0
    try:
        run = play(None, "--limit=gpu1", site_image_copy=False)
    finally:
        assert play(back, "--limit=gpu1").code == 0
    assert run.code != 0
    assert f"gpu1 does not have the same {IMAGE} as login1; mount the storage" in run.output


def test_no_image_is_left_on_the_control_node():
    assert not list(Path.home().glob(".ansible/tmp/site-image-*"))
