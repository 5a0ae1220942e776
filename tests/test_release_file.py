"""One file of a release: as pinned, or what was there before."""

from __future__ import annotations

import hashlib

import pytest
from ansible.module_utils.download import NoFile

from playbooks.library import release_file

BODY = b"release\n"
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def url(tmp_path_factory):
    source = tmp_path_factory.mktemp("mirror") / "enroot.deb"
    source.write_bytes(BODY)
    return source.as_uri()


def test_the_pinned_file_replaces_the_one_before(url, tmp_path):
    dest = tmp_path / "enroot.deb"
    dest.write_bytes(b"the version before")
    release_file.fetch(url, SHA.upper(), dest, 0o640, 5)
    assert (dest.read_bytes(), dest.stat().st_mode & 0o777) == (BODY, 0o640)
    assert release_file.digest(dest) == SHA


def test_another_content_is_refused(url, tmp_path):
    dest = tmp_path / "enroot.deb"
    dest.write_bytes(b"the version before")
    with pytest.raises(NoFile) as problem:
        release_file.fetch(url, "0" * 64, dest, 0o640, 5)
    sentence = f"{url} has the SHA-256 {SHA}, and {'0' * 64} is pinned; "
    assert str(problem.value).startswith(sentence)
    assert dest.read_bytes() == b"the version before"
    assert list(tmp_path.iterdir()) == [dest]
