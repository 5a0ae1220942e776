"""How users come in, and what starts without them: editors over SSH, shells in jobs, scrontab.

Visual Studio Code's own server is a download that is not to be had here. What it asks of a login
node is: a script on the standard input of `bash -s`, a process that stays when SSH ends, ports and
sockets that are forwarded; and a jump through the login node to the node of a job.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import processes
from tests.live_cluster import REPOSITORY

SERVER = """
mkdir -p ~/.editor-server && cd ~/.editor-server && rm -f socket port log
cat >server.py <<'END'
import http.server, pathlib, socketserver, threading
class Unix(socketserver.ThreadingUnixStreamServer):
    def get_request(self):
        request, _ = super().get_request()
        return request, ("local", 0)
class Say(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"editor")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Say)
threading.Thread(target=Unix("socket", Say).serve_forever).start()
pathlib.Path("port").write_text(str(server.server_port))
server.serve_forever()
END
nohup python3 server.py >log 2>&1 </dev/null &
for _ in {1..50}; do [ -s port ] && break; sleep 0.2; done
echo "$!:$(cat port)"
"""


@pytest.fixture(scope="module")
def ssh(operator):
    """A function that runs OpenSSH as the user, with options of its own, to a node."""
    folder = REPOSITORY / ".cache/virtual-cluster" / operator.cluster

    def command(*options: str) -> list[str]:
        config = ["-F", str(folder / "ssh_config"), "-o", "ControlMaster=no", "-l", "ada"]
        return ["ssh", *config, "-o", "ControlPath=none", *options]

    return command


def run(argv: list[str], script: str | None = None) -> subprocess.CompletedProcess[str]:
    return processes.run(*argv, cwd=REPOSITORY, timeout=120, input=script)


@contextmanager
def forwarded(argv: list[str]) -> Iterator[None]:
    with subprocess.Popen([*argv, "-N", "-o", "ExitOnForwardFailure=yes", "login1"]) as tunnel:
        try:
            yield
        finally:
            tunnel.terminate()


def asked(*where: str) -> str:
    """What the server says, as soon as the tunnel is there."""
    curl = ["curl", "--silent", "--retry", "20", "--retry-connrefused", "--retry-delay", "1"]
    return run([*curl, "--retry-all-errors", *where]).stdout


@pytest.fixture(scope="module")
def server(ssh) -> Iterator[tuple[str, str]]:
    """Started by a script on the standard input; its process and its port."""
    made = run(ssh("login1", "bash -s"), SERVER)
    assert made.returncode == 0, made.stderr
    process, port = made.stdout.strip().split(":")
    yield process, port
    run(ssh("login1", f"kill {process}"))


def test_a_server_stays_when_its_ssh_has_ended(ssh, server):
    process, _ = server
    shown = run(ssh("login1", f"ps -o args= -p {process}")).stdout
    assert shown.strip() == "python3 server.py"


def test_a_port_of_the_login_node_is_forwarded(ssh, server):
    with forwarded(ssh("-L", f"42617:127.0.0.1:{server[1]}")):
        assert asked("--noproxy", "*", "http://127.0.0.1:42617/") == "editor"


def test_ports_are_forwarded_as_a_proxy_does(ssh, server):
    """What Visual Studio Code uses by default (`ssh -D`)."""
    with forwarded(ssh("-D", "42618")):
        proxy = ("--noproxy", "", "--socks5", "127.0.0.1:42618")
        assert asked(*proxy, f"http://127.0.0.1:{server[1]}/") == "editor"


def test_a_socket_of_the_login_node_is_forwarded(ssh, server, tmp_path):
    home = run(ssh("login1", "pwd")).stdout.strip()
    here = tmp_path / "socket"
    with forwarded(ssh("-L", f"{here}:{home}/.editor-server/socket")):
        assert asked("--noproxy", "*", "--unix-socket", str(here), "http://editor/") == "editor"


@pytest.fixture
def job(ssh) -> Iterator[str]:
    """The number of a job that holds gpu1, and has begun there."""
    begun = "rm -f ~/begun; sbatch --parsable --nodelist=gpu1 --time=5 --output=/dev/null"
    number = run(ssh("login1", f"{begun} --wrap 'touch ~/begun; sleep 300'")).stdout.strip()
    wait = "for _ in {1..100}; do [ -e ~/begun ] && exit; sleep 1; done; exit 1"
    assert run(ssh("login1", wait)).returncode == 0
    yield number
    run(ssh("login1", f"scancel {number}"))


def through_login1(ssh, node: str) -> list[str]:
    """With the keys of this machine at both places, as a person's agent has them."""
    jump = " ".join(ssh("-W", "%h:%p", "login1"))
    return ssh("-o", f"ProxyCommand={jump}", node, "bash -s")


def test_a_jump_through_the_login_node_ends_in_the_job(ssh, job):
    done = run(through_login1(ssh, "gpu1"), "hostname; cat /proc/self/cgroup")
    assert done.stdout.startswith("gpu1\n"), done
    assert f"job_{job}" in done.stdout


def test_a_jump_to_a_node_without_a_job_is_refused(ssh, job):
    done = run(through_login1(ssh, "gpu2"), "hostname")
    assert done.returncode != 0
    assert "gpu2" not in done.stdout


@pytest.mark.parametrize(
    "start", ["salloc --nodelist=gpu2 --time=2", "srun -w gpu2 -t 2 --pty bash"]
)
def test_an_interactive_shell_is_on_the_node_and_has_a_terminal(ssh, start):
    typed = "hostname; tty; echo $SLURM_JOB_ID; module --terse avail; exit\n"
    done = run(ssh("-tt", "login1", start), typed)
    shown = done.stdout.replace("\r", "")
    assert "\ngpu2\n" in shown, shown
    assert "\n/dev/pts/" in shown
    assert "pytorch/" in shown


def test_an_entry_of_scrontab_runs(ssh):
    entry = r"#SCRON --time=1 --output=/dev/null\n* * * * * hostname >~/by-the-clock\n"
    made = run(ssh("login1", f"rm -f ~/by-the-clock; printf '{entry}' | scrontab -"))
    assert made.returncode == 0, made.stderr
    until = time.monotonic() + 240
    try:
        while time.monotonic() < until:
            ran = run(ssh("login1", "cat ~/by-the-clock 2>/dev/null")).stdout
            if ran:
                break
            time.sleep(5)
        assert ran.startswith("gpu"), run(ssh("login1", "squeue --me; scrontab -l")).stdout
    finally:
        run(ssh("login1", "scrontab -r"))
