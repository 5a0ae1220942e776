"""What the playbook does to a cluster that is in use."""

import json
import os
import re
import time

import pytest

from tests.live_cluster import REPOSITORY, changed, words
from tests.patience import until

DAEMONS = {
    "ctl1": ["munge", "mariadb", "slurmdbd", "slurmctld"],
    "login1": ["munge"],
    "gpu1": ["munge", "slurmd"],
    "gpu2": ["munge", "slurmd"],
    "gpu3": ["munge", "slurmd"],
}


def started(node):
    return {
        (name, daemon): node(name).check_output(
            f"systemctl show --property=ActiveEnterTimestampMonotonic --value {daemon}"
        )
        for name, daemons in DAEMONS.items()
        for daemon in daemons
    }


# As molecule's converge is called: a look knows what the same command asked before.
AS_CONVERGED = ("--skip-tags", "molecule-notest,notest")


# Of a GPU node; docs/understand/scale.md has what was measured. Calls and processes of their own
# are those of the run after the one that asked all of it: most tasks need neither (near.py). This
# cluster has more roles than the demo.
MOST_CALLS, MOST_TASKS, MOST_FORKS = 20, 310, 30


@pytest.fixture
def counted(tmp_path):
    """The environment of a run whose calls, tasks and loads are written down, each in a file."""
    standins = REPOSITORY / "tests/standins"
    return {
        "ANSIBLE_SSH_EXECUTABLE": str(standins / "bin/counting-ssh"),
        "ANSIBLE_CALLBACK_PLUGINS": (
            f"{REPOSITORY / 'playbooks/callback_plugins'}:{standins / 'callback_plugins'}"
        ),
        "COUNT_CALLS": str(tmp_path / "calls"),
        "COUNT_FORKS": str(tmp_path / "forks"),
        "COUNT_LOADS": str(tmp_path / "loads"),
    }


def tasks_of(name, path):
    return [line for line in path.read_text().splitlines() if f"{name} " in line]


def test_a_second_run_changes_nothing_and_restarts_nothing(node, operator, counted, tmp_path):
    job = node("login1").check_output("sbatch --parsable -N3 -o /dev/null --wrap 'sleep 3600'")
    try:
        before = started(node)
        run = operator.playbook("slurm-cluster.yml", *AS_CONVERGED, environment=counted)
        assert run.returncode == 0, run.stdout[-3000:]
        by_host = changed(run.stdout)
        assert set(by_host) >= set(DAEMONS)
        assert set(by_host.values()) == {"0"}
        assert started(node) == before
        assert node("login1").check_output(f"squeue -h -j {job} -o %T") == "RUNNING"
        assert 0 < len(tasks_of("gpu1", tmp_path / "forks")) <= MOST_TASKS
    finally:
        node("login1").check_output(f"scancel {job}")


@pytest.mark.long  # a third whole run; its tasks are counted in the second
def test_what_the_second_run_asked_the_third_asks_in_one_look(operator, counted, tmp_path):
    run = operator.playbook("slurm-cluster.yml", *AS_CONVERGED, environment=counted)
    assert run.returncode == 0, run.stdout[-3000:]
    assert set(re.findall(r"changed=(\d+)", run.stdout)) == {"0"}
    hosts = json.loads((operator.inventory / "nodes.yml").read_text().split("---")[1])
    address = hosts["all"]["hosts"]["gpu1"]["ansible_host"]
    calls = (tmp_path / "calls").read_text().split().count(address)
    tasks = tasks_of("gpu1", tmp_path / "forks")
    forks = [line for line in tasks if " near " not in line]
    message = f"{calls} calls, {len(tasks)} tasks, {len(forks)} with a process of their own"
    assert 0 < calls <= MOST_CALLS, message
    assert 0 < len(tasks) <= MOST_TASKS, message
    assert 0 < len(forks) <= MOST_FORKS, message
    assert "gpu1 skipped" not in forks
    loads = (tmp_path / "loads").read_text().splitlines()
    assert [line for line in loads if line.startswith("child ")] == []


@pytest.mark.parametrize(
    "playbook", ["nodes.yml", pytest.param("slurm-cluster.yml", marks=pytest.mark.long)]
)
def test_one_node_that_is_off_does_not_stop_the_others(node, operator, playbook):
    limits = "/etc/security/limits.d/90-plumbline.conf"
    operator.virtual_cluster("stop", "gpu2")
    try:
        with node("gpu1").sudo():
            node("gpu1").check_output(f"sed -i s/unlimited/64/ {limits}")
        run = operator.playbook(playbook)
        assert run.returncode != 0
        assert "Not reached, and therefore not configured: gpu2" in words(run)
        assert "--limit gpu2" in words(run)
        assert re.search(r"^gpu2 .*unreachable=1", run.stdout, re.MULTILINE)
        assert "unlimited" in node("gpu1").file(limits).content_string
    finally:
        assert operator.virtual_cluster("start", "gpu2").returncode == 0
        with node("ctl1").sudo():  # a complete run drained it
            node("ctl1").run("scontrol update nodename=gpu2 state=resume")


@pytest.mark.long
def test_a_node_that_fails_is_drained_and_resumed_by_the_run_that_mends_it(node, operator):
    limits = "/etc/security/limits.d/90-plumbline.conf"
    job = node("login1").check_output("sbatch --parsable -w gpu2 -o /dev/null --wrap 'sleep 3600'")
    ask = f"scontrol -o show node gpu2; squeue -h -j {job} -o 'job %T'"
    try:
        until(lambda: "job RUNNING" in node("login1").check_output(ask))
        with node("gpu2").sudo():
            node("gpu2").check_output(f"rm {limits} && mkdir {limits}")
        run = operator.playbook("slurm-cluster.yml")
        assert run.returncode == 2
        assert 'Failed: gpu2, at "node_base' in words(run)
        assert "--limit gpu2" in words(run)
        for host in ("ctl1", "login1", "gpu1", "gpu3"):
            assert re.search(rf"^{host} .*unreachable=0 +failed=0", run.stdout, re.MULTILINE)
        said = node("login1").check_output(ask)
        assert "DRAIN" in said
        assert "Reason=[plumbline:unfit] dropped out of a run of the playbook, by" in said
        assert "job RUNNING" in said
        with node("gpu2").sudo():
            node("gpu2").check_output(f"rmdir {limits}")
        run = operator.playbook("slurm-cluster.yml", "--limit", "gpu2")
        assert run.returncode == 0, run.stdout[-3000:]
        said = node("login1").check_output(ask)
        assert "DRAIN" not in said
        assert "job RUNNING" in said
    finally:
        with node("gpu2").sudo():
            node("gpu2").run(f"rmdir {limits}")
        node("login1").check_output(f"scancel {job}")


def test_without_the_controller_nothing_is_configured_not_even_one_node(operator):
    operator.virtual_cluster("stop", "ctl1")
    try:
        run = operator.playbook("slurm-cluster.yml", "--limit", "gpu2")
        refused_before_any_change(run, "ctl1 cannot be reached")
    finally:
        assert operator.virtual_cluster("start", "ctl1").returncode == 0


# Lines of a site's variables, and what is said of each. Roles are asked once the variables are such
# that they can be.
BAD_VARIABLES = {
    "slurm_partitons: []": "did you mean slurm_partitions?",
    "slurm_slurmd_timeout: soon": "but is 'soon'",
    "slurm_database_password: changeme": "a word that everyone knows",
    "slurm_partitions: [{name: x, nodes: [gpu_h200]}]": 'names "gpu_h200"',
}
REFUSED_BY_ROLES = {
    "slurm_accounting_port: 7000": "slurm_accounting_port is 7000",
    "slurm_users: [{name: eve, account: reserch}]": "did you mean research?",
    "slurm_partitions: [{name: gpu, nodes: [slurm_compute], settings: {QOS: urgnet}}]": (
        "partition gpu: QOS names the QOS urgnet"
    ),
}


@pytest.mark.parametrize(
    ("bad", "twice"), [(BAD_VARIABLES, True), (REFUSED_BY_ROLES, False)], ids=["judge", "roles"]
)
def test_bad_variables_are_refused_in_seconds_and_all_at_once(operator, tmp_path, bad, twice):
    """The judge is also told of a node in two kinds of hardware."""
    (tmp_path / "group_vars/all").mkdir(parents=True)
    (tmp_path / "group_vars/all/site.yml").write_text("\n".join(["---", *bad, ""]))
    if twice:
        (tmp_path / "group_vars/gpu_h100.yml").write_text("---\nnode_memory_mb: 1000\n")
    kinds = {"children": {"gpu_h100": {"hosts": {"gpu1": {}}}}} if twice else {}
    inventory = {"all": {"children": {"slurm_compute": kinds}}}
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
    sentences = [*bad.values(), *(["set node_memory_mb to different values"] if twice else [])]
    begin = time.monotonic()
    run = operator.playbook("slurm-cluster.yml", "-i", str(tmp_path))
    for sentence in sentences:
        refused_before_any_change(run, sentence)
    assert time.monotonic() - begin < 30


@pytest.mark.long
def test_a_node_with_another_system_is_refused(node, operator):
    with node("gpu1").sudo():
        node("gpu1").check_output("cp -L /etc/os-release /root/ && cp /etc/debian_version /root/")
        node("gpu1").check_output("sed -i 's/^VERSION_ID=.*/VERSION_ID=\"11\"/' /etc/os-release")
        node("gpu1").check_output("echo 11.9 > /etc/debian_version")
    try:
        run = operator.playbook("slurm-cluster.yml")
    finally:
        with node("gpu1").sudo():
            node("gpu1").check_output("cat /root/os-release > /etc/os-release")
            node("gpu1").check_output("cp /root/debian_version /etc/debian_version")
    refused_before_any_change(run, "gpu1 runs Debian 11, which is not supported")


# --- one identity --------------------------------------------------------------------------------


@pytest.mark.long
def test_another_name_for_a_deployed_cluster_is_refused(operator):
    run = operator.playbook("slurm-cluster.yml", "-e", "cluster_name=other")
    refused_before_any_change(run, "ctl1 is the controller of the cluster plumbline")


@pytest.mark.long
def test_a_checkout_with_another_key_is_refused(operator, tmp_path):
    key = tmp_path / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    run = operator.playbook("slurm-cluster.yml", "-e", f"cluster_secrets={tmp_path}")
    refused_before_any_change(run, "is not the key that the cluster has on ctl1")


@pytest.mark.long
def test_a_checkout_without_secrets_takes_over_those_of_the_cluster(node, operator, tmp_path):
    """It once made new ones, and gave them to all hosts, or with --limit to one, then alone."""
    before = started(node)
    secrets = tmp_path / "fresh/.secrets"
    command = "sha256sum /etc/plumbline/tls/*.crt /etc/plumbline/node_exporter/web.yml"
    with node("gpu2").sudo():
        had = node("gpu2").check_output(command)
    for playbook, host in [("slurm-cluster.yml", "gpu2"), ("slurm.yml", "ctl1")]:
        run = operator.playbook(playbook, "-e", f"cluster_secrets={secrets}", "--limit", host)
        assert run.returncode == 0, run.stdout[-3000:]
    with node("gpu2").sudo():
        assert node("gpu2").check_output(command) == had
    for name in ("tls_authority.pem", "monitoring_admin_password"):
        assert (secrets / name).read_bytes() == (
            operator.inventory / ".secrets" / name
        ).read_bytes()
    with node("ctl1").sudo():
        assert (secrets / "munge.key").read_bytes() == node("ctl1").file(
            "/etc/munge/munge.key"
        ).content
        deployed = node("ctl1").file("/etc/slurm/slurmdbd.conf").content_string
    password = (secrets / "slurm_database_password").read_text().strip()
    assert f"StoragePass={password}" in deployed.splitlines()
    assert {path.stat().st_mode & 0o777 for path in secrets.iterdir()} == {0o600}
    assert started(node) == before


# --- what Slurm makes of a change ----------------------------------------------------------------


@pytest.mark.long
def test_a_new_partition_and_a_wrong_declaration_restart_no_daemon(node, operator, tmp_path):
    """Slurm holds such nodes as `inval`; the run once ended with 0. What is right works."""
    everyone = {"name": "gpu", "nodes": ["slurm_compute"], "default": True}
    short = {"name": "short", "nodes": ["gpu1"], "max_time": "0-01:00:00"}
    wrong = {"all": {"hosts": {name: {"node_memory_mb": 99_999_999} for name in ("gpu2", "gpu3")}}}
    (tmp_path / "wrong.yml").write_text(json.dumps(wrong))
    partitions = json.dumps(
        {"slurm_partitions": [everyone, short], "slurm_registration_timeout": 20}
    )
    before = started(node)
    run = operator.playbook("slurm.yml", "-i", str(tmp_path / "wrong.yml"), "-e", partitions)
    assert run.returncode != 0
    assert "Slurm gives gpu2 no jobs" in words(run)
    assert "Low RealMemory" in words(run)
    assert "Failed: gpu2, gpu3, at" in words(run)
    assert node("login1").check_output("sinfo -h -p short -o '%N %l'") == "gpu1 1:00:00"
    assert node("login1").check_output("srun -p short hostname") == "gpu1"
    assert started(node) == before


@pytest.mark.long
def test_a_right_declaration_mends_it(node, operator):
    """Nobody has to resume a node. A partition that is declared no more goes."""
    before = started(node)
    run = operator.playbook("slurm.yml")
    assert run.returncode == 0, run.stdout[-3000:]
    shown = node("login1").check_output("sinfo -h -N -o '%N %T'")
    assert shown.splitlines() == ["gpu1 idle", "gpu2 idle", "gpu3 idle"]
    assert "short" not in node("login1").check_output("sinfo -h -o %R")
    assert started(node) == before


def refused_before_any_change(run, sentence):
    assert run.returncode != 0
    assert sentence in words(run), run.stdout[-3000:]
    assert set(re.findall(r"changed=(\d+)", run.stdout)) == {"0"}
