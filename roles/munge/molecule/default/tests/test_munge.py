"""MUNGE on one node, asked as its users ask it, and the key as operators lose and change it."""

import base64
import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from tests.role_play import Case

KEY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / ".secrets/munge.key"


def key_of(host) -> bytes:
    with host.sudo():
        return base64.b64decode(host.check_output("base64 -w0 /etc/munge/munge.key"))


def started(host) -> str:
    return host.check_output("systemctl show munge --property=ActiveEnterTimestampMonotonic")


@pytest.fixture
def kept():
    """The key on the control node, which a test may replace or remove; it is the cluster's, too."""
    return KEY.read_bytes()


def test_a_credential_is_accepted_once_and_only_once(host):
    credential = host.check_output("munge -n")
    assert "STATUS:          Success" in host.run(f"echo {credential} | unmunge").stdout
    assert "Replayed credential" in host.run(f"echo {credential} | unmunge").stdout


def test_a_forged_credential_is_refused(host):
    credential = host.check_output("munge -n")
    forged = credential.replace("MUNGE:A", "MUNGE:B", 1)
    assert host.run(f"echo {forged} | unmunge").rc != 0


def test_the_key_is_nobody_elses(host):
    with host.sudo():
        key = host.file("/etc/munge/munge.key")
        assert (key.user, key.group, key.mode, key.size) == ("munge", "munge", 0o400, 1024)


def test_it_has_as_many_threads_as_it_should(host):
    assert "--num-threads=3" in host.check_output("ps -C munged -o args=")


def test_the_key_is_random(host):
    """A key derived from a password is text or repeats; 1024 random bytes hold most values."""
    assert len(set(key_of(host))) > 200


def test_the_service_comes_back_after_a_reboot(host):
    assert host.service("munge").is_enabled
    assert host.service("munge").is_running


@pytest.mark.long
def test_a_run_that_was_interrupted_before_its_restart_is_mended_by_the_next(
    host, play, attempts, kept
):
    """Also a first run: Debian's package starts munged with a key of its own."""
    before = started(host)
    KEY.write_bytes(os.urandom(1024))
    configure = {"ansible.builtin.include_role": {"name": "munge", "tasks_from": "configure"}}
    interrupted = play([configure, {"ansible.builtin.fail": {"msg": "interrupted"}}])
    assert "msg: interrupted" in interrupted.output or '"interrupted"' in interrupted.output
    assert key_of(host) == KEY.read_bytes() != kept
    assert started(host) == before  # runs with the old key

    since = "systemctl show munge --property=ActiveEnterTimestampMonotonic"
    # Whoever restarts it in between: nothing is left to do.
    by_hand = f"systemctl restart munge; {since} > /run/since"
    unchanged = f"{since} | cmp /run/since && echo unchanged"
    tried = attempts([Case("mended", mends=since), Case("again", breaks=by_hand, mends=unchanged)])
    tried["mended"].passes()
    assert tried["mended"].left != before
    tried["again"].passes(changed=False)
    assert tried["again"].left == "unchanged"


def test_a_lost_key_is_taken_over_from_the_cluster(host, play, kept):
    before = started(host)
    KEY.unlink()
    checked = play(None, "--check")
    assert checked.code == 0, checked.output
    assert not KEY.exists()
    run = play()
    assert run.code == 0, run.output
    assert f"copied from node to {KEY}" in run.output
    assert KEY.read_bytes() == kept == key_of(host)
    assert KEY.stat().st_mode & 0o777 == 0o600
    assert started(host) == before


def test_another_key_is_refused_unless_it_is_rotated_in(host, attempts, kept):
    other = os.urandom(1024)
    KEY.write_bytes(other)
    sums = "sha256sum < /etc/munge/munge.key"
    tried = attempts(
        [
            Case("refused", mends=sums),
            Case("rotated", {"munge_key_rotate": "true"}),
        ]
    )
    refused = tried["refused"]
    ours, theirs = sha256(other).hexdigest(), sha256(kept).hexdigest()
    refused.refuses(f"{KEY} on the control node (sha256 {ours[:12]}…) is not the key")
    refused.refuses(f"has on node (sha256 {theirs[:12]}…)")
    refused.refuses("set munge_key_rotate to true")
    assert (refused.changed, refused.left) == (0, f"{theirs} -")
    tried["rotated"].passes()
    assert key_of(host) == other


@pytest.mark.long
def test_a_lost_key_is_not_made_anew_when_the_cluster_cannot_be_asked(play, kept):
    away = {"name": "away", "ansible_host": "127.0.0.1", "ansible_port": 1}
    role = {"ansible.builtin.include_role": {"name": "munge"}}
    KEY.unlink()
    try:
        refused = play([{"ansible.builtin.add_host": away}, role], munge_key_host="away")
        assert not KEY.exists()
    finally:
        KEY.write_bytes(kept)
        KEY.chmod(0o600)
    assert refused.code != 0
    assert "and away, which may have the cluster's key, cannot be read" in refused.output


@pytest.mark.long
def test_a_key_in_the_vault_is_the_same_key(play, kept, tmp_path):
    password = tmp_path / "password"
    password.write_text("of the vault\n")
    vault = f"--vault-password-file={password}"
    subprocess.run(["ansible-vault", "encrypt", vault, str(KEY)], check=True, capture_output=True)
    run = play(None, vault)
    KEY.write_bytes(kept)
    assert (run.code, run.changed) == (0, 0), run.output


@pytest.mark.long
def test_a_munged_that_does_not_decode_ends_the_run_with_a_sentence(host, play):
    """Green means running: active is not enough."""
    with host.sudo():
        host.check_output("mv /usr/bin/unmunge /usr/bin/unmunge.kept")
        host.check_output(
            "printf '#!/bin/sh\\necho unmunge: Error: Rewound credential >&2; exit 16' "
            "> /usr/bin/unmunge && chmod 755 /usr/bin/unmunge"
        )
    try:
        run = play()
    finally:
        with host.sudo():
            host.check_output("mv /usr/bin/unmunge.kept /usr/bin/unmunge")
    assert run.code != 0
    assert (
        "node cannot decode a credential of its own: Rewound credential; their clocks" in run.output
    )


@pytest.mark.long
def test_a_host_that_leaves_keeps_no_key(host, play):
    leave = [{"ansible.builtin.include_role": {"name": "munge", "tasks_from": "leave"}}]
    try:
        run = play(leave)
        assert run.code == 0, run.output
        with host.sudo():
            assert not host.file("/etc/munge/munge.key").exists
            assert not host.file("/etc/systemd/system/munge.service.d").exists
        assert not host.service("munge").is_running
        assert not host.service("munge").is_enabled
        assert play(leave).changed == 0
    finally:
        assert play().code == 0
    assert host.run("munge -n | unmunge").rc == 0


@pytest.mark.long
def test_a_munge_of_somebody_elses_is_left_alone(host, play):
    """Another key and no drop-in of ours."""
    leave = [{"ansible.builtin.include_role": {"name": "munge", "tasks_from": "leave"}}]
    with host.sudo():
        host.check_output("rm /etc/systemd/system/munge.service.d/50-plumbline.conf")
        host.check_output("head -c 1024 /dev/urandom > /etc/munge/munge.key")
    try:
        run = play(leave)
        assert (run.code, run.changed) == (0, 0), run.output
    finally:
        assert play().code == 0  # nobody's key, as the package's own: replaced
    assert key_of(host) == KEY.read_bytes()
