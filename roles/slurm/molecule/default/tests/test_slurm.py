"""Slurm on one node, asked by submitting jobs as its users do."""

import time

import pytest

JOB = "srun --immediate=30 --partition=gpu"


def accounted(host, query, wanted):
    """What sacct says of a job, once slurmctld has handed the record over: seconds later."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        shown = host.check_output(f"sacct -X -n -P {query} | tail -1")
        if shown.startswith(wanted):
            break
        time.sleep(1)
    return shown


def test_the_node_is_idle_with_its_gpus(host):
    assert host.check_output("sinfo -h -n node -p gpu -o '%T %G'") == "idle gpu:virtual:2"


def test_a_node_that_is_away_is_declared_all_the_same(host):
    shown = host.check_output("sinfo -h -n away -p everything -N -o '%N %c %m'")
    assert shown == "away 128 1000000"


def test_a_job_runs_and_is_accounted(host):
    assert host.check_output(f"{JOB} --job-name=hello hostname") == "node"
    assert accounted(host, "--name=hello --format=state,nodelist", "COM") == "COMPLETED|node"


def test_a_job_that_fails_is_told_so(host):
    assert host.run(f"{JOB} sh -c 'exit 7'").rc == 7


def test_a_job_gets_the_gpus_it_asked_for_and_no_others(host):
    """The driver is not there (ENXIO); a device of another job is refused before it (EPERM)."""
    tried = host.run(f"{JOB} --gres=gpu:1 sh -c 'head -c1 /dev/nvidia0; head -c1 /dev/nvidia1'")
    assert "/dev/nvidia0' for reading: No such device or address" in tried.stderr
    assert "/dev/nvidia1' for reading: Operation not permitted" in tried.stderr
    shown = host.check_output(f"{JOB} --gres=gpu:2 sh -c 'echo $CUDA_VISIBLE_DEVICES'")
    assert shown == "0,1"


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


def test_settings_of_the_site_are_in_force(host):
    assert "MessageTimeout          = 20 sec" in host.check_output("scontrol show config")


@pytest.mark.parametrize("name", ["slurmctld", "slurmd"])
def test_the_daemons_come_back_after_a_reboot(host, name):
    assert host.service(name).is_running
    assert host.service(name).is_enabled


def test_a_running_job_outlives_a_restart_of_the_daemons(host):
    job = host.check_output("sbatch --parsable --partition=gpu --wrap 'sleep 8' -o /dev/null")
    time.sleep(2)
    with host.sudo():
        host.run_expect([0], "systemctl restart slurmctld slurmd")
    time.sleep(10)
    shown = host.check_output(f"scontrol -o show job {job}").split()
    assert {"JobState=COMPLETED", "Restarts=0", "ExitCode=0:0"} <= set(shown)
