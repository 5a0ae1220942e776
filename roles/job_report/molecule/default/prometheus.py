#!/usr/bin/python3
"""A stand-in for Prometheus, made by a test: one job's GPU, for those who have the password.

/etc/scenario/mode says whether it is slow (every answer takes a while) or broken.
"""

import base64
import json
import ssl
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WANTED = "Basic " + base64.b64encode(b"grafana:secret").decode()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        file = Path("/etc/scenario/mode")
        mode = file.read_text().strip() if file.exists() else ""
        if mode == "slow":
            time.sleep(600)
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        fields = dict(urllib.parse.parse_qsl(form))
        allowed = self.headers["Authorization"] == WANTED
        known = 'DCGM_FI_DEV_GPU_UTIL{hpc_job="4711"}' in fields["query"]
        values = [[float(fields["start"]), "40"], [float(fields["end"]), "60"]]
        series = [{"metric": {"node": "node", "gpu": "0"}, "values": values}] if known else []
        data = {"resultType": "matrix", "result": series}
        document = {"status": "success", "data": data} if allowed else {"error": "Unauthorized"}
        if mode == "broken":
            document = {"error": "out of memory"}
        self.send_response(500 if mode == "broken" else 200 if allowed else 401)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())


server = ThreadingHTTPServer(("127.0.0.1", 9090), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/etc/scenario/host.crt", "/etc/scenario/host.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
