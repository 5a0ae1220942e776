"""Users of a directory on a node: known, let in by keys and filter, and only over TLS."""

import os
from pathlib import Path

import pytest

from tests.role_play import refused

SECRETS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / ".secrets"
CONF = "/etc/sssd/sssd.conf"


def text(host, path=CONF) -> str:
    with host.sudo():
        return host.check_output(f"cat {path}")


def test_the_host_knows_the_users_of_the_directory(host):
    assert host.check_output("getent passwd grace") == (
        "grace:*:70001:71000:grace:/home/grace:/bin/bash"
    )
    assert host.check_output("id -Gn grace") == "physics chemistry"
    assert host.run("getent passwd nobody-of-ours").rc == 2


def test_a_user_of_the_list_comes_before_one_of_the_directory(host):
    assert host.user("ada").uid == 2001


def test_an_entry_with_the_number_of_a_daemon_is_nobody(host):
    assert host.run("getent passwd mallory").rc == 2
    assert host.run("id -u mallory").rc != 0


def test_a_user_gets_in_with_the_key_of_the_directory_and_gets_a_home(host, login):
    with host.sudo():
        host.check_output("rm -rf /home/grace")
    done = login("grace", "id -un; pwd")
    assert done.stdout == "grace\n/home/grace\n", done.stderr
    with host.sudo():
        home = host.file("/home/grace")
        assert (home.uid, home.mode) == (70001, 0o700)


def test_whom_the_filter_leaves_out_is_known_and_not_let_in(host, login):
    assert host.check_output("id -u heidi") == "70002"
    assert login("heidi", key="grace").returncode == 255


def test_nobody_of_the_directory_gets_in_where_users_may_not(host, login, play):
    try:
        assert play(cluster_users_logins=False).code == 0
        assert host.check_output("id -u grace") == "70001"
        assert login("grace").returncode == 255
        # Nor with a key that sshd finds without asking the directory.
        with host.sudo():
            host.check_output(
                "install -d -o grace -g physics -m 700 /home/grace/.ssh && "
                "sss_ssh_authorizedkeys grace > /home/grace/.ssh/authorized_keys"
            )
        assert login("grace").returncode == 255
    finally:
        with host.sudo():
            host.check_output("rm -rf /home/grace/.ssh")
        assert play().code == 0
    assert login("grace").returncode == 0


def test_the_password_is_roots_alone(host):
    with host.sudo():
        file = host.file(CONF)
        assert (file.user, file.mode & 0o007) == ("root", 0)
    assert host.run(f"cat {CONF}").rc != 0
    password = (SECRETS / "ldap_password").read_text().strip()
    assert f"ldap_default_authtok = {password}\n" in text(host) + "\n"


def test_no_unit_has_failed_and_sssd_comes_back_after_a_reboot(host):
    assert host.check_output("systemctl --failed --plain --no-legend") == ""
    assert host.service("sssd").is_enabled


def test_a_run_that_changes_nothing(play):
    again = play()
    assert (again.code, again.changed) == (0, 0), again.output
    assert play(None, "--check").changed == 0


def test_a_directory_is_asked_over_starttls_too(host, play):
    try:
        run = play(cluster_users_sssd_uris=["ldap://node"])
        assert run.code == 0, run.output
        assert "ldap_id_use_start_tls = true" in text(host)
    finally:
        assert play().code == 0


def test_a_server_that_another_authority_signed_gets_no_password(host, play):
    try:
        run = play(cluster_users_sssd_ca_file=str(SECRETS / "other.crt"))
        refused(run, "sssd on node gets no answer from ldaps://node")
        with host.sudo():
            since = "$(systemctl show sssd --property=ActiveEnterTimestamp --value)"
            log = host.check_output(f'journalctl --unit=scenario-slapd --since="{since}"')
        assert "TLS negotiation failure" in log
        assert " BIND dn=" not in log
    finally:
        assert play().code == 0
    assert host.check_output("id -u grace") == "70001"


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"cluster_users_sssd_settings": {"ldap_tls_reqcert": "never"}},
            "whoever is in between can be any user",
        ),
        ({"cluster_users_sssd_uris": []}, "cluster_users_sssd_uris is empty; set it to"),
        ({"cluster_users_sssd_ca_file": "/no/such"}, "cluster_users_sssd_ca_file is /no/such"),
        ({"cluster_users_sssd_bind_password_file": "/no"}, "that has the password and mode 0600"),
        (
            {"cluster_users_sssd_settings": {"ldap_shema": "rfc2307bis"}},
            "/etc/sssd stays as it was: sssctl refuses it:",
        ),
        (
            {"cluster_users_list": [{"name": "grace", "uid": 2002, "gid": 2002}]},
            "grace is there already with uid 70001, not from /etc/passwd",
        ),
    ],
)
def test_what_cannot_work_is_refused_and_changes_nothing(host, play, variables, sentence):
    before = text(host)
    if "cluster_users_list" in variables:
        ada = {"name": "ada", "uid": 2001, "gid": 2001}
        variables = {"cluster_users_list": [ada, *variables["cluster_users_list"]]}
    refused(play(**variables), sentence)
    assert text(host) == before


def test_a_password_file_that_others_can_read_is_refused(play):
    file = SECRETS / "ldap_password"
    file.chmod(0o644)
    try:
        refused(play(), "that has the password and mode 0600")
    finally:
        file.chmod(0o600)


def test_who_is_nobody_in_the_directory_ends_the_run_with_a_sentence(play):
    refused(play(cluster_users_sssd_probe="zoe"), "node does not know zoe")


def test_an_sssd_that_runs_with_another_configuration_is_restarted(host, play):
    with host.sudo():
        host.check_output(f"echo '# x' >> {CONF} && systemctl restart sssd")
    run = play()
    assert (run.code, run.changed > 0) == (0, True), run.output
    assert play().changed == 0


def test_hosts_without_the_storage_make_no_homes(host, play):
    try:
        assert play(cluster_users_make_homes=False).code == 0
        assert "pam_mkhomedir" not in text(host, "/etc/pam.d/common-session")
        assert play(cluster_users_make_homes=False).changed == 0
    finally:
        assert play().code == 0
    assert "pam_mkhomedir.so umask=0077" in text(host, "/etc/pam.d/common-session")
