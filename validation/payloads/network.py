"""Which addresses a node has, which it has for other nodes, and whether whole packets get there.

A datagram to a port where nobody listens is answered by the other node's kernel ("port
unreachable", RFC 1122, 4.1.3.1): nothing has to run there, and no right is needed. A small one is
sent first, then one as large as the way takes without being cut. Where only small ones arrive, as
with MTUs that differ between hosts and switches, jobs connect and then hang. No answer to small
ones says nothing: a firewall may drop them.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PORT = 33434  # traceroute's first, where by convention nobody listens
TRIES = 3  # Linux answers six at once to one host, then one a second (icmp_ratelimit)
WAIT_S = 0.5
SMALL = 32
_HEADERS = 28  # of IPv4 and UDP
_AT_ONCE = 16

# linux/in.h; Python has no names for them before 3.14.
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _IP_MTU = 10, 2, 14


@dataclass(frozen=True)
class Way:
    """What this node has of another one.

    addresses   that its name leads to, separated by spaces; error says why there are none
    mtu         bytes of the largest packet that the first address takes; 0 where unknown
    small       whether a small packet came there
    large       whether one of `mtu` bytes did; false where no small one did
    """

    name: str
    addresses: str = ""
    error: str | None = None
    mtu: int = 0
    small: bool = False
    large: bool = False


def measure(names: Sequence[str], proc: Path = Path("/proc/net")) -> dict[str, Any] | None:
    """The node's own addresses, and a Way to each of the others; None without others."""
    if not names:
        return None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ways = list(pool.map(_way, names))
    return {"addresses": " ".join(own_addresses(proc)), "ways": [asdict(way) for way in ways]}


def own_addresses(proc: Path) -> list[str]:
    """All addresses of the node but those of its loopback."""
    addresses = []
    last = ""
    for line in (proc / "fib_trie").read_text(encoding="ascii").splitlines():
        words = line.split()
        if words[0] == "|--":
            last = words[1]
        elif words == ["/32", "host", "LOCAL"] and not last.startswith("127."):
            addresses.append(last)
    if (proc / "if_inet6").exists():
        for line in (proc / "if_inet6").read_text(encoding="ascii").splitlines():
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0]))
            if address != "::1":
                addresses.append(address)
    return list(dict.fromkeys(addresses))


def _way(name: str) -> Way:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Way(name, error=getattr(error, "strerror", None) or str(error))
    addresses = list(dict.fromkeys(str(item[4][0]) for item in found))
    first = addresses[0]
    if ":" in first:  # only IPv4 is tried
        return Way(name, " ".join(addresses))
    small, _ = _arrives(first, SMALL)
    large, mtu = _arrives(first, None) if small else (False, 0)
    return Way(name, " ".join(addresses), None, mtu, small, large)


def _arrives(address: str, size: int | None) -> tuple[bool, int]:
    """Whether a packet is answered, and the MTU of the way; without a size, one of that MTU."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        sender.settimeout(WAIT_S)
        try:
            sender.connect((address, PORT))
        except OSError:
            return False, 0
        mtu = 0
        for _ in range(TRIES):
            # A router on the way may have told meanwhile that it takes less.
            mtu = sender.getsockopt(socket.IPPROTO_IP, _IP_MTU)
            try:
                sender.send(bytes(size or min(mtu, 65535) - _HEADERS))
                sender.recv(1)
                return True, mtu  # somebody listens there, and answered
            except OSError as error:
                if error.errno == errno.ECONNREFUSED:
                    return True, mtu
        return False, mtu
