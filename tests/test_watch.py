"""A run that a person can watch: what the screen shows, and what the log keeps."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.module_utils._internal._messages import Event, WarningSummary
from ansible.utils.display import Display

from cluster import watching
from playbooks.callback_plugins import watch
from playbooks.plugin_utils import layers, run_log
from playbooks.plugin_utils.layers import Layer
from playbooks.plugin_utils.run_log import Log, Times, keep_times, key, last_times
from tests.processes import ANSIBLE_PLAYBOOK

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")

INVENTORY = """
all:
  vars: {ansible_connection: local, ansible_python_interpreter: auto_silent, secret: hunter2}
  children:
    slurm_cluster:
      hosts: {ctl1: , "gpu[1:3]": }
    empty:
"""
PLAYBOOK = """
- name: Prepare every node of a cluster whose name is long
  hosts: slurm_cluster
  gather_facts: false
  tasks:
    - name: Paint | Change something
      ansible.builtin.debug: {msg: "painted green"}
      changed_when: inventory_hostname != 'gpu3'
    - name: Ignore what fails
      ansible.builtin.fail: {msg: ignored-words}
      ignore_errors: true
    - name: Rescue
      block:
        - name: Fail where it is rescued
          ansible.builtin.fail: {msg: rescued-words}
      rescue:
        - name: Go on
          ansible.builtin.meta: noop
    - name: Wait
      ansible.builtin.command: sleep {{ wait | default(1) }}
      changed_when: false
      run_once: true
    - name: Keep a secret
      ansible.builtin.fail: {msg: "{{ secret }}"}
      no_log: true
      when: inventory_hostname == 'ctl1' and fails | default(false)
    - name: Fail in several words
      ansible.builtin.fail:
        msg: ["This node has no disk, and so it cannot be a node.", "Give it one."]
      when: inventory_hostname is match('gpu[12]') and fails | default(false)
- name: Read once
  hosts: localhost
  gather_facts: false
  tasks: [{name: Read, ansible.builtin.debug: {var: playbook_dir}}]
- name: Nobody is here
  hosts: empty
  tasks: []
- name: Read once
  hosts: localhost
  gather_facts: false
  tasks: [{name: Read, ansible.builtin.debug: {var: playbook_dir}}]
"""

BROKEN = """
- name: Break
  hosts: gpu1, gpu2
  gather_facts: false
  tasks: [{name: List what is not there, ansible.builtin.command: ls /nonexistent}]
"""


@dataclass(frozen=True)
class Seen:
    status: int
    screen: str  # as the terminal got it
    logs: list[Path]
    clean: bool = True  # whether the terminal was left as it was found

    @property
    def lines(self) -> list[str]:
        """What stays on a terminal, row by row."""
        rows = self.screen.replace("\r\n", "\n").split("\n")
        return [re.sub(r"\x1b\[[0-9;]*[mK]", "", row.rpartition("\r")[2]) for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    folder = tmp_path_factory.mktemp("watch")
    (folder / "hosts.yml").write_text(INVENTORY)
    (folder / "site.yml").write_text(PLAYBOOK)
    (folder / "broken.yml").write_text(BROKEN)
    plugins = folder / "callback_plugins"
    plugins.mkdir()
    for name in ("watch.py", "summary.py"):  # without those that read all of the roles
        (plugins / name).symlink_to(repository / "playbooks/callback_plugins" / name)
    (folder / "ansible.cfg").write_text(
        "[defaults]\ncallback_plugins = callback_plugins\nstdout_callback = watch\n"
        "callback_result_format = yaml\ndisplay_skipped_hosts = false\n"
        "[callback_watch]\nlog_folder = runs\n"
    )
    return folder


def settings(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"} | more


def command(*arguments: str) -> list[str]:
    playbook = () if "broken.yml" in arguments else ("site.yml",)
    return [str(ANSIBLE_PLAYBOOK), "-i", "hosts.yml", *playbook, *arguments]


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "runs").glob("*.log"))


def without_terminal(folder: Path, *arguments: str) -> Seen:
    before = kept(folder)
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=settings(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    return Seen(done.returncode, done.stdout, [p for p in kept(folder) if p not in before])


def on_terminal(
    folder: Path, columns: int, *arguments: str, interrupt_at: str = "", **environment: str
) -> Seen:
    """On a pseudo-terminal; Ctrl-C is pressed once it shows certain words."""
    before = kept(folder)
    ours, theirs = pty.openpty()
    found = termios.tcgetattr(ours)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=settings(folder, **{"TERM": "xterm"} | environment),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen, pressed = b"", False
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the last one has closed it
            break
        if not data:
            break
        screen += data
        if interrupt_at and not pressed and interrupt_at.encode() in screen:
            pressed = True
            time.sleep(0.5)
            os.killpg(process.pid, signal.SIGINT)
    status = process.wait(timeout=60)
    clean = termios.tcgetattr(ours) == found and screen.endswith(b"\n")
    os.close(ours)
    return Seen(status, screen.decode(), [p for p in kept(folder) if p not in before], clean)


def too_wide(seen: Seen, columns: int) -> list[str]:
    """What was drawn wider than the terminal, beside what a person copies as one line."""
    drawn = re.split(r"[\r\n]|\x1b\[[0-9;]*[A-Za-z]", seen.screen)
    copied = re.compile(r"Ansible's log: |    ansible-playbook ")
    return [line for line in drawn if len(line) > columns and not copied.match(line)]


@pytest.fixture(scope="module")
def plain(folder: Path) -> Seen:
    return without_terminal(folder, "-e", '{"fails": true}')


@pytest.fixture(scope="module")
def live(folder: Path) -> Seen:
    return on_terminal(folder, 40)


# --- without a terminal --------------------------------------------------------------------------


def test_without_a_terminal_there_is_a_line_for_each_layer(plain: Seen) -> None:
    assert plain.status == 2
    assert not CONTROL.search(plain.screen)
    ended = [line for line in plain.lines if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert len(ended) == 2, plain.screen  # the last play repeats another
    layer = r"Prepare every node of a cluster whose name is long: 1 of 4 hosts, \d+ s; 1 task"
    assert re.fullmatch(rf"\S+ {layer} changed something", ended[0])
    assert "    ctl1,gpu[1-2]: Change something" in plain.lines
    assert "TASK [" not in plain.screen


def test_each_failure_is_told_in_full_and_once(plain: Seen) -> None:
    screen = plain.screen
    # Which of the two is first, nobody can say.
    words = r'^Failed: gpu([12]), at "Fail in several words"\n    This node has no disk, and'
    (first,) = re.findall(words, screen, re.MULTILINE)
    assert "\n    Give it one.\n" in screen
    assert f"Failed likewise: gpu{3 - int(first)}\n" in screen
    assert screen.count("    Give it one.") == 1
    for words in ("ignored-words", "rescued-words"):
        assert words not in screen
        assert words in plain.logs[0].read_text()


@pytest.mark.long
def test_a_failed_command_is_told_once_for_hosts_that_differ_by_the_time(folder: Path) -> None:
    """Ansible tells the error, where the task stands, and the result, which has the error again."""
    seen = without_terminal(folder, "broken.yml")
    (first,) = re.findall(r'^Failed: gpu([12]), at "List what is not there"$', seen.screen, re.M)
    assert f"\nFailed likewise: gpu{3 - int(first)}\n" in seen.screen
    told = seen.screen.partition("SUMMARY")[0]
    assert told.count("No such file or directory") == 1
    assert "\n    rc: 2\n" in told
    assert not re.search(r"\[ERROR\]|Origin|fatal:|delta:|\n    \n", told)
    log = seen.logs[0].read_text()
    assert re.search(r"\[ERROR\](.|\n)*Origin(.|\n)*fatal: \[gpu[12]\]: FAILED! =>", log)


def test_what_an_exception_calls_an_object_differs_for_each_host() -> None:
    said = "fatal: [gpu1]: FAILED! => \n    changed: false\n    msg: <Connection at 0x7f09>"
    assert watch.result_lines(["[ERROR]: <Connection at 0x7f09>", said]) == [
        "msg: <Connection at 0x7f09>"
    ]
    assert watch.ADDRESS.sub("0x", "<C at 0x7f09>") == watch.ADDRESS.sub("0x", "<C at 0x7fd0>")


def test_what_a_playbook_prints_is_printed(plain: Seen) -> None:
    assert "\nctl1,gpu[1-3]: painted green\n" in f"\n{plain.screen}"


def test_the_log_is_what_ansible_says(plain: Seen) -> None:
    (log,) = plain.logs
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700
    text = log.read_text()
    assert "$ ansible-playbook -i hosts.yml site.yml -e " in text
    assert "\nTASK [Paint | Change something] ***" in text
    assert "\nchanged: [gpu1] => \n    msg: painted green\n" in text
    assert re.search(r"^gpu3 +: ok=\d+ +changed=0", text, re.MULTILINE)
    assert "\nSUMMARY ***" in text
    assert not CONTROL.search(text)
    assert f"Ansible's log: runs/{log.name}\n" in plain.screen.splitlines(keepends=True)[-1]


def test_what_no_log_hides_is_nowhere(plain: Seen) -> None:
    assert "hunter2" not in plain.screen + plain.logs[0].read_text()
    assert 'Failed: ctl1, at "Keep a secret"' in plain.screen
    assert "no_log" in plain.screen


def test_the_summary_is_told_once_before_the_log(plain: Seen) -> None:
    assert plain.screen.count("SUMMARY ***") == 1
    assert plain.screen.index("--limit ctl1,gpu1,gpu2") < plain.screen.index("Ansible's log: ")


# --- on a terminal -------------------------------------------------------------------------------


def test_a_terminal_shows_a_line_that_changes_in_place(live: Seen) -> None:
    assert live.status == 0
    assert re.search(r"\rPrepare every [^\r\n]*\.\.\.: \d/4, [01] s\x1b\[K", live.screen)
    assert set(re.findall(r"\x1b\[[0-9;]*[A-Za-z]", live.screen)) <= {
        "\x1b[K",
        "\x1b[0m",
        "\x1b[0;32m",
    }
    assert "Read once: 1 of 1 hosts, 0 s" in live.lines
    assert live.lines.count("Read once: 1 of 1 hosts, 0 s") == 1


def test_no_line_of_ours_is_wider_than_the_terminal(live: Seen) -> None:
    assert too_wide(live, 40) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal_that_draws_nothing_in_place_gets_plain_lines(
    folder: Path, columns: int
) -> None:
    """TERM=dumb, as in an editor: failures, tables and the summary too fit, and have no colours."""
    seen = on_terminal(folder, columns, "-e", '{"fails": true}', TERM="dumb")
    assert not CONTROL.search(seen.screen.replace("\r\n", "\n"))
    assert too_wide(seen, columns) == []
    assert seen.clean
    assert seen.status == 2
    assert [line for line in seen.lines if re.match(r"\d\d:\d\d:\d\d Prepare every node", line)]


@pytest.mark.long
def test_the_next_run_knows_how_long_it_takes(folder: Path, live: Seen) -> None:
    del live
    path = folder / "runs" / run_log.TIMES
    assert path.stat().st_mode & 0o777 == 0o600
    again = on_terminal(folder, 80, "-e", '{"fails": true}')
    assert re.search(r": \d/4, \d s of about \d s\x1b", again.screen)
    assert too_wide(again, 80) == []
    assert 'Failed: ctl1, at "Keep a secret"' in again.lines
    assert re.search(r"Time: \d s \(the last run took \d s\)", again.screen)


def test_an_interrupted_run_names_its_log(folder: Path) -> None:
    seen = on_terminal(folder, 120, "-e", "wait=60", interrupt_at="Wait")
    assert seen.status != 0
    assert 'The run was interrupted at "Wait".' in seen.lines
    assert "Next:" in seen.lines
    assert seen.clean
    assert seen.lines[-2] == f"Ansible's log: runs/{seen.logs[0].name}"
    assert "TASK [Ignore what fails]" in seen.logs[0].read_text()


@pytest.mark.long
def test_verbose_is_ansibles_own_output(folder: Path) -> None:
    seen = without_terminal(folder, "-v", "--limit", "gpu3")
    assert "TASK [Paint | Change something] ***" in seen.screen
    assert "PLAY RECAP" in seen.screen
    assert not seen.logs
    assert "Ansible's log" not in seen.screen


def test_a_warning_without_news_is_for_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ansible makes a folder for root on each bare node, and warns."""
    shown: list[str] = []
    log = Log(tmp_path, "site")
    display = watch.LogDisplay(Display(), log)
    monkeypatch.setattr(Display(), "display", lambda text, *_, **__: shown.append(text))
    for message in (f"{watch.NO_NEWS}/root/.ansible/tmp did not exist", "Mind the gap"):
        display._warning(WarningSummary(event=Event(msg=message)))
    assert shown == ["[WARNING]: Mind the gap\n"]
    assert log.path.read_text() == f"[WARNING]: {watch.NO_NEWS}/root/.ansible/tmp did not exist\n"


def test_no_role_disconnects_by_a_task_that_ansible_warns_of(repository: Path) -> None:
    """Each phase has a condition, with which reset_connection warns; wait_for_connection resets."""
    files = [*repository.glob("roles/*/tasks/*.yml"), *repository.glob("playbooks/**/*.yml")]
    assert len(files) > 200
    # The firewall's is included, and what is included has no condition.
    included = repository / "roles/firewall/tasks/keep.yml"
    assert [file for file in files if "reset_connection" in file.read_text()] == [included]


@pytest.mark.parametrize("name", ["CI", "NO_COLOR", "TERM"])
def test_no_line_changes_in_place_where_nobody_wants_it(name: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert watching.is_live(Terminal(), {"TERM": "xterm"})
    assert not watching.is_live(Terminal(), {"TERM": "xterm"} | {name: "dumb"})
    assert not watching.is_live(io.StringIO(), {"TERM": "xterm"})


def test_without_a_terminal_a_line_says_that_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One a minute, no wider than the others."""
    lines: list[str] = []
    display = SimpleNamespace(
        columns=79, _lock=threading.Lock(), display=lambda text, **_: lines.append(text)
    )
    monkeypatch.setattr(watching, "EVERY_S", 0.005)
    monkeypatch.setattr(watching, "STILL_S", 0.01)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("ansible.utils.color.ANSIBLE_COLOR", False)
    screen = watch.Screen(display, Log(tmp_path, "site"))
    screen.layer = Layer("Prepare every node of a cluster", frozenset("ab"), time.monotonic())
    end = time.monotonic() + 10
    while not lines and time.monotonic() < end:
        time.sleep(0.01)
    screen.end()
    assert re.fullmatch(r"\d\d:\d\d:\d\d Prepare every \S*( \S+)?: 0/2, 0 s", lines[0])
    assert len(lines[0]) <= 40


# --- a layer, in words ---------------------------------------------------------------------------


def layer(**more: object) -> Layer:
    hosts = frozenset(f"gpu{number}" for number in range(1, 1001))
    return Layer("Set up nodes", hosts, begun_at=0.0, **more)  # type: ignore[arg-type]


def test_a_layer_says_how_many_hosts_are_done_with_the_task() -> None:
    seen = layer(expected_s=60.0)
    seen.begin("role : Phase | Write the file")
    for host in ("gpu1", "gpu2", "gpu2"):
        seen.note(host)
    line = "Set up nodes: 2 of 1000 hosts, 5 s of about 1 min 00 s, Write the file"
    assert seen.step(5.0).line(80) == line
    seen.begin("Next")
    assert "0 of 1000 hosts" in seen.step(6.0).line(80)


def test_a_layer_that_took_much_longer_says_so() -> None:
    assert layer(expected_s=60.0).end(61.0, 80) == ["Set up nodes: 1000 of 1000 hosts, 1 min 01 s"]
    slow = "Set up nodes: 1000 of 1000 hosts, 2 min 00 s instead of 1 min 00 s"
    assert layer(expected_s=60.0).end(120.0, 80) == [slow]


def test_changes_are_folded() -> None:
    seen = layer(check=True)
    for task in ("role : Install | Install packages", "Write", "Restart"):
        seen.begin(task)
        seen.note("gpu1", changed=True)
        seen.note("gpu2", changed=True)
    seen.lost = {"gpu9"}
    assert seen.end(1.0, 60) == [
        "Set up nodes: 999 of 1000 hosts, 1 s; 3 tasks would change",
        "    something",
        "    gpu[1-2]: Install packages, Write, Restart",
    ]
    assert seen.end(1.0, 40)[-1] == "    gpu[1-2]: Install pack... and 2 more"


def test_all_hosts_are_no_list() -> None:
    assert layers.hosts_in_words(["b", "a"], frozenset("ab"), 40) == "all hosts"
    assert layers.hosts_in_words(["a"], frozenset("a"), 40) == "a"
    scattered = [f"gpu{number}" for number in range(0, 100, 2)]
    assert layers.hosts_in_words(scattered, frozenset("a"), 40) == "50 hosts"


def test_a_sentence_follows_its_hosts_and_a_table_stands_below_them() -> None:
    long = "The kernel has nouveau, and the driver 580 is installed: reboot."
    assert layers.printed(["gpu1", "gpu2"], long, 40) == (
        "gpu[1-2]: The kernel has nouveau, and\n    the driver 580 is installed: reboot."
    )
    assert layers.printed(["gpu1", "gpu2"], long, None) == f"gpu[1-2]: {long}"
    assert layers.printed(["gpu1"], "HOST  ROLE\ngpu1  munge", 40) == (
        "gpu1:\n    HOST  ROLE\n    gpu1  munge"
    )


# --- what is kept --------------------------------------------------------------------------------


def test_the_newest_logs_are_kept(tmp_path: Path) -> None:
    other = tmp_path / "notes.log"
    other.touch()
    for number in range(4):
        (tmp_path / f"2020010{number}T000000-1-site.log").touch()
    new = Log(tmp_path, "site", kept=2)
    assert sorted(tmp_path.iterdir()) == sorted(
        [tmp_path / "20200103T000000-1-site.log", new.path, other]
    )


def test_a_full_disk_costs_the_log_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    log = Log(tmp_path, "site")
    monkeypatch.setattr(os, "write", full)
    log.write("a\n")
    log.write("b\n")
    assert log.problem == "the log is not whole: No space left on device"


@pytest.mark.parametrize("text", ["", "[]", '{"KEY": 3}', '{"KEY": {"whole": "a", "layers": {}}}'])
def test_times_that_are_not_ours_are_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(text.replace("KEY", key(["a"])))
    assert last_times(key(["a"]), path) == Times()


def test_times_are_kept_for_some_commands(tmp_path: Path) -> None:
    path = tmp_path / "new" / "times.json"
    for number in range(60):
        keep_times(key([str(number)]), Times(float(number), {"one": 1.0}), path)
    assert last_times(key(["59"]), path) == Times(59.0, {"one": 1.0})
    assert last_times(key(["9"]), path) == Times()
    assert key(["a", "b"]) != key(["ab"])
