"""Files of Slurm's plugins: what is written, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from roles.slurm.plugin_utils.other_files import NAMES, problems, texts

MANAGED = "Managed by Ansible; changes made here are lost."
HELPERS = [{"NodeName": "gpu[1-2]", "Feature": "nps1", "Helper": "/x"}, {"BootTime": 300}]


def test_a_file_is_written_as_its_parser_wants_it_and_one_that_nobody_wants_is_empty() -> None:
    written = texts(
        {
            "mpi.conf": {"PMIxDirectConn": "true", "PMIxTimeout": 300, "PMIxEnv": ""},
            "helpers.conf": HELPERS,
            "namespace.yaml": {"defaults": {"base_path": "/x", "shared": False}},
            "job_submit.lua": "return 0",
        },
        MANAGED,
    )
    assert {name: text for name, text in written.items() if text} == {
        "mpi.conf": f"# {MANAGED}\nPMIxDirectConn=true\nPMIxTimeout=300\n",
        "helpers.conf": f"# {MANAGED}\nNodeName=gpu[1-2] Feature=nps1 Helper=/x\nBootTime=300\n",
        "namespace.yaml": f"# {MANAGED}\ndefaults:\n    base_path: /x\n    shared: false\n",
        "job_submit.lua": f"-- {MANAGED}\nreturn 0\n",
    }
    assert sorted(written) == NAMES


@pytest.mark.parametrize(
    ("files", "settings", "sentence"),
    [
        ({"mpi.cnf": {}}, {}, "slurm_other_files has mpi.cnf; did you mean mpi.conf?"),
        ({"cgroup.conf": {}}, {}, "has cgroup.conf; set slurm_cgroup_settings."),
        ({"knl.conf": {}}, {}, "has knl.conf; it may have acct_gather.conf,"),
        ({"mpi.conf": 7}, {}, "slurm_other_files.mpi.conf is 7; it must be a mapping"),
        ({"mpi.conf": {"PMIxDebug": True}}, {}, "PMIxDebug is true, which YAML made of"),
        ({"mpi.conf": {"PMIxEnv": "a\nb"}}, {}, "has a line break"),
        (
            {"acct_gather.conf": {"ProfileInfluxDBPass": "x"}},
            {"AcctGatherProfileType": "acct_gather_profile/influxdb"},
            "acct_gather.conf.ProfileInfluxDBPass would be readable by every user of a node",
        ),
        (
            {"acct_gather.conf": {"EnergyIPMIFrequency": 10, "EnergyIPMITimeout": 5}},
            {"AcctGatherEnergyType": "acct_gather_energy/gpu"},
            "AcctGatherEnergyType to acct_gather_energy/ipmi, or remove it.",
        ),
        (
            {"acct_gather.conf": {"ProfileHDF5Dir": "/x"}},
            {"AcctGatherProfileType": "acct_gather_profile/influxdb"},
            "has ProfileHDF5Dir, and Slurm ends for keys of a plugin that it does not load; set",
        ),
        ({"job_submit.lua": ["x"]}, {"JobSubmitPlugins": "lua"}, "must be the text of the script"),
        ({"job_submit.lua": "x"}, {"JobSubmitPlugins": "pbs"}, "set slurm_settings.JobSubmitPlug"),
        ({"helpers.conf": HELPERS}, {}, "helpers.conf, which nothing reads; set slurm_settings.No"),
        ({"burst_buffer.conf": {"Flags": "PrivateData"}}, {}, "BurstBufferType to its plugin."),
        (
            {"namespace.yaml": {"defaults": {}}},
            {"NamespaceType": "namespace/tmpfs"},
            "set slurm_settings.NamespaceType to namespace/linux.",
        ),
        ("text", {}, "slurm_other_files must be a mapping"),
    ],
)
def test_what_slurm_would_not_read_is_refused(
    files: Any, settings: dict[str, str], sentence: str
) -> None:
    (told,) = problems(files, settings, {})
    assert sentence in told


def test_of_two_topologies_slurm_would_take_one_in_silence() -> None:
    assert problems({"topology.yaml": [{"topology": "a"}]}, {}, {}) == []
    (told,) = problems({"topology.yaml": [{"topology": "a"}]}, {}, {"plugin": "tree"})
    assert "which Slurm takes in its place; remove one of them." in told


def test_files_that_something_reads_pass() -> None:
    files = {
        "acct_gather.conf": {"EnergyIPMIFrequency": 10},
        "burst_buffer.conf": {"Flags": "PrivateData"},
        "cli_filter.lua": "return 0",
        "helpers.conf": HELPERS,
        "mpi.conf": {},
    }
    settings = {
        "nodefeaturesplugins": "helpers",
        "AcctGatherEnergyType": "acct_gather_energy/gpu,acct_gather_energy/XCC",
        "BurstBufferType": "burst_buffer/datawarp",
        "CliFilterPlugins": "cli_filter/lua,user_defaults",
    }
    assert problems(files, settings, {}) == []
