"""The authority on the control node is lost, another, readable for others or in the vault."""

import shutil
import subprocess

import pytest

from roles.tls_certificate.molecule.default.tests.deployed import AUTHORITY, COPY, FOLDER, serial
from tests.role_play import refused


@pytest.fixture
def kept():
    """The authority on the control node, which a test may replace or remove."""
    copy = AUTHORITY.with_suffix(".kept")
    shutil.copy2(AUTHORITY, copy)
    yield AUTHORITY
    copy.replace(AUTHORITY)


def test_another_name_is_another_certificate(host, play):
    assert play(tls_certificate_names=["node", "other"]).code == 0
    verify = f"openssl verify -CAfile {FOLDER}/ca.crt -verify_hostname other {FOLDER}/host.crt"
    assert host.run(verify).rc == 0
    assert play().code == 0
    assert host.run(verify).rc != 0


def test_a_lost_authority_is_not_made_anew_for_a_cluster_that_has_one(host, play, kept):
    before = serial(host)
    kept.unlink()
    refused(play(tls_certificate_authority_host=""), "this host trusts another authority than")
    assert not kept.exists()
    assert serial(host) == before


def test_none_is_made_while_the_host_with_the_copy_is_away(host, play, kept):
    kept.unlink()
    run = play(tls_certificate_authority_host="nowhere.invalid")
    refused(run, "nowhere.invalid, which may have the cluster's authority, cannot be read")
    assert not kept.exists()


def test_a_damaged_copy_is_not_taken_over(host, play, kept):
    kept.unlink()
    with host.sudo():
        host.check_output(f"cp {COPY} {COPY}.kept && truncate --size=200 {COPY}")
    try:
        refused(play(), "the cluster's copy is no authority")
        assert not kept.exists()
    finally:
        with host.sudo():
            host.check_output(f"mv {COPY}.kept {COPY}")


def test_another_authority_is_rotated_in(host, play, kept):
    before = serial(host)
    kept.unlink()
    assert play(tls_certificate_rotate="true").code == 0
    try:
        assert serial(host) != before
        assert host.run(f"openssl verify -CAfile {FOLDER}/ca.crt {FOLDER}/host.crt").rc == 0
    finally:
        shutil.copy2(AUTHORITY.with_suffix(".kept"), AUTHORITY)
        assert play(tls_certificate_rotate="true").code == 0


def test_an_authority_that_others_can_read_signs_nothing(play, kept):
    kept.chmod(0o644)
    refused(play(), f"{kept} has mode 0644, and others can read it; chmod 0600 {kept}")


def test_an_authority_in_the_vault_signs_as_well(host, play, kept, tmp_path):
    word = tmp_path / "word"
    word.write_text("of the vault\n")
    vault = f"--vault-password-file={word}"
    subprocess.run(["ansible-vault", "encrypt", vault, str(kept)], check=True, capture_output=True)
    run = play(None, vault)
    assert (run.code, run.changed) == (0, 1), run.output  # the copy lies in the vault now
    with host.sudo():
        assert host.file(COPY).content_string == kept.read_text()
    kept.unlink()
    run = play(None, vault)
    assert run.code == 0, run.output
    with host.sudo():
        assert host.file(COPY).content_string == kept.read_text()
