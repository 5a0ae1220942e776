"""Keys, files and what APT says; how APT takes them is asked on a node."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.download import NoFile
from ansible.module_utils.refused import Refused
from hypothesis import given
from hypothesis import strategies as st

from roles.package_repositories.library import package_sources
from tests.standins import mirror

ENTRY = {
    "name": "cuda",
    "uris": ["https://mirror.example.org/cuda/debian12/x86_64/"],
    "suites": ["/"],
    "key_url": "https://mirror.example.org/key.pub",
}


@pytest.fixture(scope="module")
def key() -> mirror.Key:
    return mirror.make_key()


def test_a_keys_fingerprint_is_the_one_that_gpg_says(key):
    assert package_sources.fingerprints(key.armoured) == [key.fingerprint]
    assert package_sources.fingerprints(key.binary) == [key.fingerprint]


def test_every_key_in_a_file_is_found(key):
    other = mirror.make_key("Somebody else")
    both = [key.fingerprint, other.fingerprint]
    assert package_sources.fingerprints(key.binary + other.binary) == both
    assert package_sources.fingerprints(key.armoured + other.armoured) == both
    pinned = {"key_fingerprint": key.fingerprint}
    assert other.fingerprint in package_sources.key_problem(key.armoured + other.armoured, pinned)


def test_a_long_packet_of_the_new_format(key):
    _, body, _ = package_sources.packet(key.binary)
    for length in (bytes([len(body)]), b"\xff" + len(body).to_bytes(4, "big")):
        assert package_sources.packet(b"\xc6" + length + body + b"rest") == (6, body, b"rest")
    long = b"x" * 300
    two = bytes([192 + ((300 - 192) >> 8), (300 - 192) & 0xFF])
    assert package_sources.packet(b"\xc6" + two + long) == (6, long, b"")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>Not found</html>",
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nx!y\n-----END PGP PUBLIC KEY BLOCK-----",
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n",
        b"\x99\x01\x00\x04",
        b"\x99\x00\x01\x03",
    ],
)
def test_what_is_no_key_is_refused(data):
    with pytest.raises(ValueError, match=r"\w"):
        package_sources.fingerprints(data)
    assert "no key" in package_sources.key_problem(data, {"key_fingerprint": "A" * 40})


@given(st.binary(max_size=200))
def test_nothing_random_has_the_pinned_fingerprint(data):
    for text in (data, b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + base64.b64encode(data)):
        assert package_sources.key_problem(text, {"key_fingerprint": "A" * 40})


def test_both_pins_count(key):
    right = {"key_fingerprint": f" {key.fingerprint[:20].lower()} {key.fingerprint[20:]}"}
    assert package_sources.key_problem(key.armoured, right) == ""
    wrong = package_sources.key_problem(key.armoured, right | {"key_sha256": "0" * 64})
    assert "is pinned in key_sha256" in wrong


def test_a_source_says_what_it_was_given_and_no_more():
    text = package_sources.source_text(ENTRY, Path("/etc/apt/keyrings/plumbline-cuda.asc"))
    assert text.splitlines()[1:] == [
        "Types: deb",
        "URIs: https://mirror.example.org/cuda/debian12/x86_64/",
        "Suites: /",
        "Signed-By: /etc/apt/keyrings/plumbline-cuda.asc",
    ]


def test_files_are_put_all_or_none(tmp_path):
    key, other, source = tmp_path / "keys/a.asc", tmp_path / "keys/a.gpg", tmp_path / "a.sources"
    package_sources.put({key: b"old", other: b"old"})
    package_sources.put({key: b"new", other: b"", source: b"x"})
    assert (key.read_bytes(), other.exists(), source.read_bytes()) == (b"new", False, b"x")
    assert key.stat().st_mode & 0o777 == 0o644
    # Linux's file that is always full.
    source.with_name("a.sources.new").symlink_to("/dev/full")
    with pytest.raises(NoFile, match=f"{source} cannot be written: its disk is full"):
        package_sources.put({key: b"newer", other: b"newer", source: b"y"})
    assert (key.read_bytes(), other.exists(), source.read_bytes()) == (b"new", False, b"x")
    assert sorted(tmp_path.rglob("*")) == [source, key.parent, key]


def test_a_key_that_cannot_be_had(tmp_path):
    apt = package_sources.Apt(etc=tmp_path)
    entry = ENTRY | {"key_url": (tmp_path / "key.asc").as_uri()}
    assert package_sources.key_of(entry, apt, may_ask=False, timeout=1) == b""
    message = rf"its key {entry['key_url']} cannot be reached: .*; set key_url to a mirror"
    with pytest.raises(Refused, match=message):
        package_sources.key_of(entry, apt, may_ask=True, timeout=1)


def test_preferences_are_of_the_host_or_of_a_version():
    pins = [
        {"packages": ["*"], "priority": 100},
        {"packages": ["a", "b-*"], "priority": 1001, "version": "580.*"},
    ]
    assert package_sources.preferences_text(ENTRY | {"pins": pins}).splitlines()[1:] == [
        "Package: *",
        'Pin: origin "mirror.example.org"',
        "Pin-Priority: 100",
        "",
        "Package: a b-*",
        "Pin: version 580.*",
        "Pin-Priority: 1001",
    ]
    assert package_sources.preferences_text(ENTRY) == ""


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        # Of apt 2.6 and 3.0, with the addresses changed.
        (
            "E: Failed to fetch http://m/InRelease  Could not connect to m:80 (192.0.2.1). - "
            "connect (111: Connection refused)\nE: The repository 'http://m' is not signed.",
            "cannot be reached (Could not connect to m:80 (192.0.2.1). - connect (111:",
        ),
        ("E: The repository 'http://m Release' does not have a Release file.", "has no suite /"),
        (
            "W: GPG error: http://m InRelease: The following signatures couldn't be verified "
            "because the public key is not available: NO_PUBKEY 0123456789ABCDEF\n"
            "E: The repository 'http://m InRelease' is not signed.",
            "is signed with another key (0123456789ABCDEF) than the one at https://mirror",
        ),
        (
            "W: OpenPGP signature verification failed: http://m InRelease: Sub-process "
            "/usr/bin/sqv returned an error code (1), Missing key 0123ABCD, needed",
            "is signed with another key (0123ABCD) than",
        ),
        ("E: The repository 'http://m Release' is not signed.", "is not signed, and what is not"),
        (
            "W: Skipping acquire of configured file 'extra/binary-amd64/Packages' as repository "
            "'http://m stable InRelease' doesn't have the component 'extra' (component misspelt?)",
            "has no component extra; see components",
        ),
        ("E: Something else entirely\n", "cannot be read: Something else entirely"),
        ("", "cannot be read"),
    ],
)
def test_what_apt_says_becomes_one_sentence(output, sentence):
    message = package_sources.meaning(output, ENTRY)
    assert message.startswith("https://mirror.example.org/cuda/debian12/x86_64/ ")
    assert sentence in message
    assert "\n" not in message


def test_strangers_are_ours_only(tmp_path):
    kept = ["sources.list.d/plumbline-cuda.sources", "sources.list.d/site.list"]
    kept.append("keyrings/plumbline-cuda.gpg")
    old = ["keyrings/plumbline-old.asc", "preferences.d/plumbline-old.pref"]
    old.append("sources.list.d/plumbline-old.sources")
    package_sources.put({tmp_path / name: b"x" for name in kept + old})
    strangers = package_sources.strangers(package_sources.Apt(etc=tmp_path), ["cuda"])
    assert strangers == [tmp_path / name for name in old]


def test_no_other_role_has_files_that_would_be_strangers() -> None:
    roles = Path(__file__).resolve().parents[2]
    others = [
        path
        for path in roles.rglob("*.yml")
        if path.parent.name in ("tasks", "vars") and path.parents[1].name != "package_repositories"
    ]
    name = f"/etc/apt/({'|'.join(package_sources.FOLDERS)})/{package_sources.PREFIX}"
    assert len(others) > 100
    assert not [path for path in others if re.search(name, path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("uri", "suite", "release"),
    [
        # As `apt-get update --print-uris` of apt 3.0 has them.
        ("http://m/flat/", "/", "http://m/flat/InRelease"),
        ("http://m/flat", "./", "http://m/flat/./InRelease"),
        ("http://m/flat", "sub/", "http://m/flat/sub/InRelease"),
        ("http://m/suites", "stable", "http://m/suites/dists/stable/InRelease"),
    ],
)
def test_somebody_elses_list_with_the_same_address(uri, suite, release):
    entry = {"uris": ["http://m/other", uri], "suites": [suite]}
    theirs = Path("/etc/apt/sources.list.d/theirs.list")
    message = package_sources.shared(entry, {release: theirs})
    assert message.startswith(f"{theirs} on the node has its address {uri} already")
    assert package_sources.shared(entry, {f"{release}2": theirs}) == ""


def test_what_is_refused_is_a_state_of_that_repository_alone(tmp_path, monkeypatch):
    theirs = tmp_path / "sources.list.d/theirs.list"
    apt = package_sources.Apt(etc=tmp_path)
    other = ENTRY | {"name": "other", "uris": ["https://mirror.example.org/other/"]}
    entries: list[Any] = [ENTRY, other]

    def look() -> package_sources.Outcome:
        return package_sources.bring_all(entries, apt, may_ask=False, check_mode=True, timeout=1)

    release = f"{ENTRY['uris'][0]}InRelease"
    monkeypatch.setattr(package_sources, "of_others", lambda _: {release: theirs})
    outcome = look()
    assert outcome.states["cuda"].startswith(f"{theirs} on the node has its address ")
    assert outcome.states["other"] == "absent"
    assert outcome.problems == [f"cuda: {outcome.states['cuda']}."]

    def unreadable(_: package_sources.Apt) -> None:
        raise Refused(f"{theirs} cannot be read")

    monkeypatch.setattr(package_sources, "of_others", unreadable)
    outcome = look()
    assert outcome.states == dict.fromkeys(["cuda", "other"], f"{theirs} cannot be read")
    assert outcome.problems == [f"{theirs} cannot be read."]
