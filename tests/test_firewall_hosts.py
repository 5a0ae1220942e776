"""Which new nodes the firewalls of the others let in without having been told of them."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from playbooks.filter_plugins.firewall_hosts import strangers_to

HOSTS = [
    {"name": "gpu1", "address": "10.0.0.11"},
    {"name": "gpu2", "address": "10.0.1.11"},
    {"name": "gpu3", "address": "2001:db8::3"},
]


@pytest.mark.parametrize(
    ("networks", "strangers"),
    [
        ([], ["gpu1", "gpu2", "gpu3"]),
        (["10.0.0.0/24"], ["gpu2", "gpu3"]),
        (["10.0.0.1/23", "2001:db8::/64"], []),
        (["10.0.1.11"], ["gpu1", "gpu3"]),
    ],
)
def test_who_is_in_no_network_of_the_nodes_is_a_stranger(networks, strangers):
    assert strangers_to(HOSTS, networks) == strangers


def test_what_is_no_network_is_no_pass():
    with pytest.raises(AnsibleFilterError, match="rack1"):
        strangers_to(HOSTS, ["rack1"])
