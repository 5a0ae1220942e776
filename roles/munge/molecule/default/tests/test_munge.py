"""MUNGE on one node, asked as its users ask it."""


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


def test_the_key_is_random(host):
    """A key derived from a password is text or repeats; 1024 random bytes hold most values."""
    with host.sudo():
        distinct = host.check_output("od -An -v -tu1 -w1 /etc/munge/munge.key | sort -u | wc -l")
    assert int(distinct) > 200


def test_the_service_comes_back_after_a_reboot(host):
    assert host.service("munge").is_enabled
    assert host.service("munge").is_running
