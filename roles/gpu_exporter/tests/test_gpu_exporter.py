"""What the role decides of what it finds, and what it packs."""

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from jinja2 import Environment

from roles.gpu_exporter.files.gpu_exporter import jobs, metrics
from roles.gpu_exporter.filter_plugins import gpu_exporter as filters
from roles.gpu_exporter.plugin_utils import archive, pairs
from roles.grafana import dashboards
from tests.standins.inventories import ready
from tests.standins.nvml import library

ROLE = Path(__file__).resolve().parents[1]
ROOT = ROLE.parents[1]
COUNTERS = ROLE / "templates/etc/dcgm-exporter/plumbline-counters.csv.j2"
BOOT = "[    0.000000] gpu1 kernel: Linux version 6.12"
FELL_OFF = "[   99.500000] gpu1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, fallen off the bus."


@pytest.mark.parametrize(
    ("dcgm", "exporter"),
    [("1:4.6.0-1", "4.8.3"), ("4.5.3", "4.8.2"), ("1:4.7.1-1\n", "4.9.0"), ("3.3.9", ""), ("", "")],
)
def test_an_exporter_belongs_to_a_dcgm(dcgm, exporter):
    assert pairs.exporter_of(dcgm) == exporter


def test_a_sentence_names_the_known_versions():
    assert filters.known_pairs("only {}") == f"only {', '.join(pairs.PAIRS)}"


def test_the_readme_has_the_same_pairs():
    text = (ROLE / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (4[\d., ]+) \| (4[\d.]+) \|$", text, re.MULTILINE)
    assert {dcgm: own for all_, own in rows for dcgm in all_.split(", ")} == pairs.PAIRS


def counters():
    text = COUNTERS.read_text("utf-8")
    rows = [line.split(", ", 2) for line in text.splitlines() if line.startswith("DCGM_")]
    by_name = {name: (kind, about) for name, kind, about in rows}
    assert len(by_name) == len(rows)
    return by_name


def test_both_exporters_have_the_same_counters():
    """Names, types and what they mean: the fallback says nothing that dcgm-exporter does not."""
    named = counters()
    assert {kind for kind, _ in named.values()} == {"gauge", "counter"}
    own = {metric.name: (metric.kind, metric.help) for metric in metrics.METRICS}
    own |= {f"DCGM_FI_DEV_{name}": ("gauge", about) for name, about, _ in metrics.MEMORY}
    assert {name: named.get(name) for name in own} == own
    assert named["DCGM_EXP_CLOCK_EVENTS_COUNT"][0] == "gauge"


def test_every_field_that_is_collected_is_asked_for():
    """By an alert, a dashboard or job-report: a field that nobody looks at costs 8,000 series."""
    rules = (ROOT / "roles/prometheus/files/etc/prometheus/rules").glob("*.yml")
    report = (ROOT / "roles/job_report/files").rglob("*.py")
    asked = " ".join(
        [*dashboards.files().values(), *(path.read_text("utf-8") for path in (*rules, *report))]
    )
    assert set(counters()) <= set(re.findall(r"\bDCGM_\w+", asked))


def test_a_site_can_have_more_fields():
    environment = Environment(trim_blocks=True, keep_trailing_newline=True)
    environment.filters["comment"] = lambda text: f"# {text}"
    file = environment.from_string(COUNTERS.read_text("utf-8"))
    of_site = [{"name": "DCGM_FI_DEV_ENC_UTIL", "type": "gauge"}]
    text = file.render(gpu_exporter_more_fields=of_site, gpu_exporter_profiling=False)
    more = "\nDCGM_FI_DEV_ENC_UTIL, gauge, DCGM_FI_DEV_ENC_UTIL (chosen by the site).\n"
    assert file.render(gpu_exporter_more_fields=[]) == text.removesuffix(more)
    assert text.endswith(more)


def test_a_counter_is_three_columns():
    """dcgm-exporter reads CSV: a comma in the help would be a fourth."""
    assert [name for name, (_, about) in counters().items() if "," in about] == []


def wrong(*arguments):
    """Each row that fails, with what is there and what should be."""
    rows = filters.rows(*arguments)
    assert {row["component"] for row in rows} == {"gpu_exporter"}
    failed = [row for row in rows if row["verdict"] == "FAIL"]
    assert all(row["advice"] for row in failed)
    return [(row["what"], row["found"], row["expected"]) for row in failed]


def test_the_rows_say_what_is_wrong():
    good = ["own active", "log 1"]
    packaged = ["package:datacenter-gpu-manager-exporter 4.8.3-1", "service active", "held 1"]
    text = "".join(f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}",UUID="x"}} 40\n' for gpu in (0, 1, 1))
    answers = [{"status": 401}, {"status": 200, "content": text}]
    assert wrong("dcgm", good + packaged, 2, "", answers) == []
    bad = ["own active", "log 0", "service failed", "held 0"]
    assert wrong("dcgm", bad, 8, "4.8.3", [{"status": 200}]) == [
        ("kernel's log can be read", "0", "1"),
        ("version of the packages", "none", "4.8.3"),
        ("packages that are held", "0", "1"),
        ("service nvidia-dcgm-exporter", "failed", "active"),
        ("answer without a password", "200", "401"),
        ("GPUs that dcgm-exporter tells", "0", "8"),
    ]
    assert wrong("nvml", [*good, "gpus 8"], 8, "") == []
    assert wrong("nvml", ["own failed", "log 1", "gpus 7"], 8, "") == [
        ("service plumbline-gpu-exporter", "failed", "active"),
        ("GPUs that answer", "7", "8"),
    ]
    (skipped,) = filters.rows("none", [], 0, "")
    assert skipped["verdict"] == "SKIP"


def test_prolog_and_exporter_mean_the_same_folder():
    text = (ROLE / "vars/main.yml").read_text(encoding="utf-8")
    program = (ROLE / "files/usr/local/lib/plumbline/gpu_jobs.py").read_text(encoding="utf-8")
    assert "__gpu_exporter_jobs_folder: /run/plumbline/gpu-jobs" in text
    assert 'jobs: Path = Path("/run/plumbline/gpu-jobs")' in program
    assert f'NAME = re.compile(r"{jobs.NAME.pattern}")' in program


def role_values(monitoring, **variables):
    """What the playbooks give the role and Slurm, for a node of a cluster."""
    ready()
    loader = DataLoader()
    file = ROLE.parents[1] / "group_vars/all/gpu_exporter.yml"
    variables_of_all = loader.load_from_file(str(file), trusted_as_template=True)
    templar = Templar(loader, variables_of_all | variables | {"cluster_is_monitored": monitoring})
    names = ("source", "gpus", "gpu_order")
    values = {name: templar.template(variables_of_all[f"gpu_exporter_{name}"]) for name in names}
    return values | {
        "component": templar.template(variables_of_all["slurm_component_gpu_exporter"])
    }


def test_slurm_gets_scripts_that_a_shell_runs_as_they_are_meant(tmp_path):
    values = role_values(
        True, node_gpus={"model": "virtual", "count": 2, "nvml": True}, dcgm_gpus=0
    )
    assert (values["source"], values["gpus"], values["gpu_order"]) == ("nvml", 2, "device")
    for kind, phase in (("prolog", "begin"), ("epilog", "end")):
        (script,) = values["component"][kind]
        program = tmp_path / "gpu-jobs"
        program.write_text('#!/bin/sh\necho "$#:$1"\n')
        program.chmod(0o755)
        text = script["content"].replace("/usr/local/libexec/plumbline/gpu-jobs", str(program))
        assert subprocess.check_output(["sh", "-c", text], text=True) == f"1:{phase}\n"
        program.unlink()  # as on a node without the exporter
        assert subprocess.run(["sh", "-c", text], check=False).returncode == 0


REAL = {"model": "h100_sxm", "count": 8}


@pytest.mark.parametrize(
    ("monitoring", "variables", "source"),
    [
        (True, {"node_gpus": REAL, "dcgm_gpus": 8}, "dcgm"),
        (True, {"node_gpus": REAL, "dcgm_gpus": 0}, "nvml"),
        (True, {"node_gpus": {"model": "virtual", "count": 2}, "dcgm_gpus": 0}, "none"),
        (False, {"node_gpus": REAL, "dcgm_gpus": 8}, "none"),
    ],
)
def test_real_gpus_are_dcgms_and_without_a_monitoring_host_nobodys(monitoring, variables, source):
    values = role_values(monitoring, **variables)
    assert (values["source"], values["component"] != {}) == (source, monitoring)


def test_what_slurm_detected_is_in_the_order_of_the_bus():
    detected = {"slurm_node_gres": [{"autodetect": "nvml"}]}
    assert role_values(True, node_gpus=REAL, dcgm_gpus=8, **detected)["gpu_order"] == "pci"


def test_a_bare_python_runs_what_is_packed(tmp_path):
    assert archive.content() == archive.content()
    program = tmp_path / "gpu-exporter"  # unpacked, as on a node
    with zipfile.ZipFile(io.BytesIO(archive.content())) as packed:
        packed.extractall(program)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    description = tmp_path / "description"
    description.write_text(library.describe(2))
    command = tmp_path / "journalctl"
    command.write_text(f"#!/bin/sh\necho '{BOOT}'\necho '{FELL_OFF}'\n")
    command.chmod(0o755)

    environment = {**library.environment(library.build(tmp_path), description)}

    def run(*arguments):
        done = subprocess.run(
            [str(bare / "bin/python"), "-I", str(program), *arguments],
            env=environment | {"PATH": str(tmp_path)},
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    output = run()
    assert output.count("DCGM_FI_DEV_GPU_TEMP{") == 2
    labels = 'pci_bus_id="00000000:1B:00.0",kind="xid",xid="79",verdict="fail"'
    assert f"plumbline_kernel_xid_total{{{labels}}} 1\n" in output
    # What DCGM tells is told once.
    output = run("--collect", "xid")
    assert "DCGM" not in output
    assert f"plumbline_kernel_xid_total{{{labels}}} 1\n" in output
    assert re.findall(r'collector="(\w+)"} 1', output) == ["xid"]
