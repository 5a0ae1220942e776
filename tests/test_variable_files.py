"""Files of variables beside an inventory: what cannot be read is named by file and line."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from playbooks.plugin_utils import variable_files
from tests.conftest import REPOSITORY

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a:\n\tb: 1\n", 2, "tab"),
        ("a: 1\nb: {c: 1\nd: 2\n", 3, "flow mapping, which begins in line 2"),
        ("a: [1, 2\n", 1, "flow sequence"),
        ("a: 'x\n", 1, "quoted scalar"),
        ("a: b: c\n", 1, "mapping values"),
        ("a: 1\nb: 2\na: 3\n", 3, "`a` again, after line 1"),
        ("a:\n  - {b: 1, b: 2}\n", 2, "`b` again"),
        ("a: 1\n---\nb: 2\n", 3, "second YAML document"),
        ("- a\n- b\n", 1, "name: value"),
        ("just words\n", 1, "name: value"),
        ("a: 1\nb: \0\n", 2, "NUL"),
        ("a: &a [*a]\n", 1, "contains itself"),
        ("users:\n  - {name: ada, uid: 02001}\n", 2, "reads as 1025; write 2001"),
        ("a: *nobody\n", 1, "undefined alias"),
        (BOMB, 1, "its aliases stand for"),
        (f"a: {'[' * 5000}{']' * 5000}\n", 1, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_has_its_line(text: str, line: int, words: str) -> None:
    begin = time.monotonic()
    [sentence] = variable_files.text_problems(text)
    assert sentence.startswith(f"{line}: ")
    assert words in sentence
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "---\na: 1\n...\n",
        "base: &base {x: 1}\na: {<<: *base, y: 2}\nb: {<<: *base}\n",
        "a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3132\nb: !unsafe '{{'\n",
        "a: {1: b, 2: c}\n",
        "uid: 2001\nmode: 0644\ncode: '0755'\nzero: 0\nend: 08\n",
    ],
)
def test_what_ansible_reads_passes(text: str) -> None:
    assert list(variable_files.text_problems(text)) == []


def test_files_are_those_that_ansible_reads(tmp_path: Path) -> None:
    for name in (
        *("group_vars/all.yml", "group_vars/gpu/a.yaml", "group_vars/gpu/deep/b.json"),
        *("group_vars/plain", "host_vars/gpu1.yml", "host_vars/.hidden.yml"),
        *("group_vars/all.yml~", "group_vars/README.md", "keys/ada.pub", "hosts.yml"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a: 1\n")
    read = variable_files.files([str(tmp_path), str(tmp_path / "hosts.yml")])
    assert {str(path.relative_to(tmp_path)) for path in read} == {
        *("group_vars/all.yml", "group_vars/gpu/a.yaml", "group_vars/gpu/deep/b.json"),
        *("group_vars/plain", "host_vars/gpu1.yml", "hosts.yml"),
    }
    assert len(read) == 6
    assert variable_files.files(["gpu1,"]) == []


def refuse(_path: Path) -> None:
    raise ValueError("is encrypted, and there is no vault password")


def test_what_is_no_text_has_its_file(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a: 1\nb: \xe4\n")
    (tmp_path / "vault").write_bytes(b"$ANSIBLE_VAULT;1.1;AES256\n3132\n")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    sentences = variable_files.problems(sorted(tmp_path.iterdir()), refuse)
    assert [sentence.removeprefix(f"{tmp_path}/") for sentence in sentences] == [
        "fifo: is no regular file; remove it, or write the variables into a file",
        "gone: cannot be read: No such file or directory",
        "latin:2: has a byte that is not UTF-8; save the file as UTF-8",
        "vault: is encrypted, and there is no vault password",
    ]
    assert variable_files.problems([tmp_path / "vault"], lambda _: None) == []


def test_our_own_files_can_be_read() -> None:
    sources = [str(path) for path in sorted((REPOSITORY / "inventory").iterdir())]
    paths = [*variable_files.files(sources), *sorted((REPOSITORY / "group_vars").rglob("*.yml"))]
    assert len(paths) > 20
    assert variable_files.problems(paths, refuse) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2\n", "broken.yml:2: sets `a` again, after line 1"),
        ("$ANSIBLE_VAULT;1.1;AES256\n31\n", "--ask-vault-pass"),
    ],
)
def test_a_run_ends_before_its_first_play(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "hosts.yml").write_text("all: {hosts: {gpu1: {}}}\n")
    (tmp_path / "group_vars/all").mkdir(parents=True)
    (tmp_path / "group_vars/all/broken.yml").write_text(text)
    done = subprocess.run(
        ("ansible-playbook", "-i", str(tmp_path / "hosts.yml"), "playbooks/declared.yml"),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "PLAY" in done.stdout, "SUMMARY" in done.stdout) == (4, False, False)
    assert "No host was contacted" in done.stderr
    assert words in done.stderr
