"""scripts/secrets: how the secrets of a cluster are kept, without a value in sight."""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.cli import CLI
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from playbooks.plugin_utils import kept, known_secrets, rotation, sealing
from playbooks.plugin_utils.site import read_site

ROOT = Path(__file__).resolve().parents[2]
DAY = 24 * 3600
IGNORED = (".gitignore",)
HEADINGS = ("SECRET", "OPENS", "AGE", "KEPT", "GIT", "TO REPLACE IT")


@dataclass(frozen=True, slots=True)
class Kept:
    """A secret's file, as it is kept."""

    path: Path
    sealed: bool
    mode: int
    made: float  # when the value was made, in seconds since 1970
    tracked: bool

    @property
    def of(self) -> str:
        """The secret that it is a value of, be it the next or the previous one."""
        name = self.path.name
        for ending in (rotation.PREVIOUS, rotation.NEXT):
            name = name.removesuffix(ending)
        return name


# --- what there is --------------------------------------------------------------------------------


def folder_of(inventories: Sequence[str]) -> Path:
    """`cluster_secrets` of an inventory. Raises NotKept."""
    for inventory in inventories:
        if "," not in inventory and not Path(inventory).exists():
            raise kept.NotKept(f"there is no inventory {inventory}")
    sources = [
        inventory if "," in inventory else str(Path(inventory).resolve())
        for inventory in inventories
    ]
    context.CLIARGS = ImmutableDict(inventory=sources, extra_vars=())
    loader = DataLoader()
    loader.set_basedir(str(ROOT / "playbooks"))
    try:
        manager = InventoryManager(loader=loader, sources=sources)
        variables = VariableManager(loader=loader, inventory=manager)
        site = read_site(HostVars(manager, variables, loader))
        if not site.names:
            raise kept.NotKept(f"{' and '.join(inventories)} has no host in slurm_cluster")
        return Path(str(site.values.value(site.names[0], "cluster_secrets")))
    except AnsibleError as error:
        raise kept.NotKept(f"the inventory cannot be read: {error}") from None


def kept_in(folder: Path) -> list[Kept]:
    """All secrets of a folder. Raises NotKept."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise kept.NotKept(
            f"{folder} cannot be read: {error.strerror}; the first run of slurm-cluster.yml makes "
            "it"
        ) from None
    tracked = _tracked(folder)
    result = []
    for path in paths:
        if path.name in IGNORED:
            continue
        try:
            with path.open("rb") as file:
                sealed = sealing.is_sealed(file.read(64))
            status = path.stat()
        except OSError as error:
            raise kept.NotKept(f"{path} cannot be read: {error.strerror}") from None
        mode = status.st_mode & 0o777
        result.append(Kept(path, sealed, mode, status.st_mtime, path.name in tracked))
    return result


def _tracked(folder: Path) -> set[str]:
    """Names in the folder that git tracks, as plain text or not."""
    command = ("git", "-C", str(folder), "ls-files", "-z", "--", ".")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return set()  # no git
    return {name for name in done.stdout.split("\0") if name}


def problems(secret: Kept) -> Iterator[str]:
    """What is wrong with how a secret is kept, as sentences without their end."""
    if secret.tracked and not secret.sealed:
        yield (
            f"git tracks {secret.path} as plain text: run `git rm --cached {secret.path}` and "
            "replace the secret, since its value stays in the history"
        )
    if not secret.sealed and secret.mode not in kept.PRIVATE:
        yield (
            f"{secret.path} has mode {secret.mode:04o}, and others can read it; "
            f"chmod 0600 {secret.path}"
        )
    if secret.path.name.endswith(sealing.NEW):
        yield f"{secret.path} was left by a run that was killed; remove it"
    if secret.path.name.endswith(rotation.PREVIOUS):
        yield (
            f"the replacement of {secret.of} is not complete: run `{replaced_by(secret.of)}` again"
        )


def replaced_by(name: str) -> str:
    known = known_secrets.SECRETS.get(name)
    if known is None or not known.kind:
        return "-"
    return f"playbooks/rotate-secrets.yml -e rotate={known.kind}"


def age(seconds: float) -> str:
    days = int(seconds // DAY)
    if days >= 1:
        return "1 day" if days == 1 else f"{days} days"
    hours = int(seconds // 3600)
    return "1 hour" if hours == 1 else f"{hours} hours" if hours else "under an hour"


def row(secret: Kept, now: float) -> tuple[str, ...]:
    known = known_secrets.SECRETS.get(secret.path.name)
    return (
        secret.path.name,
        known.opens if known else "a value of before" if secret.of != secret.path.name else "?",
        age(now - secret.made),
        "vault" if secret.sealed else f"plain, {secret.mode:04o}",
        "tracked" if secret.tracked else "-",
        replaced_by(secret.path.name),
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    lines = ("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in (HEADINGS, *rows))
    return "\n".join(lines)


# --- how it is kept -------------------------------------------------------------------------------


def passwords(file: str | None) -> sealing.Passwords:
    """The vault passwords of a file, or those that Ansible's settings name. Raises NotKept."""
    loader = DataLoader()
    settings: Any = constants  # which makes its names as it is loaded
    try:
        found = CLI.setup_vault_secrets(
            loader,
            # What is named here is meant; the settings' own would otherwise come first.
            vault_ids=[] if file else list(settings.DEFAULT_VAULT_IDENTITY_LIST),
            vault_password_files=[file] if file else [],
            ask_vault_pass=False,
            auto_prompt=False,
            initialize_context=False,
        )
    except AnsibleError as error:
        raise kept.NotKept(f"the vault password cannot be read: {error}") from None
    if file:
        found = found[:1]
    if not found:
        raise kept.NotKept(
            "there is no vault password; add --vault-password-file FILE, or set "
            "ANSIBLE_VAULT_PASSWORD_FILE"
        )
    return list(found)


def encrypt(secret: Kept, known: sealing.Passwords) -> bool:
    if secret.sealed:
        sealing.opened(secret.path.read_bytes(), secret.path, known)  # or a wrong one goes unseen
        return False
    sealing.put(secret.path, sealing.sealed(secret.path.read_bytes(), known), secret.path)
    return True


def decrypt(secret: Kept, known: sealing.Passwords) -> bool:
    if not secret.sealed:
        return False
    if secret.tracked:
        raise kept.NotKept(
            f"git tracks {secret.path}, and would take its value; run `git rm --cached "
            f"{secret.path}` first"
        )
    plain = sealing.opened(secret.path.read_bytes(), secret.path, known)
    sealing.put(secret.path, plain, secret.path)
    return True


def rekey(secret: Kept, old: sealing.Passwords, new: sealing.Passwords) -> bool:
    """False for a file that an interrupted run has done, and for one that is in no vault."""
    if not secret.sealed:
        return False
    data = secret.path.read_bytes()
    try:
        sealing.opened(data, secret.path, new)
        return False
    except kept.NotKept:
        plain = sealing.opened(data, secret.path, old)
    sealing.put(secret.path, sealing.sealed(plain, new), secret.path)
    return True


def run(arguments: argparse.Namespace) -> int:
    """Raises NotKept."""
    init_plugin_loader()  # once in a process
    folder = folder_of(arguments.inventory)
    secrets = kept_in(folder)
    if arguments.verb == "list":
        return show(folder, secrets, time.time())
    by_name = {secret.path.name: secret for secret in secrets}
    if unknown := [name for name in arguments.names if name not in by_name]:
        raise kept.NotKept(
            f"{folder} has no {unknown[0]}; it has {', '.join(by_name) or 'nothing'}"
        )
    meant = [by_name[name] for name in arguments.names or by_name]
    known = passwords(arguments.vault_password_file)
    new = passwords(arguments.new_vault_password_file) if arguments.verb == "rekey" else []
    done = 0
    for secret in meant:
        if arguments.verb == "encrypt":
            changed = encrypt(secret, known)
        elif arguments.verb == "decrypt":
            changed = decrypt(secret, known)
        else:
            changed = rekey(secret, known, new)
        done += changed
        if changed:
            print(f"{secret.path}: {arguments.verb}ed")
    print(f"{done} of {len(meant)} files changed in {folder}.")
    return 0


def show(folder: Path, secrets: Sequence[Kept], now: float) -> int:
    print(f"{folder}\n")
    if not secrets:
        raise kept.NotKept(f"{folder} has no secret; the first run of slurm-cluster.yml makes them")
    print(table([row(secret, now) for secret in secrets]))
    wrong = [problem for secret in secrets for problem in problems(secret)]
    for problem in wrong:
        print(f"\n{problem[0].upper()}{problem[1:]}.")
    return 1 if wrong else 0
