#!/usr/bin/python
"""Upgrades the packages of a node's system, removes none, and leaves alone what others bring."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.refused import Refused

DOCUMENTATION = r"""
module: system_packages
short_description: Upgrade the packages of a system, and remove none
description:
  - Refreshes the lists of packages, and upgrades what APT does not hold. New packages come where an
    upgrade needs them, such as another kernel. Files of configuration stay as they are.
  - Nothing is changed where APT would remove a package, or change one that is to be left alone.
options:
  which:
    description: V(security) are those whose newest version an archive for security has.
    type: str
    choices: [all, security]
    default: all
  left_alone:
    description: Patterns of packages that something else brings.
    type: list
    elements: str
    default: []
author: The Plumbline authors
"""

EXAMPLES = r"""
- name: Upgrade the packages
  system_packages:
    which: security
"""

RETURN = r"""
packages:
  description: What was upgraded or installed, or would be, as C(NAME VERSION).
  returned: success
  type: list
  elements: str
"""

# Unattended upgrades hold the lock for minutes.
LOCK_S = 600
LOCK_PAUSE_S = 5
UPDATES = Path("/var/lib/dpkg/updates")
INST = re.compile(
    r"^Inst (?P<name>\S+)(?P<old> \[[^\]]*\])? \((?P<new>\S+) (?P<origins>.*?)\)", re.M
)
REMV = re.compile(r"^Remv (\S+)", re.M)
OPTIONS = (
    "--yes",
    "--no-remove",
    "--option=Dpkg::Options::=--force-confdef",
    "--option=Dpkg::Options::=--force-confold",
    f"--option=DPkg::Lock::Timeout={LOCK_S}",
    "--option=Acquire::Retries=1",
)


@dataclass(frozen=True)
class Change:
    """A package that APT would install; `upgrade` where another version of it is there."""

    name: str
    version: str
    upgrade: bool
    security: bool


def changes(simulated: str) -> list[Change]:
    """What `apt-get --simulate` says that it would install."""
    return [
        Change(
            match["name"],
            match["new"],
            match["old"] is not None,
            "security" in match["origins"].lower(),
        )
        for match in INST.finditer(simulated)
    ]


def removed(simulated: str) -> list[str]:
    return REMV.findall(simulated)


def meant(found: Iterable[Change], patterns: Sequence[str]) -> list[str]:
    """The packages among them that are to be left alone."""
    return [
        change.name
        for change in found
        if any(fnmatch.fnmatch(change.name.split(":")[0], pattern) for pattern in patterns)
    ]


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "LC_ALL": "C",
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_SUSPEND": "1",  # of Ubuntu, which would ask what to restart
    }
    return subprocess.run(list(argv), capture_output=True, text=True, check=False, env=environment)


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line.removeprefix("E: ") for line in lines if line.startswith("E:")]
    return (errors or lines or ["it says nothing"])[0].strip().rstrip(".")


def finish_interrupted() -> None:
    """APT refuses everything after a dpkg that was killed. Raises Refused."""
    end = time.monotonic() + LOCK_S
    while any(UPDATES.iterdir()):
        done = run("dpkg", "--force-confdef", "--force-confold", "--configure", "-a")
        if not done.returncode:
            return
        if "lock" not in done.stderr or time.monotonic() > end:
            raise Refused(f"an interrupted installation cannot be finished: {last_words(done)}")
        time.sleep(LOCK_PAUSE_S)


def refresh() -> subprocess.CompletedProcess[str]:
    """APT waits for others with packages, and not with the lists of packages."""
    end = time.monotonic() + LOCK_S
    while True:
        done = run("apt-get", "update", "--option=APT::Update::Error-Mode=any")
        locked = done.returncode and "Could not get lock" in done.stderr
        if not locked or time.monotonic() > end:
            return done
        time.sleep(LOCK_PAUSE_S)


def command(which: str, found: Sequence[Change]) -> list[str]:
    """The command that does it; empty where there is nothing to do."""
    if which == "all":
        return ["apt-get", "dist-upgrade", *OPTIONS] if found else []
    names = [f"{c.name}={c.version}" for c in found if c.upgrade and c.security]
    return ["apt-get", "install", "--only-upgrade", *OPTIONS, *names] if names else []


def checked(simulated: subprocess.CompletedProcess[str], left_alone: Sequence[str]) -> list[Change]:
    """What would change. Raises Refused where APT cannot, or may not."""
    if simulated.returncode:
        raise Refused(f"the packages cannot be upgraded: {last_words(simulated)}")
    if gone := removed(simulated.stdout):
        raise Refused(
            f"the upgrade would remove {', '.join(gone)}, and nothing was changed; see `apt-get "
            "dist-upgrade --simulate` on the node, and decide by hand"
        )
    found = changes(simulated.stdout)
    if wrong := meant(found, left_alone):
        raise Refused(
            f"the upgrade would change {', '.join(wrong)}, which the playbooks keep in step with "
            "the cluster, and nothing was changed; playbooks/slurm-cluster.yml has APT hold them"
        )
    return found


def upgrade(which: str, left_alone: Sequence[str], check_mode: bool) -> list[str]:
    """What was upgraded, or would be. Raises Refused."""
    if not check_mode:
        finish_interrupted()
    refreshed = refresh()
    if refreshed.returncode:
        why = last_words(refreshed)
        raise Refused(f"the package lists cannot be refreshed, and nothing was changed: {why}")
    # Without --no-remove, which would not say what it is about.
    simulate = [word for word in OPTIONS if word != "--no-remove"]
    everything = run("apt-get", "dist-upgrade", *simulate, "--simulate")
    if everything.returncode:
        raise Refused(f"the packages cannot be upgraded: {last_words(everything)}")
    argv = command(which, changes(everything.stdout))
    if not argv:
        return []
    simulated = run(*[word for word in argv if word != "--no-remove"], "--simulate")
    found = checked(simulated, left_alone)
    if found and not check_mode:
        done = run(*argv)
        if done.returncode:
            raise Refused(f"the packages were not upgraded: {last_words(done)}")
    return [f"{change.name} {change.version}" for change in found]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "which": {"type": "str", "choices": ["all", "security"], "default": "all"},
            "left_alone": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        packages = upgrade(module.params["which"], module.params["left_alone"], module.check_mode)
    except Refused as problem:
        module.fail_json(msg=f"{problem}.")
    module.exit_json(changed=bool(packages), packages=packages)


if __name__ == "__main__":
    main()
