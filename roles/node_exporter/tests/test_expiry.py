"""When certificates end."""

import base64
from datetime import UTC, datetime, timedelta

from roles.node_exporter.filter_plugins.node_exporter import certificates
from roles.node_exporter.plugin_utils import expiry
from roles.tls_certificate.plugin_utils.certificates import new_authority

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def certificate(days):
    return new_authority("site", NOW, days).pem


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
