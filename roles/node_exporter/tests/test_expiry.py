"""When certificates end."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from roles.node_exporter.filter_plugins.node_exporter import certificates
from roles.node_exporter.plugin_utils import expiry

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def certificate(days):
    key = ec.generate_private_key(ec.SECP256R1())
    cert = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return cert.public_bytes(serialization.Encoding.PEM).decode()


def at(days):
    return int((NOW + timedelta(days=days)).timestamp())


def test_each_file_has_its_end():
    text = expiry.textfile({"/a.crt": certificate(90), "/b.crt": certificate(10)})
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        f'plumbline_certificate_expiry_timestamp_seconds{{path="/a.crt"}} {at(90)}',
        f'plumbline_certificate_expiry_timestamp_seconds{{path="/b.crt"}} {at(10)}',
    ]


def test_of_a_chain_the_first_to_end_counts():
    assert expiry.ends(certificate(90) + certificate(10)) == at(10)


def test_what_is_no_certificate_has_ended():
    assert expiry.ends("rubbish") == 0


def test_what_slurp_did_not_find_has_no_series():
    result = {"content": base64.b64encode(certificate(90).encode()).decode()}
    text = certificates(["/a.crt", "/b.crt"], [result, {"msg": "file not found"}])
    assert text.count("path=") == 1
    assert f'path="/a.crt"}} {at(90)}' in text
