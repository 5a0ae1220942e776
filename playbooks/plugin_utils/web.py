"""What Prometheus, Alertmanager and exporters want to know of their own listener.

The web configuration of prometheus/exporter-toolkit, of which these keys are known to all versions
since 0.8 (node_exporter 1.5, Alertmanager 0.25, Prometheus 2.42) and mean the same in each:
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
The file is read at each request: a renewed certificate or another password needs no restart.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import bcrypt

# 2**10 rounds, the toolkit's own example: 50 ms once for each password, then it is cached.
COST = 10
# bcrypt has an alphabet of its own for base64; a salt is 16 bytes in 22 letters of it.
_USUAL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BCRYPT = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def hashed(user: str, password: str) -> str:
    """The bcrypt hash of a user's password, the same in each run.

    So its salt is made of the user's name. A salt keeps one table of hashes from serving for many
    passwords; these are random, or no shorter than sixteen characters. One made of the password
    itself would tell guesses apart without bcrypt's work.
    """
    digest = hashlib.sha256(f"plumbline web user {user}".encode()).digest()[:16]
    salt = base64.b64encode(digest).rstrip(b"=").translate(bytes.maketrans(_USUAL, _BCRYPT))
    return bcrypt.hashpw(password.encode(), b"$2b$%02d$%s" % (COST, salt)).decode()


def web_config(users: Mapping[str, str], certificate: str, key: str) -> dict[str, Any]:
    """TLS for all, and nobody without a password. `users` has a bcrypt hash for each name.

    Raises ValueError without users: the toolkit would let everybody in.
    """
    if not users:
        raise ValueError("a listener without users is open to everybody")
    return {
        "tls_server_config": {"cert_file": certificate, "key_file": key, "min_version": "TLS12"},
        "http_server_config": {
            "headers": {"X-Frame-Options": "deny", "X-Content-Type-Options": "nosniff"}
        },
        "basic_auth_users": dict(sorted(users.items())),
    }
