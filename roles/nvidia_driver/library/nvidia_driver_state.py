#!/usr/bin/python
"""Looks at a node's driver: what is loaded, what is installed, and what APT would install."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.loaded_driver import PLACE, loaded
from ansible.module_utils.package_version import begins

DOCUMENTATION = r"""
module: nvidia_driver_state
short_description: Look at a node's NVIDIA driver, and at what APT would install of it
description:
  - It only reads, so it runs in check mode too. It refreshes no lists of packages.
options:
  packages:
    description: >-
      Packages that are wanted; the first has the driver's version. C({kernel}) stands for the
      running kernel's release, C({flavour}) for what the distribution calls its kind.
    type: list
    elements: str
    default: []
  optional:
    description: The same, of packages that are wanted where the archive has them.
    type: list
    elements: str
    default: []
  others:
    description: The same, of packages that the wanted ones replace.
    type: list
    elements: str
    default: []
  kernel:
    description: The same, of the kernel's own packages, which are held with the driver's.
    type: list
    elements: str
    default: []
  kernel_update:
    description: Whether the archive's newest of O(kernel) is wanted, with what belongs to it.
    type: bool
    default: false
  version:
    description: Version that is wanted, or how it begins, as V(580) or V(580.95.05).
    type: str
    default: ""
  modules:
    description: Kernel modules that are wanted, V(open) or V(proprietary); empty without any.
    type: str
    default: ""
  key:
    description: The key that DKMS signs with.
    type: path
    default: /var/lib/dkms/mok.pub
author: The Plumbline authors
"""

EXAMPLES = r"""
- name: Look at the driver
  nvidia_driver_state:
    packages: [nvidia-driver-cuda]
    version: "580"
"""

RETURN = r"""
state:
  description: What was found.
  returned: always
  type: dict
  contains:
    kernel: {type: str, description: release of the running kernel}
    packages: {type: list, elements: str, description: "all that are wanted, for this kernel"}
    installed: {type: dict, description: versions by package}
    candidates: {type: dict, description: what APT would install}
    missing: {type: list, elements: str, description: wanted packages that no archive has}
    change: {type: list, elements: str, description: packages to install or to change}
    others: {type: list, elements: str, description: what is installed and replaced}
    leave: {type: list, elements: str, description: what goes with the changes}
    may_leave:
      description: what else of a driver APT may remove for the changes
      type: list
      elements: str
    hold: {type: list, elements: str, description: what belongs to the driver and nothing holds}
    loaded: {type: str, description: version of the loaded kernel module; empty without one}
    loaded_modules: {type: str, description: open or proprietary}
    module: {type: str, description: version of the module that a boot would load}
    stale: {type: bool, description: whether a boot would load other modules than are loaded}
    stale_because: {type: str, description: "what is loaded and what would be; empty if the same"}
    nouveau: {type: bool, description: whether nouveau is loaded}
    storage: {type: bool, description: whether nvidia_fs (GPUDirect Storage) is loaded}
    secure_boot: {type: bool, description: whether the firmware refuses unsigned modules}
    key_enrolled: {type: bool, description: whether the firmware knows the key that DKMS signs with}
    lists: {type: bool, description: whether APT has lists of packages at all}
"""

LOADED = Path(PLACE)
MODULES = Path("/proc/modules")
SECURE_BOOT = Path("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
LISTS = Path("/var/lib/apt/lists")

# What belongs to a driver beside the packages that are asked for: of its version, and named so.
OURS = re.compile(r"nvidia|libcuda1|cuda-drivers|libnv|firmware-nvidia")
# Canonical's modules for one kernel: linux-modules-nvidia-580-server-open-6.8.0-149-generic.
MODULES_OF = "linux-modules-nvidia-"
PREBUILT = re.compile(MODULES_OF + r".*?-(\d+\.\d+\.\d+-\d+-.+)")
# What a name says of the branch: -580-server at Canonical's, and of NVIDIA's nothing from 590 on.
BRANCH = re.compile(r"-\d{3}(?:-server)?(?=-|$)")

Run = Callable[[list[str]], tuple[int, str]]


def number(version: str) -> str:
    """The driver's version in a package's: 580.95.05 of 1:580.95.05-0ubuntu1; empty for another."""
    match = re.match(r"(?:\d+:)?(\d{3,}\.\d+(?:\.\d+)*)(?=[-+~]|$)", version)
    return match[1] if match else ""


def fits(version: str, wanted: str) -> bool:
    """Whether a package's version is of a branch (580), or is a version (580.95.05)."""
    return bool(wanted) and begins(number(version), wanted)


def flavour(kernel: str, images: Iterable[str]) -> str:
    """What the distribution calls this kernel's kind: amd64, generic, generic-hwe-22.04.

    The release tells it, but for Ubuntu's newer kernels of an older release, which follow a
    metapackage of their own. `images` are the installed packages of kernels.
    """
    match = re.search(r"-([a-z].*)$", kernel)
    if not match:
        return ""
    newer = [name for name in images if name.startswith(f"linux-image-{match[1]}-hwe-")]
    return max(newer).removeprefix("linux-image-") if newer else match[1]


def resolved(names: Iterable[str], kernel: str, kind: str) -> list[str]:
    return [name.replace("{kernel}", kernel).replace("{flavour}", kind) for name in names]


def policy(output: str) -> dict[str, str]:
    """Candidates by package, of what `apt-cache policy NAME…` said."""
    candidates, name = {}, ""
    for line in output.splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        elif line.startswith("  Candidate: ") and not line.endswith("(none)"):
            candidates[name] = line.removeprefix("  Candidate: ")
    return candidates


def packages(output: str) -> tuple[dict[str, str], set[str]]:
    """Versions of what is installed, and the names of what is held, of dpkg-query's lines."""
    versions, held = {}, set()
    for line in output.splitlines():
        status, wanted, name, version = line.split(" ")
        if status == "installed":
            versions[name] = version
            if wanted == "hold":
                held.add(name)
    return versions, held


def change(
    wanted: list[str], version: str, installed: Mapping[str, str], candidates: Mapping[str, str]
) -> list[str]:
    """What is to be installed, or to be of another version.

    A driver of the wanted branch stays as it is: the archive's newer one of that branch is no
    reason to change a running node. But a part that it lacks comes in the archive's version, as
    does what modules for another kernel need, and the rest goes with it. What was installed as a
    dependency goes with the driver, also where the packages themselves would accept another branch.
    """
    if not wanted:
        return []
    has = installed.get(wanted[0], "")
    lacking = [name for name in wanted if name not in installed]
    stays = fits(has, version) and not any(
        name.startswith(MODULES_OF) or number(candidates.get(name, "")) not in ("", number(has))
        for name in lacking
    )
    changes = [
        name
        for name in wanted
        if name not in installed
        or (not stays and installed[name] != candidates.get(name, installed[name]))
        or (name == wanted[0] and not stays)
    ]
    return changes + [
        name
        for name in parts(installed)
        if name not in wanted
        and fits(candidates.get(name, ""), version)
        and not (fits(installed[name], version) and (stays or installed[name] == candidates[name]))
    ]


def parts(installed: Mapping[str, str]) -> list[str]:
    """Installed packages that have a driver's version and are named so."""
    return sorted(name for name, of in installed.items() if OURS.search(name) and number(of))


def with_kernel(
    kernel: Iterable[str],
    wanted: Iterable[str],
    installed: Mapping[str, str],
    candidates: Mapping[str, str],
) -> list[str]:
    """What an update of the kernel changes: its packages, the modules for it, and the driver.

    Empty where the archive has no newer kernel, or not the modules for it yet. The metapackage of
    modules needs the driver that they were built with, and the driver's packages need each other in
    one version.
    """
    newer = [
        name for name in kernel if name in installed and candidates.get(name) != installed[name]
    ]
    modules = [name for name in wanted if name.startswith(MODULES_OF) and not PREBUILT.match(name)]
    offered = {abi(candidates.get(name, "")) for name in [*newer, *modules]}
    if not newer or len(offered) != 1:
        return []
    driver = [*wanted, *(name for name in parts(installed) if name not in wanted)]
    return newer + [
        name
        for name in driver
        if name in installed
        and name in candidates
        and candidates[name] != installed[name]
        and not PREBUILT.match(name)
    ]


def to_hold(
    wanted: list[str], kernel: Iterable[str], installed: Mapping[str, str], held: Iterable[str]
) -> list[str]:
    """What an upgrade could replace: packages of the driver's version, those wanted, the kernel."""
    if not wanted or wanted[0] not in installed:
        return []
    version = number(installed[wanted[0]])
    driver = {name for name in parts(installed) if number(installed[name]) == version}
    named = {name for name in wanted if OURS.search(name)} | {*kernel}
    return sorted((driver | named & set(installed)) - set(held))


def called(name: str) -> str:
    """What a package is called whatever its branch: nvidia-utils of nvidia-utils-580-server."""
    return BRANCH.sub("", name)


def modules_of(name: str) -> str:
    """The driver that modules of Canonical's are for, of whichever kernel; empty for others."""
    match = re.match(MODULES_OF + r"\d{3}(?:-server)?(?:-open)?-", name)
    return match[0] if match else ""


def leave(
    changes: Iterable[str], wanted: Iterable[str], installed: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """What goes with the changes, and what else of a driver APT may remove for them.

    A driver goes of which a package is called otherwise for the wanted branch or source: all that
    has its version. Whether NVIDIA's packages of 590 say that they replace those of before is
    written nowhere, so the role says it. The other kind of modules has a source beside it, which
    APT removes where it has to.
    """
    changes, wanted = set(changes), set(wanted)
    stays = changes | wanted
    if not changes:
        return [], []
    driver = [name for name in parts(installed) if name not in stays]
    modules = [name for name in installed if modules_of(name) and name not in stays]
    names = {called(name) for name in wanted}
    leaving = {number(installed[name]) for name in driver if called(name) in names}
    kinds = {modules_of(name) for name in wanted}
    gone = [name for name in driver if number(installed[name]) in leaving]
    gone += [name for name in modules if modules_of(name) not in kinds]
    return sorted(gone), sorted({*driver, *modules} - {*gone})


def license_modules(text: str) -> str:
    """Kind of the module that a boot would load, of `modinfo --field license`.

    `Dual MIT/GPL` of the open ones (https://github.com/NVIDIA/open-gpu-kernel-modules,
    kernel-open/nvidia/nv.c), `NVIDIA` of the others; empty without one.
    """
    return "open" if "GPL" in text else "proprietary" if "NVIDIA" in text else ""


def release(kernel: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", kernel)]


def abi(version: str) -> tuple[int, ...]:
    """Which kernel a package of this version is for: 6.8.0-149 of 6.8.0-149.149+1."""
    return tuple(release(version)[:4])


def newer_kernel(kernel: str, installed: Iterable[str]) -> str:
    """The newest kernel that has prebuilt modules, if the running one is older than it."""
    kernels = [match[1] for match in map(PREBUILT.fullmatch, installed) if match]
    newest = max(kernels, key=release, default="")
    return newest if newest and release(newest) > release(kernel) else ""


def stale(was: tuple[str, str], comes: tuple[str, str], driver: str, next_kernel: str) -> str:
    """Why only a boot brings what is installed, as a clause; empty where none is due.

    `was` and `comes` are version and kind of the loaded module and of the one that is installed
    for the running kernel; empty words are unknown. Modules of a newer kernel count where those of
    the running one do not suit the installed driver.
    """
    if all(was) and comes[0] and (was[0] != comes[0] or comes[1] not in ("", was[1])):
        return f"{' '.join(was)} is loaded and {' '.join(comes).strip()} is installed"
    if next_kernel and driver and comes[0] != driver:
        return f"the modules of {driver} are for the kernel {next_kernel}"
    return ""


def secure_boot(variable: bytes) -> bool:
    """Of the EFI variable: four bytes of attributes, then 1 where it is on."""
    return len(variable) == 5 and variable[4] == 1


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def look(run: Run, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The node's state; see RETURN."""
    kernel = run(["uname", "--kernel-release"])[1].strip()
    show = "${db:Status-Status} ${db:Status-Want} ${Package} ${Version}\n"
    installed, held = packages(run(["dpkg-query", "--show", f"--showformat={show}"])[1])
    kind = flavour(kernel, installed)
    wanted, optional, others, own = (
        resolved(arguments[option], kernel, kind)
        for option in ("packages", "optional", "others", "kernel")
    )
    relevant = [*wanted, *optional, *own, *parts(installed)] if wanted else []
    candidates = policy(run(["apt-cache", "policy", *relevant])[1]) if relevant else {}
    wanted += [name for name in optional if name in candidates or name in installed]
    version, modules = loaded(read(LOADED).decode(errors="replace"))
    module, license = (
        run(["modinfo", "--field", field, "nvidia"])[1].strip() for field in ("version", "license")
    )
    enrolled = run(["mokutil", "--test-key", arguments["key"]])[1]
    names = {line.split(" ")[0] for line in read(MODULES).decode(errors="replace").splitlines()}
    changes = change(wanted, arguments["version"], installed, candidates)
    if arguments["kernel_update"]:
        update = with_kernel(own, wanted, installed, candidates)
        changes += [name for name in update if name not in changes]
    other = [name for name in others if name in installed]
    gone, may_go = leave(changes, wanted, installed)
    because = stale(
        (version, modules),
        (module, license_modules(license)),
        number(installed.get(wanted[0], "")) if wanted and arguments["modules"] else "",
        newer_kernel(kernel, installed),
    )
    return {
        "kernel": kernel,
        "packages": wanted,
        "installed": {name: installed[name] for name in wanted if name in installed},
        "candidates": candidates,
        "missing": [name for name in wanted if name not in installed and name not in candidates],
        "change": changes,
        "others": other,
        "leave": sorted({*gone, *(other if changes else ())}),
        "may_leave": [name for name in may_go if name not in other],
        "hold": to_hold(wanted, own, installed, held),
        "loaded": version,
        "loaded_modules": modules,
        "module": module,
        "stale": bool(because),
        "stale_because": because,
        "nouveau": "nouveau" in names,
        "storage": "nvidia_fs" in names,
        "secure_boot": secure_boot(read(SECURE_BOOT)),
        "key_enrolled": "is already enrolled" in enrolled,
        "lists": any(LISTS.glob("*_Packages*")),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "default": []},
            "optional": {"type": "list", "elements": "str", "default": []},
            "others": {"type": "list", "elements": "str", "default": []},
            "kernel": {"type": "list", "elements": "str", "default": []},
            "kernel_update": {"type": "bool", "default": False},
            "version": {"type": "str", "default": ""},
            "modules": {"type": "str", "default": ""},
            "key": {"type": "path", "default": "/var/lib/dkms/mok.pub"},
        },
        supports_check_mode=True,
    )

    def run(command: list[str]) -> tuple[int, str]:
        """A command that is missing here has said nothing."""
        status, stdout, _ = module.run_command(
            command, environ_update={"LC_ALL": "C"}, handle_exceptions=False
        )
        return status, stdout

    def careful(command: list[str]) -> tuple[int, str]:
        return run(command) if module.get_bin_path(command[0]) else (127, "")

    module.exit_json(changed=False, state=look(careful, module.params))


if __name__ == "__main__":
    main()
