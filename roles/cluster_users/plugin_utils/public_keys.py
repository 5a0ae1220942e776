"""What is wrong with a line of authorized_keys.

A key's text is never told: what somebody put in the wrong place may be a secret.
"""

from __future__ import annotations

import re

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import dsa, rsa
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

LEAST_RSA_BITS = 2048  # NIST SP 800-131A

_TYPE = r"(?:ssh-|ecdsa-|sk-)[a-z0-9@.-]+"
# Options such as from="10.0.0.0/8",no-pty have no spaces but in quotes (sshd(8)).
_OPTIONS = r'(?:[^\s"]|"(?:\\.|[^"\\])*")+'
_LINE = re.compile(rf"(?:(?!{_TYPE}\s){_OPTIONS}\s+)?(?P<type>{_TYPE})\s+(?P<body>\S+)(?:\s.*)?")


def key_problem(line: str) -> str:
    """Why sshd would not take the line, as the end of a sentence that begins with it; "" if not."""
    text = line.strip()
    if "PRIVATE KEY" in text:
        return "is a private key; give the public one, and replace the pair: it was written down"
    if not text or len(text.splitlines()) > 1:
        return "is not one line; list each key by itself"
    if text.startswith(("/", "~", "./")):
        return "is the name of a file; give the key itself, for instance with a lookup of the file"
    match = _LINE.fullmatch(text)
    if not match:
        return "is no public key; it begins with a type such as ssh-ed25519"
    return _body_problem(match["type"], match["body"])


def _body_problem(kind: str, body: str) -> str:
    if "-cert-v01@" in kind:
        return "is a certificate; give the public key that was certified"
    try:
        key = load_ssh_public_key(f"{kind} {body}".encode())
    except (ValueError, UnsupportedAlgorithm):
        return f"is no whole public key of type {kind}"
    if isinstance(key, dsa.DSAPublicKey):
        return "is of type ssh-dss, which sshd takes no more"
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < LEAST_RSA_BITS:
        return f"has {key.key_size} bits; one of RSA has at least {LEAST_RSA_BITS}"
    return ""
