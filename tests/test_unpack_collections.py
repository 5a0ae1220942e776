"""scripts/unpack-collections, with a bundle of two small collections."""

from __future__ import annotations

import json
import zipfile
from importlib import metadata

import pytest

CORE = metadata.version("ansible-core")
WANTED = {"a.one": "1.0.0"}


@pytest.fixture
def bundle(tmp_path):
    """Makes a bundle that needs a given ansible-core."""

    def make(core: str = f"=={CORE}"):
        path = tmp_path / "ansible-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(
                "ansible-1.dist-info/METADATA",
                f"Name: ansible\nRequires-Dist: ansible-core{core}\n",
            )
            for name, version in (("one", "1.0.0"), ("two", "2.0.0")):
                manifest = {"collection_info": {"version": version}}
                wheel.writestr(f"ansible_collections/a/{name}/MANIFEST.json", json.dumps(manifest))
                wheel.writestr(f"ansible_collections/a/{name}/plugins/x.py", "")
        return path

    return make


def test_only_what_is_wanted_is_unpacked(bundle, tmp_path, unpack_collections):
    unpack_collections.unpack(bundle(), tmp_path / "out", WANTED)
    files = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    assert files == {
        "ansible_collections/a/one/MANIFEST.json",
        "ansible_collections/a/one/plugins/x.py",
    }
    unpack_collections.check(tmp_path / "out", WANTED)


@pytest.mark.parametrize(
    ("core", "wanted", "words"),
    [
        (f"=={CORE}", {"a.one": "1.0.1"}, "a.one is 1.0.0 but requirements.yml says 1.0.1"),
        (f"=={CORE}", {"a.three": "1.0.0"}, "has no collection a.three"),
        ("<2", WANTED, f"needs ansible-core<2, requirements.txt has {CORE}"),
    ],
)
def test_what_does_not_fit_is_refused(bundle, tmp_path, unpack_collections, core, wanted, words):
    with pytest.raises(unpack_collections.Disagreement, match=words):
        unpack_collections.unpack(bundle(core), tmp_path / "out", wanted)


def test_an_absent_or_other_collection_is_seen_later(bundle, tmp_path, unpack_collections):
    unpack_collections.unpack(bundle(), tmp_path, WANTED)
    with pytest.raises(unpack_collections.Disagreement, match=r"a\.two is not in .*scripts/setup"):
        unpack_collections.check(tmp_path, {"a.two": "2.0.0"})
    with pytest.raises(unpack_collections.Disagreement, match=r"requirements\.yml says 9"):
        unpack_collections.check(tmp_path, {"a.one": "9"})


def test_a_list_of_nothing_is_refused(tmp_path, unpack_collections):
    (tmp_path / "requirements.yml").write_text("collections: []")
    with pytest.raises(unpack_collections.Disagreement, match="names no collection"):
        unpack_collections.required_versions(tmp_path / "requirements.yml")
