"""What tells a machine is taken out of texts, and nothing else is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.recorder import anonymous
from cluster.recorder.anonymous import FORMS, Identity, Mask

HEX = "0123456789abcdef"


def digits(count: int) -> st.SearchStrategy[str]:
    return st.text(HEX, min_size=count, max_size=count)


def groups(sizes: list[int], mark: str) -> st.SearchStrategy[str]:
    return st.tuples(*map(digits, sizes)).map(mark.join)


VALUES = {
    "uuid": groups([8, 4, 4, 4, 12], "-"),
    "mac": groups([2] * 6, ":"),
    "guid": groups([4] * 4, ":"),
    "ipv6": groups([4] * 8, ":"),
    "ipv4": st.tuples(st.integers(1, 223), *[st.integers(0, 255)] * 3)
    .map(lambda parts: ".".join(map(str, parts)))
    .filter(lambda value: not value.startswith("198.18.") and value != "127.0.0.1"),
    "account": st.from_regex(r"[a-z]{3,8}@[a-z]{3,8}\.(?:edu|com)", fullmatch=True),
}
# Where values stand in what is recorded.
PLACES = ("{}", "GPU {}\n", "eth0:{}<0>", '"x": "{}",', "({})", "MIG-GPU-{}/7/0", "={}", "[{}]")
ANY = st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind]))


@given(ANY, st.sampled_from(PLACES))
def test_a_value_is_replaced_wherever_it_stands(one: tuple[str, str], place: str) -> None:
    kind, value = one
    text = place.format(value)
    masked = Mask([])(f"{text} {text.upper()}")
    assert value.lower() not in masked.lower()
    assert not anonymous.left(masked, [Identity(kind, value)])


@given(st.lists(ANY, min_size=1, max_size=6))
def test_the_same_gets_the_same_and_others_get_another(values: list[tuple[str, str]]) -> None:
    mask = Mask([])
    given_ = [mask(value) for _, value in values]
    assert given_ == [mask(value) for _, value in values]
    assert len(set(given_)) == len({value for _, value in values})


@given(ANY)
def test_a_replacement_looks_like_what_it_replaces(one: tuple[str, str]) -> None:
    kind, value = one
    assert FORMS[kind].pattern.fullmatch(Mask([])(value))


@given(
    st.from_regex(r"[a-z]{2,6}[0-9]{1,3}(?:\.[a-z]{2,6}){0,2}", fullmatch=True),
    st.from_regex(r"[0-9A-Z]{6}[0-9]{2}", fullmatch=True),
)
def test_names_and_serial_numbers_are_found_by_their_labels(host: str, serial: str) -> None:
    text = (
        f"[   1.500000] {host} kernel: NVRM: ready\n{host}:12:13 [0] NCCL INFO x\n"
        f'  Serial Number   : {serial}\n{{"serial": "{serial}"}} and {serial} of {host}.\n'
    )
    known = list(anonymous.labelled(text))
    masked = Mask(known, [text])(text)
    assert not anonymous.left(masked, known)
    # A word of a line, such as NCCL, may be in a name; it is whole names that must not be left.
    assert not re.search(rf"(?<![a-z0-9]){re.escape(host)}(?![a-z0-9])", masked)
    assert serial not in masked


@pytest.mark.parametrize(
    "text",
    [
        "0000:1b:00.0 and 00000000:1B:00.0, PCI:0000:2b:00",
        "VBIOS Version : 96.00.74.00.01, Image Version : G520.0200.00.05, old 90.02.30.01",
        "580.82.07 and 28.43.1014",
        "Sat Nov 28 01:00:00 2026",
        "127.0.0.1 and ::1",
        "Serial Number : N/A",
        '"serial": null,',
        "0x1b00, 0x2330, busId 81000",
        "400 Gb/sec (4X NDR)",
        '"energy_mj": 1234567890123456',
    ],
)
def test_what_tells_no_machine_stays(text: str) -> None:
    assert Mask(list(anonymous.labelled(text)), [text])(text) == text


def test_versions_of_packages_are_no_addresses() -> None:
    text = "libcublas-12-4 12.4.5.8-1"
    assert Mask([])(text, addresses=False) == text
    assert not list(anonymous.formed(text, addresses=False))


def test_a_replacement_is_no_word_of_the_texts() -> None:
    """Else two values of the recording would look like one."""
    mask = Mask([Identity("host", "gpu7")], ["host1 and gpu7"])
    assert mask("gpu7") == "host2"


def test_what_is_left_is_found_in_any_case() -> None:
    host = Identity("host", "Gpu7")
    assert anonymous.left("at GPU7:", [host]) == [host]
    assert anonymous.left("at GPU77:", [host]) == []
