#!/usr/bin/python
"""Installs packages that belong together: in one version, held there, in one transaction.

What is installed as asked costs a question to dpkg, and no mirror is asked. Otherwise APT says
first what it would do, and is not let if that takes away what nobody named; then it downloads
everything before it unpacks anything, so that a mirror that fails leaves what was there before.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.package_version import fits
from ansible.module_utils.refused import Refused

DOCUMENTATION = r"""
module: exact_packages
short_description: Install packages together in one version, and hold them
description:
  - Asks APT only when a package is missing or has another version. Recommended packages are not
    installed, and no daemon starts.
options:
  name:
    description: >-
      The packages; all get the same version, unless each says its own, as V(core=1:4.5.2-1).
    type: list
    elements: str
    required: true
  version:
    description: >-
      The version, as V(1:4.5.2-1), or V(4.5.2) for any epoch and revision of it. Empty keeps what
      the first of them has, and is the newest that all have where none is installed.
    type: str
    default: ""
  remove:
    description: Packages that go in the same transaction, where they are installed.
    type: list
    elements: str
    default: []
  may_go:
    description: Packages that APT may remove for these, held ones too, and need not.
    type: list
    elements: str
    default: []
  hold:
    description: Whether APT leaves them alone from then on.
    type: bool
    default: true
  stop:
    description: >-
      Services that must not run while files change. Those that run are stopped when all is
      downloaded and decided, just before dpkg begins.
    type: list
    elements: str
    default: []
  start:
    description: >-
      Which of those that were stopped start again at once, whether the packages came or not.
    type: list
    elements: str
    default: []
  variable:
    description: The variable that names the version; errors say it.
    type: str
    default: ""
author: The Plumbline authors
"""

RETURN = r"""
version:
  description: The version that the packages have, or would have; empty when no repository is known that has it.
  type: str
  returned: success
removed:
  description: Packages with their versions that went, or would go.
  type: list
  elements: str
  returned: success
"""  # noqa: E501 - YAML

# Unattended upgrades hold the lock for minutes.
LOCK_S = 600
LOCK_PAUSE_S = 5
UPDATES = Path("/var/lib/dpkg/updates")
POLICY = Path("/usr/sbin/policy-rc.d")
FORBIDDEN = "#!/bin/sh\n# Managed by Ansible while it installs packages.\nexit 101\n"


@dataclass(frozen=True)
class PackageSet:
    names: Sequence[str]
    version: str = ""
    remove: Sequence[str] = field(default_factory=tuple)
    hold: bool = True
    variable: str = ""
    stop: Sequence[str] = field(default_factory=tuple)
    start: Sequence[str] = field(default_factory=tuple)
    versions: Mapping[str, str] = field(default_factory=dict)  # by name, where each has its own
    may_go: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Done:
    changed: bool
    version: str
    removed: list[str]


# --- versions -------------------------------------------------------------------------------------


def kept(have: Mapping[str, str], wanted: PackageSet) -> str:
    """The version that is installed and wanted, of the first package that has one; "" if none."""
    there = next((have[name] for name in wanted.names if name in have), "")
    return there if not wanted.version or (there and fits(there, wanted.version)) else ""


def chosen(known: Mapping[str, Sequence[str]], wanted: PackageSet, keep: str) -> str:
    """The version for all packages, of those that APT knows (newest first). Raises Refused."""
    common = [
        version
        for version in known[wanted.names[0]]
        if all(version in known[name] for name in wanted.names)
    ]
    target = keep or wanted.version
    for version in common:
        if not target or fits(version, target):
            return version
    lacking = next((name for name in wanted.names if not known[name]), "")
    if lacking:
        raise Refused(
            f"no repository of this node has {lacking}; check the repositories that are configured"
        )
    there = f"there is {', '.join(common)}" if common else "they have no version in common"
    advice = f"; set {wanted.variable} to one of them" if wanted.variable and common else ""
    raise Refused(f"{', '.join(wanted.names)} cannot be had in version {target}: {there}{advice}")


# --- asking dpkg and APT --------------------------------------------------------------------------


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(list(argv), capture_output=True, text=True, check=False, env=environment)


def installed(names: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed and configured."""
    form = "${db:Status-Status} ${Package} ${Version}\\n"
    output = run("dpkg-query", "--show", f"--showformat={form}", *names).stdout
    lines = (line.split() for line in output.splitlines())
    return {line[1]: line[2] for line in lines if line[0] == "installed"}


def held() -> set[str]:
    return set(run("apt-mark", "showhold").stdout.split())


def available(names: Iterable[str]) -> dict[str, list[str]]:
    """The versions that APT knows of each package, newest first."""
    known: dict[str, list[str]] = {name: [] for name in names}
    for line in run("apt-cache", "madison", *known).stdout.splitlines():
        name, version, *_ = (word.strip() for word in line.split("|"))
        if version not in known[name]:
            known[name].append(version)
    return known


def install_command(
    wanted: PackageSet, targets: Mapping[str, str], gone: Iterable[str]
) -> list[str]:
    options = [
        "--yes",
        "--no-install-recommends",
        "--allow-downgrades",
        "--allow-change-held-packages",
        "--option=Dpkg::Options::=--force-confdef",
        "--option=Dpkg::Options::=--force-confold",
        f"--option=DPkg::Lock::Timeout={LOCK_S}",
        "--option=Acquire::Retries=1",
    ]
    if wanted.may_go:
        options.append("--option=APT::Ignore-Hold=true")
    names = [f"{name}={version}" for name, version in targets.items()]
    return ["apt-get", "install", *options, *names, *(f"{name}-" for name in gone)]


def described(targets: Mapping[str, str]) -> str:
    """`core, cuda13 1:4.5.2-1`; a version behind each name where they differ."""
    if len(set(targets.values())) == 1:
        return f"{', '.join(targets)} {next(iter(targets.values()))}"
    return ", ".join(f"{name} {version}" for name, version in targets.items())


def also_gone(simulated: str, gone: Iterable[str]) -> list[str]:
    """The packages that APT would remove though nobody named them."""
    removed = re.findall(r"^Remv (\S+)", simulated, re.MULTILINE)
    return [name for name in removed if name.split(":")[0] not in set(gone)]


# What APT says, in the order in which it counts, and what it means. {0} is the pattern's group.
MEANINGS = (
    (r"Problem executing scripts DPkg::Pre-Invoke '([^']*)'", "`{0}` fails on the node"),
    (
        r"(?:No space left on device|don't have enough free space in (\S+))",
        "the node's disk is full; make room there and run again",
    ),
    (
        r"Failed to fetch (\S+)\s+(404[^\n\[]*)",
        "{0} does not exist ({1}); run again once the mirror is complete, or use another one",
    ),
    (
        r"Failed to fetch (\S+)\s+(Could not (?:connect|resolve)[^\n]*|[^\n]*(?:timed out|"
        r"Connection (?:failed|refused))[^\n]*|Temporary failure[^\n]*|Unable to connect[^\n]*)",
        "{0} cannot be reached: {1}",
    ),
    (
        r"Failed to fetch (\S+)\s+([^\n]*(?:unexpected size|Hash Sum mismatch|Undetermined Error|"
        r"Error reading from server|closed)[^\n]*)",
        "{0} did not arrive completely: {1}; run again, or use another mirror",
    ),
    (r"Failed to fetch (\S+)\s+([^\n]*)", "{0} cannot be had: {1}"),
    (
        r"The following packages have unmet dependencies:\s*([^\n]*)",
        "their dependencies are not available: {0}",
    ),
)


def meaning(output: str) -> str:
    """One sentence of what APT said, without its end."""
    for pattern, sentence in MEANINGS:
        if match := re.search(pattern, output):
            words = [" ".join((group or "").split()).rstrip(".") for group in match.groups()]
            return sentence.format(*words)
    errors = [" ".join(line.split()[1:]) for line in output.splitlines() if line.startswith("E:")]
    return f"apt-get install fails: {errors[-1] if errors else output.strip() or 'it says nothing'}"


@contextmanager
def no_daemon_starts() -> Iterator[None]:
    """No package starts its daemon: its role does, once it is configured.

    A site's own policy stays; one that a run left when it was killed goes.
    """
    ours = not POLICY.exists() or POLICY.read_text(encoding="utf-8") == FORBIDDEN
    if ours:
        POLICY.write_text(FORBIDDEN, encoding="utf-8")
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink(missing_ok=True)


def running(services: Iterable[str]) -> list[str]:
    """Those that run. One that is about to start anew, after it died, is one of them."""
    return [name for name in services if state_of(name) not in ("inactive", "failed")]


@contextmanager
def stopped(services: Sequence[str], start: Sequence[str]) -> Iterator[None]:
    """Those of the services that run do not meanwhile; some of them start again. Raises Refused."""
    active = running(services)
    with started_again([name for name in active if name in start]):
        for name in active:
            done = run("systemctl", "stop", name)
            if done.returncode:
                raise Refused(f"{name} cannot be stopped: {done.stderr.strip()}")
        yield


def stopped_by_apt(services: Sequence[str]) -> list[str]:
    """APT's option to stop services when it has read and decided all, just before dpkg begins.

    An srun waits ten seconds for slurmd, and on a busy node APT alone took longer (12 and 18 s in
    molecule/upgrade, 2026-11-27).
    """
    return [f"--option=DPkg::Pre-Invoke::=systemctl stop {' '.join(services)}"] if services else []


@contextmanager
def started_again(again: Sequence[str]) -> Iterator[None]:
    """Starts services at the end, whatever happened."""
    try:
        yield
    finally:
        # With the unit as the new package has it. Who waits for the daemon says what is wrong.
        if again:
            run("systemctl", "daemon-reload")
            run("systemctl", "start", "--no-block", *again)


def state_of(service: str) -> str:
    shown = run("systemctl", "show", service, "--property=ActiveState", "--value").stdout
    return shown.strip() or "inactive"


def finish_interrupted(wanted: PackageSet) -> None:
    """APT refuses everything after a dpkg that was killed. Raises Refused.

    One that is still at work, for a run that was killed, is waited for.
    """
    command = ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"]
    end = time.monotonic() + LOCK_S
    while any(UPDATES.iterdir()):
        with no_daemon_starts(), stopped(wanted.stop, wanted.start):
            done = run(*command)
        if not done.returncode:
            return
        if "lock" not in done.stderr or time.monotonic() > end:
            said = done.stderr.strip().splitlines() or ["it says nothing"]
            raise Refused(f"an interrupted installation cannot be finished: {said[-1]}")
        time.sleep(LOCK_PAUSE_S)


# --- the module -----------------------------------------------------------------------------------


def named(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Names, and their versions where each has its own. Raises Refused.

    >>> named(["core=1:4.5.2-1", "exporter=4.8.3-1"])
    (['core', 'exporter'], {'core': '1:4.5.2-1', 'exporter': '4.8.3-1'})
    """
    if not words:
        raise Refused("name is empty; give at least one package")
    versions = dict(word.split("=", 1) for word in words if "=" in word)
    if versions and len(versions) < len(words):
        raise Refused(f"name is {', '.join(words)}; give each package a version, or none")
    return list(versions or words), versions


def version_for(wanted: PackageSet, keep: str, check_mode: bool) -> str:
    """The version to install; "" in check mode where its repository is not known yet."""
    known = available(wanted.names)
    try:
        return chosen(known, wanted, keep)
    except Refused:
        if check_mode and not all(known.values()):
            return ""
        if check_mode:
            raise
    # The lists may be older than the version.
    refreshed = run("apt-get", "update", "--option=APT::Update::Error-Mode=any")
    try:
        return chosen(available(wanted.names), wanted, keep)
    except Refused as problem:
        if refreshed.returncode:
            errors = re.findall(r"^E: (.*)", refreshed.stderr, re.MULTILINE)
            raise Refused(
                f"{problem} (the package lists cannot be refreshed: {errors[0] if errors else ''})"
            ) from None
        raise


def install(
    wanted: PackageSet, targets: Mapping[str, str], gone: Sequence[str], check_mode: bool
) -> None:
    """Installs and removes in one transaction; only says whether it could, in check mode."""
    what = described(targets)
    command = install_command(wanted, targets, gone)
    if not check_mode:
        finish_interrupted(wanted)
    simulated = run(*command, "--simulate")
    if simulated.returncode:
        raise Refused(f"{what} cannot be installed: {meaning(simulated.stdout + simulated.stderr)}")
    if others := also_gone(simulated.stdout, [*gone, *wanted.may_go]):
        raise Refused(
            f"{what} cannot be installed beside {', '.join(others)}, which may not be removed; "
            "remove it, or choose another version"
        )
    if check_mode:
        return
    if wanted.stop:
        fetched = run(*command, "--download-only")
        if fetched.returncode:
            raise Refused(f"{what} is not installed: {meaning(fetched.stdout + fetched.stderr)}")
    active = running(wanted.stop)
    with no_daemon_starts(), started_again([name for name in active if name in wanted.start]):
        done = run(*command, *stopped_by_apt(active))
    if done.returncode:
        raise Refused(f"{what} is not installed: {meaning(done.stdout + done.stderr)}")


def bring(wanted: PackageSet, check_mode: bool) -> Done:
    """Has the packages installed, together and held. Raises Refused."""
    have = installed([*wanted.names, *wanted.remove])
    gone = [name for name in wanted.remove if name in have]
    version = keep = "" if wanted.versions else kept(have, wanted)
    targets = wanted.versions or dict.fromkeys(wanted.names, keep)
    changed = bool(gone) or any(not of or have.get(name) != of for name, of in targets.items())
    if changed:
        if not wanted.versions:
            version = version_for(wanted, keep, check_mode)
            targets = dict.fromkeys(wanted.names, version) if version else {}
        if targets:
            install(wanted, targets, gone, check_mode)
    loose = sorted(set(wanted.names) - held()) if wanted.hold else []
    if loose:
        changed = True
        if not check_mode:
            marked = run("apt-mark", "hold", *loose)
            if marked.returncode:
                raise Refused(f"{', '.join(loose)} cannot be held: {marked.stderr.strip()}")
    return Done(changed, version, [f"{name} {have[name]}" for name in gone])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "list", "elements": "str", "required": True},
            "version": {"type": "str", "default": ""},
            "remove": {"type": "list", "elements": "str", "default": []},
            "may_go": {"type": "list", "elements": "str", "default": []},
            "hold": {"type": "bool", "default": True},
            "stop": {"type": "list", "elements": "str", "default": []},
            "start": {"type": "list", "elements": "str", "default": []},
            "variable": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    options = module.params
    try:
        names, versions = named(options["name"])
        wanted = PackageSet(
            names,
            options["version"],
            options["remove"],
            options["hold"],
            options["variable"],
            options["stop"],
            options["start"],
            versions,
            options["may_go"],
        )
        done = bring(wanted, module.check_mode)
    except Refused as problem:
        module.fail_json(msg=f"{problem}.")
    module.exit_json(changed=done.changed, version=done.version, removed=done.removed)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
