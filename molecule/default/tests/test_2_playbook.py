"""What the playbook does to a cluster that is in use."""

import json
import os
import re
import time

import pytest

DAEMONS = {
    "ctl1": ["munge", "mariadb", "slurmdbd", "slurmctld"],
    "login1": ["munge"],
    "gpu1": ["munge", "slurmd"],
    "gpu2": ["munge", "slurmd"],
}


def started(node):
    return {
        (name, daemon): node(name).check_output(
            f"systemctl show --property=ActiveEnterTimestampMonotonic --value {daemon}"
        )
        for name, daemons in DAEMONS.items()
        for daemon in daemons
    }


def test_a_second_run_changes_nothing_and_restarts_nothing(node, operator):
    job = node("login1").check_output("sbatch --parsable -N2 -o /dev/null --wrap 'sleep 3600'")
    try:
        before = started(node)
        run = operator.playbook("slurm-cluster.yml")
        assert run.returncode == 0, run.stdout[-3000:]
        recap = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", run.stdout, re.MULTILINE)
        assert {host for host, _ in recap} >= set(DAEMONS)
        assert {changed for _, changed in recap} == {"0"}
        assert started(node) == before
        assert node("login1").check_output(f"squeue -h -j {job} -o %T") == "RUNNING"
    finally:
        node("login1").check_output(f"scancel {job}")


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


def test_without_the_controller_nothing_is_configured_not_even_one_node(operator):
    operator.virtual_cluster("stop", "ctl1")
    try:
        run = operator.playbook("slurm-cluster.yml", "--limit", "gpu2")
        refused_before_any_change(run, "ctl1 cannot be reached")
    finally:
        assert operator.virtual_cluster("start", "ctl1").returncode == 0


@pytest.mark.parametrize(
    "bad",
    [
        {
            "slurm_partitons: []": "did you mean slurm_partitions?",
            "slurm_slurmd_timeout: soon": "must be of type int, but is 'soon'",
            "slurm_database_password: changeme": "is a word that everyone knows",
            "slurm_partitions: [{name: x, nodes: [gpu_h200]}]": 'names "gpu_h200"',
        },
        {
            "slurm_accounting_port: 7000": "slurm_accounting_port is 7000",
            "slurm_users: [{name: eve, account: reserch}]": "did you mean research?",
            "slurm_partitions: [{name: gpu, nodes: [slurm_compute], settings: {QOS: urgnet}}]": (
                "partition gpu: QOS names the QOS urgnet, which is not declared; did you mean urg"
            ),
        },
    ],
    ids=["variables", "what a role refuses"],
)
def test_bad_variables_are_refused_in_seconds_and_all_at_once(operator, tmp_path, bad):
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    (tmp_path / "group_vars/all").mkdir(parents=True)
    (tmp_path / "group_vars/all/site.yml").write_text("\n".join(["---", *bad, ""]))
    begin = time.monotonic()
    run = operator.playbook("slurm-cluster.yml", "-i", str(tmp_path))
    for sentence in bad.values():
        refused_before_any_change(run, sentence)
    assert time.monotonic() - begin < 30


def test_a_node_in_two_kinds_of_hardware_is_refused(operator, tmp_path):
    (tmp_path / "hosts.yml").write_text(
        "all: {children: {slurm_compute: {children: {gpu_h100: {hosts: {gpu1: }}}}}}\n"
    )
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/gpu_h100.yml").write_text("---\nnode_memory_mb: 1000\n")
    run = operator.playbook("slurm-cluster.yml", "-i", str(tmp_path))
    refused_before_any_change(run, "set node_memory_mb to different values")


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
    given = "sha256sum /etc/plumbline/tls/*.crt /etc/plumbline/node_exporter/web.yml"
    with node("gpu2").sudo():
        had = node("gpu2").check_output(given)
    for playbook, host in [("slurm-cluster.yml", "gpu2"), ("slurm.yml", "ctl1")]:
        run = operator.playbook(playbook, "-e", f"cluster_secrets={secrets}", "--limit", host)
        assert run.returncode == 0, run.stdout[-3000:]
    with node("gpu2").sudo():
        assert node("gpu2").check_output(given) == had
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


def test_a_new_partition_restarts_no_daemon(node, operator):
    everyone = {"name": "gpu", "nodes": ["slurm_compute"], "default": True}
    short = {"name": "short", "nodes": ["gpu1"], "max_time": "0-01:00:00"}
    before = started(node)
    run = operator.playbook("slurm.yml", "-e", json.dumps({"slurm_partitions": [everyone, short]}))
    assert run.returncode == 0, run.stdout[-3000:]
    assert node("login1").check_output("sinfo -h -p short -o '%N %l'") == "gpu1 1:00:00"
    assert node("login1").check_output("srun -p short hostname") == "gpu1"
    assert started(node) == before


def test_a_wrong_declaration_fails_the_run_and_a_right_one_mends_it(node, operator):
    """Slurm holds the nodes as `inval`; the run once ended with 0. Nobody has to resume them.

    The partition of the test above, which is declared no more, goes with the first run.
    """
    run = operator.playbook("slurm.yml", "-e", json.dumps({"node_memory_mb": 99_999_999}))
    assert run.returncode != 0
    assert "Slurm gives gpu1 no jobs" in words(run)
    assert "Low RealMemory" in words(run)
    assert "Failed: gpu1, gpu2." in words(run)
    run = operator.playbook("slurm.yml")
    assert run.returncode == 0, run.stdout[-3000:]
    shown = node("login1").check_output("sinfo -h -N -o '%N %T'")
    assert shown.splitlines() == ["gpu1 idle", "gpu2 idle"]
    assert "short" not in node("login1").check_output("sinfo -h -o %R")


def words(run):
    """What a run said, its lines as one."""
    return re.sub(r"\s+", " ", run.stdout)


def refused_before_any_change(run, sentence):
    assert run.returncode != 0
    assert sentence in words(run), run.stdout[-3000:]
    assert set(re.findall(r"changed=(\d+)", run.stdout)) == {"0"}
