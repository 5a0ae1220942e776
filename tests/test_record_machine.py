"""The recorder of machines: one file to carry there, one archive that does not say where."""

from __future__ import annotations

import dataclasses
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cluster.recorder import anonymous, archive, parts
from cluster.recorder.anonymous import Identity
from cluster.recorder.archive import Leaks, NotARecording, Recorded, Source
from cluster.recorder.parts import Machine, NotThere, Part
from tests.conftest import REPOSITORY
from tests.machines import standin
from tests.processes import passes, run

PACK = REPOSITORY / "scripts/record-machine"
SOURCE = Source(archive.STAND_IN, "", "2026-11-28", "plumbline")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("packed") / "plumbline-record.pyz"
    passes(PACK, file)
    return file


@pytest.fixture(scope="module")
def recorded(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """What it printed on the machine that does not exist, and the archive."""
    folder = tmp_path_factory.mktemp("machine")
    printed = standin.record(folder, folder / "it.tar.gz", sys.executable, "-I", packed)
    return printed, (folder / "it.tar.gz").read_bytes()


def test_the_same_checkout_gives_the_same_bytes(packed: Path, tmp_path: Path) -> None:
    passes(PACK, tmp_path / "again.pyz")
    assert (tmp_path / "again.pyz").read_bytes() == packed.read_bytes()
    with zipfile.ZipFile(packed) as content:
        assert not [name for name in content.namelist() if "/tests/" in name]


def test_every_part_is_recorded(recorded: tuple[str, bytes]) -> None:
    printed, content = recorded
    assert "not recorded" not in printed
    assert [line.split()[0] for line in printed.splitlines()[:-2]] == [
        part.name for part in parts.PARTS
    ]
    assert '"origin": "stand-in"' in archive.unpack(content)[archive.MANIFEST]


@pytest.mark.parametrize("what", standin.PRIVATE)
def test_nothing_that_tells_the_machine_is_in_the_archive(
    recorded: tuple[str, bytes], what: str
) -> None:
    value = standin.PRIVATE[what].lower()
    told = [*standin.FILES.values(), *standin.PROGRAMS.values()]
    assert any(value in text.lower() for text in told), "the machine never says it"
    for name, text in archive.unpack(recorded[1]).items():
        assert value not in f"{name}\n{text}".lower(), name


def test_an_archive_that_leaks_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Recorded("nvidia-smi", {"nvidia-smi-q.txt": standin.SMI})
    assert archive.contents([part], [], SOURCE)
    monkeypatch.setattr(anonymous.Mask, "__call__", lambda self, text, addresses=True: text)
    with pytest.raises(Leaks, match=r"nvidia-smi-q.txt still has a value of the kind \w+; nothing"):
        archive.contents([part], [], SOURCE)


def test_names_of_files_and_reasons_are_masked_too() -> None:
    own = [Identity("host", "gx7"), Identity("user", "jdoe")]
    found = archive.contents(
        [
            Recorded("a", {"sys/gx7": "text"}),
            Recorded("b", {}, "/scratch/jdoe is not there"),
        ],
        own,
        dataclasses.replace(SOURCE, says="gx7, by jdoe"),
    )
    assert "sys/host1" in found
    assert "gx7" not in str(found)
    assert "jdoe" not in str(found)


def test_what_cannot_be_read_is_named_and_the_rest_is_kept() -> None:
    def fails(machine: Machine) -> dict[str, str]:
        raise NotThere("dcgmi cannot be started: No such file or directory")

    some = [Part("dcgm", fails), Part("x", lambda machine: {"x": "é" * (parts.LONGEST + 1)})]
    dcgm, whole = archive.record(Machine(), some)
    assert dcgm.why == "dcgmi cannot be started: No such file or directory"
    assert (len(whole.files["x"]), whole.cut) == (parts.LONGEST, ("x",))


def test_a_machine_without_gpus_is_a_sentence(packed: Path, tmp_path: Path) -> None:
    answer = run(sys.executable, packed, "--root", tmp_path, cwd=tmp_path, env={"PATH": "/bin"})
    assert answer.returncode == 1
    assert answer.stderr.startswith("plumbline-record: neither NVML, nvidia-smi nor sysfs shows")
    assert list(tmp_path.iterdir()) == []


def test_the_same_texts_give_the_same_bytes() -> None:
    files = {"b": "2", archive.MANIFEST: '{"schema": 1}'}
    assert archive.pack(files) == archive.pack(dict(reversed(files.items())))
    assert archive.unpack(archive.pack(files)) == files


def link() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as content:
        entry = tarfile.TarInfo("manifest.json")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        content.addfile(entry)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no archive", "no packed archive"),
        (archive.pack({"x": "1"}), "no manifest.json"),
        (archive.pack({archive.MANIFEST: "[]"}), "no manifest.json of a recording"),
        (archive.pack({archive.MANIFEST: '{"schema": 2}'}), "schema is 2; this program reads 1"),
        (link(), "manifest.json is no file"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(NotARecording, match=words):
        archive.unpack(content)
