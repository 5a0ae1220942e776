"""The end of a run in words: golden texts for what was seen, then real runs on this machine."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from playbooks.callback_plugins import summary as module
from playbooks.callback_plugins.summary import Play, Run, Trouble, summary
from tests import processes
from tests.processes import ANSIBLE_PLAYBOOK

COMMAND = ("ansible-playbook", "-i", "inventory/site", "playbooks/slurm-cluster.yml")
HOSTS = ("ctl1", "login1", "gpu1", "gpu2")
COMPUTE = HOSTS[1:]
NOTHING = Play("Look at every host", HOSTS, changes=False)
BASE = Play("Prepare every node", HOSTS)
CONTROL = Play("Set up the controllers", ("ctl1",))
NODES = Play("Set up the compute and login nodes", COMPUTE)
OFF = Trouble("gpu2", NOTHING.name, "Read facts", "Connection timed out", reached=False)
BROKEN = Trouble("gpu1", NODES.name, "slurm : Service | Start slurmd", "Unable to start slurmd.")


def lost(play: Play, *hosts: str) -> Play:
    return Play(play.name, play.hosts, lost=frozenset(hosts), changes=play.changes)


def no_disk(host: str) -> Trouble:
    return Trouble(host, BASE.name, "Start", f"{host} has no disk.")


def never(play: Play) -> Play:
    return Play(play.name, play.hosts, begun=False, ended=False)


# --- golden texts --------------------------------------------------------------------------------


def test_a_run_without_trouble_is_one_line() -> None:
    run = Run(COMMAND, HOSTS, (NOTHING, BASE, CONTROL, NODES), changed=4)
    assert summary(run) == "All 4 hosts are done; something was changed on 4 hosts."
    assert summary(Run(COMMAND, HOSTS, run.plays)) == "All 4 hosts are done; nothing was changed."


def test_preflight_alone_makes_no_host_done() -> None:
    run = Run(COMMAND, HOSTS, (NOTHING,))
    assert summary(run) == "All 4 hosts passed the checks; nothing was changed."
    alone = summary(replace(run, contacted=False))
    assert alone == "The inventory passed the checks for 4 hosts; no host was contacted."
    run = Run(COMMAND, HOSTS, (lost(NOTHING, "gpu2"),), (OFF,))
    assert summary(run).startswith("3 of 4 hosts passed the checks (ctl1, login1, gpu1);")


def test_check_mode_is_told() -> None:
    run = Run(COMMAND, HOSTS, (BASE,), changed=1, check=True)
    assert summary(run) == "All 4 hosts are done; check mode: nothing was changed, 1 host would be."


def test_a_host_that_is_off_and_one_that_failed() -> None:
    first = (lost(NOTHING, "gpu2"), lost(BASE, "gpu2"))
    plays = (*first, CONTROL, lost(NODES, "gpu1", "gpu2"))
    run = Run(COMMAND, HOSTS, plays, (OFF, BROKEN), changed=3)
    assert summary(run) == (
        "2 of 4 hosts are done (ctl1, login1); something was changed on 3 hosts.\n"
        'Not reached, and therefore not configured: gpu2, at "Read facts"\n'
        "    Connection timed out\n"
        'Failed: gpu1, at "slurm : Service | Start slurmd"\n'
        "    Unable to start slurmd.\n"
        f"Next, once that is repaired:\n    {' '.join(COMMAND)} --limit gpu1,gpu2"
    )


def test_a_lost_controller_leaves_the_others_waiting() -> None:
    away = Trouble("ctl1", CONTROL.name, "slurm : Install", "Connection refused", reached=False)
    run = Run(COMMAND, HOSTS, (NOTHING, BASE, lost(CONTROL, "ctl1"), never(NODES)), (away,), 4)
    assert summary(run) == (
        "No host is done; something was changed on 4 hosts.\n"
        'Not reached, and therefore not configured: ctl1, at "slurm : Install"\n'
        "    Connection refused\n"
        "Done:      Prepare every node\n"
        "Cut short: Set up the controllers\n"
        "Not begun: Set up the compute and login nodes\n"
        f"Next, once that is repaired:\n    {' '.join(COMMAND)}"
    )


def test_a_host_outside_the_cluster_is_told_too() -> None:
    run = Run(COMMAND, HOSTS, (BASE,), (Trouble("nfs9", "Storage", "Mount", "No disk."),))
    assert 'Failed: nfs9, at "Mount"\n    No disk.\n' in summary(run)


def test_a_refusal_before_the_first_change() -> None:
    refused = Trouble("ctl1", NOTHING.name, "Stop", "fabric of gpu1 is 'x'.", whole=True)
    plays = (lost(NOTHING, *HOSTS), never(BASE), never(CONTROL), never(NODES))
    assert summary(Run(COMMAND, HOSTS, plays, (refused,))) == (
        "No host is done; nothing was changed.\n"
        'Stopped, at "Stop"\n'
        "    fabric of gpu1 is 'x'.\n"
        "Nothing was configured: the run ended before its first layer.\n"
        f"Next, once that is repaired:\n    {' '.join(COMMAND)}"
    )


def test_an_interrupted_run() -> None:
    half = Play(NODES.name, NODES.hosts, ended=False)
    run = Run(COMMAND, HOSTS, (BASE, CONTROL, half), changed=None, stopped_at='"Install"')
    assert summary(run) == (
        "1 of 4 hosts is done (ctl1).\n"
        'The run was interrupted at "Install".\n'
        "Done:      Prepare every node; Set up the controllers\n"
        "Cut short: Set up the compute and login nodes\n"
        f"Next:\n    {' '.join(COMMAND)}"
    )


def test_a_thousand_hosts_with_a_reason_each_stay_a_page() -> None:
    hosts = tuple(f"gpu{i}" for i in range(1000))
    base = Play("Base", hosts, lost=frozenset(hosts[500:]))
    each = tuple(Trouble(h, "Base", "Start", f"No disk {h[3:]}.") for h in hosts[500:])
    run = Run(COMMAND, hosts, (base,), each, changed=500)
    begin = time.monotonic()
    text = summary(run, "inventory/site/.plumbline-limit")
    assert time.monotonic() - begin < 1
    assert len(text.splitlines()) < 30
    assert len(text) < 4000
    assert "and 490 other reasons" in text
    assert text.endswith("--limit @inventory/site/.plumbline-limit")
    assert len(run.limit) == 500


def test_hosts_that_failed_a_second_apart_are_one_reason() -> None:
    """Slurm ends a node's reason with who gave it and when."""
    words = "Low RealMemory [slurm@2026-11-28T12:11:2%d]. Its log: [2026-11-28 12:11:2%d.431] error"
    each = tuple(
        Trouble(host, NODES.name, "Start", words % (second, second))
        for second, host in enumerate(("gpu1", "gpu2"))
    )
    run = Run(COMMAND, HOSTS, (BASE, CONTROL, lost(NODES, "gpu1", "gpu2")), each, changed=3)
    assert f'Failed: gpu1, gpu2, at "Start"\n    {words % (0, 0)}\n' in summary(run)


def test_hosts_that_differ_by_their_names_alone_are_one_reason() -> None:
    run = Run(COMMAND, COMPUTE, (lost(BASE, *COMPUTE),), tuple(map(no_disk, COMPUTE)))
    reasons = 'Failed: login1, gpu1, gpu2, at "Start"\n    login1 has no disk.\nNext'
    assert reasons in summary(run)


def test_a_long_reason_is_one_line_of_the_terminal() -> None:
    """It was told in full, as it happened."""
    long = replace(BROKEN, words="Slurm gives gpu1 no jobs, for it has too little memory. " * 4)
    run = Run(COMMAND, HOSTS, (lost(BASE, "gpu1"),), (long,))
    lines = summary(run, width=60).splitlines()
    at = lines.index('Failed: gpu1, at "slurm : Service | Start slurmd"')
    assert lines[at + 1].endswith("...")
    assert len(lines[at + 1]) <= 60
    assert lines[at + 2].startswith("Next")


# --- the next command ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "limit", "command"),
    [
        (("-l", "a", "p.yml"), "b", "p.yml --limit b"),
        (("--limit=a", "p.yml"), "b", "p.yml --limit b"),
        (("p.yml", "--limit", "a"), "", "p.yml --limit a"),
        (("-la", "-K", "p.yml"), "b,c", "-K p.yml --limit b,c"),
        (("-e", "x_password=abc y=1", "p.yml"), "", "-e 'x_password=… y=1' p.yml"),
        (
            ("-e", '{"a_token": "b c", "d": 1}', "p.yml"),
            "",
            """-e '{"a_token": …, "d": 1}' p.yml""",
        ),
    ],
)
def test_the_next_command(arguments: tuple[str, ...], limit: str, command: str) -> None:
    assert module.same_command(arguments, limit) == command


# --- a result's words ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"msg": "Unable to start. See the journal."}, "Unable to start."),
        ({"msg": "Task failed: Module failed: no disk"}, "no disk"),
        ({"msg": "x" * 300}, "x" * 239 + "…"),
        ({"msg": ""}, "(no message)"),
        ({"msg": ["Refused.", "One.", "Two."]}, "Refused. One. (and 1 more, told above)"),
        ({"msg": ["preflight refused the cluster; x.", "One."]}, "One."),
        ({"msg": "stdout: Looking in indexes\n:stderr: \nERROR: No torch.\n"}, "ERROR: No torch."),
        ({"msg": "non-zero return code", "rc": 2, "stderr": "a\nb\n"}, "exit status 2: b"),
        ({"msg": "'/usr/bin/apt-get -y install 'x'' failed: E: No space"}, "apt-get: No space"),
        ({"censored": "…", "msg": "password"}, "its output is hidden"),
        ({"results": [{"msg": "fine"}, {"failed": True, "msg": "Second."}]}, "Second."),
        ({"results": [{"failed": True, "censored": "…"}], "msg": "x"}, "its output is hidden"),
    ],
)
def test_why_a_task_failed(result: dict[str, object], words: str) -> None:
    assert module.failure_words(result).startswith(words)


SSH = "Failed to connect to the host via ssh:"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"Task failed: {SSH} ssh: connect to host a port 22: Connection timed out", "Connection"),
        (f"{SSH} Host key verification failed.", "Host key verification failed."),
        ("@@@@@@\nWARNING\nHost key verification failed.", "Host key verification failed."),
        ("", "(no message)"),
    ],
)
def test_why_a_host_was_not_reached(message: str, words: str) -> None:
    assert module.ssh_words(message).startswith(words)


def test_of_a_loop_and_a_delegation_the_host_that_was_not_reached_is_told() -> None:
    items = [{"msg": "fine"}, {"unreachable": True, "msg": "No route to host"}]
    assert module.unreachable_words({"results": items}, "ctl1") == "ctl1: No route to host"


# --- through Ansible -----------------------------------------------------------------------------

# Hosts of this machine; gpu2 is an address at which nothing listens.
INVENTORY = f"""---
all:
  children:
    slurm_cluster:
      vars: {{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}
      hosts:
        ctl1:
        gpu1:
        gpu2: {{ansible_connection: ssh, ansible_host: 127.0.0.9, ansible_port: 1}}
        gpu3:
    elsewhere: {{hosts: {{other: {{ansible_connection: local}}}}}}
"""

PLAYBOOK = """---
- name: Prepare every node
  hosts: slurm_cluster
  gather_facts: false
  tasks:
    - name: Reach the node
      ansible.builtin.ping:
    - name: Mend what can be mended
      block: [{name: Fail, ansible.builtin.fail: {msg: This is rescued.}}]
      rescue: [{name: Mend, ansible.builtin.debug: {msg: mended}}]
    - name: Fail on some
      ansible.builtin.fail: {msg: "This node has no disk. Put one in."}
      when: inventory_hostname in broken | default([])
    - name: Hide what is secret
      ansible.builtin.fail: {msg: hunter2}
      no_log: true
      when: inventory_hostname in secret | default([])
- name: Set up the controllers
  hosts: ctl1
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - name: Wait
      ansible.builtin.pause: {seconds: "{{ wait | default(0) }}"}
    - name: Fail the controller
      ansible.builtin.fail: {msg: No controller.}
      when: controller_fails | default(false)
- name: Set up the nodes
  hosts: gpu*
  gather_facts: false
  tasks:
    - name: Change something
      ansible.builtin.command: "true"
"""


@pytest.fixture
def folder(tmp_path: Path, repository: Path) -> Path:
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    (tmp_path / "site.yml").write_text(PLAYBOOK)
    (tmp_path / "ansible.cfg").write_text(
        f"[defaults]\ncallback_plugins = {repository}/playbooks/callback_plugins\n"
        "nocows = true\ntimeout = 5\n"
    )
    return tmp_path


ANSIBLE = (ANSIBLE_PLAYBOOK, "-i", "hosts.yml", "site.yml")


def settings(folder: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "ANSIBLE_CONFIG": "ansible.cfg"}


def ends(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit status of a run, and what it says at its end."""
    done = processes.run(*ANSIBLE, *arguments, cwd=folder, env=settings(folder), timeout=120)
    banner = re.compile(r"^SUMMARY \*+$", re.MULTILINE)
    assert len(banner.findall(done.stdout)) <= 1, done.stdout
    parts = banner.split(done.stdout)
    return done.returncode, parts[1] if len(parts) > 1 else ""


def play(name: str, task: dict[str, Any], **more: Any) -> dict[str, Any]:
    usual = {"name": name, "hosts": "slurm_cluster", "gather_facts": False}
    return usual | more | {"tasks": [task]}


WORK = play("Work", {"name": "Do", "ansible.builtin.ping": None})
REFUSE = {"name": "Stop", "ansible.builtin.fail": {"msg": "The name is wrong."}}


def write(folder: Path, *plays: dict[str, Any]) -> None:
    """Another playbook in the place of PLAYBOOK."""
    (folder / "site.yml").write_text(json.dumps(plays))


def test_missed_and_failed_hosts_are_told_and_fail_the_run(folder: Path) -> None:
    status, text = ends(folder, "-e", '{"broken": ["gpu3"]}')
    assert status != 0
    assert "2 of 4 hosts are done (ctl1, gpu1); something was changed on 1 host." in text
    not_reached = (
        r'Not reached, and therefore not configured: gpu2, at ".*"\n    Connection refused'
    )
    assert re.search(not_reached, text)
    assert re.search(r'^Failed: gpu3, at ".*"\n    This node has no disk.\n', text, re.MULTILINE)
    assert "rescued" not in text
    assert text.rstrip().endswith("--limit gpu2,gpu3")


@pytest.mark.long
def test_a_playbook_for_the_whole_cluster_is_run_again_without_limit(folder: Path) -> None:
    path = folder / "site.yml"
    text = path.read_text().replace(
        "  gather_facts", "  vars: {__run_is_whole: true}\n  gather_facts", 1
    )
    path.write_text(text)
    _, said = ends(folder, "-e", '{"broken": ["gpu3"]}')
    assert "Failed: gpu3" in said
    assert "--limit" not in said


def test_a_failed_host_fails_a_run_whose_last_plays_pass(folder: Path) -> None:
    status, text = ends(folder, "--limit", "ctl1,gpu1,gpu3", "-e", '{"broken": ["gpu3"]}')
    assert status == 2
    assert "gpu2" not in text
    assert text.rstrip().endswith("--limit gpu3")


@pytest.mark.long
def test_with_the_controller_lost_nobody_is_done(folder: Path) -> None:
    status, text = ends(folder, "--limit", "ctl1,gpu1", "-e", "controller_fails=true")
    assert status == 2
    assert "No host is done" in text
    assert "Done:      Prepare every node" in text
    assert "Cut short: Set up the controllers" in text
    assert "Not begun: Set up the nodes" in text
    assert text.rstrip().endswith("site.yml --limit ctl1,gpu1 -e controller_fails=true")


@pytest.mark.long
def test_under_check_and_limit_all_is_well(folder: Path) -> None:
    status, text = ends(folder, "--limit", "gpu1,ctl1", "--check")
    assert status == 0
    assert text.strip().startswith("All 2 hosts are done; check mode: nothing was changed")


def test_what_no_log_hides_stays_hidden(folder: Path) -> None:
    status, text = ends(folder, "--limit", "gpu1", "-e", '{"secret": ["gpu1"]}')
    assert status == 2
    assert "hunter2" not in text
    assert "no_log" in text


def test_a_refusal_for_the_whole_run_blames_no_host(folder: Path) -> None:
    write(folder, play("Refuse", REFUSE | {"run_once": True}), WORK)
    status, text = ends(folder)
    assert status == 2
    assert (
        'No host is done; nothing was changed.\nStopped, at "Stop"\n    The name is wrong.\n'
        in text
    )
    assert "Failed" not in text


@pytest.mark.long
def test_a_refusal_on_the_control_node_is_told(folder: Path) -> None:
    write(folder, play("Refuse", REFUSE, hosts="localhost"), WORK)
    status, text = ends(folder)
    assert status == 2
    assert 'Stopped, at "Stop"\n    The name is wrong.\n' in text
    assert "Nothing was configured" in text


@pytest.mark.long
def test_many_hosts_go_into_a_file_for_the_next_run(folder: Path) -> None:
    away = {"ansible_connection": "ssh", "ansible_host": "127.0.0.9", "ansible_port": 1}
    hosts = {f"n{number}": away for number in range(12)}
    inventory = {"all": {"children": {"slurm_cluster": {"hosts": hosts}}}}
    (folder / "hosts.yml").write_text(json.dumps(inventory))
    write(folder, WORK)
    status, text = ends(folder)
    assert status == 4
    assert "n9 and 2 more" in text
    assert text.rstrip().endswith("--limit @.plumbline-limit")
    assert (folder / ".plumbline-limit").read_text().split() == list(hosts)


@pytest.mark.sample(1)
@pytest.mark.parametrize("hosts", ["localhost", "other"])
def test_a_playbook_of_other_hosts_is_left_in_peace(folder: Path, hosts: str) -> None:
    write(folder, play("Work", {"ansible.builtin.debug": {"msg": "x"}}, hosts=hosts))
    assert ends(folder) == (0, "")


def test_an_interrupted_run_says_where(folder: Path) -> None:
    process = subprocess.Popen(
        (*ANSIBLE, "--limit", "ctl1,gpu1", "-e", "wait=60"),
        cwd=folder,
        env=settings(folder) | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("TASK [Wait]"):
            break
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 99
    assert 'The run was interrupted at "Wait".' in output
    assert "Not begun: Set up the nodes" in output


@pytest.mark.long
def test_batches_that_never_came_are_not_done(folder: Path) -> None:
    fail = {"ansible.builtin.fail": {"msg": "It is broken."}, "when": "inventory_hostname == bad"}
    write(folder, play("Reboot", {"name": "Come back"} | fail, serial=[1, 2]))
    limit = ("--limit", "ctl1:gpu1:gpu3")
    status, text = ends(folder, *limit, "-e", "bad=ctl1")
    assert status == 2
    assert 'No host is done; nothing was changed.\nFailed: ctl1, at "Come back"\n' in text
    assert "Cut short: Reboot\n" in text
    assert "--limit ctl1:gpu1:gpu3" in text
    assert ends(folder, *limit, "-e", "bad=none")[1].strip().startswith("All 3 hosts are done")


def test_what_a_host_says_has_nothing_that_a_terminal_would_obey():
    words = module.failure_words({"msg": "\x1b]0;owned\a\x1b[2Jno disk"})
    assert words == "]0;owned [2Jno disk"
