"""What may listen on a host, by its roles' meta/ports.yml, and what does, by `ss`.

A declaration has these keys; a template may read what the role's own tasks read.

process         name of the program, or several of which any will do
port            number, range, `any`; the path of a unix socket, with `*`
protocol        tcp (default), udp, unix
address         all (default), or loopback
when            condition; without one it holds wherever the role is applied
where, asked_by words for people: on which hosts, and who asks
from            who gets through a firewall, of a port that is open to others: words of `peers` in
                cluster/contract.yml, `people`, `operators`, or networks
authentication  a word of AUTHENTICATION
reason          why there is no authentication
path, users     for tls+password: what to ask for, and the password's file of each user who may

    python -m tests.ports      writes the table of docs/reference/ports.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jinja2
import jinja2.nativetypes
import yaml

from playbooks.plugin_utils.roles import roles_of
from playbooks.plugin_utils.site import Site

REPOSITORY = Path(__file__).resolve().parents[1]
ROLES = REPOSITORY / "roles"
PAGE = REPOSITORY / "docs/reference/ports.md"
BEGIN, END = "<!-- BEGIN PORTS -->\n", "<!-- END PORTS -->\n"

AUTHENTICATION = {
    "certificates": "TLS, a certificate of each side",
    "login": "TLS, the password of a user or the site's provider",
    "file": "mode of the socket's file",
    "job": "that of the program, if it has any",
    "munge": "MUNGE",
    "none": "none",
    "password": "password",
    "peer": "the kernel says who asks",
    "ssh": "SSH keys",
    "tls+password": "TLS, password",
    "token": "a token that Slurm has signed",
}
NAME = 15  # letters that the kernel keeps of a process' name


@dataclass(frozen=True)
class Port:
    """A declaration, with its templates filled in."""

    role: str
    process: tuple[str, ...]
    port: str
    where: str
    asked_by: str
    authentication: str
    protocol: str = "tcp"
    address: str = "all"
    when: str = ""
    reason: str = ""
    path: str = ""
    users: Mapping[str, str] = field(default_factory=dict)
    let_in: tuple[str, ...] | str = ()

    def is_of(self, socket: Socket) -> bool:
        """Whether it declares this socket, whatever its address."""
        return (
            self.protocol == socket.protocol
            and any(name[:NAME] in socket.processes for name in self.process)
            and (self.port == "any" or self._has(socket.port))
        )

    def _has(self, port: str) -> bool:
        if self.protocol == "unix":
            return fnmatch(port, self.port)
        first, _, last = self.port.partition("-")
        return int(first) <= int(port) <= int(last or first)

    @property
    def is_awaited(self) -> bool:
        """Whether it is there all the time, for others to reach."""
        return self.protocol != "unix" and self.address == "all" and self.port.isdigit()

    def __str__(self) -> str:
        return f"{'/'.join(self.process)} on {self.protocol} {self.port}"


@dataclass(frozen=True)
class Socket:
    """A listening socket; the port of a unix socket is its path."""

    protocol: str
    address: str
    port: str
    processes: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        return self.protocol == "unix" or self.address.startswith(("127.", "[::1]"))

    def __str__(self) -> str:
        place = f"{self.address}:{self.port}" if self.address else self.port
        return f"{'/'.join(self.processes) or 'the kernel'} on {self.protocol} {place}"


# --- what is declared ----------------------------------------------------------------------------


def read(role: Path) -> list[dict[str, Any]]:
    """The declarations of a role as they are written; none where it opens no port."""
    path = role / "meta/ports.yml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []


def port(role: str, written: Mapping[str, Any]) -> Port:
    process = written["process"]
    names = (process,) if isinstance(process, str) else tuple(process)
    fields = {"let_in" if key == "from" else key: value for key, value in written.items()}
    return Port(role=role, **{**fields, "process": names, "port": str(written["port"])})


def declared(site: Site, playbook: Path) -> dict[str, list[Port]]:
    """By host, what the roles declare that a playbook gives to it."""
    by_host: dict[str, list[Port]] = {host: [] for host in site.names}
    for pattern, role in dict.fromkeys(roles_of(playbook, site.read)):
        low = site.read(ROLES / role / "defaults/main.yml") or {}
        for written in site.read(ROLES / role / "meta/ports.yml") or []:
            for host in site.hosts(pattern):
                variables = {**low, **site.values.hosts[host]}
                if site.holds(variables, written.get("when", True)):
                    filled = {
                        key: value if key == "when" else site.render(variables, value)
                        for key, value in written.items()
                    }
                    entry = port(role, filled)
                    if entry not in by_host[host]:
                        by_host[host].append(entry)
    return by_host


# --- what listens --------------------------------------------------------------------------------

SS = "ss -H -l -t -u -x -n -p"


def sockets(output: str) -> Iterator[Socket]:
    """The sockets in the output of SS, asked as root: to others it does not tell the processes."""
    for line in output.splitlines():
        kind, state, _, _, local, *_ = line.split()
        processes = tuple(re.findall(r'\("([^"]+)",pid=', line))
        if kind.startswith("u_"):
            # A datagram socket without a name hears from whom it has called.
            if local != "*":
                yield Socket("unix", "", local, processes)
        else:
            address, _, number = local.rpartition(":")
            yield Socket(kind, re.sub("%[^]]*", "", address), number, processes)
        assert kind in {"tcp", "udp", "u_str", "u_dgr", "u_seq"}, line
        assert state in {"LISTEN", "UNCONN"}, line


def problems(host: str, there: Iterable[Socket], ports: Iterable[Port]) -> list[str]:
    """One sentence for each socket that nobody declares, and each port that is not there."""
    there, ports = list(there), list(ports)
    sentences = []
    for socket in there:
        ours = [port for port in ports if port.is_of(socket)]
        if not ours:
            sentences.append(f"{host}: {socket} listens, and no role of the host declares it")
        elif not socket.is_local and all(port.address == "loopback" for port in ours):
            sentences.append(
                f"{host}: {socket} listens for all, and {ours[0].role} declares it for loopback"
            )
    for port in ports:
        if port.is_awaited and not any(port.is_of(socket) for socket in there):
            sentences.append(f"{host}: {port} does not listen, and {port.role} declares it")
    return sentences


# --- the page ------------------------------------------------------------------------------------


def table() -> str:
    """All declarations as they are where nobody sets anything, for people."""
    lines = [
        "| Port | Process | Where | Asked by | Let in | Authentication | Role |",
        "|---|---|---|---|---|---|---|",
    ]
    for role in sorted(ROLES.iterdir()):
        defaults = role / "defaults/main.yml"
        known = yaml.safe_load(defaults.read_text(encoding="utf-8")) if defaults.exists() else {}
        for written in read(role):
            value = str(written["port"])
            number = jinja2.Template(value).render(known or {})
            let_in = written.get("from", [])
            if isinstance(let_in, str):
                let_in = jinja2.nativetypes.NativeTemplate(let_in).render(known or {})
            filled = {**written, "port": number, "users": {}}
            entry = port(role.name, filled | ({"from": tuple(let_in)} if let_in else {}))
            set_by = re.findall(rf"{role.name}_\w+", value)
            words = AUTHENTICATION[entry.authentication]
            cells = [
                " ".join(
                    [f"`{number}`" if entry.protocol == "unix" else number]
                    + [entry.protocol] * (entry.protocol == "udp")
                    + [f"(`{name}`)" for name in set_by]
                ),
                ", ".join(f"`{name}`" for name in entry.process),
                entry.where + ", loopback" * (entry.address == "loopback"),
                entry.asked_by,
                ", ".join(f"`{word}`" for word in entry.let_in),
                f"**{words}**: {entry.reason}" if entry.reason else words,
                f"`{entry.role}`",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page_with(text: str, generated: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + generated + END + after


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
