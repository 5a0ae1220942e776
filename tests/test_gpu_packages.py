"""What APT would install on GPU nodes, with the relations that the archives' packages have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.refused import Refused

from cluster import gpus
from tests import apt_archives, gpu_packages
from tests.gpu_packages import DRIVER, NVIDIA, SYSTEMS, WISH, Node

PAGE = gpu_packages.REPOSITORY / "docs/reference/gpu-packages.md"
BEGIN, END = "<!-- BEGIN PACKAGES -->\n", "<!-- END PACKAGES -->\n"
EVERYWHERE = [(system, source) for system, sources in SYSTEMS.items() for source in sources]
# Where names or kinds of modules change, and the first and last of a source.
BRANCHES = (550, 560, 580, 590, 610, 615, 620)

UBUNTU = "Ubuntu 24"
LATER = {"6.8.0-149": "6.8.0-149.149", "6.8.0-151": "6.8.0-151.151"}
LATER_DRIVERS = ["580.173.02-0ubuntu0.24.04.1"]


def new(root: Path, system: str, source: str = NVIDIA, **wish: object) -> Node:
    return gpu_packages.node(root, system, replace(WISH, source=source, **wish))  # type: ignore[arg-type]


def has(system: str, source: str, branch: int) -> bool:
    """Whether the archive has the branch, by its own words."""
    versions = apt_archives.archive(source, system).versions
    return any(version.startswith(f"{branch}.") for version in versions)


def whole(node: Node) -> str:
    """The version of the driver, of which all parts are there, in one version and held."""
    (version,) = node.drivers()
    names = set(node.machine.installed)
    for part in ("cfg1", "cuvid|decode", "encode", "persistenced|compute-utils"):
        assert any(word in name for name in names for word in part.split("|")), (part, names)
    assert not node.look()["hold"]
    return version


def modules(node: Node) -> list[str]:
    """The packages of kernel modules that are installed, without those of other kernels."""
    return sorted(
        name
        for name in node.versions("dkms", "linux-modules-nvidia")
        if name != "dkms" and (not name.startswith("linux-modules") or name.endswith(node.kernel))
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("compute_only", [True, False])
@pytest.mark.parametrize(("system", "source"), EVERYWHERE)
def test_a_branch_is_installed_whole_or_refused_before_anything_changes(
    tmp_path: Path, system: str, source: str, compute_only: bool
) -> None:
    machine = new(tmp_path / "machine", system, source).machine
    installed = 0
    for branch in BRANCHES:
        kinds = gpu_packages.KINDS if branch in (580, 610, 615) else gpu_packages.KINDS[:1]
        for kind in kinds:
            wish = replace(
                WISH, source=source, branch=branch, modules=kind, compute_only=compute_only
            )
            node = gpu_packages.node(tmp_path, system, wish, machine)
            before = dict(machine.installed)
            if node.choice.problems or not has(system, source, branch):
                with pytest.raises(Refused):
                    node.driver()
                assert machine.installed == before
                continue
            node.driver()
            installed += 1
            assert whole(node).startswith(f"{branch}.")
            (module,) = modules(node)
            assert ("open" in module) is (kind == gpus.OPEN)
            assert not [name for outcome in node.outcomes for name in outcome.removes]
            assert ("xserver-xorg-core" in machine.installed) is not compute_only
            assert not node.driver()["change"], "a second run changes nothing"
    assert installed


@pytest.mark.sample(3)
@pytest.mark.parametrize(("system", "source"), EVERYWHERE)
def test_the_default_of_every_system_can_be_installed(
    tmp_path: Path, system: str, source: str
) -> None:
    branch = gpu_packages.default_branch(system)
    node = new(tmp_path, system, source, branch=branch)
    node.driver()
    assert whole(node).startswith(f"{branch}.")


@pytest.mark.sample(2)
@pytest.mark.parametrize("nvlink5", [False, True])
@pytest.mark.parametrize(
    ("system", "source", "branch"),
    [("Debian 12", NVIDIA, 570), ("Debian 13", NVIDIA, 595), (UBUNTU, NVIDIA, 570),
     (UBUNTU, NVIDIA, 620), (UBUNTU, "ubuntu", 580)],
)  # fmt: skip
def test_what_nvswitches_need_is_of_the_drivers_version(
    tmp_path: Path, system: str, source: str, branch: int, nvlink5: bool
) -> None:
    node = new(tmp_path, system, source, branch=branch)
    node.driver()
    node.fabric(nvlink5=nvlink5)
    whole(node)  # one version, with the Fabric Manager's
    assert node.versions("nvidia-fabricmanager")
    assert bool(node.versions("nvlsm")) is nvlink5
    # Canonical has no libnvsdm.
    assert bool(node.versions("libnvsdm")) is (nvlink5 and source == NVIDIA)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("system", "source", "branches"),
    [("Debian 12", NVIDIA, (570, 580, 570)), (UBUNTU, NVIDIA, (550, 580, 620)),
     ("Ubuntu 22", NVIDIA, (535, 580)), (UBUNTU, NVIDIA, (570, 595)),
     (UBUNTU, "ubuntu", (550, 580, 595))],
)  # fmt: skip
def test_another_branch_takes_the_fabric_manager_with_it(
    tmp_path: Path, system: str, source: str, branches: tuple[int, ...]
) -> None:
    """HGX boards: a driver without a Fabric Manager of its version is CUDA error 802."""
    node = new(tmp_path, system, source)
    for branch in branches:
        node.driver(branch=branch)
        node.fabric(nvlink5=True)
        assert whole(node).startswith(f"{branch}.")
        assert len(node.versions("nvidia-fabricmanager")) == 1
        assert len(modules(node)) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("compute_only", [True, False])
@pytest.mark.parametrize("kind", gpu_packages.KINDS)
def test_a_branch_is_taken_and_left_again_across_the_change_of_names(
    tmp_path: Path, kind: str, compute_only: bool
) -> None:
    """From 590 on NVIDIA's names for Ubuntu have no branch, and nothing may stay of the other."""
    node = new(tmp_path, UBUNTU, modules=kind, compute_only=compute_only)
    for branch in (580, 595, 570, 610):
        node.driver(branch=branch)
        node.fabric(nvlink5=True)
        assert whole(node).startswith(f"{branch}.")
        found = node.versions("nvidia", "libnv", "cuda").values()
        assert {version.partition(".")[0] for version in found} == {f"{branch}"}
        assert len(modules(node)) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("canonical", "nvidia", "compute_only"),
    [(580, 580, True), (580, 580, False), (550, 595, True), (550, 595, False), (595, 580, True)],
)
def test_another_source_takes_over_whole(
    tmp_path: Path, canonical: int, nvidia: int, compute_only: bool
) -> None:
    node = new(tmp_path, UBUNTU, "ubuntu", branch=canonical, compute_only=compute_only)
    node.machine.offer([apt_archives.archive(name, UBUNTU) for name in ("ubuntu", NVIDIA)])
    for source, branch in (("ubuntu", canonical), (NVIDIA, nvidia), ("ubuntu", canonical)):
        node.machine.prefer("plumbline-cuda", gpu_packages.BESIDE if source == "ubuntu" else "")
        node.driver(source=source, branch=branch)
        node.fabric()
        assert whole(node).startswith(f"{branch}.")
        assert len(modules(node)) == 1
        assert bool(node.versions("-server")) is (source == "ubuntu")


@pytest.mark.parametrize("branch", [580, 595])
def test_the_driver_that_ubuntus_installer_chose_gives_way(tmp_path: Path, branch: int) -> None:
    """Canonical's driver for desktops has the names that NVIDIA's has before 590."""
    node = new(tmp_path, UBUNTU, branch=branch)
    own, archive = gpu_packages.archives(UBUNTU, NVIDIA)
    theirs = apt_archives.archive(NVIDIA, UBUNTU, versions=["580.95.05-0ubuntu0.24.04.1"])
    node.machine.offer([own, theirs])
    parts = ("libnvidia-encode", "nvidia-utils", "nvidia-compute-utils", "nvidia-kernel-common")
    node.machine.apply("install", *(f"{part}-580" for part in parts))
    node.machine.offer([own, archive])
    prebuilt = apt_archives.Package(
        "linux-modules-nvidia-580-open-6.8.0-149-generic",
        "6.8.0-149.149",
        {"depends": ("nvidia-kernel-common-580 (>= 580.95.05)",)},
    )
    node.machine.put(prebuilt)
    node.driver()
    assert whole(node).startswith(f"{branch}.")
    assert len(modules(node)) == 1
    assert prebuilt.name not in node.machine.installed


@pytest.mark.sample(2)
@pytest.mark.parametrize("distribution_first", [True, False])
@pytest.mark.parametrize(
    ("system", "source"), [("Debian 12", NVIDIA), (UBUNTU, NVIDIA), (UBUNTU, "ubuntu")]
)
def test_doca_ofed_takes_the_place_of_the_distributions_libraries(
    tmp_path: Path, system: str, source: str, distribution_first: bool
) -> None:
    """All of them, in one version, and nothing of the driver or the fabric goes for it."""
    node = new(tmp_path, system, source)
    node.driver()
    node.fabric(nvlink5=True)
    if distribution_first:
        node.rdma("distribution")
    before = set(node.machine.installed)
    doca = apt_archives.archive("doca", system)
    node.machine.offer([*gpu_packages.archives(system, source), doca])
    node.rdma("doca_ofed")
    assert before <= set(node.machine.installed)
    libraries = node.versions("rdma-core", "ibverbs", "rdmacm", "infiniband-diags")
    assert len(set(libraries.values())) == 1
    assert "mlnx" in libraries["libibverbs1"]
    assert "mlnx-ofed-kernel-dkms" in node.machine.installed
    assert not node.driver()["change"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_gpudirect_storage_comes_with_the_driver_and_is_held(tmp_path: Path, system: str) -> None:
    """Also on a node that has its driver already, which stays as it is."""
    node = new(tmp_path, system, branch=gpu_packages.default_branch(system))
    node.driver()
    before = whole(node)
    node.driver(storage=True)
    assert (whole(node), bool(node.versions("nvidia-fs-dkms"))) == (before, True)
    assert not [name for outcome in node.outcomes for name in outcome.removes]
    assert not node.driver()["change"], "a second run changes nothing"
    node.driver(branch=610)
    assert (whole(node)[:4], bool(node.versions("nvidia-fs-dkms"))) == ("610.", True)


def updated(node: Node) -> None:
    """Ubuntu's archive gets another kernel, whose modules need a newer driver."""
    node.machine.offer(gpu_packages.archives(UBUNTU, "ubuntu", kernels=LATER,
                                             versions=LATER_DRIVERS))  # fmt: skip


def test_an_update_of_the_system_leaves_no_kernel_without_modules(tmp_path: Path) -> None:
    node = new(tmp_path, UBUNTU, "ubuntu")
    node.driver()
    updated(node)
    for command in (["upgrade", "--with-new-pkgs"], ["dist-upgrade"]):
        outcome = node.machine.simulate(*command)
        assert (outcome.status, outcome.installs, outcome.removes) == (0, {}, []), outcome.output
    assert not node.driver()["change"], "nor does the role change a driver that runs"


def test_kernel_modules_and_driver_are_lifted_together(tmp_path: Path) -> None:
    node = new(tmp_path, UBUNTU, "ubuntu")
    node.driver()
    updated(node)
    node.kernel_update = True
    state = node.driver()
    assert not node.outcomes[-1].removes
    assert whole(node) == "580.173.02"
    assert set(node.versions("linux-image-generic").values()) == {"6.8.0-151.151"}
    assert "linux-modules-nvidia-580-server-open-6.8.0-151-generic" in node.machine.installed
    assert state["stale"], "what runs is of before: a reboot is due"
    assert not node.driver()["change"]
    node.kernel = "6.8.0-151-generic"
    assert (node.driver()["stale"], node.driver()["hold"]) == (False, [])


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("system", "source"), [("Debian 12", NVIDIA), (UBUNTU, NVIDIA), (UBUNTU, "ubuntu")]
)
@pytest.mark.parametrize("branch", [580, 595])
def test_the_other_kind_of_modules_replaces_the_one_that_is_there(
    tmp_path: Path, system: str, source: str, branch: int
) -> None:
    node = new(tmp_path, system, source, branch=branch)
    node.driver(modules=gpus.OPEN)
    for kind in (gpus.PROPRIETARY, gpus.OPEN):
        others = set(modules(node)) | set(node.versions("kernel-source"))
        before = len(node.outcomes)
        node.driver(modules=kind)
        whole(node)
        (module,) = modules(node)
        assert ("open" in module) is (kind == gpus.OPEN)
        gone = {name for outcome in node.outcomes[before:] for name in outcome.removes}
        assert gone - others <= set(node.choice.others) | {
            name for name in gone if name.startswith("linux-modules-nvidia-")
        }


def test_a_part_that_a_node_lacks_comes_with_the_rest_in_one_version(tmp_path: Path) -> None:
    """A node of before, without libnvidia-cfg1, and an archive that has moved on since."""
    node = new(tmp_path, UBUNTU, "ubuntu")
    node.driver()
    lacking = [f"libnvidia-{part}-580-server" for part in ("cfg1", "encode", "decode")]
    node.machine.put(remove=lacking)
    updated(node)
    node.driver()
    assert whole(node) == "580.173.02"
    assert set(node.versions("linux-image-generic").values()) == {"6.8.0-149.149"}


@pytest.mark.long
@pytest.mark.heavy("asks APT of every branch of every source")
def test_the_page_shows_what_apt_installs(tmp_path: Path, golden: object) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    golden(PAGE, before + BEGIN + gpu_packages.table(tmp_path) + END + rest.split(END)[1])  # type: ignore[operator]


def test_every_entry_of_the_archives_says_where_it_is_from() -> None:
    for name, document in apt_archives.documents().items():
        for entry in document["packages"]:
            assert entry.get("source", "https://").startswith("https://"), (name, entry)
            assert "source" in entry or entry.get("reckoned") or "version" in entry, (name, entry)


def test_the_template_of_preferences_is_the_roles() -> None:
    assert (DRIVER / gpu_packages.PREFERENCES).is_file()
