"""All secrets are replaced by a run that says as much as Ansible can, and then looked for wherever
a run leaves something: on the nodes, and on the control node.

A value that is no secret is put into each of these places beforehand, and must be found in all of
them: otherwise a search that looks nowhere would pass.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from playbooks.plugin_utils import known_secrets, rotation
from roles.tls_certificate.plugin_utils.certificates import new_authority
from tests import leaks
from tests.live_cluster import PLAIN, REPOSITORY, on, sources, under_test

CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
SECRETS = INVENTORY / ".secrets"
HOSTS = ("ctl1", "login1", "gpu1", "gpu2")
PROGRAM = REPOSITORY / "tests/leaks.py"
END = "/run/leaks.end"
PLANTED = "planted"
PLANT = """\
sudo sh -c 'rm -f {end}; umask 022; printf %s {text} >/etc/planted; logger {text}
printf "\\177ELF" >/var/lib/core.1; umask 077; printf %s {text} >/var/log/planted.log'
"""
UNPLANT = f"sudo rm -f {END} /etc/planted /var/log/planted.log /var/lib/core.1 /run/leaks.py"


def new_values() -> dict[str, bytes]:
    """A new value for each secret that can be replaced, known before the run that brings it."""
    result = {}
    for path in sorted(SECRETS.iterdir()):
        known = known_secrets.SECRETS.get(path.name)
        if known and known.kind == "tls":
            result[path.name] = new_authority("leaks", datetime.now(UTC), 3650).secret.encode()
        elif known and known.kind:
            result[path.name] = known_secrets.MAKERS[known.kind]()
    return result


def ssh(host: str, words: str) -> list[str]:
    return ["scripts/virtual-cluster", "ssh", f"--name={CLUSTER}", host, words]


def search(host: str, wanted: str, *arguments: str) -> set[tuple[str, str]]:
    command = f"sudo python3 /run/leaks.py {' '.join(arguments)}"
    done = subprocess.run(
        ssh(host, command), cwd=REPOSITORY, input=wanted + "\n", capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {(name, place) for name, place in json.loads(done.stdout.splitlines()[-1])}


@contextmanager
def watching(command: list[str], wanted: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(wanted + "\n")
        process.stdin.flush()
        assert "watching" in process.stdout.readline()
        yield process


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[str, str]]]:
    """By place, what was found there after the run."""
    planted = known_secrets.MAKERS["web"]().strip()
    before = [path for path in SECRETS.iterdir() if path.name[0] != "."]
    old = {f"old {path.name}": path.read_bytes() for path in before}
    new = new_values()
    assert len(new) >= 8
    for name, value in new.items():
        rotation.begin(SECRETS / name, lambda value=value: value, (), time.time())
    wanted = leaks.coded(leaks.needles({PLANTED: planted, **old, **new}))
    text = planted.decode()

    end = tmp_path_factory.mktemp("leaks") / "end"
    log = tmp_path_factory.mktemp("log") / "run.log"
    found: dict[str, set[tuple[str, str]]] = {}
    program = base64.b64encode(PROGRAM.read_bytes()).decode()
    for host in HOSTS:
        on(CLUSTER, host, f"echo {program} | base64 --decode | sudo tee /run/leaks.py >/dev/null")
        on(CLUSTER, host, PLANT.format(text=text, end=END))
    cached = REPOSITORY / ".cache/looks" / "planted.json"
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.write_text(text)
    try:
        with ExitStack() as stack:
            watchers = {
                host: stack.enter_context(
                    watching(ssh(host, f"sudo python3 /run/leaks.py processes {END}"), wanted)
                )
                for host in HOSTS
            }
            here = stack.enter_context(
                watching([sys.executable, str(PROGRAM), "processes", str(end)], wanted)
            )
            for host in HOSTS:
                on(CLUSTER, host, f"sh -c 'sleep 1; true' {text}")
            with log.open("w") as file:
                run = subprocess.run(
                    [
                        *("ansible-playbook", *sources(INVENTORY), "playbooks/rotate-secrets.yml"),
                        *("-e", "rotate=all", "-e", "@molecule/secrets/vars/site.yml"),
                        *("-vvv", "--diff", "-e", f"planted={text}"),
                    ],
                    cwd=REPOSITORY,
                    env={**os.environ, **PLAIN, "ANSIBLE_STDOUT_CALLBACK": "default"},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    check=False,
                    timeout=1500,
                )
                file.write(f"planted: {text}\n")
            end.touch()
            for host in HOSTS:
                on(CLUSTER, host, f"sudo touch {END}")
            for host, process in [*watchers.items(), ("control node", here)]:
                assert process.stdout
                answer = json.loads(process.stdout.read().splitlines()[-1])
                found[f"processes of {host}"] = {(name, place) for name, place in answer}
        assert run.returncode == 0, log.read_text()[-3000:]
        needles = leaks.decoded(wanted)
        found["logs of Ansible"] = set(leaks.in_files([log.parent], needles, everybody=False))
        ours = [REPOSITORY / ".cache", REPOSITORY / ".ansible", Path.home() / ".ansible/tmp"]
        shut = {str(path) for path in SECRETS.rglob("*")}
        found["caches of the control node"] = {
            (name, place)
            for name, place in leaks.in_files(ours, needles, everybody=False)
            if place not in shut
        }
        for host in HOSTS:
            found[f"files of {host}"] = search(host, wanted, "files")
            found[f"logs of {host}"] = search(host, wanted, "logs", "/var/log")
            found[f"journal of {host}"] = search(host, wanted, "journal")
    finally:
        cached.unlink()
        for host in HOSTS:
            on(CLUSTER, host, UNPLANT)
    return found


def test_what_was_planted_is_found_in_each_place(places):
    assert len(places) == 4 * 4 + 3
    for place, found in places.items():
        assert PLANTED in {name for name, _ in found}, place
    for host in HOSTS:
        assert ("a daemon's memory", "/var/lib/core.1") in places[f"files of {host}"]
        assert (PLANTED, "/etc/planted") in places[f"files of {host}"]


def test_no_secret_is_found_in_any_place(places):
    """Neither the values that were replaced nor those that replaced them."""
    leaked = {
        (place, name, where)
        for place, found in places.items()
        for name, where in found
        if name not in {PLANTED, "a daemon's memory"}
    }
    assert leaked == set()
    dumps = {where for found in places.values() for name, where in found if "memory" in name}
    assert dumps == {"/var/lib/core.1"}
