"""Checks of a node in a real Slurm: what fails drains it, what is mended returns by itself."""

from tests.health_live import (
    AS_USER,
    PROGRAM,
    drained,
    in_service,
    last,
    next_run,
    node,
    prologs_in_silence,
    wait,
)


def test_slurm_runs_the_checks_and_all_are_well(host):
    next_run(host, look=node)
    _, verdicts = last(host)
    assert {name for name, verdict in verdicts.items() if verdict == "fail"} == set()
    assert verdicts["gpu_driver"] == verdicts["munge"] == verdicts["broken"] == "pass"
    assert not host.file("/var/lib/plumbline/node-health/drain.json").exists


def test_what_fails_drains_and_what_is_mended_returns(host):
    host.run_expect([0], "touch /run/broken")
    drained(host, "[plumbline:broken] somebody broke it", look=node)
    shown = host.check_output(f"{PROGRAM} show")
    assert "drained by the health checks" in shown
    assert "somebody broke it" in host.check_output("sinfo -R -h -o '%E'")
    host.run_expect([0], "rm /run/broken")
    in_service(host, look=node)
    assert host.check_output(f"{AS_USER} srun --immediate=30 hostname") == "node"


def test_the_drain_of_an_operator_is_left_alone(host):
    host.run_expect([0], "scontrol update NodeName=node State=DRAIN Reason='new board on Monday'")
    for verb in ("touch", "rm -f"):
        host.run_expect([0], f"{verb} /run/broken")
        next_run(host)
        assert node(host)[1] == "new board on Monday"
        assert "DRAIN" in node(host)[0]
    host.run_expect([0], "scontrol update NodeName=node State=RESUME")


def test_a_prolog_that_fails_queues_the_job_again_and_it_runs_after_the_repair(host):
    host.run_expect([0], "touch /run/before")
    job = host.check_output(f"{AS_USER} sbatch --parsable --output=/dev/null --wrap=true")
    drained(host, "[plumbline:before] not before a job")

    def state():
        return host.check_output(f"scontrol -o show job {job}")

    shown = wait(state, lambda job: "JobState=PENDING" in job and "Restarts=1" in job)
    assert "JobHeld" not in shown
    assert "[plumbline:before]" in host.check_output(f"{PROGRAM} show")
    host.run_expect([0], "rm /run/before")
    in_service(host)
    wait(state, lambda job: "JobState=COMPLETED" in job, 90)


def test_a_bad_gpu_is_named_and_returns_after_its_reset(host, nvml):
    nvml("gpu.1.ecc_volatile_uncorrected = 3")
    drained(host, "[plumbline:gpu_ecc] GPU 1: 3 uncorrectable ECC errors")


def test_prologs_have_no_word_with_slurmctld(host):
    """Of a job with GPUs; the scenario `faults` has a thousand."""
    prologs_in_silence(host, 20)


def test_verification_changes_nothing_and_works_in_check_mode(play):
    role = {"ansible.builtin.include_role": {"name": "node_health", "tasks_from": "verify"}}
    show = {"ansible.builtin.debug": {"var": "__node_health_verified"}}
    run = play([role, show], "--check")
    assert (run.code, run.changed) == (0, 0)
    assert "verdict: PASS" in run.output
    assert "verdict: FAIL" not in run.output
