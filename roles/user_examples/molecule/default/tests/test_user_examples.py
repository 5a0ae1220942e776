"""The examples on a login node, as users find them. That they work is seen on the whole cluster."""

from tests.role_play import refused

FOLDER = "/opt/examples"


def test_users_can_copy_them_and_nobody_else_can_change_them(host):
    with host.sudo("nobody"):
        copied = host.check_output(f"cp -r {FOLDER} /tmp/copied && ls /tmp/copied").split()
        assert host.run(f"touch {FOLDER}/mine").rc != 0
    assert {"ddp.sbatch", "ddp.py", "across.sh", "setup.sh"} <= set(copied)
    with host.sudo():
        found = host.check_output(f"find {FOLDER} ! -user root -o ! -type d -perm /022")
    assert found == ""


def test_what_is_started_can_be_started(host):
    with host.sudo():
        started = host.check_output(f"find {FOLDER} -type f -perm -111 -printf '%f\n'").split()
    assert sorted(started) == ["across.sh", "interactive.sh"]


def test_a_site_says_what_jobs_need(host, play):
    try:
        play(user_examples_setup="module load ours\nexport A=b")
        written = host.file(f"{FOLDER}/setup.sh").content_string
        assert written.endswith("\nmodule load ours\nexport A=b\n")
    finally:
        play()
    assert host.file(f"{FOLDER}/setup.sh").content_string.endswith("\nmodule load pytorch\n")


def test_a_folder_of_others_is_refused(play):
    refused(
        play(user_examples_folder="/opt"),
        "user_examples_folder is /opt; set it to a folder of their own, such as /opt/examples.",
    )
