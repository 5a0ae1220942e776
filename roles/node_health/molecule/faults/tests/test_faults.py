"""What else may be wrong with a node, or with the checks themselves: one fault after another."""

from tests.health_live import (
    AS_USER,
    CONFIG,
    PROGRAM,
    drained,
    in_service,
    next_run,
    node,
    prologs_in_silence,
)


def test_an_operator_who_takes_over_our_drain_keeps_it(host):
    host.run_expect([0], "touch /run/broken")
    drained(host, "[plumbline:broken]")
    host.run_expect([0], "scontrol update NodeName=node State=DRAIN Reason='mine now'")
    host.run_expect([0], "rm /run/broken")
    next_run(host)
    assert node(host)[1] == "mine now"
    assert "DRAIN" in node(host)[0]
    host.run_expect([0], "scontrol update NodeName=node State=RESUME")


def test_a_check_that_hangs_is_killed_and_has_failed(host):
    host.run_expect([0], "touch /run/hang")
    drained(host, "[plumbline:hanging] did not answer within 2 s")
    host.run_expect([0], "rm /run/hang")
    in_service(host)
    assert host.run("pgrep -x sleep").rc == 1


def test_an_epilog_that_fails_drains_after_the_job(host):
    host.run_expect([0], "touch /run/after")
    assert host.check_output(f"{AS_USER} srun --immediate=30 hostname") == "node"
    drained(host, "[plumbline:after] not after a job")
    host.run_expect([0], "rm /run/after")
    in_service(host)


def test_a_gpu_that_is_lost_refuses_the_next_job(host, nvml):
    """Whichever comes first: slurmctld hears of the prolog, or the minute's checks see it."""
    nvml("gpu.1.error.* = GPU_IS_LOST")
    host.run(f"{AS_USER} sbatch --output=/dev/null --wrap=true --job-name=lost")
    drained(host, "[plumbline:gpu_driver] GPU 1: gives no answers")
    host.run_expect([0], "scancel --name=lost")


def test_declared_gpus_without_a_driver_are_a_failure(host):
    library = host.check_output("ls /usr/local/lib/libnvidia-ml.so.1")
    host.run_expect([0], f"mv {library} {library}.away")
    try:
        drained(host, "[plumbline:gpu_driver] NVML cannot be asked")
    finally:
        host.run_expect([0], f"mv {library}.away {library}")


def test_a_declaration_that_cannot_be_read_keeps_jobs_away(host):
    host.run_expect([0], f"mv {CONFIG} {CONFIG}.away")
    try:
        refused = host.run(f"{PROGRAM} prolog")
        assert refused.rc == 1
        assert refused.stderr.startswith("[plumbline:framework]")
        drained(host, "[plumbline:framework]")
    finally:
        host.run_expect([0], f"mv {CONFIG}.away {CONFIG}")


def test_a_program_that_is_missing_refuses(host):
    program = "/usr/local/lib/plumbline/node-health"
    host.run_expect([0], f"mv {program} {program}.away")
    try:
        refused = host.run(f"{PROGRAM} prolog")
        assert (refused.rc, "is missing" in refused.stderr) == (1, True)
    finally:
        host.run_expect([0], f"mv {program}.away {program}")


def test_a_node_that_is_not_well_ends_the_run_and_says_why(host, play):
    host.run_expect([0], "touch /run/broken")
    run = play(None)
    host.run_expect([0], "rm /run/broken")
    assert run.code != 0
    assert "node_health: broken is" in run.output


def test_a_thousand_prologs_have_no_word_with_slurmctld(host):
    """Without GPUs: NVML would make an hour of it. The scenario `default` has some with."""
    host.run_expect([0], f'cp {CONFIG} /run/config && sed -i \'s/"count": 2/"count": 0/\' {CONFIG}')
    try:
        prologs_in_silence(host, 1000)
    finally:
        host.run_expect([0], f"mv /run/config {CONFIG}")
