"""What the scenarios of this role have in common: repositories on the node's own mirror."""

import os
from pathlib import Path

URL = "http://127.0.0.1:8098/package_repositories"
OURS = "find /etc/apt -name 'plumbline-*'"


def fingerprint() -> str:
    folder = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "mirror/package_repositories"
    return (folder / "fingerprint").read_text()


def flat(**changed) -> dict:
    """The flat repository of molecule.yml, with something changed."""
    entry = {
        "name": "flat",
        "uris": [f"{URL}/flat/"],
        "suites": ["/"],
        "key_url": f"{URL}/flat/key.asc",
        "key_fingerprint": fingerprint(),
        "pins": [
            {"packages": ["plumbline-tool"], "priority": 1001, "version": "1.*"},
            {"packages": ["*"], "priority": 100},
        ],
    }
    return entry | changed


def suites(**changed) -> dict:
    """The one with suites."""
    entry = {
        "name": "suites",
        "uris": [f"{URL}/suites/"],
        "suites": ["stable"],
        "components": ["main"],
        "key_url": f"{URL}/suites/key.gpg",
        "key_fingerprint": fingerprint(),
    }
    return entry | changed


def another(folder: str, **changed) -> dict:
    """A third one, beside them."""
    uris = [f"{URL}/{folder}/"]
    return flat(**{"name": "another", "uris": uris, "pins": []} | changed)


def candidate(host, package: str) -> str:
    policy = host.check_output("LC_ALL=C apt-cache policy %s", package)
    return policy.split("Candidate: ")[1].split()[0] if policy else ""


def files(host) -> str:
    return host.check_output(f"{OURS} -exec sha256sum {{}} + | sort")
