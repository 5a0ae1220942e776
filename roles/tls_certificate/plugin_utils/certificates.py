"""An authority of the cluster's own, and the certificates that it signs: pure functions.

Keys are on the curve P-256, which every TLS library of the last ten years has. Times are aware
datetimes in UTC; texts are PEM. What a certificate names comes from the inventory alone: of a
node's request only its public key is used.

RFC 5280 (certificates), RFC 6125 (names of servers).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificatePublicKeyTypes,
    PrivateKeyTypes,
    PublicKeyTypes,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A node whose clock is behind must not take a new certificate for one of the future.
BACKDATED = timedelta(days=1)
# Longest common name (RFC 5280, appendix A.1); a host's names are its alternative names anyway.
LONGEST_NAME = 64


class Unusable(Exception):
    """One sentence without its end: why a key, a request or a certificate is none."""


@dataclass(frozen=True)
class Server:
    """What a certificate is for: DNS names, and IP addresses as text.

    With `asks` it also says who asks, to a server that wants to know.
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    asks: bool = False


@dataclass(frozen=True)
class Authority:
    """Who signs: the certificate that clients trust, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """What clients get: without the key."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def secret(self) -> str:
        """What the control node keeps: certificate and key in one text, so that no run that was
        interrupted leaves one without the other."""
        return self.pem + key_pem(self.key)


# --- reading --------------------------------------------------------------------------------------


def read_certificate(pem: str) -> x509.Certificate:
    """The first certificate of a text. Raises Unusable."""
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        raise Unusable("it is no certificate in PEM") from None


def read_key(pem: str) -> PrivateKeyTypes:
    """A private key without a passphrase. Raises Unusable."""
    try:
        return serialization.load_pem_private_key(pem.encode(), password=None)
    except TypeError:
        raise Unusable("it has a passphrase, which nobody tells a daemon") from None
    except ValueError:
        raise Unusable("it is no private key in PEM") from None


def read_request(pem: str) -> x509.CertificateSigningRequest:
    """A request that is signed by the key it names. Raises Unusable."""
    try:
        request = x509.load_pem_x509_csr(pem.encode())
    except ValueError:
        raise Unusable("it is no request for a certificate in PEM") from None
    if not request.is_signature_valid:
        raise Unusable("its signature is not that of its key")
    return request


def read_authority(pem: str) -> Authority:
    """Certificate and key out of one text. Raises Unusable, also where they are not one pair."""
    certificate, key = read_certificate(pem), read_key(pem)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Unusable("its key is not on an elliptic curve")
    if not same_key(certificate.public_key(), key.public_key()):
        raise Unusable("its key belongs to another certificate")
    return Authority(certificate, key)


def same_key(key: PublicKeyTypes, other: PublicKeyTypes) -> bool:
    """Whether two public keys are the same."""
    return _public(key) == _public(other)


def _public(key: PublicKeyTypes) -> bytes:
    shape = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.DER, shape)


# --- making ---------------------------------------------------------------------------------------


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def new_authority(name: str, now: datetime, days: int) -> Authority:
    """An authority that signs servers, and no other authority."""
    key = new_key()
    subject = _name(name)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(subject, subject, key.public_key(), now, now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def signed(
    request: x509.CertificateSigningRequest,
    server: Server,
    authority: Authority,
    now: datetime,
    days: int,
) -> str:
    """A certificate for the key of a request and the names of a server, in PEM.

    It ends with its authority at the latest: what is signed by nobody is no certificate.
    """
    public = request.public_key()
    end = min(now + timedelta(days=days), authority.certificate.not_valid_after_utc)
    issuer = authority.certificate
    certificate = (
        _builder(_name((server.names + server.addresses)[0]), issuer.subject, public, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_alternative_names(server), critical=False)
        .add_extension(x509.ExtendedKeyUsage(_usages(server)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _usages(server: Server) -> list[x509.ObjectIdentifier]:
    return [
        ExtendedKeyUsageOID.SERVER_AUTH,
        *([ExtendedKeyUsageOID.CLIENT_AUTH] if server.asks else []),
    ]


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:LONGEST_NAME])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: CertificatePublicKeyTypes,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
    )


def _alternative_names(server: Server) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in server.names]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in server.addresses]
    return x509.SubjectAlternativeName(names)


# --- judging --------------------------------------------------------------------------------------


def server_of(certificate: x509.Certificate) -> Server:
    """The names and addresses that a certificate holds."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return Server((), ())
    return Server(
        tuple(names.get_values_for_type(x509.DNSName)),
        tuple(str(address) for address in names.get_values_for_type(x509.IPAddress)),
        _asks(certificate),
    )


def _asks(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True  # it is for anything (RFC 5280, 4.2.1.12)
    return ExtendedKeyUsageOID.CLIENT_AUTH in usages


def covers(pattern: str, name: str) -> bool:
    """Whether a name of a certificate stands for a host's: `*.` for one label (RFC 6125)."""
    pattern, name = pattern.lower().rstrip("."), name.lower().rstrip(".")
    if not pattern.startswith("*."):
        return pattern == name
    return name.partition(".")[2] == pattern[2:] != ""


def days_left(certificate: x509.Certificate, now: datetime) -> int:
    """Whole days until a certificate ends; negative afterwards."""
    return (certificate.not_valid_after_utc - now).days


def is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True


def why_another(
    pem: str,
    request: x509.CertificateSigningRequest,
    server: Server,
    authority: Authority,
    now: datetime,
    renew_days: int,
) -> str:
    """Why a host needs a new certificate in place of this one, a few words; empty if it is good.

    `pem` is the host's certificate, empty where it has none.
    """
    if not pem:
        return "it has none"
    try:
        certificate = read_certificate(pem)
    except Unusable as problem:
        return str(problem)
    had = server_of(certificate)
    problems = {
        "it is for another key": not same_key(certificate.public_key(), request.public_key()),
        "another authority signed it": not is_signed_by(certificate, authority.certificate),
        f"it names {', '.join(had.names + had.addresses) or 'nobody'}": (
            {*had.names} != {*server.names} or {*had.addresses} != _usual(server.addresses)
        ),
        f"it is {'not ' if server.asks else ''}for who asks": had.asks != server.asks,
        "it begins in the future": certificate.not_valid_before_utc > now,
        f"it {ends(certificate, now)}": _ends_soon(certificate, authority, now, renew_days),
    }
    return next((reason for reason, so in problems.items() if so), "")


def _ends_soon(
    certificate: x509.Certificate, authority: Authority, now: datetime, renew_days: int
) -> bool:
    """Whether it has ended, or will so soon that a new one would last longer."""
    lasting = certificate.not_valid_after_utc < authority.certificate.not_valid_after_utc
    return not _ahead(certificate, now) or (lasting and days_left(certificate, now) < renew_days)


def _ahead(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_after_utc > now


def _usual(addresses: Iterable[str]) -> set[str]:
    return {str(ipaddress.ip_address(address)) for address in addresses}


def ends(certificate: x509.Certificate, now: datetime) -> str:
    """`ended on 2026-01-31` or `ends on …`."""
    verb = "ends" if certificate.not_valid_after_utc > now else "ended"
    return f"{verb} on {certificate.not_valid_after_utc:%Y-%m-%d}"


def authority_problem(certificate: x509.Certificate, now: datetime, renew_days: int) -> str:
    """Why nothing should be signed by an authority any more; empty if it should."""
    if certificate.not_valid_before_utc > now:
        return f"begins on {certificate.not_valid_before_utc:%Y-%m-%d}, so a clock is wrong"
    if days_left(certificate, now) < renew_days:
        return ends(certificate, now)
    return ""


def given_problems(
    certificate_pem: str, key: str, authority_pem: str, server: Server, now: datetime
) -> Sequence[str]:
    """What is wrong with what a site gives for a host: clauses with their subject, no end.

    The certificate may be followed by those between it and the authority, as daemons want it.
    """
    try:
        chain = x509.load_pem_x509_certificates(certificate_pem.encode())
    except ValueError:
        return ["the certificate is no certificate in PEM"]
    try:
        trusted = x509.load_pem_x509_certificates(authority_pem.encode())
    except ValueError:
        return ["the authority is no certificate in PEM"]
    certificate = chain[0]
    problems = []
    try:
        if not same_key(certificate.public_key(), read_key(key).public_key()):
            problems.append("the key belongs to another certificate")
    except Unusable as problem:
        problems.append(f"the key cannot be used: {problem}")
    had = server_of(certificate)
    lacking = [n for n in server.names if not any(covers(p, n) for p in had.names)]
    lacking += sorted(_usual(server.addresses) - {*had.addresses})
    if server.asks and not had.asks:
        problems.append("the certificate is for servers only, and this host also asks with it")
    if lacking:
        names = ", ".join(had.names + had.addresses) or "nobody"
        problems.append(f"the certificate names {names}, and not {', '.join(lacking)}")
    if certificate.not_valid_before_utc > now:
        problems.append(f"the certificate begins on {certificate.not_valid_before_utc:%Y-%m-%d}")
    if not _ahead(certificate, now):
        problems.append(f"the certificate {ends(certificate, now)}")
    if not _leads_to(chain, trusted):
        problems.append("the authority has not signed the certificate")
    return problems


def _leads_to(chain: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate]) -> bool:
    """Whether each certificate is signed by the next, and one of them by who is trusted."""
    for number, certificate in enumerate(chain):
        if any(is_signed_by(certificate, anchor) or certificate == anchor for anchor in trusted):
            return True
        if number + 1 == len(chain) or not is_signed_by(certificate, chain[number + 1]):
            return False
    return False
