"""The examples on a login node, as users find them. That they work is seen on the whole cluster."""

from tests.role_play import Case

FOLDER = "/opt/examples"


def test_users_can_copy_them_and_nobody_else_can_change_them(host):
    with host.sudo("nobody"):
        copied = host.check_output(f"cp -r {FOLDER} /tmp/copied && ls /tmp/copied").split()
        assert host.run(f"touch {FOLDER}/mine").rc != 0
    assert {"ddp.sbatch", "ddp.py", "across.sh", "setup.sh"} <= set(copied)
    with host.sudo():
        problems = host.check_output(f"find {FOLDER} ! -user root -o ! -type d -perm /022")
    assert problems == ""


def test_what_is_started_can_be_started(host):
    with host.sudo():
        started = host.check_output(f"find {FOLDER} -type f -perm -111 -printf '%f\n'").split()
    assert sorted(started) == ["across.sh", "interactive.sh"]


def test_a_site_says_what_jobs_need(attempts):
    last = f"tail --lines=2 {FOLDER}/setup.sh"
    ours = {"user_examples_setup": "module load ours\nexport A=b"}
    outcomes = attempts([Case("ours", ours, mends=last), Case("shipped", mends=last)])
    for outcome in outcomes.values():
        outcome.passes()
    assert outcomes["ours"].left == "module load ours export A=b"
    assert outcomes["shipped"].left.endswith("module load pytorch")
