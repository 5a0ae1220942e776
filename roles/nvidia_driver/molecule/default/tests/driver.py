"""What the scenarios of this role have in common."""

import shlex
from contextlib import contextmanager

PACKAGES = ("nvidia-driver-cuda", "nvidia-modprobe", "libnvidia-cfg1", "nvidia-persistenced")
FAKE = "/usr/local/lib/libnvidia-ml.so.1"
SOURCES = "/etc/apt/sources.list.d/stand-in.list"
DESCRIPTION = "/etc/plumbline-fake-nvml.conf"
VERIFY = {"ansible.builtin.include_role": {"name": "nvidia_driver", "tasks_from": "verify"}}

SHOW = {"ansible.builtin.debug": {"var": "__nvidia_driver_verified"}}


def versions(host):
    show = "${db:Status-Abbrev} ${Package} ${Version}\n"
    return host.check_output("dpkg-query --show --showformat=%s", show)


@contextmanager
def described(host, *lines):
    """The stand-in says this, too."""
    with host.sudo():
        healthy = host.file(DESCRIPTION).content_string
        for line in lines:
            host.check_output("echo %s >> %s", line, DESCRIPTION)
        try:
            yield
        finally:
            host.check_output(f"printf %s {shlex.quote(healthy)} > {DESCRIPTION}")
