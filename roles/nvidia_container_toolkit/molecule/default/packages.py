"""This scenario's mirror: stand-ins with the names and units of the toolkit, and nothing of it.

Their nvidia-ctk writes a specification for the GPUs that /etc/fake-gpus names, for a driver that
/etc/fake-driver names: made after the CDI specification, not recorded from a GPU. Like the real one
it mounts those sockets of daemons that are there when it writes:
https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/discover/ipc.go
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.mirror import Deb, Mirror

CTK = """#!/usr/bin/python3
# Stand-in for nvidia-ctk, made by a test.
import os, sys
if sys.argv[1:3] != ["cdi", "generate"]:
    sys.exit("unknown command")
try:
    names = open("/etc/fake-gpus").read().split()
    driver = open("/etc/fake-driver").read().strip()
except FileNotFoundError:
    sys.exit("failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND")
lines = ["cdiVersion: 0.5.0", "kind: nvidia.com/gpu", "devices:"]
for name in [*names, "all"]:
    lines += [f"- name: '{name}'", "  containerEdits:", "    deviceNodes:"]
    lines += [f"    - path: /dev/nvidia{name[0]}"]
lines += ["containerEdits:", "  mounts:", f"  - hostPath: /usr/lib/libcuda.so.{driver}"]
for socket in ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"):
    lines += [f"  - hostPath: {socket}"] * os.path.exists(socket)
text = "\\n".join(lines) + "\\n"
path = os.environ.get("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH")
if path:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(text)
else:
    print(text, end="")
"""

SERVICE = """[Unit]
Description=Stand-in for the service that refreshes NVIDIA's CDI specification file
[Service]
Type=oneshot
Environment=NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml
ExecStart=/usr/bin/nvidia-ctk cdi generate
RemainAfterExit=yes
[Install]
WantedBy=multi-user.target
"""

PATH = """[Unit]
Description=Stand-in for the path that triggers a CDI refresh
[Path]
PathChanged=/etc/fake-driver
[Install]
WantedBy=multi-user.target
"""


def toolkit(version: str) -> list[Deb]:
    base = Deb(
        "nvidia-container-toolkit-base",
        version,
        files={
            "/usr/bin/nvidia-ctk": CTK,
            "/usr/lib/systemd/system/nvidia-cdi-refresh.service": SERVICE,
            "/usr/lib/systemd/system/nvidia-cdi-refresh.path": PATH,
        },
    )
    library = Deb("libnvidia-container1", version)
    tools = Deb("libnvidia-container-tools", version, depends=(f"{library.name} (>= {version})",))
    needs = (f"{base.name} (= {version})", f"{tools.name} (>= {version})")
    return [base, library, tools, Deb("nvidia-container-toolkit", version, depends=needs)]


def fill(folder: Path) -> None:
    mirror = Mirror(folder)
    mirror.apt("stable", [*toolkit("1.19.0-1"), *toolkit("1.20.1-1"), *toolkit("1.21.0-1")])
    mirror.file("fingerprint", mirror.key.fingerprint)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
