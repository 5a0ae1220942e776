"""The monitoring after real jobs: who is watched, what is told, what runbooks say to type."""

from __future__ import annotations

import re
import shlex

import pytest

from tests import dashboards_live
from tests.live_cluster import REPOSITORY
from tests.patience import until
from tests.web_listener import Listener

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUNBOOKS = sorted((REPOSITORY / "docs/runbooks").glob("[A-Z][a-z]*.md"))

# Virtual GPUs have no exporter; molecule/monitoring has those of the stand-in for NVML.
LACKING = (
    "gpu,dcgm,exporter,gpu_job,nvlink5,pages,nccl,infiniband,shared_filesystem,edac,store,"
    "raid,bond,native,backup"
)

# What a page's NODE is here, where it is no compute node, and on which host a page's command is
# typed that names none.
NODE_OF = {
    **dict.fromkeys(("AccountingDatabaseDown", "SlurmdbdDown", "SlurmctldDown"), "ctl1"),
    **dict.fromkeys(("SlurmDbdQueueGrowing", "SlurmDbdQueueNearLimit"), "ctl1"),
    **dict.fromkeys(("SlurmRpcOverload", "SlurmSchedulerStalled"), "ctl1"),
    **dict.fromkeys(("ExporterDown", "ExporterStale", "ExporterCollectorFailed"), "ctl1"),
}
HOST_OF = {
    "ValidationTooOld": "login1",
    "NodeNeverValidated": "login1",
    "SharedFilesystemLow": "login1",
}
PLACEHOLDERS = {"UNIT": "slurmd", "MOUNTPOINT": "/tmp", "SUITE": "quick", "CHECK": "munge"}
# Programs that only real hardware has a use for, and so no node here has.
HARDWARE = (
    *("nvidia-smi", "dcgmi", "ibstat", "mlxlink", "perfquery"),
    *("ipmitool", "chronyc", "timedatectl"),
)
NOT_UNDERSTOOD = re.compile(
    r"command not found|not found$|[Uu]nrecogni[sz]ed|[Ii]nvalid (option|argument|field)|"
    r"[Uu]nknown (option|command|operation)|syntax error|usage:",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def prometheus(node):
    return Listener(node("ctl1"), 9090, "ctl1")


def test_every_host_is_scraped_over_tls_and_says_which_it_is(prometheus):
    def up() -> set[tuple[str, str]]:
        samples = prometheus.query("up == 1")
        return {(sample["metric"]["job"], sample["metric"]["node"]) for sample in samples}

    hosts = {("node", name) for name in ("ctl1", "login1", "gpu1", "gpu2", "gpu3")}
    wanted = hosts | {("prometheus", "ctl1"), ("alertmanager", "ctl1")}
    until(lambda: up() == wanted, seconds=90)
    assert prometheus.query("up == 0") == []
    targets = prometheus.ask("/api/v1/targets?state=active").document["data"]["activeTargets"]
    assert {target["scrapeUrl"].partition(":")[0] for target in targets} == {"https"}


def test_every_collector_of_the_controller_has_an_answer(prometheus):
    def success() -> dict[str, str]:
        samples = prometheus.query('plumbline_exporter_collector_success{exporter="slurm"}')
        return {sample["metric"]["collector"]: sample["value"][1] for sample in samples}

    until(lambda: set(success().values()) == {"1"}, seconds=90)
    # The last one asks this Prometheus.
    assert {"nodes", "history", "outcomes", "xids"} <= set(success())


def test_a_runs_verdicts_are_there_with_the_node_that_they_judge(proven, prometheus):
    assert proven.code == 0, proven.output
    passed = 'plumbline_validation_node_verdict{verdict="pass"} == 1'
    until(lambda: len(prometheus.query(passed)) == 3, seconds=60)
    assert {sample["metric"]["node"] for sample in prometheus.query(passed)} == {
        "gpu1",
        "gpu2",
        "gpu3",
    }
    assert prometheus.query('plumbline_validation_verdict{verdict="fail"} == 1') == []


COMMANDS = [
    (page.stem, command)
    for page in RUNBOOKS
    for block in BLOCK.findall(page.read_text(encoding="utf-8"))
    for command in block.strip().splitlines()
]
# Once where two pages say the same: a run of a playbook takes a while.
DIFFERENT = [(page, command) for command, page in {c: p for p, c in COMMANDS}.items()]


@pytest.fixture(scope="module")
def job(operator) -> str:
    done = operator.virtual_cluster("ssh", "login1", "sbatch --parsable --hold --wrap true")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_query_of_dashboards_and_alerts_is_answered_or_listed(operator, proven, tmp_path):
    assert proven.code == 0, proven.output
    started = operator.virtual_cluster(
        "ssh", "login1", "sbatch --parsable --gres=gpu:1 --output=/dev/null --wrap 'sleep 600'"
    )
    assert started.returncode == 0, started.stderr
    try:
        done = dashboards_live.ask(operator.cluster, operator.inventory, tmp_path, LACKING)
    finally:
        operator.virtual_cluster("ssh", "login1", f"scancel {started.stdout.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_runbook_says_what_to_type():
    assert {page for page, _ in COMMANDS} == {path.stem for path in RUNBOOKS}
    assert len(RUNBOOKS) >= 50


# Whole runs; other tests here make such runs.
RUNS = ("ansible-playbook ", "python -m validation.run ")


@pytest.mark.parametrize(
    ("page", "command"),
    [
        pytest.param(*case, marks=[pytest.mark.long] if case[1].startswith(RUNS) else [])
        for case in DIFFERENT
    ],
    ids=[": ".join(case) for case in DIFFERENT],
)
def test_a_runbooks_command_can_be_typed_as_it_is_written(operator, job, page, command):
    """Whatever it finds: no program is missing and no option is wrong."""
    if missing := [name for name in HARDWARE if name in command]:
        pytest.skip(f"needs real hardware: {', '.join(missing)}")
    words = {**PLACEHOLDERS, "JOBID": job, "NODE": NODE_OF.get(page, "gpu1")}
    for name, value in words.items():
        command = re.sub(rf"\b{name}\b", value, command)
    command = command.replace("-i inventory/site", " ".join(operator.inventories))
    login = f"scripts/virtual-cluster ssh --name={operator.cluster}"
    if command.startswith("ssh "):
        command = command.replace("ssh ", f"{login} ", 1)
    elif not command.startswith(("ansible-playbook", "python")):
        command = f"{login} {HOST_OF.get(page, 'ctl1')} {shlex.quote(command)}"
    done = operator("bash", "-c", command)
    output = done.stdout + done.stderr
    assert done.returncode not in {126, 127}, f"{command}\n{output}"
    assert not NOT_UNDERSTOOD.search(done.stderr), f"{command}\n{output}"
