"""The REST API beside a real slurmctld and slurmdbd: who is answered, what, and who is not."""

import base64
import json
import os
import re
import secrets
import shlex
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.patience import until
from tests.role_play import refused

SOCKET = "/run/slurmrestd/slurmrestd.socket"
KEY = "/etc/slurm/jwt_hs256.key"
KEPT = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / ".secrets/slurm_jwt_key"
# What slurmctld does not take, 22.05 and 24.11. Without any token it is 401, and nobody is asked.
REFUSED = (500, 511)
ROLE = Path(__file__).resolve().parents[3]
LAYER = [{"ansible.builtin.include_tasks": str(ROLE / "molecule/default/tasks/layer.yml")}]
PAGE = ROLE.parents[1] / "docs/operate/rest-api.md"


@pytest.fixture(scope="module", autouse=True)
def users(host):
    with host.sudo():
        for name in ("alice", "bob"):
            host.run(f"id {name} || useradd --create-home --shell /bin/bash {name}")
            # An answer has their association, which the document says every job has.
            host.run("sacctmgr --immediate add account research")
            host.run(f"sacctmgr --immediate add user {name} account=research")


def token(host, name, lifespan=600):
    """As the user asks for it, who needs no right for that."""
    with host.sudo(name):
        output = host.check_output(f"scontrol token lifespan={lifespan}")
    return output.removeprefix("SLURM_JWT=")


def ask(host, path, shown="", *options, name="alice", by="alice"):
    """(status, document) of an answer to somebody of that name, who shows a token."""
    words = ["curl", "--silent", "--unix-socket", SOCKET, "--write-out", r"\n%{http_code}"]
    words += ["--header", f"X-SLURM-USER-NAME: {name}"]
    if shown:
        words += ["--header", f"X-SLURM-USER-TOKEN: {shown}"]
    with host.sudo(by):
        output = host.check_output(shlex.join([*words, *options, f"http://localhost/{path}"]))
    text, _, status = output.rpartition("\n")
    return int(status), json.loads(text) if text.lstrip().startswith("{") else text


@pytest.fixture(scope="module")
def document(host):
    """What slurmrestd says of itself."""
    status, reply = ask(host, "openapi/v3", token(host, "alice"))
    assert status == 200
    return reply


@pytest.fixture(scope="module")
def api(document):
    """The newest version of the API."""
    versions = re.findall(r"/slurm/v0\.0\.(\d+)/ping", "\n".join(document["paths"]))
    return f"v0.0.{max(map(int, versions))}"


def is_known(error, path):
    """What 22.05 says otherwise than its own document: numbers of versions, and nothing as null."""
    return "v0.0.38" in path and ("meta" in error.path or error.message.startswith("None is not"))


def valid_reply(host, document, path, shown, *options, template="", method="get", name="alice"):
    """A good answer, which is as the OpenAPI document says."""
    status, reply = ask(host, path, shown, *options, name=name)
    assert status == 200, reply
    paths = {key.rstrip("/"): value for key, value in document["paths"].items()}
    answers = paths["/" + (template or path).partition("?")[0]][method]["responses"]
    content = (answers.get("200") or answers["default"])["content"]
    schema = content["application/json"]["schema"] | {"components": document["components"]}
    assert {"$ref", "properties"} & schema.keys()
    problems = Draft202012Validator(schema).iter_errors(reply)
    assert [error.message for error in problems if not is_known(error, path)] == []
    assert reply["errors"] == []
    return reply


def test_an_answer_that_is_not_as_the_document_says_would_show(host, document, api):
    """What the tests below rely on."""
    with pytest.raises(AssertionError, match="required property"):
        valid_reply(
            host, document, f"slurm/{api}/ping", token(host, "alice"), template=f"slurm/{api}/nodes"
        )


def test_a_user_with_a_token_is_told_of_the_cluster(host, document, api):
    shown = token(host, "alice")
    pings = valid_reply(host, document, f"slurm/{api}/ping", shown)["pings"]
    assert [ping["hostname"] for ping in pings] == ["node"]
    (node,) = valid_reply(host, document, f"slurm/{api}/nodes", shown)["nodes"]
    assert (node["name"], node["cpus"]) == ("node", 1)
    assert node["gres"].startswith("gpu:")
    reply = valid_reply(host, document, f"slurmdb/{api}/clusters", shown)
    assert [cluster["name"] for cluster in reply["clusters"]] == ["scenario"]


def body(api, script):
    before = api <= "v0.0.38"
    path = "/usr/bin:/bin"
    job = {
        "name": "rest",
        "partition": "main",
        "current_working_directory": "/tmp",
        "standard_output": "/dev/null",
        "environment": {"PATH": path} if before else [f"PATH={path}"],
    }
    return ["--json", json.dumps({"script": script, "job": job})]


def submitted(host, document, api, name, script):
    path = f"slurm/{api}/job/submit"
    shown = token(host, name)
    reply = valid_reply(host, document, path, shown, *body(api, script), method="post", name=name)
    return reply["job_id"]


def state_of(job):
    """A word in older versions, a list of words in newer ones."""
    state = job["state"]["current"] if isinstance(job["state"], dict) else job["job_state"]
    return state if isinstance(state, str) else state[0]


def test_a_job_that_is_posted_runs_as_its_user_and_is_accounted(host, document, api):
    job = submitted(host, document, api, "alice", "#!/bin/sh\ntest $(id -un) = alice\n")
    shown = token(host, "alice")

    def record():
        reply = valid_reply(
            host,
            document,
            f"slurmdb/{api}/job/{job}",
            shown,
            template=f"slurmdb/{api}/job/{{job_id}}",
        )
        ended = [entry for entry in reply["jobs"] if state_of(entry) not in ("PENDING", "RUNNING")]
        return ended and ended[0]

    ended = until(record)
    assert (state_of(ended), ended["user"]) == ("COMPLETED", "alice")


def test_nobody_is_answered_without_a_token(host, api):
    for path in (f"slurm/{api}/ping", f"slurm/{api}/nodes", f"slurmdb/{api}/jobs"):
        for name in ("alice", "root", ""):
            assert ask(host, path, name=name)[0] == 401


def test_the_user_number_of_the_daemon_is_no_token(host, api):
    """rest_auth/local would let it in."""
    for by in ("slurmrestd", "root"):
        assert ask(host, f"slurm/{api}/nodes", name=by, by=by)[0] == 401


def test_a_token_of_another_key_or_changed_in_one_letter_is_refused(host, api):
    head, claims, signature = token(host, "alice").split(".")
    text = base64.urlsafe_b64decode(claims + "==").replace(b"alice", b"root")
    forged = base64.urlsafe_b64encode(text).decode().rstrip("=")
    flipped = ("A" if signature[0] != "A" else "B") + signature[1:]
    for shown, name in (
        (f"{head}.{forged}.{signature}", "root"),
        (f"{head}.{claims}.{flipped}", "alice"),
        ("x", "alice"),
    ):
        status, reply = ask(host, f"slurm/{api}/nodes", shown, name=name)
        assert status in REFUSED
        assert not reply.get("nodes")


def test_a_token_ends(host, api):
    shown = token(host, "alice", 2)
    assert ask(host, f"slurm/{api}/nodes", shown)[0] == 200
    status, reply = until(
        lambda: (got := ask(host, f"slurm/{api}/nodes", shown))[0] != 200 and got, 20
    )
    assert status in REFUSED
    assert not reply.get("nodes")


def test_no_users_token_lasts_longer_than_a_day(host):
    with host.sudo("alice"):
        done = host.run("scontrol token lifespan=86401")
        assert done.rc != 0
        assert "SLURM_JWT" not in done.stdout
        assert host.run("scontrol token username=bob").rc != 0


def test_a_user_is_nobody_else(host, document, api):
    job = submitted(host, document, api, "bob", "#!/bin/sh\nsleep 60\n")
    shown = token(host, "alice")
    try:
        assert ask(host, f"slurm/{api}/nodes", shown, name="bob")[0] in REFUSED
        path = f"slurm/{api}/job/submit"
        status, reply = ask(host, path, shown, *body(api, "#!/bin/sh\n"), name="bob")
        assert status != 200
        assert not reply.get("job_id")
        ask(host, f"slurm/{api}/job/{job}", shown, "--request", "DELETE")
        with host.sudo():
            assert host.check_output(f"squeue --noheader --jobs {job} --format=%u") == "bob"
    finally:
        path = f"slurm/{api}/job/{job}"
        status, _ = ask(host, path, token(host, "bob"), "--request", "DELETE", name="bob")
        assert status == 200


def test_the_key_is_slurms_alone_and_in_no_other_place(host):
    with host.sudo():
        file = host.file(KEY)
        assert (file.user, file.group, file.mode) == ("slurm", "slurm", 0o400)
        key = file.content_string
        assert len(key) == 64
        assert key.isalnum()
        places = "/etc /run /var/lib/slurm /var/log /var/spool /tmp /home /root"
        # Not as a word of the command, which sudo writes to the journal.
        result = host.run(f"grep --recursive --files-with-matches --file={KEY} {places}")
        assert result.stdout.split() == [KEY]
    for name in ("alice", "slurmrestd", "munge"):
        with host.sudo(name):
            assert host.run(f"cat {KEY}").rc != 0
    assert KEPT.read_text().strip() == key
    assert KEPT.stat().st_mode & 0o777 == 0o600


def test_the_daemon_is_nobody_and_can_do_nothing_else(host):
    with host.sudo():
        process = host.check_output("systemctl show slurmrestd --property=MainPID --value")
        status = dict(
            re.findall(r"(\w+):\s*(.*)", host.check_output(f"cat /proc/{process}/status"))
        )
        own = host.check_output("id --user slurmrestd")
        assert own not in ("0", host.check_output("id --user slurm"))
        assert status["Uid"].split() == [own] * 4
        assert status["NoNewPrivs"] == "1"
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
        root = f"nsenter --mount --target {process}"
        assert host.run(f"{root} test -s {KEY}").rc != 0
        assert host.run(f"{root} ls /run/munge").stdout == ""
        assert host.run(f"{root} touch /etc/x /usr/x /var/x").rc != 0
        listening = host.check_output("ss -Hlntup")
        assert "slurmrestd" not in listening
        assert host.file(SOCKET).mode == 0o777
        assert host.file("/run/slurmrestd").mode == 0o755


def test_the_commands_of_the_documentation_work(host, api):
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = "".join(blocks).replace("v0.0.41", api)
    if api <= "v0.0.38":
        script = script.replace('["PATH=/usr/bin:/bin"]', '{"PATH": "/usr/bin:/bin"}')
    with host.sudo("alice"):
        done = host.run(f"cd; bash -euo pipefail -c {shlex.quote(script)}")
    assert done.rc == 0, done.stdout + done.stderr
    assert '"job_id"' in done.stdout.replace(" ", "")


@pytest.mark.long
def test_a_lost_key_is_taken_over_and_another_one_ends_all_tokens(host, play, api):
    before = KEPT.read_text().strip()
    shown = token(host, "alice")
    KEPT.write_text(secrets.token_hex(32) + "\n")
    run = play()
    refused(run, "is not the one that node has; move the file away to use the cluster's key")
    assert before not in run.output

    KEPT.unlink()
    taken = play([{"ansible.builtin.include_role": {"name": "slurmrestd", "tasks_from": "key"}}])
    assert taken.code == 0, taken.output
    assert "is copied from node to" in taken.output
    assert before not in taken.output
    assert KEPT.read_text().strip() == before

    other = secrets.token_hex(32)
    KEPT.write_text(other + "\n")
    rotated = play(LAYER, slurmrestd_key_rotate="true")
    assert rotated.code == 0, rotated.output
    assert other not in rotated.output
    assert ask(host, f"slurm/{api}/nodes", shown)[0] != 200
    assert ask(host, f"slurmdb/{api}/clusters", token(host, "alice"))[0] == 200


@pytest.mark.long
def test_switched_off_nothing_of_it_stays(host, play):
    """The last one: Slurm's daemons are as they were before."""
    off = play(LAYER, slurmrestd_enabled=False)
    assert off.code == 0, off.output
    with host.sudo():
        left = host.run(f"ls {KEY} {SOCKET} /etc/systemd/system/slurmrestd.service*")
        assert left.stdout == ""
        assert host.run("id slurmrestd").rc != 0
        assert host.run("systemctl is-active slurmrestd").stdout.strip() == "inactive"
        assert "(null)" in host.check_output("scontrol show config | grep ^AuthAltTypes")
        assert host.run("grep AuthAlt /etc/slurm/slurm.conf /etc/slurm/slurmdbd.conf").rc == 1
    with host.sudo("alice"):
        assert host.run("scontrol token").rc != 0
        assert host.run("srun --immediate=30 hostname").stdout == "node\n"
    again = play(LAYER, slurmrestd_enabled=False)
    assert (again.code, again.changed) == (0, 0), again.output
