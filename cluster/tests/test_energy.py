"""Where Slurm reads energy from, and what hosts lack for that."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from cluster.slurm import energy
from cluster.slurm.key_problems import refused
from cluster.slurm.keys import RELEASES, File


def test_nothing_is_read_by_default() -> None:
    assert energy.settings([]) == {}
    assert energy.packages([]) == []
    assert energy.look([]) == ""


def test_the_settings_are_read_by_each_release() -> None:
    set_ = energy.settings(["rapl", "ipmi"])
    assert set_ == {
        "AcctGatherEnergyType": "acct_gather_energy/rapl,acct_gather_energy/ipmi",
        "AcctGatherNodeFreq": "30",
        "JobAcctGatherFrequency": "task=30,energy=30",
    }
    for release in RELEASES:
        assert refused(set_, File.SLURM, release, "v", "ctl1") == []


@pytest.mark.parametrize("source", energy.SOURCES)
def test_each_source_is_a_plugin_that_the_table_of_keys_has(source: str) -> None:
    assert energy.problems([source]) == []
    assert refused(energy.settings([source]), File.SLURM, "", "v") == []
    assert energy.look([source])


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        ("rapl", "slurm_energy is 'rapl'; make it a list of"),
        (["gpu"], "Slurm reads the energy of AMD's GPUs alone; remove it"),
        (["rpal"], "slurm_energy has 'rpal'; it may have ipmi, xcc, pm_counters, rapl."),
    ],
)
def test_what_is_no_source_is_refused_and_sets_nothing(sources: Any, sentence: str) -> None:
    (told,) = energy.problems(sources)
    assert sentence in told
    assert energy.settings(sources) == {}


def test_boards_are_asked_by_plugins_of_another_package() -> None:
    assert energy.packages(["rapl"]) == []
    assert energy.packages(["rapl", "ipmi"]) == energy.packages(["xcc"]) == ["energy"]


def test_a_shell_tells_what_is_lacking_and_each_line_is_a_sentence() -> None:
    """On a host of no kind: what asks for each source prints lines that have a sentence."""
    script = energy.look(energy.SOURCES)
    for name in ("/proc/cpuinfo", "/dev/cpu/0/msr", "/dev/ipmi0", "/sys/cray/pm_counters"):
        assert name in script
        script = script.replace(name, "/nowhere")
    script = script.replace("modprobe", "false")
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert len(said.splitlines()) == len(energy.LACKS)
    told = list(energy.host_problems(said, "gpu1"))
    assert len(told) == len(energy.LACKS)
    assert told[0].startswith("gpu1 has no /dev/ipmi0")
    assert "take ipmi out of slurm_energy" in told[0]


def test_a_host_that_lacks_nothing_has_no_problem() -> None:
    assert list(energy.host_problems("cluster=site\ncgroup=cgroup2fs\n", "gpu1")) == []
