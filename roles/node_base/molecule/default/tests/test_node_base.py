"""What a node is after node_base: a name that resolves, time that is kept, limits that hold."""

import re

import pytest

from tests.role_play import Case

CONFIGURE = {"ansible.builtin.include_role": {"name": "node_base", "tasks_from": "configure"}}
INTERRUPT = {"ansible.builtin.fail": {"msg": "interrupted"}}


def test_the_name_is_the_inventorys(host):
    assert host.check_output("hostname") == "node"


def test_names_resolve_to_addresses_not_to_loopback(host):
    own = host.check_output("getent ahostsv4 node").split()[0]
    assert own == host.interface("eth0").addresses[0]
    assert host.check_output("getent ahostsv4 other").split()[0] == "192.0.2.7"
    assert host.check_output("getent ahostsv4 other.example.org").split()[0] == "192.0.2.7"


def test_entries_of_others_in_hosts_are_kept(host):
    assert host.check_output("getent ahostsv4 localhost").split()[0] == "127.0.0.1"


def test_chronyd_asks_the_named_servers_and_no_others(host):
    assert host.service("chrony").is_running
    assert host.service("chrony").is_enabled
    with host.sudo():
        sources = host.check_output("chronyc -n -c sources").splitlines()
    assert sorted(line.split(",")[2] for line in sources) == ["127.0.0.2", "127.0.0.3"]


def test_chronyd_leaves_the_clock_of_the_host_alone(host):
    """In a container the clock is the host's; -x makes chronyd measure without adjusting."""
    assert "-x" in host.check_output("ps -o args= -C chronyd").split()


def test_limits_hold_in_a_login(host):
    assert host.check_output("sh -c 'ulimit -n'") == "8192"
    assert host.check_output("bash -c 'ulimit -Sc; ulimit -Hc'").split() == ["0", "4096"]
    with host.sudo():
        assert (
            "memlock unlimited"
            in host.file("/etc/security/limits.d/90-plumbline.conf").content_string
        )


def test_who_logs_in_finds_the_programs_of_administrators(host):
    """In a login shell, and with `ssh HOST COMMAND`, whose PATH is sshd's."""
    assert host.check_output("env -i bash --login -c 'command -v useradd'") == "/usr/sbin/useradd"
    with host.sudo():
        assert "setenv PATH=/usr/local/bin:" in host.check_output("sshd -T")
        assert ":/usr/sbin:/sbin" in host.check_output("sshd -T | grep ^setenv")


def test_sshd_lets_in_no_root_and_forwards_no_x11(host):
    with host.sudo():
        shown = host.check_output("sshd -T -C user=root,host=elsewhere,addr=198.51.100.1")
    assert {"permitrootlogin no", "permitemptypasswords no", "x11forwarding no"} <= set(
        shown.splitlines()
    )


def test_unattended_upgrades_pass_over_what_jobs_run_on(host):
    shown = host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
    passed = set(re.findall(r'"(\S+)"', shown))
    assert {"slurm", "nvidia", "linux-", "cuda"} <= passed


def test_packages_asked_for_are_there(host):
    assert host.package("tree").is_installed


def test_apt_waits_for_its_lock_and_tries_downloads_again(host):
    shown = host.check_output("apt-config dump DPkg::Lock::Timeout Acquire::Retries")
    assert 'DPkg::Lock::Timeout "600";' in shown
    assert 'Acquire::Retries "3";' in shown


@pytest.mark.long
def test_apt_asks_a_cache_for_packages(host, play):
    """Nobody listens there, so that a package which is not installed cannot be had."""
    ask = "apt-config dump Acquire::http::Proxy"
    before = host.check_output(ask)
    run = play(node_base_apt_proxy="http://127.0.0.1:9")
    assert (run.code, run.changed) == (0, 1), run.output
    assert 'Acquire::http::Proxy "http://127.0.0.1:9";' in host.check_output(ask).splitlines()
    with host.sudo():
        refused = host.run("apt-get --yes -o Acquire::Retries=0 --download-only install hello")
    assert "127.0.0.1:9" in refused.stderr
    run = play()
    assert (run.code, run.changed) == (0, 1), run.output
    assert host.check_output(ask) == before


def test_an_installation_that_was_interrupted_is_finished(host, play):
    """dpkg was killed: its journal is left, and APT does nothing before somebody finishes it.

    The package left half installed starts a daemon that, like slurmd, waits for its configuration.
    """
    with host.sudo():
        host.check_output(f"mkdir -p /root/waits/DEBIAN && cd /root && {WAITING_DAEMON}")
        host.check_output("dpkg -s tree > /var/lib/dpkg/updates/0001")
        refused = host.run("apt-get --yes install tree")
        assert "dpkg was interrupted" in refused.stderr
    run = play()
    assert (run.code, run.changed) == (0, 1), run.output
    with host.sudo():
        assert "ok installed" in host.check_output("dpkg-query -Wf '${Status}' waits")
        assert not host.file("/usr/sbin/policy-rc.d").exists
        host.check_output(
            "systemctl disable waits && dpkg --purge waits && apt-get --yes install tree"
        )


# A package whose daemon never comes up; unpacked, not configured.
WAITING_DAEMON = r"""
printf '%s\n' 'Package: waits' 'Version: 1' 'Architecture: all' \
    'Maintainer: none <none@localhost>' 'Description: waits' > waits/DEBIAN/control
printf '%s\n' '#!/bin/sh' 'systemctl daemon-reload' 'systemctl enable waits' \
    'deb-systemd-invoke start waits.service' > waits/DEBIAN/postinst
chmod 0755 waits/DEBIAN/postinst
mkdir -p waits/lib/systemd/system
printf '%s\n' '[Service]' 'Type=oneshot' 'TimeoutStartSec=infinity' \
    'ExecStart=/bin/sleep infinity' '[Install]' 'WantedBy=multi-user.target' \
    > waits/lib/systemd/system/waits.service
dpkg-deb --build waits waits.deb && dpkg --unpack waits.deb
"""


def started(host) -> str:
    return host.check_output("systemctl show chrony --property=ActiveEnterTimestampMonotonic")


def sources(host) -> list[str]:
    with host.sudo():
        shown = host.check_output("chronyc -n -c sources")
    return sorted(line.split(",")[2] for line in shown.splitlines())


@pytest.mark.long
def test_a_run_that_was_interrupted_before_its_restart_is_mended_by_the_next(host, play):
    before = started(host)
    servers = {"node_base_time_servers": ["127.0.0.4"]}
    play([CONFIGURE, INTERRUPT], **servers)
    assert (sources(host), started(host)) == (["127.0.0.2", "127.0.0.3"], before)
    mended = play(**servers)
    assert mended.code == 0, mended.output
    assert (sources(host), started(host) != before) == (["127.0.0.4"], True)


@pytest.mark.long
def test_users_get_perf_and_a_umask_where_a_site_says_so(attempts):
    """The kernel's settings are written as on a node with a kernel of its own.

    They are removed before the handler loads them: here the kernel is the host's.
    """
    settings, mark = "/etc/sysctl.d/50-plumbline-baseline.conf", "/run/systemd/container"
    wanted = {
        "node_base_perf": True,
        "node_base_size_sysctls": {"net.core.somaxconn": 9000, "kernel.dmesg_restrict": 0},
    }
    outcomes = attempts(
        [
            Case(
                "program",
                wanted,
                tasks_from="install",
                mends="command -v perf; apt-get --yes purge linux-perf >/dev/null",
            ),
            Case(
                "settings",
                wanted,
                tasks_from="configure",
                breaks=f"mv {mark} /run/container",
                mends=f"grep -E 'paranoid|kptr|somaxconn|dmesg' {settings};"
                f" rm {settings}; mv /run/container {mark}",
            ),
            Case(
                "umask",
                {"node_base_umask": "027"},
                tasks_from="configure",
                mends="runuser --login ops --command umask; bash --login -c umask;"
                " rm /etc/profile.d/plumbline-umask.sh",
            ),
        ]
    )
    assert outcomes["program"].left == "/usr/bin/perf"
    assert outcomes["settings"].left == (
        "-kernel.dmesg_restrict = 1 -kernel.kptr_restrict = 0 -kernel.perf_event_paranoid = 1"
        " -net.core.somaxconn = 9000"
    )
    # Of users; what root installs stays open.
    assert outcomes["umask"].left == "0027 0022"


@pytest.fixture
def hosts(host):
    """/etc/hosts as Debian's installer leaves it, beside what the role wrote."""
    with host.sudo():
        host.check_output("sed -i '/^127.0.1.1/d' /etc/hosts && echo 127.0.1.1 node >> /etc/hosts")
    return host.file("/etc/hosts")


@pytest.mark.long
def test_an_emptied_variable_takes_back_what_it_did(host, hosts, play):
    """And setting it again does it again, the entry that hides the node's address included."""
    pools = "grep -E '^(pool|server|sourcedir /run)' /etc/chrony/chrony.conf"
    with host.sudo():
        filled = play()
        assert filled.code == 0, filled.output
        assert "\n# 127.0.1.1 node\n" in hosts.content_string
        assert "192.0.2.7 other" in hosts.content_string
        assert not host.run(pools).stdout

        emptied = play(node_base_hosts_lines="", node_base_time_servers=[], node_base_limits=[])
        assert emptied.code == 0, emptied.output
        assert "\n127.0.1.1 node\n" in hosts.content_string
        assert "192.0.2.7" not in hosts.content_string
        assert "managed by Ansible" not in hosts.content_string
        assert "pool" in host.run(pools).stdout
        assert not host.file("/etc/chrony/sources.d/plumbline.sources").exists
        assert not host.file("/etc/security/limits.d/90-plumbline.conf").exists

        again = play()
        assert again.code == 0, again.output
        assert play().changed == 0


CLOUD = """#cloud-config
manage_etc_hosts: true
hostname: other
ssh_deletekeys: false
users: []
"""


@pytest.mark.long
def test_cloud_init_takes_back_neither_the_hosts_nor_the_name(host, play):
    """Debian's own, at the first boot of an instance whose cloud asks for both in its user data."""
    run = play(node_base_extra_packages=["tree", "cloud-init"])
    assert run.code == 0, run.output
    with host.sudo():
        folder = "/var/lib/cloud/seed/nocloud"
        host.check_output(f"mkdir -p {folder}")
        host.check_output(f"printf 'instance-id: i1\nlocal-hostname: other\n' >{folder}/meta-data")
        host.check_output(f"printf '%s' '{CLOUD}' >{folder}/user-data")
        source = "datasource_list: [NoCloud]\nnetwork: {config: disabled}\n"
        host.check_output(f"printf '{source}' >/etc/cloud/cloud.cfg.d/95-test.cfg")
        host.check_output("cloud-init init --local && cloud-init init")
        assert "manage_etc_hosts: true" in host.check_output("cloud-init query userdata")
        assert "192.0.2.7 other" in host.file("/etc/hosts").content_string
        assert host.check_output("hostname") == "node"
        assert host.file("/etc/hostname").content_string.strip() == "node"
        # And where the image, not the user data, asks for it:
        host.check_output(f"sed -i /manage_etc_hosts/d {folder}/user-data")
        host.check_output("echo 'manage_etc_hosts: true' >/etc/cloud/cloud.cfg.d/10-image.cfg")
        host.check_output("cloud-init clean && cloud-init init --local && cloud-init init")
        host.check_output("cloud-init single --name update_etc_hosts --frequency always")
        assert "192.0.2.7 other" in host.file("/etc/hosts").content_string
        # The node may be others' after this test.
        host.check_output("apt-get --yes purge cloud-init && rm -rf /etc/cloud /var/lib/cloud")
