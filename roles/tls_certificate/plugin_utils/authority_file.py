"""The authority as the control node keeps it: certificate and key in one file."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path

from playbooks.plugin_utils import kept
from roles.tls_certificate.plugin_utils import certificates


def read(
    path: Path, decrypted: kept.Decrypted, now: datetime, renew_days: int
) -> certificates.Authority | None:
    """None where there is no file. Raises NotKept where nothing should be signed with it."""
    text = kept.read(path, decrypted)
    if not text:
        return None
    try:
        authority = certificates.read_authority(text)
    except certificates.Unusable as error:
        raise kept.NotKept(f"{path} is no authority: {error}") from None
    if problem := certificates.authority_problem(authority.certificate, now, renew_days):
        raise kept.NotKept(
            f"the authority in {path} {problem}; move the file away and set tls_certificate_rotate "
            "to true for one run of all hosts, to have another one made"
        )
    return authority


def deployed(
    text: str, decrypted: kept.Decrypted, now: datetime, renew_days: int
) -> certificates.Authority:
    """The authority in a copy of the file, as a host has it. Raises NotKept, as `read` does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "authority.pem"
        kept.keep(path, text)
        try:
            authority = read(path, decrypted, now, renew_days)
        except kept.NotKept as problem:
            raise kept.NotKept(str(problem).replace(str(path), "the cluster's copy")) from None
    assert authority is not None  # the text is not empty
    return authority
