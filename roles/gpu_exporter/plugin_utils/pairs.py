"""Which dcgm-exporter belongs to which DCGM.

Release tags of github.com/NVIDIA/dcgm-exporter are DCGM's version and its own (4.6.0-4.8.3); its
release notes name the versions of DCGM that it was tested with. Only pairs are supported:
https://docs.nvidia.com/datacenter/dcgm/latest/installation/install-dcgm-exporter.html
The role dcgm installs the newest row (dcgm_version): add a row, then set it there.
All know every counter of ours by the same name; 4.7 and 4.9 changed the names of upstream's file.
"""

from __future__ import annotations

PAIRS = {
    "4.5.3": "4.8.2",
    "4.6.0": "4.8.3",
    "4.6.1": "4.8.4",
    "4.7.0": "4.9.0",
    "4.7.1": "4.9.0",
}


def exporter_of(dcgm: str) -> str:
    """The exporter's version for DCGM's, as dpkg says it (1:4.6.0-1); empty for one not known.

    >>> exporter_of("1:4.6.0-1")
    '4.8.3'
    """
    return PAIRS.get(dcgm.strip().split(":")[-1].split("-")[0], "")


def newest() -> str:
    """The last DCGM of the table, whatever the order of its rows."""
    return max(PAIRS, key=lambda dcgm: [int(part) for part in dcgm.split(".")])


def known() -> str:
    """The versions of DCGM, for a sentence."""
    return ", ".join(PAIRS)
