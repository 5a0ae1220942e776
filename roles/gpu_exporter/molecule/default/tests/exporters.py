"""What the scenarios of this role ask of its exporters."""

TEXTFILE = "/var/lib/prometheus/node-exporter/plumbline-gpu.prom"
OWN, DCGM = "plumbline-gpu-exporter", "nvidia-dcgm-exporter"


def series(host, name):
    text = host.run("cat %s", TEXTFILE).stdout
    return [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
