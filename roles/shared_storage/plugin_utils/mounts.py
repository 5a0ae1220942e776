"""Filesystems that a host mounts, or must find mounted, and the units of systemd that do it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from roles.shared_storage.plugin_utils import paths
from roles.shared_storage.plugin_utils.exports import clients_of

Entry = Mapping[str, Any]
Hosts = Sequence[Mapping[str, str]]
NOBODY: Mapping[str, Sequence[str]] = {}

# `hard`: a process waits for a server that is away, and loses nothing. Users' filesystems bring
# neither devices nor rights.
OPTIONS = {
    "nfs": ("vers=4", "proto=tcp", "hard", "timeo=600", "retrans=2", "nosuid", "nodev", "noatime"),
    "glusterfs": ("_netdev", "nosuid", "nodev"),
    "bind": ("bind", "nosuid", "nodev"),
}
_OPPOSITES = {
    "soft": "hard",
    "suid": "nosuid",
    "dev": "nodev",
    "rw": "ro",
    "atime": "noatime",
    "relatime": "noatime",
    "nfsvers": "vers",
}
# Seconds for one mount or unmount. The kernel itself gives up an NFS server after two minutes.
LIMIT = 90


def problems(mounts: Sequence[Entry], exports: Sequence[Entry], hosts: Hosts) -> list[str]:
    """Why mounts cannot be, a sentence each without its end."""
    return list(dict.fromkeys(_problems(mounts, exports, hosts)))


def _problems(mounts: Sequence[Entry], exports: Sequence[Entry], hosts: Hosts) -> Iterator[str]:
    points = [str(mount["path"]) for mount in mounts]
    for path in sorted({path for path in points if points.count(path) > 1}):
        yield f"two mounts are declared at {path}; leave one of the two"
    for mount in mounts:
        path, kind = str(mount["path"]), str(mount["kind"])
        source, where = str(mount.get("source") or ""), f"the mount at {path}"
        if why := paths.problem(path):
            yield f"{where} {why}; mount at a folder of its own, such as /home or /scratch"
        if kind == "external":
            if not mount.get("type"):
                yield f"{where} has no type; set it to what `findmnt -no FSTYPE {path}` says"
            if mount.get("options"):
                yield f"{where} is mounted by something else, which has its options; leave them out"
            continue
        host, _, rest = source.partition(":/")
        if not host or not rest or set(source) & set(" \t\n\\\"'%"):
            yield f"{where} has the source {source!r}; set it to HOST:/PATH"
            continue
        if kind == "nfs":
            yield from _nfs_problems(where, source, exports, hosts)
        for option in map(str, mount.get("options") or []):
            name, _, value = option.partition("=")
            if not option or set(option) & set(" ,\t\n\\\"'%#"):
                yield f"{where} has the option {option!r}; each is one word of its own"
            elif name in ("soft", "softerr", "softreval"):
                yield (
                    f"{where} has the option {option}, with which writes are lost when the server "
                    "is slow; leave it out"
                )
            elif kind == "nfs" and name in ("vers", "nfsvers") and not value.startswith("4"):
                yield f"{where} has the option {option}, and only NFS 4 is for here; leave it out"


def _nfs_problems(where: str, source: str, exports: Sequence[Entry], hosts: Hosts) -> Iterator[str]:
    host, path = _split(source)
    names = {entry["address"]: entry["name"] for entry in hosts}
    server = names.get(host, host)
    if server in names.values():
        there = [str(export["path"]) for export in exports if export["server"] == server]
        if path not in there:
            yield (
                f"{where} is {path} of {server}, which exports {', '.join(there) or 'nothing'}; "
                "set its source to an export, or add one to shared_storage_exports"
            )


def _split(source: str) -> tuple[str, str]:
    host, _, path = source.partition(":/")
    return host.strip("[]"), f"/{path}"


def options_of(mount: Entry, kind: str) -> list[str]:
    """Its options, each kind once; those that it names itself win over the role's."""
    options = [str(option) for option in mount.get("options") or []] if kind != "bind" else []
    kinds = {_kind(option) for option in options}
    return [*(option for option in OPTIONS[kind] if _kind(option) not in kinds), *options]


def _kind(option: str) -> str:
    name = option.partition("=")[0]
    return _OPPOSITES.get(name, name)


def of_host(
    mounts: Sequence[Entry],
    host: str,
    hosts: Hosts,
    exports: Sequence[Entry] = (),
    by_tier: Mapping[str, Sequence[str]] = NOBODY,
) -> list[dict[str, str]]:
    """What a host mounts, in the order of its paths: path, type, source, unit, text.

    What the cluster exports to other hosts alone, it does not.

    A server has its own exports without NFS: at their path, or bound to another. What is mounted
    by something else has no unit.
    """
    address = next((entry["address"] for entry in hosts if entry["name"] == host), host)
    others = set(_exported_to_others(exports, by_tier, host, hosts))
    planned = []
    for mount in sorted(mounts, key=lambda entry: str(entry["path"])):
        path, kind = str(mount["path"]), str(mount["kind"])
        source = str(mount.get("source") or "")
        if kind == "external":
            planned.append({"path": path, "type": str(mount["type"]), "source": source})
            continue
        server, exported = _split(source)
        if kind == "nfs" and server in (host, address):
            if exported != path:
                # The kernel says where a bound folder is from in words of its own.
                text = unit_text(path, "bind", exported, options_of(mount, "bind"))
                planned.append({"path": path, "unit": paths.mount_unit(path), "text": text})
            continue
        folder = PurePosixPath(exported)
        if kind == "nfs" and any(server == s and folder.is_relative_to(p) for s, p in others):
            continue
        text = unit_text(path, kind, source, options_of(mount, kind))
        unit = paths.mount_unit(path)
        planned.append({"path": path, "type": kind, "source": source, "unit": unit, "text": text})
    return planned


def _exported_to_others(
    exports: Sequence[Entry], by_tier: Mapping[str, Sequence[str]], host: str, hosts: Hosts
) -> Iterator[tuple[str, str]]:
    """(name or address of the server, path). A client that is no host may be a network with it."""
    address = {str(entry["name"]): str(entry["address"]) for entry in hosts}
    own = {host, address.get(host, host)}
    for export in exports:
        clients = clients_of(export, by_tier)
        known = all(c in address or c in address.values() for c in clients)
        if not clients or not known or own & set(clients):
            continue
        server = str(export["server"])
        for name in (server, address.get(server, server)):
            yield name, str(export["path"])


def unit_text(path: str, kind: str, source: str, options: Sequence[str]) -> str:
    """A mount unit. A host boots without the filesystem, and its daemons wait for it."""
    remote = kind != "bind"
    needs = (
        "Wants=network-online.target\nAfter=network-online.target\n"
        if remote
        else f"RequiresMountsFor={source}\n"
    )
    return (
        f"[Unit]\nDescription=Shared storage at {path}\n{needs}\n"
        f"[Mount]\nWhat={source}\nWhere={path}\nType={kind if remote else 'none'}\n"
        f"Options={','.join(options)}\nTimeoutSec={LIMIT}\n\n"
        f"[Install]\nWantedBy={'remote' if remote else 'local'}-fs.target\n"
    )


def document(planned: Sequence[Mapping[str, str]], patience: int) -> str:
    """What the program on the host reads."""
    kept = ("path", "type", "source", "unit")
    entries = [{key: entry[key] for key in kept if entry.get(key)} for entry in planned]
    return json.dumps({"patience": patience, "mounts": entries}, indent=2) + "\n"


def host_problems(
    look: str,
    mounts: Sequence[Entry],
    exports: Sequence[Entry],
    host: str,
    hosts: Hosts,
    by_tier: Mapping[str, Sequence[str]] = NOBODY,
) -> list[str]:
    """What is wrong with a host as it is; `look` is what the program said of it, in its last line.

    Before it may be words of sudo, which has the same terminal: that the host's own name is not
    known, where somebody took it out of /etc/hosts. Such a host must be let in, to be put right.
    """
    seen = json.loads(look.strip().splitlines()[-1])
    planned = of_host(mounts, host, hosts, exports, by_tier)
    sentences = []
    if any(entry.get("type") == "nfs" for entry in planned) and not seen["kernel"]["nfs"]:
        sentences.append(f"the kernel of {host} has no NFS client, which is in the module nfsv4")
    if any(export["server"] == host for export in exports) and not seen["kernel"]["nfsd"]:
        sentences.append(f"the kernel of {host} has no NFS server, which is in the module nfsd")
    for entry in planned:
        inside = seen["files"].get(entry["path"])
        if not entry.get("unit") or not inside:
            continue
        if inside["problem"]:
            sentences.append(
                f"whether {host} has files in {entry['path']}, which the mount there would hide, "
                f"is not known: {inside['problem']}"
            )
        elif inside["names"]:
            sentences.append(
                f"{host} has files in {entry['path']} ({inside['names']}), which the mount there "
                "would hide; move them to the filesystem, or away, or mount at another path"
            )
    return sentences


def rows(output: str, planned: Sequence[Mapping[str, str]], host: str) -> list[dict[str, str]]:
    """What each filesystem should be and what it is, in the words of filter_plugins/verify.py."""
    try:
        answer: Mapping[str, Mapping[str, str]] = json.loads(output)
    except ValueError:
        answer = {}
    table = []
    for entry in planned:
        seen = answer.get(entry["path"])
        problem = "not known: the program said nothing" if seen is None else seen["problem"]
        note = f" ({seen['note']})" if seen and seen["note"] else ""
        advice = (
            f"see systemctl status {entry['unit']!r} on {host}"
            if entry.get("unit")
            else f"mount it on {host}; this role does not"
        )
        table.append(
            {
                "component": "shared_storage",
                "what": f"{entry['path']} on {host}",
                "expected": "mounted as declared, and answers",
                "found": problem or f"mounted as declared, and answers{note}",
                "verdict": "FAIL" if problem else "PASS",
                "advice": advice,
            }
        )
    return table
