"""What a host has to say about its security, as root sees it. Reads; writes nothing.

One program for all questions, so that a host is asked once. It judges nothing: what an answer means
is for the control node to say (playbooks/plugin_utils/security_items.py). Secrets do not leave the
host: of a key there is a digest with a salt of this run alone, by which keys can be compared.

A question that fails is named in `errors` with a sentence, and has no answer.
"""

from __future__ import annotations

import glob
import grp
import gzip
import hashlib
import http.client
import json
import os
import pwd
import re
import socket
import ssl
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.processes import CommandFailed, run

LIMIT_S = 20.0  # for each program that is asked
WEB_S = 5.0
SHORT_S = 2.1  # until a credential of one second has expired
JOURNAL = "-15min"  # how far back the line of this run is looked for
LIMITS = Path("/etc/security/limits.conf")
MUNGE_KEY = Path("/etc/munge/munge.key")
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
OS_RELEASE = Path("/etc/os-release")
# Whoever is in one of these is root, or can become it.
GROUPS = ("sudo", "wheel", "admin", "docker", "disk", "shadow")
UNIT_PROPERTIES = ("NoNewPrivileges", "ProtectSystem", "PrivateTmp", "ActiveState")

# What makes APT install without a signature: a setting, a line of a list, a field of .sources.
LOOSE_SETTING = (
    r'^((?:Acquire::AllowInsecureRepositories|APT::Get::AllowUnauthenticated) "(?:true|1|yes)")'
)
LOOSE_SOURCE = (
    r"^\s*deb(?:-src)?\s+\[[^]]*\b(?:trusted|allow-insecure)=(?:yes|true)"
    r"|^(?:Trusted|Allow-Insecure):\s*yes"
)

Request = Mapping[str, Any]
Answer = Any


def ask(request: Request) -> dict[str, Any]:
    """All answers. `request` has

    salt      for digests
    run       the line by which this run is known in the journal
    paths     patterns of files
    sysctls   names of settings of the kernel
    munge_hole  what a changelog of munge names where it is closed
    web       what may answer on a port: [port, path]
    units     names of services
    packages  packages whose versions are asked
    controller, compute, database  what the host is
    """
    facts: dict[str, Answer] = {}
    errors: dict[str, str] = {}
    for name, question in QUESTIONS.items():
        try:
            facts[name] = question(request)
        except (CommandFailed, OSError, ValueError, KeyError, LookupError) as error:
            errors[name] = f"{error}"
    return {"facts": facts, "errors": errors}


# --- files ---------------------------------------------------------------------------------------


def files(request: Request) -> list[dict[str, Any]]:
    paths = {path for pattern in request["paths"] for path in glob.glob(pattern)}
    return [status(Path(path)) for path in sorted(paths)]


def status(path: Path) -> dict[str, Any]:
    """Owner and mode of what the name leads to, and who else than root could replace it."""
    found = path.stat()
    kind = "folder" if stat.S_ISDIR(found.st_mode) else "file"
    return {
        "path": str(path),
        "kind": "link" if path.is_symlink() else kind,
        "owner": user(found.st_uid),
        "group": group(found.st_gid),
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "writers": writers(path),
    }


def writers(path: Path) -> list[str]:
    """Owners, other than root, of the folders above it; `*` where a group or all may write."""
    found = set()
    for folder in path.parents:
        status_ = folder.stat()
        if status_.st_uid != 0:
            found.add(user(status_.st_uid))
        if status_.st_mode & 0o022 and not status_.st_mode & stat.S_ISVTX:
            found.add("*")
    return sorted(found)


def user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


# --- MUNGE ---------------------------------------------------------------------------------------


def munge(request: Request) -> dict[str, Any] | None:
    if not MUNGE_KEY.exists():
        return None
    content = MUNGE_KEY.read_bytes()
    return {
        "digest": hashlib.sha256(request["salt"].encode() + content).hexdigest(),
        "bytes": len(content),
        # What somebody typed, or a program derived from it: random bytes are no text.
        "text": all(32 <= byte < 127 or byte in b"\n\r\t" for byte in content),
    }


def munge_version(request: Request) -> dict[str, Any] | None:
    """The package's version, and whether its changelog names the hole that lets the key out."""
    asked = run(["dpkg-query", "-W", "-f", "${Version}", "munge"], LIMIT_S, any_status=True)
    if asked.status != 0:
        return None
    text = ""
    for path in Path("/usr/share/doc/munge").glob("changelog.Debian.gz"):
        text = gzip.decompress(path.read_bytes()).decode(errors="replace")
    return {"version": asked.stdout.strip(), "changelog": text and request["munge_hole"] in text}


def replay(request: Request) -> dict[str, str] | None:
    """A credential of this moment, shown to munged twice; and one whose end has come."""
    if not MUNGE_KEY.exists():
        return None
    del request
    short = run(["munge", "--no-input", "--ttl=1"], LIMIT_S).stdout
    credential = run(["munge", "--no-input"], LIMIT_S).stdout

    def shown(text: str) -> str:
        done = run(["unmunge"], LIMIT_S, stdin=text.encode(), any_status=True)
        said = re.search(r"^STATUS:\s+(.*?)\s*\(", done.stdout, re.MULTILINE)
        return said[1] if said else (done.stderr.strip() or "no answer")

    answers = {"first": shown(credential), "second": shown(credential)}
    time.sleep(SHORT_S)
    return {**answers, "late": shown(short)}


# --- SSH, sudo, accounts -------------------------------------------------------------------------


def sshd(request: Request) -> dict[str, str] | None:
    """Its settings for root who comes from elsewhere; None without sshd."""
    del request
    if not Path("/usr/sbin/sshd").exists():
        return None
    whom = "user=root,host=elsewhere.invalid,addr=198.51.100.1"
    shown = run(["/usr/sbin/sshd", "-T", "-C", whom], LIMIT_S).stdout
    return dict(line.partition(" ")[::2] for line in shown.splitlines())


def pam_sshd(request: Request) -> list[str]:
    """The lines that count, with single spaces."""
    del request
    lines = (" ".join(line.split()) for line in Path("/etc/pam.d/sshd").read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def privileged(request: Request) -> dict[str, list[str]]:
    """Who is in a group that leads to root, and whom sudo's own files name."""
    del request
    named: dict[str, list[str]] = {}
    for name in GROUPS:
        try:
            entry = grp.getgrnam(name)
        except KeyError:
            continue
        own = [one.pw_name for one in pwd.getpwall() if one.pw_gid == entry.gr_gid]
        named[name] = sorted({*entry.gr_mem, *own})
    named["sudoers"] = sudoers() if Path("/etc/sudoers").exists() else []
    return named


def sudoers() -> list[str]:
    document = json.loads(run(["cvtsudoers", "-f", "json", "/etc/sudoers"], LIMIT_S).stdout)
    entries = [entry for spec in document.get("User_Specs", []) for entry in spec["User_List"]]
    return sorted({entry["username"] for entry in entries if "username" in entry})


def hidepid(request: Request) -> str:
    """The option with which /proc is mounted; `0` without."""
    del request
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, _, options, *_ = line.split()
        if point == "/proc":
            return dict(option.partition("=")[::2] for option in options.split(",")).get(
                "hidepid", "0"
            )
    raise LookupError("/proc is not in /proc/mounts")


# --- Slurm ---------------------------------------------------------------------------------------


def slurm(request: Request) -> dict[str, str] | None:
    """What slurmctld runs with. One host asks: the same for all."""
    if not request["controller"]:
        return None
    return settings(run(["scontrol", "show", "config"], LIMIT_S).stdout)


def settings(text: str) -> dict[str, str]:
    """`Name = value`, and `Name=value` of a file; names in lower case."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip().lower(): value.strip() for name, sign, value in pairs if sign}


def cgroup(request: Request) -> dict[str, str] | None:
    """cgroup.conf as this host's slurmd has it, whether from slurmctld or from a file."""
    if not request["compute"]:
        return None
    for folder in ("/run/slurm/conf", "/etc/slurm"):
        path = Path(folder) / "cgroup.conf"
        if path.exists():
            return settings(path.read_text())
    raise LookupError("slurmd has no cgroup.conf, in /run/slurm/conf or /etc/slurm")


def slurmdbd(request: Request) -> dict[str, str] | None:
    """What is no secret of its file."""
    if not request["database"]:
        return None
    found = settings(Path("/etc/slurm/slurmdbd.conf").read_text())
    return {name: found.get(name, "") for name in ("privatedata", "authalttypes", "storagehost")}


def slurmd_limits(request: Request) -> dict[str, list[str]] | None:
    """Soft and hard limits of slurmd, which jobs begin with."""
    if not request["compute"]:
        return None
    for process in processes():
        if process["name"] == "slurmd":
            lines = Path(f"/proc/{process['pid']}/limits").read_text().splitlines()[1:]
            # "Max core file size        0                    unlimited            bytes"
            rows = (re.split(r"\s{2,}", line.strip()) for line in lines)
            return {row[0]: row[1:3] for row in rows if len(row) >= 3}
    raise LookupError("no slurmd runs")


def user_limits(request: Request) -> dict[str, str]:
    """Soft limits for all users, as PAM sets them at a login: of several lines the last one.

    They are not tried: sudo, under which this runs, forbids cores by itself.
    """
    del request
    places = [LIMITS, *sorted(LIMITS.with_suffix(".d").glob("*.conf"))]
    texts = (path.read_text(errors="replace") for path in places if path.exists())
    lines = [line.split() for text in texts for line in text.splitlines()]
    return {
        words[2]: words[3]
        for words in lines
        if len(words) >= 4 and words[0] == "*" and words[1] in {"soft", "-"}
    }


def database(request: Request) -> dict[str, Any] | None:
    """Accounts of MariaDB and names of its databases; None where it runs elsewhere."""
    if not request["database"] or not Path("/usr/sbin/mariadbd").exists():
        return None
    words = "SELECT CONCAT_WS('@', User, Host) FROM mysql.global_priv; SELECT '--'; SHOW DATABASES"
    shown = run(["mariadb", "--batch", "--skip-column-names", "-e", words], LIMIT_S).stdout
    accounts, _, databases = shown.partition("--\n")
    return {"accounts": accounts.splitlines(), "databases": databases.splitlines()}


# --- what runs and listens -----------------------------------------------------------------------


def processes() -> list[dict[str, Any]]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
            uid = folder.stat().st_uid
        except OSError:  # it has ended
            continue
        found.append({"pid": int(folder.name), "name": name, "user": user(uid)})
    return found


def daemons(request: Request) -> dict[str, list[str]]:
    """As whom the daemons run that are named for it."""
    del request
    found: dict[str, set[str]] = {}
    for process in processes():
        if process["name"] in {"slurmrestd", "slurmctld", "slurmdbd", "munged"}:
            found.setdefault(process["name"], set()).add(process["user"])
    return {name: sorted(users) for name, users in found.items()}


def units(request: Request) -> dict[str, dict[str, str]]:
    """Properties of services that are there."""
    found = {}
    for name in request["units"]:
        options = [f"--property={each}" for each in (*UNIT_PROPERTIES, "LoadState")]
        shown = settings(run(["systemctl", "show", *options, name], LIMIT_S).stdout)
        if shown.pop("loadstate", "") == "loaded":
            found[name] = shown
    return found


def listening(request: Request) -> list[list[str]]:
    """Address, port and programs of each TCP socket."""
    del request
    found = []
    for line in run(["ss", "-Hltnp"], LIMIT_S).stdout.splitlines():
        local = line.split()[3]
        address, _, port = local.rpartition(":")
        names = " ".join(sorted(set(re.findall(r'\("([^"]+)",pid=', line))))
        found.append([re.sub("%[^]]*", "", address).strip("[]"), port, names])
    return found


def web(request: Request) -> dict[str, dict[str, str]]:
    """What servers tell somebody without a password: by TLS, and in the clear."""
    answers = {}
    there = {port: address for address, port, _ in listening(request)}
    for port, path in request["web"]:
        if str(port) in there:
            address = there[str(port)]
            host = "127.0.0.1" if address in {"*", "0.0.0.0", "::"} else address
            answers[str(port)] = {
                "tls": get(https(host, port), path),
                "clear": get(http.client.HTTPConnection(host, port, timeout=WEB_S), path),
            }
    return answers


def https(host: str, port: int) -> http.client.HTTPSConnection:
    """Whose certificate it is does not matter here: nothing is told to it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=WEB_S, context=context)


def get(connection: http.client.HTTPConnection, path: str) -> str:
    """The status, or `refused` where the other side speaks no HTTP with us."""
    try:
        connection.request("GET", path)
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException, socket.timeout, ssl.SSLError):  # noqa: UP041
        return "refused"
    finally:
        connection.close()


def firewall(request: Request) -> dict[str, str]:
    """The policy of each chain at the input hook of Plumbline's table; none without a table."""
    del request
    if not any(Path(folder, "nft").exists() for folder in ("/usr/sbin", "/sbin")):
        return {}
    command = ["nft", "-j", "list", "table", "inet", "plumbline"]
    asked = run(command, LIMIT_S, any_status=True)
    if asked.status != 0:
        return {}
    chains = [one["chain"] for one in json.loads(asked.stdout)["nftables"] if "chain" in one]
    return {
        chain["name"]: chain.get("policy", "") for chain in chains if chain.get("hook") == "input"
    }


# --- the system ----------------------------------------------------------------------------------


def container(request: Request) -> bool:
    """Whose kernel is another's."""
    del request
    return Path("/run/systemd/container").exists()


def sysctls(request: Request) -> dict[str, str | None]:
    """None for a setting that this kernel does not have."""
    found: dict[str, str | None] = {}
    for name in request["sysctls"]:
        path = Path("/proc/sys", *name.split("."))
        found[name] = " ".join(path.read_text().split()) if path.exists() else None
    return found


def apt(request: Request) -> dict[str, list[str]]:
    """What unattended upgrades leave alone, and sources whose signatures nobody checks."""
    del request
    shown = run(["apt-config", "dump"], LIMIT_S).stdout
    passed = re.findall(r'^Unattended-Upgrade::Package-Blacklist:: "(.*)";$', shown, re.MULTILINE)
    loose = re.findall(LOOSE_SETTING, shown, re.MULTILINE | re.IGNORECASE)
    folder = Path("/etc/apt")
    places = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    trusted = [
        str(path)
        for path in places
        if path.suffix in {".list", ".sources"}
        and path.is_file()
        and _trusts(path.read_text(errors="replace"))
    ]
    return {"by_hand": passed, "unchecked": [*loose, *trusted]}


def _trusts(text: str) -> bool:
    return re.search(LOOSE_SOURCE, text, re.MULTILINE | re.IGNORECASE) is not None


def journal(request: Request) -> bool:
    """Whether it has the line of this run, which a module wrote a moment ago.

    sudo writes down what it was called with, and so the request: such a line is no module's.
    """
    shown = run(["journalctl", "--quiet", "--output=cat", "--since", JOURNAL], LIMIT_S).stdout
    written = re.compile(rf"(?:ansible-\S+ )?{re.escape(request['run'])} Invoked\b")
    return bool(request["run"]) and any(map(written.match, shown.splitlines()))


def system(release: str) -> str:
    """`Debian 13` of the text of os-release."""
    told = settings(release.replace('"', ""))
    return f"{told['name'].split()[0]} {told['version_id'].partition('.')[0]}"


def versions(request: Request) -> dict[str, Any]:
    """Of the packages that are installed and of the kernel that runs, and what the driver says."""
    form = "${db:Status-Status} ${Package} ${Version}\\n"
    kernel = f"linux-image-{os.uname().release}"
    names = ["no-package", kernel, *request["packages"]]
    # Of one that is not there dpkg says so, and ends with 1.
    asked = run(["dpkg-query", "--show", f"--showformat={form}", *names], LIMIT_S, any_status=True)
    lines = (line.split() for line in asked.stdout.splitlines())
    found = {line[1]: line[2] for line in lines if line[0] == "installed"}
    if kernel in found:
        found["linux"] = found.pop(kernel)
    return {
        "system": system(OS_RELEASE.read_text()),
        "packages": found,
        "driver": NVIDIA_DRIVER.read_text() if NVIDIA_DRIVER.exists() else "",
    }


def grafana(request: Request) -> dict[str, str] | None:
    """Its settings, by section and name, without those that are secret."""
    del request
    path = Path("/etc/grafana/grafana.ini")
    if not path.exists():
        return None
    found, section = {}, ""
    for line in path.read_text().splitlines():
        if head := re.match(r"\s*\[(.+)\]", line):
            section = head[1]
        elif pair := re.match(r"\s*([a-z_]+)\s*=\s*(.*)", line):
            found[f"{section}.{pair[1]}"] = pair[2]
    shown = ("auth.anonymous.enabled", "users.allow_sign_up", "server.protocol")
    return {name: found.get(name, "") for name in shown}


QUESTIONS: Mapping[str, Callable[[Request], Answer]] = {
    function.__name__: function
    for function in (
        *(files, munge, munge_version, replay, sshd, pam_sshd, privileged, hidepid),
        *(
            slurm,
            cgroup,
            slurmdbd,
            slurmd_limits,
            user_limits,
            database,
            daemons,
            units,
            listening,
            web,
        ),
        *(firewall, container, sysctls, apt, journal, versions, grafana),
    )
}


def names() -> Sequence[str]:
    return tuple(QUESTIONS)
