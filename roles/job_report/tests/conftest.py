"""A sacct and a Prometheus that say what they are told."""

import base64
import json
import stat
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cluster.prometheus import Server
from roles.job_report.files.job_report import site
from roles.job_report.tests.recorded import FOUR, answer

SACCT = """\
#!/bin/sh
printf '%s\\n' "$SLURM_TIME_FORMAT" "$@" >> {0}/asked
sleep "$(cat {0}/slow)"
case $* in
    *--uid=*) case $* in *--uid="$(cat {0}/uid)"*) cat {0}/out ;; esac ;;
    *=JobName*) cat {0}/name ;;
    *) cat {0}/out ;;
esac
cat {0}/error >&2
exit {1}
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Writes down how it was asked. `uid` is the user whose jobs it has."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def says(text="", status=0, error="", name="train\n", uid="2001", slow=0):
        told = {"out": text, "name": name, "uid": uid, "error": error, "slow": slow}
        for file, content in told.items():
            (tmp_path / file).write_text(str(content))
        script = folder / "sacct"
        script.write_text(SACCT.format(tmp_path, status))
        script.chmod(stat.S_IRWXU)

    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return says


@pytest.fixture
def server(tmp_path):
    """A Prometheus with a password; the settings for it, and the forms that it was sent."""
    forms = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            forms.append(dict(urllib.parse.parse_qsl(body)))
            wanted = "Basic " + base64.b64encode(b"grafana:secret").decode()
            allowed = self.headers["Authorization"] == wanted
            series = FOUR if "GPU_UTIL" in body else []
            document = answer(*series) if allowed else {"error": "Unauthorized"}
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *arguments):
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    password = tmp_path / "password"
    password.write_text("secret\n")
    url = f"http://127.0.0.1:{listening.server_port}"
    yield site.Settings(Server(url, None, "grafana", password), ""), forms
    listening.shutdown()
    listening.server_close()
