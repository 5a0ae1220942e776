"""What the scenarios of this role have in common."""

PARTS = [
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
]

SPEC = "/run/cdi/nvidia.yaml"


def versions(host) -> set[str]:
    return set(
        host.check_output(
            "dpkg-query --show --showformat='${Version}\\n' " + " ".join(PARTS)
        ).split()
    )
