"""Images of a registry that is a stand-in, as real squashfs files that a user opens."""

import json

import pytest

from tests.role_play import Case

ROOT, LOCAL = "/srv/shared/images", "/var/cache/images"
TOOL = f"{ROOT}/tool/1.sqsh"


@pytest.fixture
def root(host):
    def run(command: str) -> str:
        with host.sudo():
            return host.check_output("sh -ec %s", command)

    return run


def as_user(host, command: str):
    with host.sudo():
        return host.run("runuser --login otto --command %s", command)


@pytest.mark.parametrize("file", [TOOL, f"{ROOT}/busybox/1.37.sqsh", f"{LOCAL}/tool/1.sqsh"])
def test_a_user_opens_an_image_and_cannot_change_it(host, file):
    assert as_user(host, f"unsquashfs -cat {file} bin/tool").stdout == "#!/bin/sh\necho a tool\n"
    assert as_user(host, f"touch {file}").rc != 0
    assert as_user(host, f"touch $(dirname {file})/x").rc != 0


def test_the_one_who_imports_owns_them_and_root_wrote_none(root):
    assert root(f"find {ROOT} ! -user importer") == ""
    assert root(f"find {ROOT} -perm /022") == ""
    assert root(f"ls {ROOT}/.incoming") == "lock"
    assert root(f"ls {LOCAL}") == "tool"


def test_a_user_finds_the_line_for_srun_and_the_digest(host, root):
    page = as_user(host, f"cat {ROOT}/tool/README.md").stdout
    assert f"--container-image={TOOL}" in page
    manifest = json.loads(root(f"cat {ROOT}/tool/.1.json"))
    assert manifest["digest"] in page
    assert (manifest["licence"], manifest["image"]) == ("MIT", "registry.example.org#site/tool:1")
    assert "[busybox](busybox/README.md) | 1.37 |" in as_user(host, f"cat {ROOT}/README.md").stdout


def test_what_a_run_refuses_tells_and_goes_on_with(attempts, root):
    key = "/etc/enroot/.credentials"
    moved = "/srv/registry/busybox:1.37/bin/new"
    cases = [
        Case("key", breaks=f"chmod 644 {key}", mends=f"chmod 600 {key}"),
        Case("login", breaks=f"mv {key} {key}.away", mends=f"mv {key}.away {key}"),
        Case("moved", breaks=f"touch {moved}", mends=f"rm {moved}; ls {ROOT}/busybox"),
        Case("away", {"container_images_command": ["/nowhere"]}),
        Case("again"),
    ]
    outcomes = attempts(cases)
    outcomes["key"].refuses(f"{key} has the mode 0644, and others may read its keys; chmod 600")
    outcomes["login"].passes(changed=False)  # the image is there
    assert "whether it moved is not known" in outcomes["login"].output
    outcomes["moved"].passes(changed=False)
    assert "busybox 1.37 moved at its registry: it is sha256:" in outcomes["moved"].output
    assert outcomes["moved"].left == "1.37.sqsh README.md"
    outcomes["away"].passes(changed=False)
    outcomes["again"].passes(changed=False)
