#!/usr/bin/python
"""Has APT read a folder of Slurm's packages on the node itself, and keep Slurm at one version.

The folder takes the place of the one before it only when all of it is there, and its stamp is
written when APT has read it: whatever was interrupted is done again by the next run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.apt_sources import USUAL, sources_folder
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.refused import Refused

DOCUMENTATION = r"""
module: slurm_repository
short_description: Have APT read a folder of Slurm's packages, and keep Slurm at one version
description:
  - Without O(kind) there is no folder, and without O(pattern) APT prefers no version.
options:
  archive:
    description: A tar file on the node with the packages; needed where the folder has another kind.
    type: path
  kind:
    description: What identifies the packages.
    type: str
    default: ""
  pattern:
    description: The version that APT keeps to, as in apt_preferences(5).
    type: str
    default: ""
  source:
    description: The source package whose packages keep to it; SchedMD's packages without one.
    type: str
    default: ""
author: The Plumbline authors
"""

RETURN = r"""
lacking:
  description: Whether O(archive) is needed.
  type: bool
  returned: success
"""

HEADER = "# Managed by Ansible; changes made here are lost.\n"
SOURCE = HEADER + "Types: deb\nURIs: file:{folder}\nSuites: ./\nTrusted: yes\n"
# Above that of any repository, and not so high that APT would go back to an older version.
PIN = HEADER + "Package: {packages}\nPin: version {pattern}\nPin-Priority: 990\n"
SCHEDMDS = "slurm-smd slurm-smd-*"
_CHUNK = 2**20  # bytes


SOURCE_NAME = "slurm-install.sources"


@dataclass(frozen=True)
class Host:
    """Where things are on this host."""

    # The name of the list must not begin as those of package_repositories do, which removes others.
    folder: Path = Path("/var/lib/plumbline/slurm-packages")
    source: Path = USUAL / SOURCE_NAME
    pin: Path = Path("/etc/apt/preferences.d/slurm-install.pref")

    @property
    def stamp(self) -> Path:
        return self.folder / "stamp.json"

    def kind(self) -> str:
        """The kind of the packages that APT reads; "" if none."""
        try:
            return str(json.loads(self.stamp.read_text(encoding="utf-8")).get("kind", ""))
        except (OSError, ValueError, AttributeError):
            return ""


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


# --- the folder -----------------------------------------------------------------------------------


def unpack(archive: Path, folder: Path) -> list[Path]:
    """The packages of an archive, side by side in a folder; nothing else in it comes along."""
    folder.mkdir(parents=True)
    packages = []
    with tarfile.open(archive) as packed:
        for member in packed:
            name = PurePosixPath(member.name).name
            data = packed.extractfile(member) if member.isfile() else None
            if data is None or not name.endswith(".deb"):
                continue
            path = folder / name
            with data, path.open("wb") as file:
                shutil.copyfileobj(data, file, _CHUNK)
            path.chmod(0o644)
            packages.append(path)
    return sorted(packages)


def paragraph(path: Path, control: str, sha256: str) -> str:
    """A package's paragraph in the index."""
    size = path.stat().st_size
    return f"{control.strip()}\nFilename: ./{path.name}\nSize: {size}\nSHA256: {sha256}\n"


def control_of(path: Path) -> str:
    done = subprocess.run(
        ["dpkg-deb", "--field", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(f"{path.name} is no package that dpkg reads: {done.stderr.strip()}")
    return done.stdout


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def release(index: bytes) -> str:
    sha256 = hashlib.sha256(index).hexdigest()
    now = formatdate(usegmt=True)
    head = f"Origin: Plumbline\nLabel: Slurm\nDate: {now}\n"
    return f"{head}SHA256:\n {sha256} {len(index)} Packages\n"


def fill(archive: Path, folder: Path) -> list[str]:
    """Makes a flat repository of an archive of packages; their names. Raises Refused."""
    try:
        packages = unpack(archive, folder)
    except (OSError, tarfile.TarError) as error:
        raise Refused(f"{archive} cannot be unpacked: {error}") from None
    if not packages:
        raise Refused(f"{archive} has no packages")
    index = "\n".join(paragraph(path, control_of(path), digest(path)) for path in packages).encode()
    (folder / "Packages").write_bytes(index)
    (folder / "Release").write_text(release(index), encoding="utf-8")
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return [path.name for path in packages]


def swap(new: Path, folder: Path) -> None:
    """The new folder takes the place of the other."""
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def have_apt_read(source: Path) -> None:
    """Reads this list alone: no mirror is asked for it."""
    done = subprocess.run(
        [
            "apt-get",
            "update",
            f"--option=Dir::Etc::sourcelist={source}",
            "--option=Dir::Etc::sourceparts=/dev/null",
            "--option=APT::Get::List-Cleanup=0",
            "--option=DPkg::Lock::Timeout=600",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Refused(f"APT does not read {source}: {done.stderr.strip().splitlines()[-1]}")


# --- the module -----------------------------------------------------------------------------------


def write(path: Path, content: str, check_mode: bool) -> bool:
    """Whether a file was, or would be, another; an empty one is not there."""
    if text_of(path) == content:
        return False
    if not check_mode:
        if content:
            path.write_text(content, encoding="utf-8")
            path.chmod(0o644)
        else:
            path.unlink()
    return True


def bring(node: Host, archive: Path, kind: str) -> None:
    """Has APT read the packages of an archive. Raises Refused."""
    new = node.folder.with_name(f"{node.folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    node.folder.parent.mkdir(parents=True, exist_ok=True)
    packages = fill(archive, new)
    swap(new, node.folder)
    write(node.source, SOURCE.format(folder=node.folder), False)
    have_apt_read(node.source)
    stamp = {"kind": kind, "packages": packages}
    node.stamp.write_text(json.dumps(stamp, sort_keys=True) + "\n", encoding="utf-8")
    node.stamp.chmod(0o644)


def preference(pattern: str, source: str = "") -> str:
    """The text of the pin; "" without a version to keep to."""
    packages = f"src:{source}" if source else SCHEDMDS
    return PIN.format(packages=packages, pattern=pattern) if pattern else ""


def apply(
    node: Host, archive: Path | None, kind: str, pin: str, check_mode: bool
) -> dict[str, Any]:
    """Changes what differs. Raises Refused."""
    source = SOURCE.format(folder=node.folder) if kind else ""
    lacking = bool(kind) and (node.kind() != kind or text_of(node.source) != source)
    changed = write(node.pin, pin, check_mode)
    if lacking:
        if not check_mode:
            if archive is None:
                raise Refused("archive is empty, and the packages are not here; give it")
            bring(node, archive, kind)
    elif not kind:
        gone = write(node.source, "", check_mode) or node.folder.exists()
        if gone and not check_mode:
            shutil.rmtree(node.folder, ignore_errors=True)
        changed = changed or gone
    return {"changed": changed or lacking, "lacking": lacking}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "archive": {"type": "path"},
            "kind": {"type": "str", "default": ""},
            "pattern": {"type": "str", "default": ""},
            "source": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    archive = Path(params["archive"]) if params["archive"] else None
    try:
        pin = preference(params["pattern"], params["source"])
        host = Host(source=sources_folder() / SOURCE_NAME)
        done = apply(host, archive, params["kind"], pin, module.check_mode)
    except (OSError, Refused) as problem:
        module.fail_json(msg=f"{problem}.")
    module.exit_json(**done)


if __name__ == "__main__":
    main()
