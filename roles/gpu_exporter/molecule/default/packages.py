"""This scenario's mirror: stand-ins with the names and files of DCGM and dcgm-exporter.

The exporter answers over TLS, and only those who name a user, as the web configuration says; it
exits where one of its files is not there. Nothing else of it is real.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.mirror import Deb, Mirror

EXPORTER = """#!/usr/bin/python3
# Stand-in for dcgm-exporter VERSION, made by a test.
import argparse, re, ssl
from http.server import BaseHTTPRequestHandler, HTTPServer
parser = argparse.ArgumentParser()
for name in ("collectors", "web-config-file", "address", "collect-interval", "hpc-job-mapping-dir"):
    parser.add_argument("--" + name)
parser.add_argument("--remote-hostengine-info", choices=["localhost:5555"])
parser.add_argument("--no-hostname", action="store_true")
given = parser.parse_args()
named = [line.split(",")[0] for line in open(given.collectors) if line.startswith("DCGM_")]
said = open(given.web_config_file).read()
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if "Authorization" in self.headers else 401)
        self.end_headers()
        if "Authorization" in self.headers:
            each = [f'{name}{{gpu="{gpu}"}} 1\\n' for name in named for gpu in (0, 1)]
            self.wfile.write("".join(each).encode())
server = HTTPServer(("", int(given.address.lstrip(":"))), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*(re.search(key + '_file: (.*)', said)[1] for key in ("cert", "key")))
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""

# As upstream's.
UNIT = """[Unit]
Description=Stand-in for the NVIDIA DCGM-exporter service
Wants=nvidia-dcgm.service
After=nvidia-dcgm.service
[Service]
User=root
StandardOutput=append:/var/log/dcgm-exporter.log
StandardError=append:/var/log/dcgm-exporter.log
ExecStart=/usr/bin/dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv
Restart=on-abort
[Install]
WantedBy=multi-user.target
"""

ENGINE = """[Unit]
Description=Stand-in for the NVIDIA DCGM service
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""


def core(version: str) -> Deb:
    return Deb(
        "datacenter-gpu-manager-4-core",
        version,
        files={"/usr/lib/systemd/system/nvidia-dcgm.service": ENGINE},
    )


def exporter(version: str) -> Deb:
    return Deb(
        "datacenter-gpu-manager-exporter",
        version,
        files={
            "/usr/bin/dcgm-exporter": EXPORTER.replace("VERSION", version),
            "/usr/lib/systemd/system/nvidia-dcgm-exporter.service": UNIT,
        },
    )


def fill(folder: Path) -> None:
    mirror = Mirror(folder)
    cores = [core(f"1:{version}-1") for version in ("4.4.0", "4.6.0", "4.7.0")]
    exporters = [exporter(f"{version}-1") for version in ("4.8.3", "4.9.0")]
    mirror.apt("cuda", [*cores, *exporters])
    mirror.file("fingerprint", mirror.key.fingerprint)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
