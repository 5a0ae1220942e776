"""What the scenarios of this role ask of its exporters."""

import time

TEXTFILE = "/var/lib/prometheus/node-exporter/plumbline-gpu.prom"
OWN, DCGM = "plumbline-gpu-exporter", "nvidia-dcgm-exporter"


def series(host, name):
    text = host.run("cat %s", TEXTFILE).stdout
    return [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]


def wait(wanted, seconds=60):
    deadline = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < deadline
        time.sleep(0.5)
