"""What a node is after node_base: a name that resolves, time that is kept, limits that hold."""


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
    with host.sudo():
        assert (
            "memlock unlimited"
            in host.file("/etc/security/limits.d/90-plumbline.conf").content_string
        )


def test_packages_asked_for_are_there(host):
    assert host.package("tree").is_installed
