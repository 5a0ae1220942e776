"""The callback near: what speaks to no host takes no process, and nothing else differs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.processes import ANSIBLE_PLAYBOOK, PYTHON, run

PLAY = """
- name: What a run is made of
  hosts: all
  connection: local
  gather_facts: false
  vars: {wanted: false, here: "{{ inventory_hostname }}"}
  tasks:
    - name: Skipped | A command
      ansible.builtin.command: {cmd: "touch {{ nowhere }}"}
      when: wanted
      register: skipped

    - name: Skipped | Each item
      ansible.builtin.command: {cmd: "touch {{ item }}"}
      loop: [a, b]
      when: wanted

    - name: Skipped | There is no item
      ansible.builtin.command: {cmd: "touch {{ item }}"}
      loop: []

    - name: Near | A fact of each item
      ansible.builtin.set_fact:
        facts: "{{ facts | default({}) | combine({item: here}) }}"
      loop: [a, b]
      when: item != 'b' or here == 'h2'

    - name: Near | A fact of another host
      ansible.builtin.set_fact:
        of_h1: "{{ here }}"
      delegate_to: h1
      delegate_facts: true
      run_once: true

    - name: Near | It is as the tasks before left it
      ansible.builtin.assert:
        that:
          - skipped is skipped
          - facts.a == inventory_hostname
          - ('b' in facts) == (here == 'h2')
          - hostvars.h1.of_h1 == 'h1'
        quiet: true

    - name: Near | A file that is chosen for each item
      ansible.builtin.include_tasks:
        file: "{{ item }}.yml"
      loop: [one, two]
      when: item != 'two' or here == 'h2'

    - name: Far | Some items alone
      ansible.builtin.command: {cmd: "echo {{ item }}"}
      loop: [a, b]
      when: item == 'b'
      changed_when: false
      register: echoed

    - name: Near | What was said
      ansible.builtin.debug:
        msg: "{{ echoed.results | map(attribute='stdout', default='none') | list }}"

    - name: Far | Until it is so
      ansible.builtin.command: {cmd: "echo x"}
      register: tried
      until: tried.stdout == 'x'
      retries: 2
      delay: 0
      changed_when: true

    - name: Waits | A judgement that is asked again
      ansible.builtin.debug: {msg: "{{ here }}"}
      register: asked
      until: asked is not failed
      retries: 1

    - name: What fails is rescued
      block:
        - name: Near | Fail
          ansible.builtin.fail: {msg: "{{ here }} fails"}
          when: here == 'h1'

        - name: Near | An unknown variable
          ansible.builtin.debug: {msg: "{{ unknown }}"}

      rescue:
        - name: Near | What was wrong
          ansible.builtin.debug: {msg: "{{ ansible_failed_result.msg }}"}

    - name: Skipped | By a condition that cannot be judged
      ansible.builtin.command: {cmd: "echo"}
      when: unknown
      ignore_errors: true
      changed_when: false

    - name: Near | A secret
      ansible.builtin.set_fact: {secret: hidden}
      no_log: true

    - name: Near | Tell the handler
      ansible.builtin.debug: {msg: tell}
      changed_when: here == 'h1'
      notify: Handle

    - name: Far | In another place
      ansible.builtin.command: {cmd: pwd, chdir: /}
      delegate_to: h2
      changed_when: false

  handlers:
    - name: Handle
      ansible.builtin.command: {cmd: "true"}
      changed_when: false
"""
INCLUDED = """
- name: Near | {0}
  ansible.builtin.set_fact: {{{0}: "{{{{ here }}}}"}}
"""


def ran(folder: Path, repository: Path, *, near: bool) -> tuple[str, list[str]]:
    """What the play says, and which tasks of it took a process."""
    callbacks = folder / f"near-{near}"
    callbacks.mkdir()
    if near:
        (callbacks / "near.py").symlink_to(repository / "playbooks/callback_plugins/near.py")
    record = folder / f"forks-{near}"
    (folder / "play.yml").write_text(PLAY)
    for name in ("one", "two"):
        (folder / f"{name}.yml").write_text(INCLUDED.format(name))
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_CALLBACK_PLUGINS": f"{callbacks}:{repository}/tests/standins/callback_plugins",
        "ANSIBLE_FORKS": "1",  # in which order hosts end is no part of what is compared
        "COUNT_FORKS": str(record),
        "COUNT_LOADS": os.devnull,
        "COLUMNS": "100",
    }
    (folder / "ansible.cfg").touch()
    done = run(
        ANSIBLE_PLAYBOOK, "-i", "h1,h2", "-e", PYTHON, "play.yml", cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr, record.read_text().splitlines()


@pytest.mark.long
@pytest.mark.heavy("plays the same play twice")
def test_a_run_is_the_same_with_fewer_processes(repository: Path, tmp_path: Path) -> None:
    output, forks = ran(tmp_path, repository, near=True)
    before, all_forked = ran(tmp_path, repository, near=False)
    # Two hosts may end a task in either order.
    assert sorted(output.splitlines()) == sorted(before.splitlines())
    assert len(forks) == len(all_forked)
    assert not [line for line in all_forked if " near " in line]
    # Far | Some items, Until, Waits, In another place on both; the handler on h1.
    far = Counter(line for line in forks if " near " not in line)
    assert far == {"h1 ok": 5, "h2 ok": 4}
