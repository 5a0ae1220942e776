"""Energy of jobs in accounting: where Slurm may read it, and what a host lacks for that.

Every step's energy is that of its whole nodes (slurm.conf(5), AcctGatherEnergyType): a job that
shares a node is told what all of its jobs used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# What asks the board for power through /dev/ipmi0, with a plugin that has a package of its own.
IPMI = ("ipmi", "xcc")
SOURCES = (*IPMI, "pm_counters", "rapl")
# Seconds between two readings. RAPL's counters overflow, and slurm.conf(5) wants less than 300.
INTERVAL_S = 30
# Seconds between two samples of memory: Slurm's own default, which a setting of energy alone loses.
TASK_S = 30


def settings(sources: Any) -> dict[str, str]:
    """Of slurm.conf; nothing without a source, or where the sources are none."""
    if not sources or problems(sources):
        return {}
    return {
        "AcctGatherEnergyType": ",".join(f"acct_gather_energy/{source}" for source in sources),
        "AcctGatherNodeFreq": str(INTERVAL_S),
        "JobAcctGatherFrequency": f"task={TASK_S},energy={INTERVAL_S}",
    }


def packages(sources: Any) -> list[str]:
    """Parts of Slurm, as playbooks/vars/slurm_packages.yml has them, that have the plugins."""
    return ["energy"] if isinstance(sources, list) and set(IPMI) & set(map(str, sources)) else []


def problems(sources: Any) -> list[str]:
    """What is wrong with slurm_energy, as sentences."""
    if not isinstance(sources, list):
        return [f"slurm_energy is {sources!r}; make it a list of {', '.join(SOURCES)}."]
    return [
        # gpu_p_energy_read of src/plugins/gpu/nvml/gpu_nvml.c returns without a value.
        "slurm_energy has gpu, and Slurm reads the energy of AMD's GPUs alone; remove it: what "
        "NVIDIA's use is in job-report, from their own counters."
        if source == "gpu"
        else f"slurm_energy has {source!r}; it may have {', '.join(SOURCES)}."
        for source in sources
        if source not in SOURCES
    ]


# What a compute node is asked: it prints a line for what it lacks. The plugin for RAPL reads the
# registers 0x606 and 0x611, which are Intel's; without the device it drains the node.
LOOK = {
    "rapl": (
        "grep -qs '^vendor_id.*GenuineIntel' /proc/cpuinfo || echo energy=rapl:vendor; "
        "[ -e /dev/cpu/0/msr ] || modprobe --quiet --dry-run msr 2>&- || echo energy=rapl:msr;"
    ),
    **dict.fromkeys(IPMI, "[ -e /dev/ipmi0 ] || echo energy=ipmi:device;"),
    "pm_counters": "[ -d /sys/cray/pm_counters ] || echo energy=pm_counters:folder;",
}
LACKS = {
    "rapl:vendor": "a processor that is not Intel's, and Slurm reads RAPL of those alone",
    "rapl:msr": "no /dev/cpu/0/msr and no kernel module msr, which Slurm reads RAPL through",
    "ipmi:device": "no /dev/ipmi0, through which Slurm asks the board for its power",
    "pm_counters:folder": "no /sys/cray/pm_counters, which HPE Cray's systems have",
}


def look(sources: Sequence[str]) -> str:
    """What a shell asks a compute node, for host_problems."""
    return " ".join(dict.fromkeys(LOOK[source] for source in sources if source in LOOK))


def host_problems(look: str, name: object) -> Iterator[str]:
    """What a compute node lacks, from what its shell printed."""
    for line in look.splitlines():
        what = line.strip().removeprefix("energy=")
        if line.startswith("energy=") and what in LACKS:
            yield (
                f"{name} has {LACKS[what]}; take {what.partition(':')[0]} out of slurm_energy, "
                "or the node out of the cluster."
            )
