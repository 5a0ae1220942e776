"""The importer as pyxis calls it, with an enroot of our own that notes what it was asked to do."""

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import until

PROGRAM = Path(__file__).parent.parent / "files/usr/local/libexec/plumbline/pyxis-importer"
URI = "docker://registry.example.org#team/image:1"

ENROOT = """\
#!/bin/sh
echo "$*" >> "$FAKE_LOG"
case $1 in
    digest)
        [ ! -e "$FAKE_LOG.no-registry" ] || { echo '[ERROR] no route to host' >&2; exit 1; }
        printf '%s\\n' "$(cat "$FAKE_LOG.digest")" ;;
    import)
        echo 'noise on standard output'
        [ ! -e "$FAKE_LOG.broken" ] || { echo half > "$3"; echo 'No space left' >&2; exit 1; }
        echo half > "$3"
        sleep "$(cat "$FAKE_LOG.seconds")"
        echo "$4" > "$3" ;;
esac
"""


@dataclass(frozen=True)
class Node:
    """A node with the importer, an enroot, and a cache."""

    folder: Path
    environment: dict[str, str]

    def note(self, name: str, text: str = "") -> None:
        (self.folder / f"log.{name}").write_text(text)

    def settings(self, **changed: object) -> None:
        settings = {"folder": str(self.folder / "cache"), "scope": "user", "days": 14} | changed
        (self.folder / "settings.json").write_text(json.dumps(settings))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PROGRAM, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def killed_while_it_imports(self, number: int) -> None:
        self.note("seconds", "8")
        process = self.start("get", URI)
        until(lambda: ".part" in self.files(), 10)
        process.send_signal(number)
        process.wait()
        # Not read to the end: what it started may hold that open for a while.
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def imports(self) -> list[str]:
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if line.startswith("import")]

    def files(self) -> list[str]:
        own = self.folder / "cache" / str(os.getuid())
        return sorted(file.suffix for file in own.iterdir()) if own.exists() else []


@pytest.fixture
def node(tmp_path):
    enroot = tmp_path / "bin/enroot"
    enroot.parent.mkdir()
    enroot.write_text(ENROOT)
    enroot.chmod(0o755)
    (tmp_path / "cache").mkdir()
    environment = os.environ | {
        "PATH": f"{enroot.parent}:{os.environ['PATH']}",
        "FAKE_LOG": str(tmp_path / "log"),
        "PLUMBLINE_PYXIS_IMPORTER": str(tmp_path / "settings.json"),
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
    }
    host = Node(tmp_path, environment)
    host.note("digest", "sha256:" + "ab" * 32)
    host.note("seconds", "0")
    host.settings()
    return host


@pytest.fixture
def image(node):
    """Imported by a job."""
    done = node.run("get", URI)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.removesuffix("\n"))


def unused(image):
    """As long as it takes to be cleaned away."""
    long_ago = time.time() - 20 * 86400
    os.utime(image, (long_ago, long_ago))


def test_the_path_and_nothing_else_is_printed(image):
    assert image.name.startswith("sha256-abab")
    assert image.name.endswith(f".{os.uname().machine}.sqsh")
    assert image.read_text() == f"{URI}@sha256:{'ab' * 32}\n"
    assert image.stat().st_mode & 0o777 == 0o644
    assert image.parent.stat().st_mode & 0o777 == 0o700


def test_twenty_at_once_import_once(node):
    node.note("seconds", "0.5")
    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(lambda _: node.run("get", URI), range(20)))
    assert {each.returncode for each in done} == {0}
    assert len({each.stdout for each in done}) == 1
    assert len(node.imports()) == 1


def test_a_tag_that_moved_is_imported_anew(node, image):
    node.note("digest", "sha256:" + "cd" * 32)
    assert node.run("get", URI).stdout.strip() != str(image)
    assert len(node.imports()) == 2


def test_an_image_named_by_digest_is_not_named_twice(node):
    node.run("get", f"{URI}@sha256:{'ab' * 32}")
    assert node.imports()[0].count("@sha256:") == 1


def test_a_failed_import_leaves_nothing_and_the_next_one_works(node):
    node.note("broken")
    done = node.run("get", URI)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No space left" in done.stderr
    assert f"enroot import {URI}@sha256:" in done.stderr
    assert node.files() == [".lock"]
    (node.folder / "log.broken").unlink()
    assert node.run("get", URI).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_was_killed_holds_nobody_up(node, number):
    node.killed_while_it_imports(number)
    node.note("seconds", "0")
    done = node.run("get", URI)
    assert done.returncode == 0, done.stderr
    assert node.files() == [".lock", ".sqsh"]


def test_release_removes_what_a_killed_step_began_and_may_come_twice(node):
    node.killed_while_it_imports(signal.SIGKILL)
    for _ in range(2):
        assert node.run("release").returncode == 0
    assert node.files() == [".lock"]


def test_release_keeps_the_image(node, image):
    assert node.run("release").returncode == 0
    assert image.exists()


@pytest.mark.parametrize(
    ("note", "text", "words"),
    [
        ("no-registry", "", ": [ERROR] no route to host\n"),
        ("digest", "../../etc/passwd", ""),  # no name of a file
    ],
)
def test_without_a_digest_it_ends_with_enroots_words(node, note, text, words):
    node.note(note, text)
    done = node.run("get", URI)
    assert done.returncode == 1
    assert f"pyxis-importer: enroot digest {URI} gave no digest{words}" in done.stderr


def test_a_folder_that_others_may_write_to_is_not_trusted(node):
    own = node.folder / "cache" / str(os.getuid())
    own.mkdir()
    own.chmod(0o777)
    done = node.run("get", URI)
    assert done.returncode == 1
    assert "is not a folder of user" in done.stderr
    assert node.imports() == []


def test_a_link_in_place_of_the_folder_is_not_followed(node):
    elsewhere = node.folder / "elsewhere"
    elsewhere.mkdir()
    (node.folder / "cache" / str(os.getuid())).symlink_to(elsewhere)
    assert node.run("get", URI).returncode == 1
    assert list(elsewhere.iterdir()) == []


def test_a_shared_cache_has_one_folder(node):
    node.settings(scope="shared")
    image = Path(node.run("get", URI).stdout.strip())
    assert image.parent == node.folder / "cache"
    assert image.with_suffix(".lock").stat().st_mode & 0o777 == 0o666


def test_what_was_not_used_for_long_goes_and_the_rest_stays(node, image):
    node.note("digest", "sha256:" + "cd" * 32)
    new = Path(node.run("get", URI).stdout.strip())
    unused(image)
    assert node.run("clean").returncode == 0
    assert not image.exists()
    assert not image.with_suffix(".lock").exists()
    assert new.exists()


def test_a_new_use_counts(node, image):
    unused(image)
    assert node.run("get", URI).returncode == 0
    assert node.run("clean").returncode == 0
    assert image.exists()


def test_a_folder_of_another_name_is_nobodys_cache(node):
    strange = node.folder / "cache" / "strange"
    strange.mkdir()
    old = strange / "a.sqsh"
    old.write_text("x")
    os.utime(old, (0, 0))
    assert node.run("clean").returncode == 0
    assert old.exists()


def test_another_word_is_usage(node):
    assert node.run("put").returncode == 2


@pytest.mark.parametrize(("mode", "code"), [(0o600, 0), (0o644, 1), (0o640, 1)])
def test_keys_that_others_may_read_import_nothing(node, mode, code):
    """enroot would take them; its own file, not one that operators gave to all."""
    keys = node.folder / "enroot/.credentials"
    keys.parent.mkdir()
    keys.write_text("machine nvcr.io login $oauthtoken password of-a-test\n")
    keys.chmod(mode)
    node.environment["XDG_CONFIG_HOME"] = str(node.folder)
    node.environment.pop("ENROOT_CONFIG_PATH", None)
    done = node.run("get", URI)
    assert done.returncode == code, done.stderr
    if code:
        assert f"others may read the keys in {keys}; chmod 600 it" in done.stderr
        assert node.imports() == []
