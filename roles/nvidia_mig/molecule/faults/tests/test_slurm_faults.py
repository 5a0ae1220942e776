"""Jobs on instances of several sizes, and on a node that has not what it declares."""

from tests.mig_live import JOB, SHOW, opened

HALVES = {"3g.20gb": 2}
MIXED = {"1g.5gb": 2, "3g.20gb": 1}


def test_another_layout_is_given_out_after_the_node_was_cut_anew(host, slurm):
    """Types of several sizes: what Slurm numbers is what the names say."""
    assert len(slurm(HALVES)) == 4
    names = slurm(MIXED)
    assert set(names) == {
        f"gpu{gpu}-{name}" for gpu in (0, 1) for name in ("1g.5gb-0", "1g.5gb-1", "3g.20gb-0")
    }
    assert host.check_output("sinfo -h -o '%T %G'") == "idle gpu:1g.5gb:4,gpu:3g.20gb:2"
    assert opened(host, "--gres=gpu:3g.20gb:1", names) == {
        "gpu0-3g.20gb-0.gi",
        "gpu0-3g.20gb-0.ci",
        "nvidia0",
    }
    assert host.check_output(f"{JOB} --gres=gpu:3g.20gb:1 {SHOW}") == names["gpu0-3g.20gb-0"]
    shown = host.check_output(f"{JOB} --gres=gpu:1g.5gb:3 {SHOW}")
    wanted = ("gpu0-1g.5gb-0", "gpu0-1g.5gb-1", "gpu1-1g.5gb-0")
    assert shown == ",".join(names[name] for name in wanted)
    both = host.check_output(f"{JOB} --gres=gpu:3g.20gb:2,gpu:1g.5gb:1 {SHOW}")
    assert set(both.split(",")) == {
        names[name] for name in ("gpu0-3g.20gb-0", "gpu1-3g.20gb-0", "gpu0-1g.5gb-0")
    }


def test_a_job_whose_instances_the_node_does_not_know_does_not_start(host, slurm):
    slurm(MIXED)
    with host.sudo():
        host.run_expect([0], "cp /run/plumbline-mig.json /run/plumbline-mig.kept")
        host.run_expect(
            [0],
            "python3 -c \"import json; p = '/run/plumbline-mig.json'; m = json.load(open(p)); "
            "json.dump(m[1:], open(p, 'w'))\"",
        )
    try:
        tried = host.run(f"{JOB} --gres=gpu:1g.5gb:2 echo started")
        assert tried.rc != 0
        assert "started" not in tried.stdout
    finally:
        with host.sudo():
            host.run_expect([0], "mv /run/plumbline-mig.kept /run/plumbline-mig.json")


def test_a_node_that_is_cut_otherwise_after_a_boot_gets_no_jobs(host, slurm):
    slurm(MIXED)
    smi = "/usr/local/bin/nvidia-smi"
    with host.sudo():
        host.run_expect(
            [0],
            "systemctl stop slurmd plumbline-mig && "
            "rm -r /dev/plumbline-mig /run/plumbline-mig.json",
        )
        host.run_expect([0], "cp /var/lib/nvidia-smi.json /var/lib/kept.json")
        host.run_expect(
            [0],
            "python3 -c \"import json; p = '/var/lib/nvidia-smi.json'; d = json.load(open(p)); "
            "[g.update(instances=[]) for g in d['gpus']]; d['board']['1g.5gb'] = [[0], 1]; "
            "json.dump(d, open(p, 'w'))\"",
        )
        assert host.run("systemctl start slurmd").rc != 0
        assert not host.service("slurmd").is_running
        assert host.run(f"{smi} -L").rc == 0
        assert host.run("ls -A /dev/plumbline-mig").stdout == ""
        host.run_expect(
            [0], "mv /var/lib/kept.json /var/lib/nvidia-smi.json && systemctl start slurmd"
        )
    assert host.service("slurmd").is_running
