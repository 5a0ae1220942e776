#!/usr/bin/python
"""Imports container images once, with enroot, into a folder from which all jobs start them.

A file has its name only when it is whole. Its manifest, a hidden file beside it, says what it is;
an image without one is somebody else's. A tag that moved at its registry is told and left alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.container_images_entry import Image, image_of, survey
from ansible.module_utils.download import disk_problem
from ansible.module_utils.image_reference import in_mirror
from ansible.module_utils.published import (
    HEAD,
    PAGE,
    amount,
    bring_pages,
    check_root,
    held,
    is_ours,
    table,
)
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import OWN_FILE, Access, make_folder, surplus, write

DOCUMENTATION = r"""
module: container_images
short_description: Import container images once for all jobs
description:
  - Imports what is declared and not there, and gives it its name when it is whole.
  - Asks registries for the digests of what is there, and tells those that moved. An image is
    replaced only by one whose digest is declared; the earlier one stays beside it.
  - In check mode registries are asked, and nothing is imported.
options:
  root:
    description: The folder of all images.
    type: path
    required: true
  published:
    description: The images; the role's argument specs describe an entry.
    type: list
    elements: dict
    required: true
  mounts:
    description: Paths of filesystems; the one that the root is below must be mounted on this host.
    type: list
    elements: str
    default: []
  command:
    description: What is before C(enroot) on the command line.
    type: list
    elements: str
    default: []
  credentials:
    description: Folder with enroot's file C(.credentials), which only its owner may read.
    type: str
    default: ""
  mirror:
    description: Address of a mirror, http://HOST:PORT, that is asked in place of all registries.
    type: str
    default: ""
author: The Plumbline authors
"""

RETURN = r"""
pending:
  description: Whether something would be done, in check mode.
  type: bool
  returned: success
steps:
  description: What was done, or would be in check mode, a line each.
  type: list
  elements: str
  returned: success
moved:
  description: Tags whose digest at the registry is another one by now, a sentence each.
  type: list
  elements: str
  returned: success
"""

MAGIC = b"hsqs"  # of squashfs
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
OPEN = Access(0o755, os.geteuid(), os.getegid())


@dataclass(frozen=True)
class Settings:
    root: Path
    mounts: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    credentials: str = ""
    mirror: str = ""

    def uri(self, image: Image) -> str:
        """The image as enroot is told to look for it."""
        return f"docker://{in_mirror(image.image, self.mirror) if self.mirror else image.image}"


@dataclass(frozen=True)
class Step:
    """What is done with one image: import, replace, describe or remove."""

    action: str
    image: Image
    text: str


# --- enroot --------------------------------------------------------------------------------------


def enroot(settings: Settings, *arguments: str) -> str:
    """Its standard output. Raises Refused with its last words."""
    environment = {**os.environ}
    if settings.credentials:
        environment["ENROOT_CONFIG_PATH"] = settings.credentials
    if settings.mirror.startswith("http:"):
        environment["ENROOT_ALLOW_HTTP"] = "yes"
    command = [*settings.command, "enroot", *arguments]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, cwd="/"
        )
    except OSError as error:
        raise Refused(
            f"{command[0]} cannot be started on this host ({error.strerror}); install enroot there "
            "(enroot_install), or correct container_images_host or container_images_command"
        ) from None
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise Refused(f"enroot {arguments[0]} failed: {words[-1].rstrip('.')}")
    return done.stdout


def digest_of(image: Image, settings: Settings) -> str:
    """What the registry has under the tag. Raises Refused."""
    said = enroot(settings, "digest", settings.uri(image)).strip().rpartition("\n")[2]
    if not DIGEST.fullmatch(said):
        raise Refused(f"enroot digest gave {said!r}, which is no digest")
    return said


def check_credentials(folder: str) -> None:
    """enroot itself reads the file whatever its mode is."""
    path = Path(folder, ".credentials")
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        return
    if mode & 0o077:
        raise Refused(
            f"{path} has the mode {mode:04o}, and others may read its keys; chmod 600 it, and "
            "replace the keys if somebody may have read them"
        )
    if not os.access(path, os.R_OK):
        raise Refused(
            f"{path} cannot be read by user {os.geteuid()}, who imports; set enroot_ngc_user to "
            "container_images_user"
        )


# --- what is to be done --------------------------------------------------------------------------


def plan(
    wanted: Iterable[Image], unwanted: Iterable[Image], settings: Settings
) -> tuple[list[Step], list[str]]:
    """Steps, and what moved. Raises Refused."""
    there = survey(settings.root)
    steps, moved, problems = [], [], []
    for image in unwanted:
        file = image.file(settings.root)
        if file in there:
            steps.append(Step("remove", there[file], "is removed"))
        elif os.path.lexists(file) and not image.manifest(settings.root).exists():
            problems.append(_foreign(file))
    for image in wanted:
        try:
            step = _step(image, there.get(image.file(settings.root)), settings)
        except Refused as refused:
            problems += [f"{image.title}: {sentence}" for sentence in refused.sentences]
            continue
        steps += [step] if step else []
        if not step or step.action == "describe":
            moved += _moved(image, there[image.file(settings.root)], settings)
    if problems:
        raise Refused(*problems)
    return steps, moved


def _foreign(file: Path) -> str:
    return f"{file} is there and was not imported from a declaration; move it away"


def _step(image: Image, there: Image | None, settings: Settings) -> Step | None:
    if there is None:
        file = image.file(settings.root)
        if os.path.lexists(file) and not image.manifest(settings.root).exists():
            raise Refused(_foreign(file))
        return Step("import", _pinned(image, settings), f"is imported from {image.image}")
    if there.image != image.image:
        raise Refused(
            f"it was imported from {there.image}, and {image.image} is declared; give it another "
            "name, or remove the earlier one with `state: absent` first"
        )
    if image.digest and image.digest != there.digest:
        return Step("replace", _pinned(image, settings), f"is replaced by {image.digest[:19]}")
    same = replace(there, licence=image.licence, description=image.description)
    return Step("describe", same, "gets its new description") if same != there else None


def _pinned(image: Image, settings: Settings) -> Image:
    digest = digest_of(image, settings)
    if image.digest and image.digest != digest:
        raise Refused(
            f"the registry has {digest} for {image.image}, and {image.digest} is declared; look at "
            "what changed, and declare the digest that you want, or none"
        )
    return replace(image, digest=digest)


def _moved(image: Image, there: Image, settings: Settings) -> list[str]:
    """A registry that does not answer is no reason to fail: the image is there."""
    try:
        digest = digest_of(image, settings)
    except Refused as refused:
        return [f"{image.title}: whether it moved is not known: {refused}"]
    if digest == there.digest:
        return []
    return [
        f"{image.title} moved at its registry: it is {digest} now, and {there.digest} of "
        f"{there.date} here; to replace it, declare `digest: {digest}`"
    ]


# --- doing it ------------------------------------------------------------------------------------


def bring(step: Step, settings: Settings, work: Path) -> None:
    """Imports one image by its digest, and names it. Raises Refused, and OSError of the disk."""
    image, root = step.image, settings.root
    part = work / f"{image.name}-{image.tag}.sqsh"
    try:
        enroot(settings, "import", "--output", str(part), f"{settings.uri(image)}@{image.digest}")
        if not part.exists():
            raise Refused("enroot import left no file")
        with part.open("rb") as file:
            if file.read(4) != MAGIC:
                raise Refused("enroot import left a file that is no squashfs image")
            os.fsync(file.fileno())
        OWN_FILE.grant(part)
        file_of = image.file(root)
        make_folder(file_of.parent, OPEN)
        if step.action == "replace":
            # Jobs may have the earlier one open, from other hosts too: it stays, by its digest.
            earlier = survey(root)[file_of]
            kept = replace(earlier, image=f"{earlier.image}.{earlier.digest[7:19]}")
            with suppress(FileExistsError):
                kept.file(root).hardlink_to(file_of)
            write(kept.manifest(root), kept.text(), OWN_FILE)
        done = replace(image, date=time.strftime("%Y-%m-%d"), size=part.stat().st_size)
        write(done.manifest(root), done.text(), OWN_FILE)
        part.replace(file_of)
    except Refused as refused:
        raise Refused(*(f"{image.title}: {sentence}" for sentence in refused.sentences)) from None
    finally:
        part.unlink(missing_ok=True)


def do(step: Step, settings: Settings, work: Path) -> None:
    if step.action in {"import", "replace"}:
        bring(step, settings, work)
    elif step.action == "describe":
        write(step.image.manifest(settings.root), step.image.text(), OWN_FILE)
    else:
        step.image.file(settings.root).unlink()
        step.image.manifest(settings.root).unlink()


def do_all(steps: Iterable[Step], settings: Settings, work: Path) -> None:
    """An image that cannot be had does not keep the others away. Raises Refused, OSError."""
    problems: list[str] = []
    for step in steps:
        try:
            do(step, settings, work)
        except Refused as refused:
            problems += refused.sentences
    if problems:
        raise Refused(*problems)


# --- pages ---------------------------------------------------------------------------------------


def pages(root: Path, images: Iterable[Image]) -> dict[str, str]:
    """Text of each page, by its path below the root."""
    ordered = sorted(images, key=lambda image: (image.name, image.date, image.tag))
    rows = []
    files = {}
    for name, some in groupby(ordered, lambda image: image.name):
        ones = list(some)
        files[f"{name}/{PAGE}"] = _page(root, ones)
        sizes = amount(sum(one.size for one in ones))
        tags = ", ".join(one.tag for one in ones)
        newest = ones[-1]
        rows.append((f"[{name}]({name}/{PAGE})", tags, sizes, newest.licence, newest.description))
    head = ("Image", "Tags", "Size", "Licence", "What it is")
    listed = table(head, rows) if rows else ["There are none yet."]
    files[PAGE] = "\n".join(
        [
            HEAD,
            "# Container images",
            "",
            f"Each is a file `{root}/IMAGE/TAG.sqsh`.",
            "",
            *listed,
            "",
        ]
    )
    return files


def _page(root: Path, ones: Sequence[Image]) -> str:
    newest = ones[-1]
    head = ("File", "Imported from", "Digest", "Size", "Licence", "Imported")
    rows = [
        (
            f"`{one.file(root)}`",
            f"`{one.image}`",
            f"`{one.digest}`",
            amount(one.size),
            one.licence,
            one.date,
        )
        for one in ones
    ]
    return "\n".join(
        [
            HEAD,
            f"# {newest.name}",
            "",
            newest.description,
            "",
            *table(head, rows),
            "",
            "## Use it in a job",
            "",
            "```sh",
            f"srun --gpus=1 --container-image={newest.file(root)} nvidia-smi",
            "```",
            "",
        ]
    )


def write_pages(images: Iterable[Image], root: Path, check_mode: bool) -> list[str]:
    """Brings the pages to what is there; the paths that differ."""
    files = pages(root, images)
    stale = [name for name in surplus(root, files, [f"*/{PAGE}"]) if is_ours(root / name)]
    paths: list[str] = bring_pages(root, files, stale, check_mode)
    return paths


# --- the whole -----------------------------------------------------------------------------------


def run(
    entries: Sequence[Mapping[str, Any]], settings: Settings, check_mode: bool
) -> dict[str, Any]:
    """The module's result. Raises Refused, and OSError of the disk."""
    wanted: list[Image] = []
    unwanted: list[Image] = []
    for entry in entries:
        (unwanted if entry.get("state") == "absent" else wanted).append(image_of(entry))
    check_root(settings.root, settings.mounts, "container_images")
    check_credentials(settings.credentials)
    if check_mode:
        steps, moved = plan(wanted, unwanted, settings)
        changed_pages = write_pages(survey(settings.root).values(), settings.root, check_mode=True)
    else:
        with held(settings.root, "container_images") as work:
            for left in work.glob("*.sqsh"):  # of a run that was killed
                left.unlink()
            steps, moved = plan(wanted, unwanted, settings)
            try:
                do_all(steps, settings, work)
            finally:  # those that came have their pages
                there = survey(settings.root).values()
                changed_pages = write_pages(there, settings.root, check_mode=False)
    lines = [f"{step.image.title} {step.text}" for step in steps]
    return {
        "changed": bool(lines or changed_pages),
        "pending": bool(lines or changed_pages) and check_mode,
        "steps": lines,
        "moved": moved,
        "diff": {"prepared": "".join(f"{line}\n" for line in lines + changed_pages)},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "published": {"type": "list", "elements": "dict", "required": True},
            "mounts": {"type": "list", "elements": "str", "default": []},
            "command": {"type": "list", "elements": "str", "default": []},
            "credentials": {"type": "str", "default": ""},
            "mirror": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    options = module.params
    settings = Settings(
        Path(options["root"]),
        tuple(options["mounts"]),
        tuple(options["command"]),
        options["credentials"],
        options["mirror"],
    )
    try:
        result = run(options["published"], settings, module.check_mode)
    except Refused as problem:
        module.fail_json(msg=f"container_images: {problem}.")
    except OSError as error:
        module.fail_json(
            msg=f"container_images: {error.filename or settings.root}: {disk_problem(error)}; what "
            "was there before is as it was."
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
