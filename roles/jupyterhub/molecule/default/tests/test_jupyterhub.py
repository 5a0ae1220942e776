"""The portal beside a real Slurm: who comes in, what a notebook is, what is refused."""

import json
import re
import secrets
import shlex
import sys
import time
from pathlib import Path

import pytest

from tests.patience import until

sys.path.insert(0, str(Path(__file__).parents[2]))
from browser import Browser

UNITS = ("plumbline-portal", "plumbline-portal-proxy")
PASSWORDS = {name: secrets.token_hex(8) for name in ("alice", "bob", "carol", "ops")}
SCRIPT = """"'><script>alert(1)</script>"""
# What a cell of a notebook would see: device files without a driver answer that there is no device,
# and those of others that the operation is not permitted.
OPEN = "for f in /dev/nvidia[0-9]*; do : <$f; done 2>&1"
MAY = "No such device"
MAY_NOT = "Operation not permitted"


def accounting(host):
    """All that Slurm's accounting has of people; other roles have their tests on this node."""
    return [
        host.check_output(f"sacctmgr -nP show {what} format={form}")
        for what, form in (("user", "user"), ("account", "account"), ("qos", "name"))
    ]


@pytest.fixture(scope="module", autouse=True)
def people(host):
    """Users with passwords and an account in Slurm; carol's home has no room."""
    with host.sudo():
        before = accounting(host)
        host.check_output("sacctmgr --immediate add account portal")
        host.check_output("sacctmgr --immediate add qos short")
        host.check_output(
            "sacctmgr --immediate modify qos short set MaxWall=10 MaxTRESPerUser=gres/gpu=1"
        )
        for name, password in PASSWORDS.items():
            host.run(f"id {name} || useradd --create-home --shell /bin/bash {name}")
            host.check_output(f"echo {name}:{password} | chpasswd")
            host.check_output(
                f"sacctmgr --immediate add user {name} account=portal qos=normal,short"
            )
        host.check_output(
            "mount -t tmpfs -o size=64k tmpfs /home/carol &&"
            " chown carol: /home/carol && chmod 700 /home/carol"
        )
        host.run("head -c 1M /dev/zero > /home/carol/data")
        yield
        host.check_output("umount /home/carol")
        for name in PASSWORDS:
            host.check_output(f"sacctmgr --immediate delete user {name}")
            if name != "ops":
                host.check_output(f"userdel --remove --force {name} 2>&1")
        host.check_output("sacctmgr --immediate delete account portal")
        host.check_output("sacctmgr --immediate delete qos short")
        assert accounting(host) == before


@pytest.fixture(scope="module")
def browser(host):
    """A function that opens a browser of somebody new."""
    with host.sudo():
        authority = host.file("/etc/plumbline/tls/ca.crt").content_string
        address = host.check_output("getent ahostsv4 node | awk '{print $1; exit}'")
    return lambda: Browser("https://node", address, authority)


@pytest.fixture(scope="module")
def logged_in(browser):
    """A function from a name to that person's browser, logged in."""

    def open_(name):
        known = browser()
        page = known.login(name, PASSWORDS[name])
        assert (page.status, page.path) == (200, "/hub/home"), page.text[:2000]
        return known

    return open_


def jobs(host, name):
    with host.sudo(name):
        return host.check_output("squeue --me --noheader --format='%A %T %P %j %u'").splitlines()


def running(person, name, server=""):
    """The document of a server of this person, once it is ready."""

    def ready():
        servers = person.call("GET", f"/hub/api/users/{name}").json["servers"]
        return servers.get(server, {}).get("ready") and servers[server]

    return until(ready)


def stopped(person, host, name):
    person.call("DELETE", f"/hub/api/users/{name}/server")
    until(lambda: not jobs(host, name))
    until(lambda: not person.call("GET", f"/hub/api/users/{name}").json["servers"])


@pytest.fixture(scope="module")
def alice(logged_in, host):
    """Alice, with a notebook on two GPUs."""
    person = logged_in("alice")
    page = person.post("/hub/spawn", {"gpus": "2", "gpu_type": "virtual", "time": "0:20"})
    assert page.status == 200, page.error or page.text[:2000]
    running(person, "alice")
    yield person
    stopped(person, host, "alice")


# --- a notebook ----------------------------------------------------------------------------------


def test_a_notebook_is_a_job_of_its_user_with_what_the_form_said(host, alice):
    (job,) = jobs(host, "alice")
    number, *rest = job.split()
    assert rest == ["RUNNING", "main", "notebook", "alice"]
    with host.sudo("alice"):
        asked = host.check_output(f"scontrol show job {number}")
        seen = host.check_output(
            f"srun --mpi=none --jobid={number} --overlap bash -c {shlex.quote(OPEN)} || true"
        )
        process = host.check_output("pgrep -u alice -f jupyterhub.singleuser").split()[0]
        group = host.check_output(f"cat /proc/{process}/cgroup")
    assert "TimeLimit=00:20:00" in asked
    assert re.search(r"gres[:/]gpu:virtual[:=]2", asked), asked  # Slurm 22.05, and newer ones
    assert (seen.count(MAY), seen.count(MAY_NOT)) == (2, 0), seen
    assert f"job_{number}" in group


def test_code_runs_there(host, alice):
    """A kernel, by the API that JupyterLab uses; it opens no port."""
    alice.get("/user/alice/lab")
    kernel = alice.call("POST", "/user/alice/api/kernels", {"name": "python3"})
    assert kernel.status == 201, kernel.text
    with host.sudo():
        until(lambda: host.run("ls /tmp/plumbline-notebook-*/runtime/kernel-*-ipc-1").rc == 0)
        pids = set(host.check_output("pgrep -u alice").split())
        listeners = host.check_output("ss -Hltnp").splitlines()
    own = [line for line in listeners if set(re.findall(r"pid=(\d+)", line)) & pids]
    # Whoever connected to a kernel's port would be told what it prints. What is left is the
    # server's, and at loopback ipykernel's pipe for what its children print, which sends nothing.
    outside = [line for line in own if " 127.0.0.1:" not in line]
    assert len(outside) == 1, own
    assert len(own) <= 2, own
    assert alice.call("GET", "/user/alice/api/plumbline/ends").json["idle"] > time.time()


def test_nobody_else_reaches_it(host, alice, logged_in, browser):
    bob = logged_in("bob")
    page = bob.get("/user/alice/lab")
    assert page.status == 403, page.url
    assert bob.call("GET", "/user/alice/api/contents").status == 403
    stranger = browser()
    assert stranger.get("/user/alice/lab").path == "/hub/login"


def test_its_port_answers_nobody_without_the_portals_certificate(host, alice):
    with host.sudo():
        pid = host.check_output("pgrep -u alice -f jupyterhub.singleuser").split()[0]
        port = host.check_output(
            f"ss -Hltnp | grep pid={pid}, | awk '{{print $4}}' | grep -v 127.0.0.1"
        )
        port = port.split()[0].rpartition(":")[2]
        own = host.check_output(
            f"tr '\\0' '\\n' </proc/{pid}/environ | grep ^JUPYTERHUB_SSL_CERTFILE="
        )
    for target in (f"node:{port}/user/alice/api", "node:8081/hub/api", "localhost:8001/api/routes"):
        with host.sudo("bob"):
            answer = host.run(f"curl --silent --show-error --insecure https://{target}")
        # It answers, but not without a certificate: curl fails in TLS, in sending or in receiving.
        assert answer.rc in {35, 55, 56}, answer.stdout + answer.stderr
    with host.sudo("bob"):
        assert host.run(f"cat {own.partition('=')[2]}").rc  # a folder of alice's own


def test_it_may_tell_its_port_and_nothing_else(host, alice):
    """batchspawner's hub takes any attribute of the spawner: commands, too."""
    with host.sudo():
        pid = host.check_output("pgrep -u alice -f jupyterhub.singleuser").split()[0]
        environment = dict(
            line.split("=", 1)
            for line in host.check_output(f"tr '\\0' '\\n' </proc/{pid}/environ").splitlines()
            if line.startswith("JUPYTERHUB_")
        )
        for document in (
            '{"as_user": ["/bin/id"]}',
            '{"port": 80}',
            '{"port": true}',
            "[]",
            '{"problem": ""}',
        ):
            command = (
                f"curl --silent --output /dev/null --write-out '%{{http_code}}' --data '{document}'"
                f" --cert {environment['JUPYTERHUB_SSL_CERTFILE']}"
                f" --key {environment['JUPYTERHUB_SSL_KEYFILE']}"
                f" --cacert {environment['JUPYTERHUB_SSL_CLIENT_CA']}"
                f" --header 'Authorization: token {environment['JUPYTERHUB_API_TOKEN']}'"
                f" {environment['JUPYTERHUB_API_URL']}/plumbline-notebook"
            )
            assert host.check_output(command) == "400", document
    assert running(alice, "alice")["ready"]


def test_its_secrets_are_its_users_alone(host, alice):
    (job,) = jobs(host, "alice")
    with host.sudo("bob"):
        assert "TOKEN" not in host.run(f"scontrol show job {job.split()[0]}").stdout
        assert host.run(f"scontrol write batch_script {job.split()[0]} -").stdout == ""
    with host.sudo():
        command = host.check_output("ps -ww -C python -o args")
        assert "BEGIN" not in command
        environment = host.check_output(
            "tr '\\0' '\\n' </proc/$(pgrep -u alice -f jupyterhub.singleuser | head -n1)/environ"
        )
    assert "PRIVATE KEY" not in environment


@pytest.mark.long
def test_the_hub_may_be_killed(host, alice):
    (job,) = jobs(host, "alice")
    with host.sudo():
        host.check_output("systemctl kill --signal=KILL plumbline-portal")
        # The notebook is the proxy's matter; what it does not know of a session it asks the hub.
        answer = until(lambda: host.check_output("systemctl is-active plumbline-portal || true"))
        assert answer in ("activating", "active", "failed", "inactive")
        until(lambda: host.run("systemctl is-active plumbline-portal").rc == 0)
    until(lambda: alice.get("/hub/health").status == 200)
    assert running(alice, "alice")["ready"]
    assert alice.get("/user/alice/api/status").status == 200
    assert jobs(host, "alice") == [job]


@pytest.mark.long
def test_another_notebook_beside_it(host, alice):
    page = alice.post("/hub/spawn/alice/second", {"gpus": "0", "time": "0:10"})
    assert page.status == 200, page.error
    running(alice, "alice", "second")
    number = max(jobs(host, "alice"), key=lambda job: int(job.split()[0])).split()[0]
    with host.sudo("alice"):
        seen = host.run(
            f"srun --mpi=none --jobid={number} --overlap bash -c {shlex.quote(OPEN)}"
        ).stdout
    assert (seen.count(MAY), seen.count(MAY_NOT)) == (0, 2), seen
    alice.call("DELETE", "/hub/api/users/alice/servers/second", {"remove": True})
    until(lambda: len(jobs(host, "alice")) == 1)


def test_a_stopped_notebook_is_gone_and_accounted(host, logged_in):
    person = logged_in("bob")
    page = person.post("/hub/spawn", {"gpus": "0", "time": "0:10"})
    assert page.status == 200, page.error
    running(person, "bob")
    number = jobs(host, "bob")[0].split()[0]
    stopped(person, host, "bob")
    # Slurm 22.05 first writes the end, then the name.
    asked = f"sacct -nPX -j {number} --format=User,JobName,State,Account"
    with host.sudo("bob"):
        until(lambda: re.fullmatch(r"bob\|notebook\|CANCELLED.*\|portal", host.check_output(asked)))


# --- who comes in --------------------------------------------------------------------------------


def test_a_wrong_password_is_slowed_down(browser):
    person = browser()
    times = []
    for _ in range(3):
        begin = time.monotonic()
        page = person.login("carol", "wrong")
        times.append(time.monotonic() - begin)
        assert "Invalid username or password" in page.text
    assert times[1] >= 2
    assert times[2] >= 4
    begin = time.monotonic()
    assert browser().login("bob", PASSWORDS["bob"]).path == "/hub/home"
    assert time.monotonic() - begin < 2  # nobody else waits


def test_whoever_may_become_root_does_not_come_in(browser):
    page = browser().login("ops", PASSWORDS["ops"])
    assert page.path == "/hub/login"


def test_an_expired_account_does_not_come_in(host, browser):
    with host.sudo():
        host.check_output("chage --expiredate 1 bob")
    try:
        assert browser().login("bob", PASSWORDS["bob"]).path == "/hub/login"
    finally:
        with host.sudo():
            host.check_output("chage --expiredate -1 bob")


def test_names_are_text(browser, logged_in):
    page = browser().login(SCRIPT, "x")
    assert "<script>alert" not in page.text
    bob = logged_in("bob")
    page = bob.get("/hub/spawn")
    assert "PyTorch &lt;b&gt;" in page.text
    page = bob.post("/hub/spawn/bob/third", {"partition": SCRIPT})
    assert "<script>alert" not in page.text
    assert "no partition" in page.error


# --- what cannot be had --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"gpus": "3"},
            "no node of main has more than 2 GPUs of the type virtual; you asked for 3.",
        ),
        ({"gpus": "1", "gpu_type": "h100"}, "no GPU of the type “h100”; it has: virtual."),
        ({"time": "5:00"}, "The partition main allows 240 minutes; you asked for 300."),
        ({"qos": "short", "time": "0:30"}, "The QOS short allows 10 minutes"),
        ({"account": "music"}, "You have no account “music”; you have: portal."),
    ],
)
def test_a_sentence_and_no_job(host, logged_in, fields, sentence):
    person = logged_in("bob")
    page = person.post("/hub/spawn", fields)
    assert page.status == 409
    assert sentence in page.error
    assert jobs(host, "bob") == []


def test_slurms_own_refusal_is_a_sentence(host, logged_in):
    person = logged_in("bob")
    with host.sudo():
        host.check_output("scontrol update PartitionName=main State=INACTIVE")
    try:
        page = person.post("/hub/spawn", {"gpus": "0"})

        def told():
            """On the form, or on the page of a notebook that starts, where that takes longer."""
            text = page.error + person.get("/hub/spawn-pending/bob").text
            return "its partition is inactive" in text or "Slurm does not take the job" in text

        until(told)
    finally:
        with host.sudo():
            host.check_output("scontrol update PartitionName=main State=UP")
    assert jobs(host, "bob") == []


@pytest.mark.long
def test_a_notebook_that_does_not_start_in_time_is_given_up(host, alice, logged_in):
    """Alice has both GPUs."""
    person = logged_in("bob")
    person.post("/hub/spawn", {"gpus": "1", "time": "0:10"})
    until(lambda: [job.split()[1] for job in jobs(host, "bob")] == ["PENDING"])
    until(lambda: not jobs(host, "bob"), 60)
    page = until(
        lambda: "cancelled it" in (text := person.get("/hub/spawn-pending/bob").text) and text
    )
    assert "no such GPU, CPU or memory is free now" in page


def test_a_full_home_is_a_sentence(host, logged_in):
    page = logged_in("carol").post("/hub/spawn", {"gpus": "0"})
    assert "Nothing can be written to your home /home/carol (No space left on device)" in page.error
    assert jobs(host, "carol") == []


def test_no_link_starts_a_notebook(host, logged_in):
    page = logged_in("bob").get("/hub/spawn?gpus=0")
    assert "started with the form, not by a link" in page.error
    assert jobs(host, "bob") == []


COMPLETE = {
    "partition": "main",
    "gpu_type": "",
    "gpus": 0,
    "cpus": 1,
    "memory_mib": 512,
    "minutes": 9,
}


def assert_refused(person, options, sentence):
    """In the answer itself, or on the notebook's page where the refusal takes over a second."""
    page = person.call("POST", "/hub/api/users/bob/server", options)
    assert page.status in (201, 202, 409), page.text
    # Once no server of his is left, the next request is one of its own.
    until(lambda: not person.call("GET", "/hub/api/users/bob").json["servers"])
    told = person.get("/hub/spawn-pending/bob").text
    assert sentence in (page.json["message"] if page.status == 409 else told)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"partition": "main --uid=0"}, "There is no partition “main --uid=0” for you"),
        ({"gpus": 1, "gpu_type": "virtual:1,license:x"}, "has no GPU of the type"),
        ({"account": "portal --uid=0"}, "You have no account “portal --uid=0”"),
        ({"qos": "high"}, "has no QOS “high”"),
        ({"container": "/etc/shadow"}, "There is no container image “/etc/shadow”"),
        ({"minutes": "9 --uid=0"}, "These options are not complete."),
        ({"minutes": 999}, "allows 240 minutes; you asked for 999."),
    ],
)
def test_a_token_brings_no_other_options_than_the_form(host, logged_in, changed, sentence):
    assert_refused(logged_in("bob"), COMPLETE | changed, sentence)
    assert jobs(host, "bob") == []


def test_a_token_starts_what_the_form_would_and_nothing_of_the_spawner(host, logged_in):
    person = logged_in("bob")
    evil = {"as_user": ["/bin/id"], "notebook": "/bin/id", "job_id": "1", "site": {}}
    page = person.call("POST", "/hub/api/users/bob/server", COMPLETE | evil)
    assert page.status in (201, 202), page.text
    running(person, "bob")
    (job,) = jobs(host, "bob")
    assert job.split()[1:] == ["RUNNING", "main", "notebook", "bob"]
    stopped(person, host, "bob")


# --- the daemons ---------------------------------------------------------------------------------


def test_the_portal_is_not_root_and_acts_as_nobody_else(host):
    with host.sudo():
        for unit in UNITS:
            pid = host.check_output(f"systemctl show --property=MainPID --value {unit}")
            assert host.check_output(f"ps -o user= -p {pid}").startswith("plumbline")
    portal = "sudo --user=plumbline-portal"
    with host.sudo():
        job = "/opt/plumbline/portal/portal-job"
        ask = json.dumps({"action": "look"})
        for whom, sentence in (("root", "sudo:"), ("munge", "of the system"), ("ops", "operators")):
            tried = host.run(f"echo '{ask}' | {portal} sudo -n -u {whom} -- {job} 2>&1")
            assert tried.rc, whom
            assert sentence in tried.stdout, tried.stdout
        assert host.run(f"{portal} sudo -n -u alice -- /usr/bin/id").rc
        assert host.run(f"echo '{ask}' | {portal} sudo -n -u alice -- {job}").rc == 0


def test_its_secrets_are_readable_by_nobody_else(host):
    with host.sudo("bob"):
        for path in ("/etc/plumbline/portal/token", "/var/lib/plumbline-portal/hub.sqlite"):
            assert host.run(f"cat {path}").rc
