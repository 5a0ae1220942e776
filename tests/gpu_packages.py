"""What APT installs on a GPU node of what the roles ask for; APT itself decides.

A `Node` asks the roles' own tables, filters and modules (roles/nvidia_driver, roles/nvidia_fabric,
playbooks/library/exact_packages.py) what to do, and has APT do it with the archives of
tests/gpu_archives. No node, no network and no root is needed.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import jinja2
import yaml
from ansible.module_utils.refused import Refused
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from cluster import gpus
from playbooks.library import exact_packages
from playbooks.module_utils.package_version import begins
from roles.nvidia_driver.library import nvidia_driver_state
from roles.nvidia_driver.plugin_utils import packages
from roles.nvidia_fabric.plugin_utils import software
from tests import apt_archives
from tests.apt_archives import Outcome, System

REPOSITORY = Path(__file__).resolve().parents[1]
DRIVER, FABRIC, RDMA = (
    REPOSITORY / "roles" / role for role in ("nvidia_driver", "nvidia_fabric", "rdma")
)
PREFERENCES = "templates/etc/apt/preferences.d/nvidia-driver.pref.j2"

SYSTEMS = {
    "Debian 12": ("cuda_repo",),
    "Debian 13": ("cuda_repo",),
    "Ubuntu 22": ("cuda_repo", "ubuntu"),
    "Ubuntu 24": ("cuda_repo", "ubuntu"),
}

KINDS = (gpus.OPEN, gpus.PROPRIETARY)
NVIDIA = "cuda_repo"
# As playbooks/plugin_utils/nvidia.py has it where the driver is the distribution's.
BESIDE = "Package: *\nPin: release l=cuda_repo\nPin-Priority: 100\n"

WISH = packages.Wish(
    source=NVIDIA,
    branch=580,
    version="",
    modules="auto",
    kernel_modules=True,
    compute_only=True,
    peermem=False,
    storage=False,
    model="h100_sxm",
    count=8,
)


@cache
def _yaml(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def _trusted(value: Any) -> Any:
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: _trusted(item) for key, item in value.items()}
    return [_trusted(item) for item in value] if isinstance(value, list) else value


def evaluated(expression: str, variables: Mapping[str, Any], facts: Mapping[str, Any]) -> Any:
    """An expression over a file of variables, as Ansible reads it."""
    templar = Templar(
        loader=DataLoader(), variables=_trusted(dict(variables)) | {"ansible_facts": dict(facts)}
    )
    return templar.template(trust_as_template(expression))


@cache
def fabric_table(source: str) -> Any:
    """The rows of a source, in the role's own table."""
    name = "{{ __nvidia_fabric_sources." + source + " }}"
    return evaluated(name, _yaml(FABRIC / "vars/main.yml"), {"architecture": "x86_64"})


def default_branch(system: str) -> int:
    """The branch that a node with GPUs gets where its site says none."""
    distribution, _, version = system.partition(" ")
    facts = {"distribution": distribution, "distribution_major_version": version}
    variables = _yaml(REPOSITORY / "group_vars/all/nvidia_driver.yml")
    variables = variables | {"node_gpus": {"model": "h100_sxm", "count": 8}}
    return int(evaluated("{{ nvidia_driver_branch }}", variables, facts))


@dataclass
class Node:
    """A node that the roles are applied to, one after the other."""

    system: str
    wish: packages.Wish
    machine: System
    kernel: str
    kernel_update: bool = False
    loaded: str = ""
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def choice(self) -> packages.Choice:
        table = _yaml(DRIVER / "vars/main.yml")["__nvidia_driver_table"]
        return packages.choose(table, self.wish, self.system)

    def look(self) -> dict[str, Any]:
        """What the role's module says of the node."""
        choice = self.choice
        arguments = {
            "packages": choice.packages,
            "optional": choice.optional,
            "others": choice.others,
            "kernel": choice.kernel,
            "kernel_update": self.kernel_update,
            "version": choice.version,
            "modules": choice.modules,
            "key": "/nowhere",
        }
        return nvidia_driver_state.look(self._run, arguments)

    def _run(self, command: list[str]) -> tuple[int, str]:
        """A command of the module: APT's and dpkg's are real, the kernel's are not."""
        if command[0] == "uname":
            return 0, f"{self.kernel}\n"
        if command[0] not in ("apt-cache", "dpkg-query"):
            return 127, ""
        done = self.machine.run(*command)
        return done.returncode, done.stdout

    def driver(self, **changes: Any) -> dict[str, Any]:
        """Applies nvidia_driver as its tasks do; returns the state at the end. Raises Refused."""
        self.wish = replace(self.wish, **changes)
        choice = self.choice
        if choice.problems:
            raise Refused(" ".join(choice.problems))
        text = (DRIVER / PREFERENCES).read_text(encoding="utf-8")
        self.machine.prefer(
            "nvidia-driver",
            jinja2.Template(text).render(__nvidia_driver_choice={"version": choice.version}) + "\n",
        )
        state = self.look()
        if state["change"]:
            if state["missing"]:
                raise Refused(f"no archive has {', '.join(state['missing'])}")
            offered = state["candidates"].get(choice.packages[0], "nothing")
            if not begins(nvidia_driver_state.number(offered), choice.version):
                raise Refused(f"the archives have {offered}, not {choice.version}")
            self._bring(
                state["change"],
                remove=state["leave"],
                hold=False,
                versions={name: state["candidates"][name] for name in state["change"]},
                may_go=state["may_leave"],
            )
            state = self.look()
        if state["others"]:
            self._apt("remove", "--allow-change-held-packages", *state["others"])
            state = self.look()
        self.machine.hold(state["hold"])
        return state

    def _apt(self, *command: str) -> None:
        outcome = self.machine.apply(*command)
        self.outcomes.append(outcome)
        if outcome.status:
            raise Refused(outcome.output)

    def fabric(self, *, nvlink5: bool = False) -> None:
        """Applies nvidia_fabric's installation to a node with NVSwitches. Raises Refused."""
        installed = self.machine.installed
        driver = apt_archives.number(installed[self.choice.packages[0]].version)
        needed = software.parts({"switches": not nvlink5, "bridges": nvlink5}, imex=False)
        wanted = software.packages(driver, needed, fabric_table(self.wish.source))
        for name in wanted["pinned"]:
            gone = software.replaced(list(self.machine.installed), name)
            self._bring([name], driver, remove=gone)
        if wanted["free"]:
            self._apt("install", *wanted["free"])

    def rdma(self, source: str, *, perftest: bool = True) -> None:
        """Applies rdma's installation. Raises Refused."""
        variables = _yaml(RDMA / "vars/main.yml")
        variables = variables | {"rdma_source": source, "rdma_perftest": perftest}
        names = evaluated("{{ __rdma_packages }}", variables, {})
        if lacking := [name for name in names if name not in self.machine.installed]:
            self._apt("install", *lacking)

    def _bring(self, *names: Any, **options: Any) -> None:
        """The module exact_packages. Raises Refused."""
        with ExitStack() as stack:
            for name, value in (
                ("run", self._exact),
                ("POLICY", self.machine.root / "policy-rc.d"),
                ("UPDATES", self.machine.root / "dpkg/updates"),
            ):
                stack.enter_context(mock.patch.object(exact_packages, name, value))
            exact_packages.bring(exact_packages.PackageSet(*names, **options), check_mode=False)

    def _exact(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """A command of exact_packages; what would change the node changes what APT reads."""
        if argv[:2] == ("apt-mark", "hold"):
            self.machine.hold(argv[2:])
            return subprocess.CompletedProcess(argv, 0, "", "")
        if argv[:2] == ("apt-get", "update"):
            return subprocess.CompletedProcess(argv, 0, "", "")
        if argv[0] == "apt-get" and "--simulate" not in argv:
            outcome = self.machine.apply(*argv[1:])
            self.outcomes.append(outcome)
            return subprocess.CompletedProcess(argv, outcome.status, outcome.output, "")
        return self.machine.run(*argv)

    def versions(self, *parts: str) -> dict[str, str]:
        """Installed packages with one of these words in their names: name to version."""
        return {
            name: package.version
            for name, package in self.machine.installed.items()
            if any(part in name for part in parts)
        }

    def drivers(self) -> set[str]:
        """The versions of all that belongs to the driver; one, unless something is wrong."""
        found = self.versions("nvidia", "libnv", "cuda").items()
        # Firmware and sources of another branch are in nobody's way, and stay until apt autoremove.
        numbers = {
            nvidia_driver_state.number(version)
            for name, version in found
            if not re.match(r"nvidia-(firmware|kernel-source)-\d", name)
        }
        return numbers - {""}


def archives(system: str, source: str, **changes: Any) -> list[apt_archives.Archive]:
    """The system's own and NVIDIA's, which a node with Canonical's driver has for DCGM.

    `changes` are versions or kernels of another date, of the archive that the driver is from. The
    driver that Ubuntu's archive has beside one of NVIDIA's is left out: its names are others.
    """
    own = "debian" if system.startswith("Debian") else "ubuntu"
    if source == own:
        return [apt_archives.archive(own, system, **changes),
                apt_archives.archive(NVIDIA, system)]  # fmt: skip
    base = apt_archives.archive(own, system, versions=())
    return [base, apt_archives.archive(source, system, **changes)]


def node(
    root: Path, system: str, wish: packages.Wish, machine: System | None = None, **changes: Any
) -> Node:
    """A new node that runs its archive's newest kernel; `machine` is one to begin anew with."""
    has = archives(system, wish.source, **changes)
    machine = machine or System(root, has)
    machine.clear()
    (abi, version), flavour = list(has[0].kernels.items())[-1], has[0].flavour
    names = [f"linux-{kind}-{of}" for kind in ("image", "headers")
             for of in (f"{abi}-{flavour}", flavour)]  # fmt: skip
    names += [name for name in (f"linux-{flavour}",) if (name, version) in machine.known]
    machine.put(*(machine.known[name, version] for name in names))
    if wish.source != NVIDIA:
        machine.prefer("plumbline-cuda", BESIDE)
    return Node(system, wish, machine, f"{abi}-{flavour}")


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """What a branch comes to: the driver's version, kinds of modules, packages of the fabric."""

    branch: int
    driver: str
    modules: Sequence[str]
    switches: Sequence[str]
    nvlink5: Sequence[str]


def rows(root: Path, system: str, source: str) -> Iterator[Row]:
    """A row for each branch that can be installed."""
    machine = System(root, archives(system, source))
    for branch in gpus.branches():
        wish = replace(WISH, source=source, branch=branch)
        kinds = [kind for kind in KINDS if _installs(root, system, wish, machine, kind)]
        if not kinds:
            continue
        fabric = [_fabric(root, system, wish, machine, nvlink5) for nvlink5 in (False, True)]
        (driver,) = Node(system, wish, machine, "").drivers()
        yield Row(branch, driver, kinds, *fabric)


def table(root: Path) -> str:
    """Branches whose packages differ by nothing but the branch share a row."""
    lines = [
        "| System | Source | Branches: driver | Modules | With NVSwitches | With NVLink 5, too |\n",
        "|---|---|---|---|---|---|\n",
    ]
    for system, sources in SYSTEMS.items():
        for source in sources:
            found = rows(root / f"{system}-{source}".replace(" ", "-"), system, source)
            for shape, alike in itertools.groupby(found, _shape):
                branches = ", ".join(_branch(system, one) for one in alike)
                lines.append(f"| {' | '.join((system, source, branches, *shape))} |\n")
    return "".join(lines)


def _branch(system: str, one: Row) -> str:
    default = " (default)" if default_branch(system) == one.branch else ""
    return f"{one.branch}: {one.driver}{default}"


def _shape(one: Row) -> tuple[str, str, str]:
    """The last columns."""
    both = [one.switches, [name for name in one.nvlink5 if name not in one.switches]]
    named = [", ".join(names).replace(f"-{one.branch}", "-BRANCH") for names in both]
    return ", ".join(one.modules), named[0], named[1]


def _installs(root: Path, system: str, wish: packages.Wish, machine: System, kind: str) -> bool:
    try:
        node(root, system, replace(wish, modules=kind), machine).driver()
    except Refused:
        return False
    return True


def _fabric(
    root: Path, system: str, wish: packages.Wish, machine: System, nvlink5: bool
) -> list[str]:
    """The packages that a board with NVSwitches gets beside the driver; or what it is refused."""
    one = node(root, system, wish, machine)
    one.driver()
    before = set(machine.installed)
    try:
        one.fabric(nvlink5=nvlink5)
    except Refused as problem:
        return [f"refused: {problem}"]
    return sorted(set(machine.installed) - before)
