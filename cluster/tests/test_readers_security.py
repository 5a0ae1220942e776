"""What a host says about its security, of files, settings and programs made for it."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.processes import Completed
from cluster.readers import security


def test_who_could_replace_a_file_is_told(tmp_path: Path) -> None:
    """Whoever owns a folder above it, and all where a folder is open."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "key").write_text("x")
    (folder / "key").chmod(0o640)
    told = security.status(folder / "key")
    assert (told["kind"], told["mode"]) == ("file", "0640")
    assert "*" not in told["writers"]
    (tmp_path / "a").chmod(0o777)
    assert "*" in security.status(folder / "key")["writers"]
    (tmp_path / "a").chmod(0o1777)
    assert "*" not in security.status(folder / "key")["writers"]
    (folder / "link").symlink_to(folder / "key")
    assert security.status(folder / "link")["kind"] == "link"
    assert security.status(folder)["kind"] == "folder"


def test_patterns_find_files_and_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).touch()
    told = security.files({"paths": [f"{tmp_path}/*", f"{tmp_path}/one", f"{tmp_path}/three"]})
    assert [Path(file["path"]).name for file in told] == ["one", "two"]


def test_settings_of_scontrol_and_of_files() -> None:
    text = "Configuration data as of …\nPrivateData             = jobs,usage\n#x=1\nA=b=c\n"
    assert security.settings(text) == {"privatedata": "jobs,usage", "a": "b=c"}


@pytest.mark.parametrize(
    ("text", "trusts"),
    [
        ("deb [trusted=yes] http://x/ ./\n", True),
        ("deb [arch=amd64 allow-insecure=yes] http://x/ ./\n", True),
        ("Types: deb\nTrusted: yes\n", True),
        ("# deb [trusted=yes] http://x/ ./\n", False),
        ("deb [signed-by=/k.asc] http://trusted=yes/ ./\n", False),
        ("Types: deb\nSigned-By: /k.asc\n", False),
    ],
)
def test_sources_without_signatures(text: str, trusts: bool) -> None:
    assert security._trusts(text) is trusts


def test_what_sudo_names_is_read_from_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    users = [{"username": "root"}, {"usergroup": "sudo"}, {"username": "ada", "negated": False}]
    document = json.dumps({"User_Specs": [{"User_List": users}]})
    monkeypatch.setattr(security, "run", lambda *_, **__: Completed(0, document, ""))
    assert security.sudoers() == ["ada", "root"]


def test_sockets_with_their_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = (
        'LISTEN 0 80 127.0.0.1:3306 0.0.0.0:* users:(("mariadbd",pid=1,fd=2))\n'
        'LISTEN 0 80 [::]:22 [::]:* users:(("sshd",pid=3,fd=4),("systemd",pid=1,fd=9))\n'
        "LISTEN 0 80 127.0.0.53%lo:53 0.0.0.0:*\n"
    )
    monkeypatch.setattr(security, "run", lambda *_, **__: Completed(0, shown, ""))
    assert security.listening({}) == [
        ["127.0.0.1", "3306", "mariadbd"],
        ["::", "22", "sshd systemd"],
        ["127.0.0.53", "53", ""],
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("plumbline-run a.yml by x: Invoked with data=pong", True),
        ("ansible-ping plumbline-run a.yml by x: Invoked with data=pong", True),
        ("plumbline-run b.yml by x: Invoked with data=pong", False),
        ("ops : USER=root ; COMMAND=python3 'plumbline-run a.yml by x: Invoked'", False),
    ],
)
def test_only_a_module_writes_the_line_of_a_run(
    line: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sudo writes down the question itself, which has the line in it."""
    text = f"something else\n{line}\n"
    monkeypatch.setattr(security, "run", lambda *_, **__: Completed(0, text, ""))
    assert security.journal({"run": "plumbline-run a.yml by x:"}) is found
    assert security.journal({"run": ""}) is False


@pytest.fixture
def server() -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/open" else 401)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    served = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield served.server_port
    served.shutdown()
    thread.join()
    served.server_close()


def test_a_server_in_the_clear_is_asked_both_ways(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [["0.0.0.0", str(server), "x"]]
    monkeypatch.setattr(security, "listening", lambda request: there)
    told = security.web({"web": [[server, "/open"], [1, "/"]]})
    assert told == {str(server): {"tls": "refused", "clear": "200"}}
    assert security.web({"web": [[server, "/"]]})[str(server)]["clear"] == "401"


def test_a_question_that_fails_is_an_error_and_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(request: security.Request) -> None:
        raise LookupError("no slurmd runs")

    monkeypatch.setattr(
        security, "QUESTIONS", {"slurmd_limits": fails, "container": lambda request: False}
    )
    told = security.ask({})
    assert told == {"facts": {"container": False}, "errors": {"slurmd_limits": "no slurmd runs"}}


def test_the_key_itself_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = tmp_path / "munge.key"
    key.write_bytes(b"secret and typed by somebody")
    monkeypatch.setattr(security, "MUNGE_KEY", key)
    told, again = (security.munge({"salt": salt}) for salt in ("a", "b"))
    assert told is not None
    assert again is not None
    assert told["text"] is True
    assert told["digest"] != again["digest"]
    assert "secret" not in json.dumps(told)
    key.write_bytes(bytes(range(256)))
    told = security.munge({"salt": "a"})
    assert told is not None
    assert (told["text"], told["bytes"]) == (False, 256)


def test_of_several_limits_the_last_one_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(security, "LIMITS", tmp_path / "limits.conf")
    assert security.user_limits({}) == {}
    (tmp_path / "limits.conf").write_text("# * soft core 7\n* hard core 5\n* soft core 4\n")
    (tmp_path / "limits.d").mkdir()
    (tmp_path / "limits.d/90-ours.conf").write_text(
        "* - nofile 9\nroot soft core 8\n* soft core 0\n"
    )
    assert security.user_limits({}) == {"core": "0", "nofile": "9"}
    (tmp_path / "limits.d/95-site.conf").write_text("* - core unlimited\n")
    assert security.user_limits({})["core"] == "unlimited"


def test_what_this_machine_answers_is_json() -> None:
    """Whatever it lacks: an answer or a sentence for each question."""
    request = {
        **{"salt": "x", "run": "", "munge_hole": "CVE", "paths": ["/etc/passwd"], "web": []},
        **{"sysctls": ["kernel.ostype", "no.such"], "units": ["no-such-unit"]},
        **{"packages": ["bash"]},
        **{"controller": False, "compute": False, "database": False},
    }
    told = json.loads(json.dumps(security.ask(request)))
    assert told["facts"].keys() | told["errors"].keys() == {*security.names()}
    assert told["facts"]["sysctls"] == {"kernel.ostype": "Linux", "no.such": None}
    assert told["facts"]["slurm"] is None
    ours = subprocess.run(["uname", "-s"], capture_output=True, text=True, check=True).stdout
    assert told["facts"]["sysctls"]["kernel.ostype"] == ours.strip()


@pytest.mark.parametrize(
    ("release", "system"),
    [
        ('NAME="Debian GNU/Linux"\nVERSION_ID="13"\nID=debian\n', "Debian 13"),
        ('NAME="Ubuntu"\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n', "Ubuntu 24"),
    ],
)
def test_versions_are_told_with_the_system_that_they_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, system: str
) -> None:
    monkeypatch.setattr(security, "NVIDIA_DRIVER", tmp_path / "version")
    monkeypatch.setattr(security, "OS_RELEASE", tmp_path / "os-release")
    (tmp_path / "os-release").write_text(release)
    told = security.versions({"packages": ["bash", "no-such-package"]})
    assert told["packages"].keys() - {"linux"} == {"bash"}
    assert (told["system"], told["driver"]) == (system, "")
    (tmp_path / "version").write_text("NVRM version: whatever\n")
    assert security.versions({"packages": []})["driver"] == "NVRM version: whatever\n"


def test_the_kernel_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    running = os.uname().release
    lines = f"installed linux-image-{running} 6.12.57-1\ninstalled runc 1.3.3-0ubuntu1\n"
    monkeypatch.setattr(security, "run", lambda *_, **__: Completed(0, lines, ""))
    told = security.versions({"packages": ["runc"]})
    assert told["packages"] == {"linux": "6.12.57-1", "runc": "1.3.3-0ubuntu1"}
