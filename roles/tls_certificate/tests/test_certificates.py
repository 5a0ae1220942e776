"""What the authority signs, and when a host needs another certificate."""

import ssl
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from roles.tls_certificate.plugin_utils import certificates
from roles.tls_certificate.plugin_utils.certificates import Server, Unusable

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOST = Server(("gpu1",), ("10.0.0.11", "fd00::11"))
AUTHORITY = certificates.new_authority("site", NOW, 3650)
KEY = certificates.new_key()


def request_of(key):
    return x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, hashes.SHA256())


REQUEST = request_of(KEY)


def why(pem, *, server=HOST, authority=AUTHORITY, now=NOW, request=REQUEST, renew_days=30):
    return certificates.why_another(pem, request, server, authority, now, renew_days)


@pytest.fixture(scope="module")
def pem():
    return certificates.signed(REQUEST, HOST, AUTHORITY, NOW, 90)


def test_a_certificate_names_the_host_and_its_addresses(pem):
    certificate = certificates.read_certificate(pem)
    assert certificates.server_of(certificate) == HOST
    assert certificates.is_signed_by(certificate, AUTHORITY.certificate)
    assert certificates.days_left(certificate, NOW) == 90


def test_openssl_takes_it_for_a_server_of_that_name_and_of_no_other(pem, tmp_path):
    """Not the library that made it."""
    now = datetime.now(UTC)
    authority = certificates.new_authority("site", now, 3650)
    (tmp_path / "ca.crt").write_text(authority.pem)
    (tmp_path / "host.crt").write_text(certificates.signed(REQUEST, HOST, authority, now, 90))

    def verify(*options: str) -> int:
        command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver"]
        files = ["-CAfile", str(tmp_path / "ca.crt"), str(tmp_path / "host.crt")]
        return subprocess.run(
            [*command, *options, *files], capture_output=True, check=False
        ).returncode

    assert verify("-verify_hostname", "gpu1") == 0
    assert verify("-verify_ip", "10.0.0.11") == 0
    assert verify("-verify_hostname", "gpu2") != 0
    assert verify("-verify_ip", "10.0.0.12") != 0
    (tmp_path / "ca.crt").write_text(AUTHORITY.pem)
    assert verify("-verify_hostname", "gpu1") != 0


def test_a_daemon_can_use_certificate_and_key(pem, tmp_path):
    (tmp_path / "host.crt").write_text(pem)
    (tmp_path / "host.key").write_text(certificates.key_pem(KEY))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "host.crt", tmp_path / "host.key")


def test_a_host_without_one_gets_one():
    assert why("") == "it has none"
    assert why("rubbish") == "it is no certificate in PEM"


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (0, ""),
        (24 * 60, ""),
        (24 * 61, "it ends on 2027-02-20"),
        (24 * 91, "it ended on 2027-02-20"),
        (-23, ""),  # a node whose clock is behind
        (-48, "it begins in the future"),  # a clock that was ahead when it was signed
    ],
)
def test_it_is_good_for_its_time_and_renewed_before_it_ends(pem, hours, words):
    assert why(pem, now=NOW + timedelta(hours=hours)) == words


def test_other_names_are_another_certificate(pem):
    assert why(pem, server=Server(("gpu1",), ("fd00:0::11", "10.0.0.11"))) == ""
    for server in (
        Server(("gpu1", "gpu1.site"), HOST.addresses),
        Server(("gpu2",), HOST.addresses),
        Server(("gpu1",), ("10.0.0.12", "fd00::11")),
        Server(("gpu1",), ()),
    ):
        assert why(pem, server=server) == "it names gpu1, 10.0.0.11, fd00::11"


def test_a_new_key_needs_a_new_certificate(pem):
    assert why(pem, request=request_of(certificates.new_key())) == "it is for another key"


def test_another_authority_signs_anew(pem):
    other = certificates.new_authority("site", NOW, 3650)
    assert other.certificate.subject == AUTHORITY.certificate.subject
    assert why(pem, authority=other) == "another authority signed it"


def test_nothing_outlives_its_authority():
    short = certificates.new_authority("site", NOW, 10)
    pem = certificates.signed(REQUEST, HOST, short, NOW, 90)
    assert certificates.days_left(certificates.read_certificate(pem), NOW) == 10
    # Signed again it would end on the same day: a run that changes nothing stays one.
    assert why(pem, authority=short) == ""
    assert why(pem, authority=short, now=NOW + timedelta(days=11)) == "it ended on 2026-12-02"


def test_who_asks_gets_a_certificate_for_it_and_loses_it_again(pem, tmp_path):
    asking = Server(HOST.names, HOST.addresses, asks=True)
    assert why(pem, server=asking) == "it is not for who asks"
    new = certificates.signed(REQUEST, asking, AUTHORITY, NOW, 90)
    assert why(new, server=asking) == ""
    assert why(new) == "it is for who asks"
    assert certificates.server_of(certificates.read_certificate(new)) == asking


def test_a_request_must_be_signed_by_its_key():
    der = bytearray(REQUEST.public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM).decode()
    with pytest.raises(Unusable, match="its signature is not that of its key"):
        certificates.read_request(forged)
    with pytest.raises(Unusable, match="no request for a certificate"):
        certificates.read_request("rubbish")


def test_what_a_request_asks_for_is_not_what_it_gets():
    """A node that was taken over gets no certificate of another."""
    request = (
        x509.CertificateSigningRequestBuilder(x509.Name([]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("ctl1")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(KEY, hashes.SHA256())
    )
    certificate = certificates.read_certificate(
        certificates.signed(request, HOST, AUTHORITY, NOW, 90)
    )
    assert certificates.server_of(certificate) == HOST
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_an_authority_is_read_as_it_was_written():
    again = certificates.read_authority(AUTHORITY.secret)
    assert again.certificate == AUTHORITY.certificate
    with pytest.raises(Unusable, match="its key belongs to another certificate"):
        certificates.read_authority(AUTHORITY.pem + certificates.key_pem(KEY))
    with pytest.raises(Unusable, match="no private key"):
        certificates.read_authority(AUTHORITY.pem)
    assert "PRIVATE" not in AUTHORITY.pem


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (-2, "begins on 2026-11-21, so a clock is wrong"),
        (0, ""),
        (3625, "ends on 2036-11-19"),
        (3651, "ended on 2036-11-19"),
    ],
)
def test_an_authority_that_ends_is_told(days, words):
    now = NOW + timedelta(days=days)
    assert certificates.authority_problem(AUTHORITY.certificate, now, 30) == words


# --- what a site gives ----------------------------------------------------------------------------


def flaws(pem, *, key=KEY, authority=AUTHORITY.pem, server=HOST, now=NOW):
    text = key if isinstance(key, str) else certificates.key_pem(key)
    return [*certificates.given_problems(pem, text, authority, server, now)]


def test_a_given_certificate_that_fits_has_no_problem(pem):
    assert flaws(pem) == []
    assert flaws(pem + AUTHORITY.pem) == []
    assert flaws(pem, server=Server(("GPU1",), ())) == []


def test_what_is_wrong_with_a_given_one_is_said(pem):
    assert flaws("rubbish") == ["the certificate is no certificate in PEM"]
    assert flaws(pem, authority="rubbish") == ["the authority is no certificate in PEM"]
    assert flaws(pem, key="rubbish") == ["the key cannot be used: it is no private key in PEM"]
    assert flaws(pem, key=certificates.new_key()) == ["the key belongs to another certificate"]
    assert flaws(pem, server=Server(("gpu2",), ("10.0.0.12",))) == [
        "the certificate names gpu1, 10.0.0.11, fd00::11, and not gpu2, 10.0.0.12"
    ]
    assert flaws(pem, now=NOW + timedelta(days=91)) == ["the certificate ended on 2027-02-20"]
    assert flaws(pem, now=NOW - timedelta(days=9)) == ["the certificate begins on 2026-11-21"]
    other = certificates.new_authority("site", NOW, 3650)
    assert flaws(pem, authority=other.pem) == ["the authority has not signed the certificate"]


def text_of(key, form, encryption):
    return key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()


def test_a_key_with_a_passphrase_is_none():
    encryption = serialization.BestAvailableEncryption(b"word")
    with pytest.raises(Unusable, match="a passphrase"):
        certificates.read_key(text_of(KEY, serialization.PrivateFormat.PKCS8, encryption))


def test_a_site_may_give_another_kind_of_key():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = certificates.signed(request_of(key), HOST, AUTHORITY, NOW, 90)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    assert flaws(pem, key=text_of(key, form, serialization.NoEncryption())) == []


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("gpu1.site", "gpu1.site", True),
        ("GPU1.site.", "gpu1.site", True),
        ("*.site", "gpu1.site", True),
        ("*.site", "a.gpu1.site", False),
        ("*.site", "site", False),
        ("*.", "gpu1", False),
        ("gpu1.site", "gpu1", False),
    ],
)
def test_a_star_is_one_label(pattern, name, covered):
    assert certificates.covers(pattern, name) is covered
