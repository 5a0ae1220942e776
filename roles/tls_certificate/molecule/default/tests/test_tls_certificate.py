"""Certificates as daemons and their clients take them, and the ways in which they go wrong."""

import shlex
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from roles.tls_certificate.molecule.default.tests.deployed import AUTHORITY, COPY, FOLDER, serial
from roles.tls_certificate.plugin_utils import certificates
from tests.role_play import Case, refused


def key_sum(host) -> str:
    with host.sudo():
        return host.check_output(f"sha256sum {FOLDER}/host.key")


def test_the_key_is_for_daemons_of_its_group_alone(host):
    with host.sudo():
        key = host.file(f"{FOLDER}/host.key")
        assert (key.user, key.group, key.mode) == ("root", "plumbline-tls", 0o640)
    assert AUTHORITY.stat().st_mode & 0o777 == 0o600


def test_the_authoritys_host_has_a_copy_for_root_alone(host):
    with host.sudo():
        copy = host.file(COPY)
        assert (copy.user, copy.group, copy.mode) == ("root", "root", 0o600)
        assert copy.content_string == AUTHORITY.read_text()


@pytest.mark.long
def test_a_control_node_without_an_authority_takes_over_the_clusters(host, play):
    before, had = serial(host), AUTHORITY.read_bytes()
    AUTHORITY.unlink()
    run = play()
    assert run.code == 0, run.output
    assert (AUTHORITY.read_bytes(), AUTHORITY.stat().st_mode & 0o777) == (had, 0o600)
    assert serial(host) == before
    assert play().changed == 0


def test_a_client_accepts_the_host_by_its_name_and_no_other(host):
    verify = f"openssl verify -CAfile {FOLDER}/ca.crt -purpose sslserver"
    assert host.run(f"{verify} -verify_hostname node {FOLDER}/host.crt").rc == 0
    assert host.run(f"{verify} -verify_ip 127.0.0.1 {FOLDER}/host.crt").rc == 0
    assert host.run(f"{verify} -verify_hostname other {FOLDER}/host.crt").rc != 0


def test_one_that_ends_soon_is_renewed_for_the_same_key(host, attempts):
    before, key = serial(host), key_sum(host)
    days = {"tls_certificate_days": 1000}
    outcomes = attempts(
        [
            Case("renewed", days | {"tls_certificate_renew_days": 999}),
            Case("long_enough", days | {"tls_certificate_renew_days": 998}),
        ]
    )
    outcomes["renewed"].passes()
    outcomes["long_enough"].passes(changed=False)
    assert serial(host) != before
    assert key_sum(host) == key


@pytest.mark.long
def test_a_certificate_that_has_ended_is_renewed(host, play):
    """Of this authority, this key and these names, and a year too old."""
    names = certificates.Server(("node", "localhost"), ("127.0.0.1",))
    with host.sudo():
        pem = host.check_output(f"openssl req -new -subj /CN=node -key {FOLDER}/host.key")
        request = certificates.read_request(pem)
        authority = certificates.read_authority(AUTHORITY.read_text())
        then = datetime.now(UTC) - timedelta(days=400)
        old = certificates.signed(request, names, authority, then, 30)
        host.check_output(f"printf %s {shlex.quote(old)} > {FOLDER}/host.crt")
    verify = f"openssl verify -CAfile {FOLDER}/ca.crt {FOLDER}/host.crt"
    assert "certificate has expired" in host.run(verify).stderr
    assert play().code == 0
    assert host.run(verify).rc == 0
    assert play().changed == 0


def test_a_given_certificate_of_the_wrong_name_is_refused(host, play, tmp_path):
    make = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=other "
        f"-addext subjectAltName=DNS:other -days 9 -keyout {tmp_path}/k -out {tmp_path}/c"
    )
    subprocess.run(make.split(), check=True, capture_output=True)
    (tmp_path / "k").chmod(0o600)
    before = serial(host)
    run = play(
        tls_certificate_given_certificate=f"{tmp_path}/c",
        tls_certificate_given_key_file=f"{tmp_path}/k",
        tls_certificate_given_authority=f"{tmp_path}/c",
        tls_certificate_names=["node"],
        tls_certificate_addresses=[],
    )
    refused(run, "because the certificate names other, and not node")
    assert serial(host) == before
