"""Temporary data of users and of real jobs: made, removed with the job, and cleaned when old."""

import json

import pytest

from tests.patience import until
from tests.role_play import Case

ROOT = "/scratch"
OLD = "2020-01-01"
CLEANS = "/etc/tmpfiles.d/plumbline-scratch.conf"


@pytest.fixture
def root(host):
    def run(command: str) -> str:
        with host.sudo():
            return host.check_output("sh -ec %s", command)

    return run


@pytest.fixture
def job(host):
    """A function that runs a job of a user and waits for its epilog; what the job printed."""

    def run(user: str, command: str) -> str:
        name = "--job-name=of-scratch"  # others may have jobs on this node
        submit = f"cd /tmp && srun {name} --quiet --mpi=none --time=1 bash -c '{command}'"
        with host.sudo():
            done = host.run("runuser --login %s --command %s", user, submit)
            assert done.rc == 0, done.stderr
            until(lambda: host.check_output("squeue -h --name=of-scratch") == "", 180)
        return done.stdout.strip()

    return run


def test_a_job_has_a_folder_that_goes_with_it(host, job, root):
    said = job("alice", "touch $TMPDIR/x; stat --format=%U:%a:%n $JOB_SCRATCH; echo $TMPDIR")
    described, tmpdir = said.split()
    assert described == f"alice:700:{tmpdir}"
    assert tmpdir.startswith(f"{ROOT}/alice/job-")
    until(lambda: not host.file(tmpdir).exists)
    assert root(f"stat --format='%U %a' {ROOT}/alice") == "alice 700"


def test_a_user_who_logs_in_has_a_folder(host, root):
    root(f"rm -rf {ROOT}/alice")
    with host.sudo():
        assert host.check_output("runuser --login alice --command %s", f"ls -A {ROOT}/alice") == ""
    assert root(f"stat --format='%U %a' {ROOT}/alice") == "alice 700"
    root("runuser --user=nobody -- env USER=nobody bash --login -c true")
    assert root(f"ls {ROOT} | grep -c nobody || true") == "0"


def test_a_link_leads_the_epilog_nowhere(job, root):
    """Root would remove what is somebody else's."""
    root("install -d -o alice -m 700 /srv/hers && install -o alice -m 600 /dev/null /srv/hers/file")
    job("mallory", f"rmdir $JOB_SCRATCH; ln -s /srv/hers $JOB_SCRATCH; ls -d {ROOT}/mallory")
    assert root("ls /srv/hers") == "file"
    # The whole folder becomes a link to that of another: its job folder is not removed either.
    root("install -d -o alice -m 755 /srv/hers/job-7; chmod 755 /srv/hers")
    root(f"rm -rf {ROOT}/mallory; ln -s /srv/hers {ROOT}/mallory; chown -h mallory {ROOT}/mallory")
    uid = root("id -u mallory")
    variables = f"SLURM_JOB_UID={uid} SLURM_JOB_USER=mallory SLURM_JOB_ID=7"
    root(f"{variables} /usr/local/libexec/plumbline/scratch-job end")
    assert root("ls /srv/hers").split() == ["file", "job-7"]
    root(f"rm -rf {ROOT}/mallory /srv/hers")


def test_a_folder_of_somebody_else_is_told_and_keeps_no_job(host, job, root):
    root(f"rm -rf {ROOT}/alice && install -d -o mallory -m 777 {ROOT}/alice")
    assert job("alice", "echo scratch=$JOB_SCRATCH") == "scratch="
    said = root("journalctl --identifier=plumbline-scratch | cat")
    assert f"{ROOT}/alice is somebody else's" in said
    root(f"rm -rf {ROOT}/alice")


def test_what_is_old_goes_and_nothing_else(root):
    root(
        f"""
        install -d -o alice {ROOT}/alice/deep /srv/outside {ROOT}/other {ROOT}/datasets
        touch -d {OLD} {ROOT}/alice/deep/old {ROOT}/alice/old /srv/outside/old {ROOT}/datasets/old
        touch {ROOT}/alice/new
        touch -d {OLD} -a {ROOT}/alice/new   # not read since, but written today
        ln -s /srv/outside {ROOT}/alice/link
        mountpoint -q {ROOT}/other || mount -t tmpfs -o size=1m other {ROOT}/other
        touch -d {OLD} {ROOT}/other/old
        """
    )
    find = f"find {ROOT} /srv/outside -name old"
    clean = f"systemd-tmpfiles --clean {CLEANS}; {find}"
    # The time of a change cannot be set: as if it were in thirty days.
    assert sorted(root(clean).split()) == sorted(
        [
            *(f"{ROOT}/alice/deep/old", f"{ROOT}/alice/old", f"{ROOT}/datasets/old"),
            *(f"{ROOT}/other/old", "/srv/outside/old"),
        ]
    )
    root(f"sed 's/ 20d$/ 1s/' {CLEANS} > /run/in-a-second.conf; sleep 2")
    root("systemd-tmpfiles --clean /run/in-a-second.conf")
    assert sorted(root(find).split()) == [
        f"{ROOT}/datasets/old",
        f"{ROOT}/other/old",
        "/srv/outside/old",
    ]
    assert "are removed" in root(f"cat {ROOT}/README.txt")
    root(f"umount {ROOT}/other")


def test_what_others_read_of_it(root):
    state = json.loads(root("cat /etc/plumbline/scratch.json"))
    assert state == {"root": ROOT, "keep_days": 20, "shared": False}


@pytest.mark.long
def test_switched_off_it_cleans_no_more(attempts, root):
    files = f"ls {CLEANS} /etc/profile.d/plumbline-scratch.sh 2>&1 | grep -c cannot"
    cases = [
        Case("off", {"scratch_root": ""}, mends=files),
        Case("kept", {"scratch_keep_days": 0}, mends=f"cat {ROOT}/README.txt; {files}"),
        Case("on"),
        Case("again"),
    ]
    outcomes = attempts(cases)
    outcomes["off"].passes(changed=True)
    assert outcomes["off"].left == "2"
    assert "Nothing is removed by itself" in outcomes["kept"].left
    assert outcomes["kept"].left.endswith(" 1")
    outcomes["on"].passes(changed=True)
    outcomes["again"].passes(changed=False)
