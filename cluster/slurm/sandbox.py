"""What systemd keeps from slurmctld and slurmdbd: the section Service of a drop-in of their units.

Neither needs more than its network, its state and its log. But both start programs that a site
names, which may write anywhere and call sudo or a mailer that is set-group-ID: where one is set,
only the system's own folders are read-only, and what would take sudo away is left out. Many
settings do so by themselves, for a service with a user of its own (systemd.exec(5),
NoNewPrivileges=).

slurmd and slurmstepd need root, and its devices; there is no sandbox for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from cluster.sandbox import SERVICE, service
from cluster.slurm.settings import text

# Keys of slurm.conf and slurmdbd.conf whose value slurmctld or slurmdbd starts. A mailer of the
# system is one as soon as a site names it.
PROGRAMS = (
    "archivescript", "epilogslurmctld", "mailprog", "poweraction", "prologslurmctld",
    "resumefailprogram", "resumeprogram", "slurmctldprimaryoffprog", "slurmctldprimaryonprog",
    "suspendprogram",
)  # fmt: skip
# Plugins that start programs, as any but none of their key, or as one of its values.
STARTING = {
    "burstbuffertype": "",
    "certgentype": "",
    "certmgrtype": "",
    "jobcomptype": "jobcomp/script",
}
# Keys whose value is a file that they write, or a folder.
FILES = (
    "jobcomploc", "logfile", "pidfile", "slurmctldlogfile", "slurmctldpidfile", "slurmschedlogfile",
)  # fmt: skip
FOLDERS = ("archivedir", "statesavelocation")
ARCHIVES = (
    "archiveevents", "archivejobs", "archiveresvs", "archivesteps", "archivesuspend", "archivetxn",
    "archiveusage",
)  # fmt: skip
HOMES = tuple(map(PurePosixPath, ("/home", "/root", "/run/user")))

# What takes no program's rights: mounts alone.
WITH_PROGRAMS = ("PrivateTmp", "ProtectControlGroups", "ProtectHome", "ProtectSystem")
# Of old releases, which are started as root and become slurm.
CAPABILITIES = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETUID"


def sandbox(
    settings: Mapping[str, Any], folders: Iterable[str] = (), site: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The settings of the section Service, by name.

    settings: of slurm.conf or slurmdbd.conf, as the daemon reads them
    folders: what the daemon writes beside what the settings name
    site: takes the place of a setting; ReadWritePaths is added, and an empty value removes
    """
    of = {str(name).lower(): text(value) for name, value in settings.items()}
    written = list(dict.fromkeys([*folders, *_written(of)]))
    programs = any(of.get(name) for name in PROGRAMS) or any(
        value in of.get(name, "") and not of[name].endswith("none")
        for name, value in STARTING.items()
        if of.get(name)
    )
    at_home = any(PurePosixPath(path).is_relative_to(home) for path in written for home in HOMES)
    own: dict[str, Any] = {}
    if programs:
        own = {name: "" for name in SERVICE if name not in WITH_PROGRAMS}
        own |= {"ProtectSystem": "full", "ProtectHome": "read-only"}
    if at_home:
        own["ProtectHome"] = ""
    # Slurm's default for archives is /tmp, which would go with the daemon.
    if not of.get("archivedir") and any(of.get(name) == "yes" for name in ARCHIVES):
        own["PrivateTmp"] = ""
        written.append("/tmp")
    settings = service(written, {**own, **(site or {})}, CAPABILITIES)
    if programs:
        del settings["CapabilityBoundingSet"]
    return settings


def _written(of: Mapping[str, str]) -> Iterator[str]:
    """The folders that settings name; some are names of something else where they are no path."""
    for name in FILES:
        if of.get(name, "").startswith("/"):
            yield str(PurePosixPath(of[name]).parent)
    for name in FOLDERS:
        if of.get(name, "").startswith("/"):
            yield of[name]
