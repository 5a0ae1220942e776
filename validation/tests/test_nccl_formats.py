"""The command that compares an NCCL library with the recorded formats, on libraries made here.

They are ELF files with a section of constants and nothing else, which is what it reads of one.
"""

import struct
import zipfile

import pytest

from validation import nccl_formats
from validation.nccl_formats import __main__ as command
from validation.nccl_formats import library, recorded, render

NEWEST = recorded().newest
CHOICE = recorded().lines["choice"][-1].strings[0]


def elf(texts):
    """A library with these texts among its constants, after some binary data."""
    constants = b"\x00\x01\xff\xfe\x00" + b"".join(text.encode() + b"\0" for text in texts)
    names = b"\0.rodata\0.shstrtab\0"
    at = 64
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    rows = [(0, 0, 0, 0), (1, 1, at, len(constants)), (9, 3, at + len(constants), len(names))]
    struct.pack_into("<Q", head, 0x28, at + len(constants) + len(names))
    struct.pack_into("<HHH", head, 0x3A, 64, len(rows), 2)
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 1, 0)
        for name, kind, offset, size in rows
    )
    return bytes(head) + constants + names + table


def printed(release=NEWEST):
    """All that the newest release is known to print, and its name."""
    strings = [text for formats in recorded().lines.values() for text in formats[-1].strings]
    return [f"NCCL version {release}+cuda13.0", *strings]


@pytest.fixture
def compared(tmp_path, monkeypatch, capsys):
    kept = tmp_path / "recorded.yml"
    kept.write_bytes(nccl_formats.RECORDED.read_bytes())
    monkeypatch.setattr(nccl_formats, "RECORDED", kept)

    def compare(content, *options):
        path = tmp_path / "libnccl.so.2"
        path.write_bytes(content)
        return command.main([str(path), *options]), capsys.readouterr()

    yield compare
    recorded.cache_clear()


def test_the_file_is_as_the_command_writes_it():
    assert render(recorded()) == nccl_formats.RECORDED.read_text(encoding="utf-8")


def test_releases_are_in_their_order_and_formats_of_them():
    releases = recorded().releases
    assert list(releases) == sorted(releases, key=nccl_formats.number)
    for name, formats in recorded().lines.items():
        places = [releases.index(each.since) for each in formats]
        assert places == sorted(set(places)), name


def test_the_newest_release_prints_what_is_recorded(compared):
    status, told = compared(elf(printed()))
    assert (status, told.out) == (0, f"NCCL {NEWEST} prints all recorded lines as {NEWEST} does\n")


def test_a_changed_line_is_told_with_what_came_in_its_place(compared):
    new = CHOICE.replace("cgaClusterSize %d", "clusterSize %d plane %d")
    status, told = compared(elf([new if text == CHOICE else text for text in printed("2.33.1")]))
    assert status == 1
    assert told.out.splitlines() == [
        f"NCCL 2.33.1 prints 1 line otherwise than {NEWEST}:",
        "choice",
        f"  - {CHOICE!r}",
        f"  + {new!r}",
    ]


def test_a_line_that_nothing_resembles_is_told_as_well(compared):
    status, told = compared(elf([text for text in printed("2.33.1") if text != CHOICE]))
    assert status == 1
    assert told.out.endswith(f"  - {CHOICE!r}\n  + nothing that resembles it\n")


def test_a_release_is_recorded_with_its_changes(compared):
    new = CHOICE.replace("cgaClusterSize %d", "clusterSize %d plane %d")
    texts = [new if text == CHOICE else text for text in printed("2.33.1")]
    status, told = compared(elf(texts), "--write")
    assert status == 1
    assert told.out.endswith("recorded 2.33.1, with 1 of 1 changed lines\n")
    recorded.cache_clear()
    now = recorded()
    assert now.newest == "2.33.1"
    assert now.formats("choice")["2.33.1"] == new
    assert compared(elf(texts))[0] == 0


def test_a_wheel_is_read_as_the_library_in_it(tmp_path, compared):
    wheel = tmp_path / "nccl.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nvidia/nccl/lib/libnccl.so.2", elf(printed()))
    assert compared(wheel.read_bytes())[0] == 0
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nvidia/nccl/include/nccl.h", "")
    status, told = compared(wheel.read_bytes())
    assert status == 2
    assert "has 0 files libnccl.so.2, one expected" in told.err


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF\x02\x01" + bytes(58)])
def test_what_is_no_library_is_refused_in_a_sentence(compared, content):
    status, told = compared(content)
    assert status == 2
    assert "libnccl.so.2" in told.err
    assert "Traceback" not in told.err


def test_a_library_that_does_not_say_its_release_needs_one(compared):
    texts = printed()[1:]
    status, told = compared(elf(texts))
    assert status == 2
    assert "does not say which release it is: give --release VERSION" in told.err
    assert compared(elf(texts), "--release", "2.33.1")[0] == 0


def test_texts_after_binary_data_are_found(tmp_path):
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(elf(["\x01\x02Made virtual device"]))
    assert "Made virtual device" in library.texts(path)
