"""Slurm on one node, asked by submitting jobs as its users do."""

import re
import time

import pytest

from tests.patience import until
from tests.role_play import Case

CONFIGURE = {"ansible.builtin.include_role": {"name": "slurm", "tasks_from": "configure"}}
INTERRUPTED = [CONFIGURE, {"ansible.builtin.fail": {"msg": "interrupted"}}]

JOB = "srun --immediate=30 --partition=gpu"


def accounted(host, query, start):
    """What sacct says of a job, once slurmctld has handed the record over: seconds later."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        shown = host.check_output(f"sacct -X -n -P {query} | tail -1")
        if shown.startswith(start):
            break
        time.sleep(1)
    return shown


def test_the_node_is_idle_with_its_gpus(host):
    assert host.check_output("sinfo -h -n node -p gpu -o '%T %G'") == "idle gpu:virtual:2"


def test_slurm_puts_nothing_beside_its_own_folders(host):
    """Nor a link in the place of one, which a run would give to slurm with all that it names."""
    with host.sudo():
        assert host.file("/var/lib/slurm/slurmctld").user == "slurm"
        for move in (
            "ln -s /root /var/lib/slurm/x",
            "mv /var/lib/slurm/slurmctld /var/lib/slurm/x",
        ):
            refused = host.run(f"setpriv --reuid=slurm --regid=slurm --clear-groups {move}")
            assert "Permission denied" in refused.stderr
        marker = host.file("/var/lib/plumbline/slurm.reconfigured")
        assert (marker.user, host.file("/var/lib/plumbline").user) == ("root", "root")


def test_a_node_that_is_away_is_declared_all_the_same(host):
    shown = host.check_output("sinfo -h -n away -p everything -N -o '%N %c %m'")
    assert shown == "away 128 1000000"


def test_a_job_runs_and_is_accounted(host):
    assert host.check_output(f"{JOB} --job-name=hello hostname") == "node"
    assert accounted(host, "--name=hello --format=state,nodelist", "COM") == "COMPLETED|node"


def test_an_mpi_program_has_pmix(host):
    """A plugin that cannot be loaded ends the step, or sets none of these."""
    shown = host.check_output(f"{JOB} --mpi=pmix sh -c 'echo $PMIX_RANK $PMIX_NAMESPACE'")
    assert re.fullmatch(r"0 slurm\.pmix\.\d+\.0", shown)


def test_a_job_that_fails_is_told_so(host):
    assert host.run(f"{JOB} sh -c 'exit 7'").rc == 7


def test_a_job_gets_the_gpus_it_asked_for_and_no_others(host):
    """The driver is not there (ENXIO); a device of another job is refused before it (EPERM)."""
    tried = host.run(f"{JOB} --gres=gpu:1 sh -c 'head -c1 /dev/nvidia0; head -c1 /dev/nvidia1'")
    assert "/dev/nvidia0' for reading: No such device or address" in tried.stderr
    assert "/dev/nvidia1' for reading: Operation not permitted" in tried.stderr
    unasked = host.run(f"{JOB} sh -c 'head -c1 /dev/nvidia0'")
    assert "/dev/nvidia0' for reading: Operation not permitted" in unasked.stderr
    shown = host.check_output(f"{JOB} --gres=gpu:2 sh -c 'echo $CUDA_VISIBLE_DEVICES'")
    assert shown == "0,1"


def test_what_a_users_jobs_leave_goes_with_the_last_of_them(host):
    """A user without a login here: whoever has one keeps everything."""
    left = "/tmp/left /var/tmp/left /dev/shm/left"
    job = f"mkdir {left}; touch /tmp/left/file; chmod 0 /tmp/left; ipcmk -M 4096; sleep 3"
    with host.sudo():
        host.check_output("id leaver 2>&- || useradd --uid 3999 leaver")
        host.check_output("install --owner=leaver /dev/null /tmp/before")
    time.sleep(1)
    with host.sudo("leaver"):
        host.check_output(
            # slurmd asks for the environment of a login, which starts a service manager.
            "cd / && sbatch --export=ALL,NAME=VALUE --partition=gpu --mem=100"
            f" --output=/dev/null --wrap {job!r}"
        )
    seen = until(lambda: host.run(f"ls -d {left}").rc == 0 or None)
    assert seen
    until(lambda: host.run(f"ls -d {left}").stdout == "" or None)
    assert "leaver" not in host.check_output("ipcs -m")
    assert host.file("/tmp/before").exists


def test_a_job_for_more_gpus_than_there_are_is_refused(host):
    refused = host.run(f"{JOB} --gres=gpu:3 true")
    assert refused.rc != 0
    assert "Requested node configuration is not available" in refused.stderr


def test_a_job_is_held_to_the_memory_it_asked_for(host):
    greedy = "python3 -c 'b = bytearray(400_000_000); print(len(b))'"
    assert host.run(f"{JOB} --mem=100M {greedy}").rc != 0
    assert host.check_output(f"{JOB} --mem=900M {greedy}") == "400000000"


def test_a_job_that_asks_for_no_memory_gets_its_cpus_share(host):
    shown = host.check_output("scontrol show partition gpu")
    assert "DefMemPerCPU=1024" in shown
    assert "MaxTime=1-00:00:00" in shown


def test_a_job_is_billed_for_the_largest_share_that_it_has_of_a_node(host):
    """The node has one CPU and two GPUs, and one of them costs half a CPU."""
    assert re.search(
        r"^ +TRESBillingWeights=CPU=1,Mem=1G,GRES/gpu=0.5$",
        host.check_output("scontrol show partition gpu"),
        re.MULTILINE,
    )
    shown = host.check_output("scontrol show config")
    assert re.search(r"^PriorityFlags += MAX_TRES$", shown, re.MULTILINE)


def test_settings_of_the_site_are_in_force(host):
    shown = host.check_output("scontrol show config")
    assert "MessageTimeout          = 20 sec" in shown
    assert "ConstrainSwapSpace      = yes" in shown
    assert re.search(r"^MinRAMSpace += 41 ?MB", shown, re.MULTILINE)


def test_options_of_a_node_are_in_its_line(host):
    shown = host.check_output("scontrol -o show node node")
    assert "ActiveFeatures=scenario" in shown
    assert "Weight=7" in shown


def test_switches_licences_and_weights_are_slurmctlds(host):
    leaf, *_, spine = sorted(host.check_output("scontrol -o show topology").splitlines())
    assert re.match(r"SwitchName=leaf1 Level=0 .*Nodes=node\b", leaf)
    assert re.match(r"SwitchName=spine Level=1 .*Switches=leaf\[1-2\]", spine)
    assert "LicenseName=matlab Total=2" in host.check_output("scontrol -o show licenses")
    assert host.run(f"{JOB} --licenses=matlab:3 true").rc != 0
    shown = host.check_output("scontrol show config")
    assert re.search(r"^TopologyPlugin += topology/tree", shown, re.MULTILINE)
    assert re.search(r"^PriorityType += priority/multifactor", shown, re.MULTILINE)
    assert re.search(r"^PriorityWeightFairShare += 10000", shown, re.MULTILINE)


def test_what_the_table_of_releases_says_is_in_this_slurm(host):
    """It is 24.11 or newer where it reads these, and older where it does not."""
    (release,) = re.findall(r"(\d\d)\.(\d\d)", host.check_output("sinfo --version"))
    new = release >= ("24", "11")
    has_plugin = host.run("find /usr/lib -path '*slurm*' -name gpu_nvidia.so").stdout != ""
    assert has_plugin == new
    sizes = host.run("grep -rql BlockSizes /usr/lib/*/slurm-wlm/topology_block.so").rc == 0
    assert sizes == (release >= ("24", "05"))


@pytest.mark.parametrize("name", ["slurmctld", "slurmd"])
def test_the_daemons_come_back_after_a_reboot(host, name):
    assert host.service(name).is_running
    assert host.service(name).is_enabled


def test_a_running_job_outlives_a_restart_of_the_daemons(host):
    job = host.check_output("sbatch --parsable --partition=gpu --wrap 'sleep 8' -o /dev/null")
    time.sleep(2)
    with host.sudo():
        host.run_expect([0], "systemctl restart slurmctld slurmd")
    deadline = time.monotonic() + 60
    shown = []
    while "JobState=COMPLETED" not in shown and time.monotonic() < deadline:
        time.sleep(1)
        shown = host.check_output(f"scontrol -o show job {job}").split()
    assert {"JobState=COMPLETED", "Restarts=0", "ExitCode=0:0"} <= set(shown)


# --- the role again, with other variables --------------------------------------------------------


def active_since(host, unit):
    """Whose process it is does not count: `scontrol reconfigure` makes new ones."""
    return host.check_output(f"systemctl show {unit} --property=ActiveEnterTimestampMonotonic")


def in_force(host, name):
    shown = host.check_output(f"scontrol show config | grep '^{name} '")
    return shown.partition("=")[2].strip()


def nodes_of_the_scenario(host, **changes):
    """slurm_nodes as molecule.yml has them, the first with changes."""
    address = host.check_output("hostname -I").split()[0]
    node = {
        "name": "node",
        "address": address,
        "cpus": {"sockets": 1, "cores_per_socket": 1, "threads_per_core": 1},
        "memory_mb": 1024,
        "gpus": {"model": "virtual", "count": 2},
        "switch": "leaf1",
    }
    elsewhere = address.rpartition(".")[0] + ".250"
    return [node | changes, node | {"name": "away", "address": elsewhere, "switch": "leaf2"}]


def test_what_cannot_work_is_refused_before_anything_is_changed(attempts):
    parameters = {"settings": {"SlurmctldParameters": "enable_async_reply"}}
    outcomes = attempts(
        [
            Case("misspelt", {"slurm_settings": {"SlurmdTimout": 5}}),
            # Of these two Slurm's parser says nothing.
            Case("word", {"slurm_components": {"a": parameters}}),
            Case("key", {"slurm_cgroup_settings": {"CgroupJobIdPaths": "yes"}}),
            Case("cluster", {"slurm_cluster_name": "another"}),
            Case("cores", {"slurm_node_gres": [{"Name": "gpu", "Cores": "near"}]}),
        ]
    )
    for name, sentence in {
        "misspelt": "did you mean SlurmdTimeout?",
        "word": "only 25.11 and newer read SlurmctldParameters=enable_async_reply",
        "key": "only 26.05 and newer read CgroupJobIdPaths; remove it",
        "cluster": "node is the controller of the cluster scenario",
        "cores": "node: slurm_node_gres has Cores: 'near' is no list of numbers such as 0-3,8",
    }.items():
        outcomes[name].refuses(sentence)
        assert outcomes[name].changed == 0, outcomes[name].output


@pytest.mark.long
def test_a_restart_that_was_lost_is_made_up_for_and_components_come_and_go(host, play):
    with_parts = {
        "slurm_settings": {"MessageTimeout": 21},
        "slurm_components": {
            "marker": {
                "settings": {"PrologFlags": "Alloc", "SlurmctldParameters": "idle_on_node_suspend"},
                "prolog": [{"name": "mark", "content": "#!/bin/sh\ntouch /run/prolog-ran\n"}],
                "task_prolog": [
                    {"name": "10-one", "content": "#!/bin/sh\necho export ONE=1\n"},
                    {"name": "20-two", "content": "#!/bin/sh\necho export TWO=$(id -un)\n"},
                ],
            }
        },
    }
    before = active_since(host, "slurmctld"), active_since(host, "slurmd")
    interrupted = play(INTERRUPTED, **with_parts)
    assert "interrupted" in interrupted.output
    assert (active_since(host, "slurmctld"), active_since(host, "slurmd")) == before

    run = play(None, **with_parts)
    assert run.code == 0, run.output
    assert in_force(host, "MessageTimeout") == "21 sec"
    assert "idle_on_node_suspend" in in_force(host, "SlurmctldParameters")
    host.check_output(f"{JOB} true")
    assert host.file("/run/prolog-ran").exists
    user = host.check_output("id -un")
    assert host.check_output(f"{JOB} sh -c 'echo $ONE $TWO'") == f"1 {user}"
    assert active_since(host, "slurmd") != before[1]

    run = play()
    assert run.code == 0, run.output
    assert in_force(host, "MessageTimeout") == "20 sec"
    assert not host.file("/etc/slurm/prolog.d/mark").exists
    assert not host.file("/etc/slurm/bin/task_prolog").exists
    host.check_output(f"{JOB} true")


@pytest.fixture
def nothing_reserved_after(host):
    """A reservation that stays keeps the node from every test that comes."""
    yield
    with host.sudo():
        host.run("scontrol delete reservation=course; scontrol delete reservation=later")


@pytest.mark.long
@pytest.mark.usefixtures("nothing_reserved_after")
def test_a_reservation_is_made_changed_left_and_removed(host, attempts):
    course = {"name": "course", "nodes": ["virtual_nodes"], "users": ["root"], "duration": "60"}
    ignoring = {"flags": ["IGNORE_JOBS"]}
    longer = {"flags": ["MAINT", "IGNORE_JOBS"], "duration": "2:00:00"}
    later = {"start": "2037-01-01T08:00", "nodes": ["ALL"], "name": "later", "flags": ["MAINT"]}
    gone = {"state": "absent"}
    show = "scontrol -o show reservation course"
    submit = f"runuser -u ops -- {JOB} --chdir=/tmp --reservation=course true"
    steps = [
        ("made", ignoring, f"{show}; {submit} 2>&1 || true", 1),
        ("made_again", ignoring, "true", 0),
        ("changed", longer, show, 1),
        ("later", later, "true", 1),
        ("later_again", later, "true", 0),
        ("later_gone", later | gone, "true", 1),
        ("gone", gone, "true", 1),
        ("gone_again", gone, "true", 0),
    ]
    outcomes = attempts(
        [
            Case(name, {"slurm_reservations": [course | own]}, "reservations", mends=asks)
            for name, own, asks, _ in steps
        ]
    )
    for outcome in outcomes.values():
        outcome.passes()
    assert {name: outcome.changed for name, outcome in outcomes.items()} == {
        name: changed for name, _, _, changed in steps
    }
    assert {"Nodes=node", "Users=root", "Duration=01:00:00"} <= set(outcomes["made"].left.split())
    assert "Access denied to requested reservation" in outcomes["made"].left
    assert "MAINT" in outcomes["changed"].left
    assert "Duration=02:00:00" in outcomes["changed"].left
    assert "No reservations" in host.check_output("scontrol show reservation")


@pytest.mark.long
def test_a_changed_partition_restarts_nothing_and_a_drained_node_stays_so(host, play):
    partition = {"name": "gpu", "nodes": ["node"], "default": True, "max_time": "2-00:00:00"}
    before = active_since(host, "slurmctld"), active_since(host, "slurmd")
    run = play(None, slurm_partitions=[partition, {"name": "everything", "nodes": ["ALL"]}])
    assert run.code == 0, run.output
    assert "MaxTime=2-00:00:00" in host.check_output("scontrol show partition gpu")
    assert (active_since(host, "slurmctld"), active_since(host, "slurmd")) == before

    with host.sudo():
        host.check_output("scontrol update nodename=node state=drain reason='bad fan'")
    run = play()
    assert run.code == 0, run.output  # what an operator drained is no failure, and stays drained
    assert "Drained before, and left so: node (bad fan" in run.output
    assert host.check_output("sinfo -h -n node -p gpu -o %T") == "drained"
    with host.sudo():
        host.check_output("scontrol update nodename=node state=resume")
    assert (active_since(host, "slurmctld"), active_since(host, "slurmd")) == before
    assert "MaxTime=1-00:00:00" in host.check_output("scontrol show partition gpu")


@pytest.mark.long
def test_a_wrong_declaration_ends_red_and_a_mended_one_needs_nobody(host, play):
    """Also where the unit is Type=simple, which is started and then dies."""
    four = nodes_of_the_scenario(host, gpus={"model": "virtual", "count": 4})
    devices = {"slurm_devices": ["/dev/nvidia3"], "slurm_devices_timeout": 1}
    run = play(None, slurm_nodes=four, **devices)
    assert run.code != 0
    assert "slurmd does not run" in run.output, run.output
    assert "can't stat gres.conf file /dev/nvidia2" in run.output

    run = play(None, slurm_nodes=nodes_of_the_scenario(host, memory_mb=9999999))
    assert run.code != 0
    assert "Slurm gives node no jobs" in run.output, run.output
    assert "Low RealMemory" in run.output

    run = play()
    assert run.code == 0, run.output
    assert host.check_output("sinfo -h -n node -p gpu -o %T") == "idle"
    host.check_output(f"{JOB} true")


@pytest.mark.long
def test_a_host_that_is_no_compute_node_any_more_loses_its_slurmd(host, play):
    run = play(None, slurm_roles=["controller", "login"])
    assert run.code == 0, run.output
    assert not host.package("slurmd").is_installed
    assert not host.file("/etc/systemd/system/slurmd.service.d/50-plumbline.conf").exists
    assert not host.process.filter(comm="slurmd")
    assert play().code == 0
    host.check_output(f"{JOB} true")


def test_a_slurmd_that_died_comes_back(host):
    """Without the sockets of steps that are gone, in whose place a step could not start."""
    folder = "/var/lib/slurm/slurmd"
    sockets = f"{folder}/stepd.slurm.pmix"
    bind = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])"
    listen = f"{bind}; s.listen(); time.sleep(60)"
    with host.sudo():
        host.check_output(f"python3 -c '{bind}' {sockets}.4711.0; mkdir {folder}/pmix.4711.0")
        host.check_output(f"systemd-run --unit=step-of-4712 python3 -c '{listen}' {sockets}.4712.0")
        host.check_output("systemctl kill --signal=KILL --kill-who=main slurmd")
        time.sleep(15)
        left = host.check_output(f"ls {folder}").split()
        host.check_output(f"systemctl stop step-of-4712; rm {sockets}.4712.0")
    assert host.service("slurmd").is_running
    assert [name for name in left if "pmix" in name] == ["stepd.slurm.pmix.4712.0"]
