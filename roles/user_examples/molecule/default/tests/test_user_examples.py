"""The examples on a login node, as users find them. That they work is seen on the whole cluster."""

from pathlib import Path

from tests.role_play import Case

PAGES = Path(__file__).resolve().parents[5] / "docs/use/course"

FOLDER = "/opt/examples"


def test_users_can_copy_them_and_nobody_else_can_change_them(host):
    with host.sudo("nobody"):
        copied = host.check_output(f"cp -r {FOLDER} /tmp/copied && ls /tmp/copied").split()
        assert host.run(f"touch {FOLDER}/mine").rc != 0
    assert {"04-ddp.sbatch", "ddp.py", "across.sh", "setup.sh"} <= set(copied)
    with host.sudo():
        problems = host.check_output(f"find {FOLDER} ! -user root -o ! -type d -perm /022")
    assert problems == ""


def test_what_is_started_can_be_started(host):
    with host.sudo():
        started = host.check_output(f"find {FOLDER} -type f -perm -111 -printf '%f\n'").split()
    assert sorted(started) == ["02-interactive.sh", "across.sh"]


def test_a_site_says_what_jobs_need_and_what_is_there(attempts):
    last = f"tail --lines=2 {FOLDER}/setup.sh"
    ours = {"user_examples_setup": "module load ours\nexport A=b"}
    pages = f"ls {FOLDER} | grep -c '[.]md$'"
    without = {"user_examples_left_out": ["03-container.sbatch", "03-container.md"]}
    there = f"ls {FOLDER} | grep -E 'container|interactive'"
    outcomes = attempts(
        [
            Case("ours", ours, mends=last),
            Case("pages", {"user_examples_pages": str(PAGES)}, mends=pages),
            # What an earlier version had under this name goes, too.
            Case("left out", without, breaks=f"touch {FOLDER}/interactive.sh", mends=there),
            Case("shipped", mends=last),
        ]
    )
    for outcome in outcomes.values():
        outcome.passes()
    assert outcomes["pages"].left == str(len([*PAGES.glob("*.md")]))
    assert outcomes["left out"].left == "02-interactive.sh"
    assert outcomes["ours"].left == "module load ours export A=b"
    assert outcomes["shipped"].left.endswith("module load pytorch")
