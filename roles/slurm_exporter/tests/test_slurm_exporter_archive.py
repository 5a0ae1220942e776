"""The file that the controller gets, and that the role's words are the program's."""

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from roles.slurm_exporter.files.slurm_exporter import config
from roles.slurm_exporter.plugin_utils import archive

ROLE = Path(__file__).resolve().parents[1]


def read(name):
    return yaml.safe_load((ROLE / name).read_text(encoding="utf-8"))


def test_the_file_is_the_same_each_time_runs_by_itself_and_has_nothing_else_in_it(tmp_path):
    """Isolated, as on a node: nothing but the file and the standard library."""
    file = tmp_path / "slurm-exporter.pyz"
    file.write_bytes(archive.content())
    assert file.read_bytes() == archive.content()
    with zipfile.ZipFile(file) as packed:
        names = packed.namelist()
    assert not [name for name in names if re.search(r"/tests/|^(validation|playbooks)/", name)]
    assert "cluster/exporter.py" in names
    settings = {
        "file": str(tmp_path / "slurm.prom"), "interval_s": 60, "limit_s": 15,
        "collectors": ["nodes"], "openmetrics": False, "per_job": True,
        "ledger": str(tmp_path / "node-history.sqlite"), "accounting": False,
        "controller": "", "prometheus": {},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-S", file, "--config", tmp_path / "config.json", "--once"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr == "nodes: scontrol cannot be started: No such file or directory\n"
    assert 'collector_success{collector="nodes",exporter="slurm"} 0.0\n' in done.stdout


def test_the_role_says_what_the_program_reads():
    variables = read("vars/main.yml")
    assert list(variables["__slurm_exporter_document"]) == [
        f.name for f in fields(config.ExporterSettings)
    ]
    assert tuple(variables["__slurm_exporter_known"]) == config.COLLECTORS
    assert variables["__slurm_exporter_commands"] == config.COMMANDS
    defaults = read("defaults/main.yml")
    document = {
        "file": defaults["slurm_exporter_textfile_folder"] + "/slurm.prom",
        "interval_s": defaults["slurm_exporter_interval"],
        "limit_s": defaults["slurm_exporter_timeout"],
        "collectors": defaults["slurm_exporter_collectors"],
        "openmetrics": defaults["slurm_exporter_openmetrics"],
        "per_job": defaults["slurm_exporter_per_job"],
        "ledger": defaults["slurm_exporter_ledger_folder"] + "/node-history.sqlite",
        "accounting": defaults["slurm_exporter_accounting"],
        "controller": defaults["slurm_exporter_controller"],
        "prometheus": {},
    }
    assert (*config.parse(document).collectors, "usage", "xids") == config.COLLECTORS
    with pytest.raises(ValueError, match="the collector xids asks Prometheus"):
        config.parse(document | {"collectors": ["xids"]})
    asked = {
        name: value.strip("{} ") for name, value in variables["__slurm_exporter_prometheus"].items()
    }
    settings = config.parse(document | {"collectors": ["xids"], "prometheus": asked})
    assert settings.prometheus is not None
    assert settings.prometheus.limit_s == defaults["slurm_exporter_timeout"]
