"""The authority's file on the control node."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from playbooks.plugin_utils import kept
from roles.tls_certificate.plugin_utils import authority_file, certificates

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
AUTHORITY = certificates.new_authority("site", NOW, 3650)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tls_authority.pem"
    kept.keep(path, AUTHORITY.secret)
    return path


def read(path, now=NOW):
    return authority_file.read(path, Path.read_text, now, 90)


def test_it_is_what_was_written(file):
    assert read(file).certificate == AUTHORITY.certificate


def test_none_is_none(tmp_path):
    assert read(tmp_path / "nothing") is None


def test_one_that_others_can_read_signs_nothing(file):
    file.chmod(0o644)
    with pytest.raises(kept.NotKept, match="others can read it"):
        read(file)


def test_half_a_file_is_none(file):
    file.write_text(AUTHORITY.pem)
    with pytest.raises(kept.NotKept, match="is no authority: it is no private key in PEM"):
        read(file)


def test_one_that_ends_says_what_to_do(file):
    with pytest.raises(kept.NotKept, match="ends on 2036-11-19; move the file away and set tls_"):
        read(file, NOW + timedelta(days=3600))


def test_a_copy_is_read_as_the_file_and_named_as_a_copy():
    authority = authority_file.deployed(AUTHORITY.secret, Path.read_text, NOW, 90)
    assert authority.certificate == AUTHORITY.certificate
    with pytest.raises(kept.NotKept, match=r"^the cluster's copy is no authority: "):
        authority_file.deployed(AUTHORITY.pem, Path.read_text, NOW, 90)
