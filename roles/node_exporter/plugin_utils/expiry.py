"""When certificates end, as a textfile of node_exporter's."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography import x509

from cluster.text import label

NAME = "plumbline_certificate_expiry_timestamp_seconds"


def textfile(certificates: Mapping[str, str]) -> str:
    """A series for each file; of several certificates in one the first to end counts.

    `certificates` has PEM by path, empty for a file that there is not: that one has no series.
    A file that is no certificate ended in 1970: whoever relies on it has none.
    """
    lines = [
        f"# HELP {NAME} When a certificate ends, in seconds since 1970.",
        f"# TYPE {NAME} gauge",
    ]
    lines += [
        f'{NAME}{{path="{label(path)}"}} {ends(pem)}' for path, pem in certificates.items() if pem
    ]
    return "\n".join(lines) + "\n"


def ends(pem: str) -> int:
    try:
        certificates = x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        return 0
    return min(int(certificate.not_valid_after_utc.timestamp()) for certificate in certificates)
