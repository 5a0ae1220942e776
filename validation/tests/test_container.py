"""Payloads in a container of pyxis: what is asked of srun, and whether they say they ran in it.

There is no pyxis here. srun's half is the simulated Slurm's, and a task's half is tried in a root
filesystem of its own, with enroot's lock mounted as enroot mounts it.
"""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from cluster import declaration
from cluster.declaration import Container, Submission
from cluster.errors import DataError, EnvironmentProblem, UsageError
from cluster.slurm import job_reasons
from cluster.slurm.job_reasons import Cause
from validation import run
from validation.model import IMPORT_LIMIT_S, Outcome, Reply, Verdict
from validation.payloads import container
from validation.plan import Selection
from validation.slurm import job as jobs
from validation.tests import standin
from validation.tests.conftest import VIRTUAL, declare, make_plan
from validation.tests.fake_slurm import FakeSlurm, walk
from validation.tests.judging import judged

IMAGE = "nvcr.io#nvidia/pytorch:25.01-py3"
INSIDE = Submission(container_image=IMAGE)
SYSTEM = "Ubuntu 24.04.2 LTS"


def planned(*nodes, submission=INSIDE, suite="quick"):
    return make_plan(*nodes, selection=Selection(submission=submission), suite=suite)


# --- what is asked ---------------------------------------------------------------------------


def test_what_asks_the_node_itself_stays_outside():
    plan = planned(("h1", "h100_sxm", 8), ("h2", "h100_sxm", 8))
    deep = planned(("h1", "h100_sxm", 8), suite="gpu")
    inside = {job.payload: job.container for job in (*plan.jobs, *deep.jobs)}
    outside = {name for name, where in inside.items() if where is None}
    assert outside == {"node", "host", "host_speed", "health", "isolation"}
    assert {where for where in inside.values() if where} == {Container(IMAGE, None, "python3")}
    # The host needs no torch then.
    skipped = {check.check: check.skip for check in plan.checks if check.skip}
    assert skipped == {"torch": "the container brings torch"}
    assert plan.node_jobs[0].config["torch"] is False


def test_srun_is_asked_for_the_container_and_its_python():
    wishes = replace(INSIDE, container_mounts="/data:/data:ro", container_python="/opt/py/bin/py")
    plan = planned(submission=wishes)
    words = {job.payload: jobs.command(plan.run_id, job, plan.python) for job in plan.jobs}
    at = words["ddp"].index(f"--container-image={IMAGE}")
    assert words["ddp"][at + 1 : at + 4] == (
        "--container-mounts=/data:/data:ro",
        "/opt/py/bin/py",
        "-I",
    )
    assert plan.python in words["node"]
    assert not [word for word in words["node"] if "container" in word]


def test_an_image_may_take_its_time():
    without = {job.name: job for job in make_plan().jobs}
    for job in planned().jobs:
        more = IMPORT_LIMIT_S if job.container else 0
        before = without[job.name]
        assert job.run_limit_s == before.run_limit_s + more
        assert job.start_limit_s == before.start_limit_s + more
        assert job.longest_s == before.longest_s + 2 * more


def test_the_inventory_may_name_the_image_and_the_command_line_none():
    document = {**declare(*VIRTUAL), "submission": {"container_image": IMAGE}}
    declared = declaration.parse(document, "test").submission
    assert Submission().over(declared).container == Container(IMAGE, None, "python3")
    other = Container("/x.sqsh", None, "python3")
    assert Submission(container_image="/x.sqsh").over(declared).container == other
    assert Submission(container_image="none").over(declared).container is None
    mounted = Submission(container_mounts="/data").over(declared)
    assert mounted.container == Container(IMAGE, "/data", "python3")


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"container_image": 7}, "container_image: 7 is no text"),
        ({"container_image": ""}, "container_image: expected a word without blanks, found ''"),
        ({"container_image": "a b"}, "container_image: expected a word without blanks"),
        ({"container_image": "torch.sqsh"}, "give the file's absolute path"),
        ({"container_image": "x", "container_mounts": "data"}, "expected SOURCE:TARGET[:FLAGS],…"),
        ({"container_image": "x", "container_mounts": "/a:/b:ro,"}, "expected SOURCE:TARGET"),
        ({"container_image": "x", "container_python": "py thon"}, "container_python: expected a"),
        ({"srun_options": ["--container-image=x"]}, "is no option for all jobs: see container_im"),
        ({"srun_options": ["--container-name=x"]}, "is no option for all jobs"),
    ],
)
def test_a_container_that_cannot_be_meant_is_refused(wishes, sentence):
    with pytest.raises(DataError, match=re.escape(sentence)):
        declaration.parse({**declare(*VIRTUAL), "submission": wishes}, "test")


def test_options_that_only_steer_containers_may_be_given():
    assert declaration.option_problem("--container-env=NCCL_IB_HCA") == ""
    assert declaration.option_problem("--no-container-remap-root") == ""


def test_mounts_of_no_image_are_refused():
    with pytest.raises(UsageError, match="there is no image: set container_image"):
        planned(submission=Submission(container_mounts="/data"))


def test_without_pyxis_on_the_login_node_nothing_is_submitted():
    slurm = FakeSlurm(planned())
    slurm.pyxis = False
    with pytest.raises(EnvironmentProblem, match="srun on test has no option --container-image"):
        walk(slurm)
    assert slurm.started == []


def test_an_option_that_srun_does_not_know_is_the_requests_fault():
    stderr = "srun: unrecognized option '--container-image=x'\nTry \"srun --help\" for more"
    assert job_reasons.refusal(stderr) == (
        "unrecognized option '--container-image=x'",
        Cause.REQUEST,
    )


# --- what is answered ------------------------------------------------------------------------

REAL = (("h1", "h100_sxm", 2), ("h2", "h100_sxm", 2))
RANKS = ("all_reduce", "ddp", "pipeline")
JOBS = {
    **{job.payload: job for job in planned(*REAL).jobs if job.hosts != ("h1",)},
    "node": make_plan(*REAL).node_jobs[0],
}


def answer(check):
    job = JOBS[check]
    if check in ("node", "cuda"):
        return getattr(standin, check)(job.hosts[0], job.config)
    return getattr(standin, check)(job.hosts, job.config, job.ranks_per_node)


def judge(check, document):
    job = JOBS[check]
    reply = Reply(job.name, Outcome.EXITED, 0, "17", standin.line(document))
    return judged("cpus" if check == "node" else check, job, reply)


def judge_failed(check, exit_code, stderr):
    """What is said of a job that ended with an error."""
    job = JOBS[check]
    reply = Reply(job.name, Outcome.EXITED, exit_code, "17", stderr=stderr, started_ns=1)
    return judged(check, job, reply)


@pytest.mark.parametrize("check", ["cuda", "ddp", "pipeline"])
def test_an_answer_out_of_the_container_passes_and_says_so(check):
    result = judge(check, standin.contained(answer(check)))
    assert (result.verdict, result.message) == (Verdict.PASS, "")
    assert result.proof.container == SYSTEM


@pytest.mark.parametrize("check", ["cuda", *RANKS])
def test_an_answer_from_the_node_itself_fails(check):
    result = judge(check, answer(check))
    nodes = JOBS[check].hosts
    message = f"did not run in the container {IMAGE} on {', '.join(nodes)} but on the node itself"
    assert result.message.startswith(message)
    assert (result.verdict, result.blamed) == (Verdict.FAIL, nodes)


@pytest.mark.parametrize("check", RANKS)
def test_one_node_without_pyxis_is_named(check):
    result = judge(check, standin.contained(answer(check), without=("h2",)))
    assert (result.verdict, result.blamed) == (Verdict.FAIL, ("h2",))
    assert f"{IMAGE} on h2 but on the node itself" in result.message


def test_a_container_that_nobody_asked_for_fails():
    healthy = answer("node")
    assert judge("node", healthy).verdict is Verdict.PASS
    result = judge("node", standin.contained(healthy))
    assert (result.verdict, result.blamed) == (Verdict.FAIL, ("h1",))
    assert result.message == "ran in a container on h1, although none was requested"


@pytest.mark.parametrize("check", ["cuda", *RANKS])
@pytest.mark.parametrize("value", [None, True, 1, 1.5, [], ["x"], ...])
def test_nothing_else_in_place_of_the_containers_system_passes(check, value):
    document = standin.contained(answer(check))
    proof = document["proof"]
    place = proof if check == "cuda" else proof["ranks"][3]
    place["container"] = value
    if value is ...:
        del place["container"]
    assert judge(check, document).verdict is Verdict.FAIL


NOT_FETCHED = """\
pyxis: importing docker image: nvidia/pytorsch:25.01-py3
slurmstepd: error: pyxis: child 1022281 failed with error code: 1
slurmstepd: error: pyxis: failed to import docker image
slurmstepd: error: pyxis: printing enroot log file:
slurmstepd: error: pyxis:     [INFO] Fetching image manifest
slurmstepd: error: pyxis:     [ERROR] URL https://registry.test/x: 401 Unauthorized
slurmstepd: error: pyxis: couldn't start container
srun: error: h2: task 0: Exited with exit code 1"""


def test_an_image_that_cannot_be_fetched_accuses_no_node():
    result = judge_failed("cuda", 1, NOT_FETCHED)
    assert (result.verdict, result.blamed) == (Verdict.FAIL, ())
    why = "[ERROR] URL https://registry.test/x: 401 Unauthorized"
    assert result.message == f"the container {IMAGE} did not start: {why}"


def test_a_python_that_the_image_lacks_is_told():
    missing = "execve(): python3: No such file or directory"
    result = judge_failed("ddp", 2, f"slurmstepd: error: {missing}\n")
    assert result.verdict is Verdict.FAIL
    assert missing in result.message


# --- a task's half ---------------------------------------------------------------------------

HOST = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n28 27 0:5 / /dev rw - devtmpfs udev rw\n"
ENROOT = (
    "612 540 259:1 /enroot/user-1000/pyxis_17.0 / rw,nosuid,nodev - ext4 /dev/nvme0n1p1 rw\n"
    "613 612 0:5 / /dev rw,nosuid,noexec - devtmpfs udev rw\n"
    "640 612 259:1 /enroot/user-1000/pyxis_17.0/.lock /.lock ro,nosuid,nodev,noexec - ext4 "
    "/dev/nvme0n1p1 rw\n"
)


@pytest.mark.parametrize(
    ("text", "system"),
    [
        (HOST, None),
        ("", None),
        ("1 2 3\n\n", None),
        (HOST + "29 27 0:9 / /run/.lock rw - tmpfs tmpfs rw\n", None),
        (ENROOT, SYSTEM),
    ],
)
def test_a_container_is_known_by_enroots_lock(tmp_path, monkeypatch, text, system):
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"PRETTY_NAME": SYSTEM})
    (tmp_path / "mounts").write_text(text)
    assert container.system(tmp_path / "mounts") == system


def test_an_image_without_os_release_is_a_container_too(tmp_path, monkeypatch):
    def missing():
        raise OSError

    monkeypatch.setattr("platform.freedesktop_os_release", missing)
    (tmp_path / "mounts").write_text(ENROOT)
    assert container.system(tmp_path / "mounts") == "a system without a name"


# What enroot does, as far as a payload can see it: another root, with the lock mounted in it.
CONTAIN = """\
set -e
root=$1; shift
mount -t tmpfs none "$root"
for place in /*; do
    if [ -L "$place" ]; then cp -P "$place" "$root$place"
    elif [ -d "$place" ]; then mkdir "$root$place"; mount --rbind "$place" "$root$place"; fi
done
touch "$root/.lock"
mount --bind "$root/.lock" "$root/.lock"
exec chroot "$root" "$@"
"""


def test_a_payload_in_another_root_says_so(tmp_path):
    """The whole way into a task: the bundle on standard input, the bootstrap, the payload."""
    inside = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces for this user")
    root = tmp_path / "root"
    root.mkdir()
    task = [sys.executable, "-I", "-c", jobs.BOOTSTRAP, "node", '{"munge_credential": null}']
    proofs = []
    for command in (task, [*inside, "sh", "-c", CONTAIN, "sh", str(root), *task]):
        done = subprocess.run(command, input=jobs.bundle(), capture_output=True, check=True)
        proofs.append(json.loads(done.stdout)["proof"]["container"])
    assert proofs[0] is None
    assert proofs[1]


# --- a whole run -----------------------------------------------------------------------------


def test_a_run_in_a_container_says_which(cluster, monkeypatch):
    monkeypatch.setenv("PYXIS_CONTAINER_IMAGE", "another")  # stands for the option, to pyxis
    cluster.install(pyxis=True, ddp="environment")
    status, out, _ = cluster.run("--container-image", IMAGE, "--container-mounts=/data:/data")
    assert status == 0, out
    assert f"in {IMAGE}" in out.splitlines()[0]
    summary = cluster.summary()
    images = {job["name"]: job.get("container", {}).get("image") for job in summary["jobs"]}
    assert images == {
        **dict.fromkeys(("node-gpu1", "node-gpu2")),
        **dict.fromkeys(RANKS, IMAGE),
    }
    (ddp,) = [result for result in summary["results"] if result["check"] == "ddp"]
    assert ddp["proof"]["container"] == SYSTEM
    page = (cluster.output / "report.html").read_text()
    assert f"in {IMAGE}" in page
    assert f"in a container of {SYSTEM}" in page
    argv = json.loads((cluster.path / "state" / "argv.ddp").read_text())
    assert f"--container-image={IMAGE}" in argv
    assert "--container-mounts=/data:/data" in argv
    seen = json.loads((cluster.path / "state" / "environment").read_text())
    assert not [name for name in seen if name.startswith("PYXIS_")]


def test_a_run_without_pyxis_ends_with_one_sentence(cluster):
    cluster.install()
    status, out, err = cluster.run("--container-image", IMAGE)
    assert (status, out) == (2, "")
    message = err.splitlines()[-1]
    assert message.startswith("validation: srun on ")
    assert "Slurm's plugin pyxis is not loaded there" in message
    assert not list((cluster.path / "state").glob("job.*"))


def test_a_node_that_starts_tasks_on_the_host_fails_the_run(cluster):
    cluster.install(pyxis=True, without_pyxis=["gpu2"])
    assert cluster.run("--container-image", IMAGE)[0] == 1
    assert cluster.lines("failing_nodes.txt") == ["gpu2"]
    verdict, message = cluster.verdict_of("ddp", "virtual")
    assert (verdict, "on gpu2 but on the node itself" in message) == ("fail", True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--here", "--container-image", "a b"], "--container-image: expected a word without bla"),
        (["--local", "--container-image", IMAGE], "containers are started by Slurm, not with --lo"),
        (["--here", "--srun-option=--container-image=x"], "see container_image (--container-image"),
    ],
)
def test_a_command_line_that_cannot_be_meant(capsys, arguments, sentence):
    assert run.main(arguments) == 2
    assert sentence in capsys.readouterr().err
