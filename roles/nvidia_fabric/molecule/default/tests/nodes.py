"""What the scenarios of this role have in common."""

OLD, NEW = "580.95.05", "580.126.20"
REVISIONS = {OLD: f"{OLD}-1", NEW: f"{NEW}-1ubuntu1"}

ROOT = "/srv/node"
SWITCHES = f"{ROOT}/proc/driver/nvidia-nvswitch/devices"

NVML = "/etc/plumbline-fake-nvml.conf"
MANAGER = "nvidia-fabricmanager"


class Node:
    def __init__(self, host):
        self.host = host

    def root(self, command: str) -> str:
        with self.host.sudo():
            return str(self.host.check_output("sh -ec %s", command))

    def install(self, driver: str) -> None:
        package = f"libnvidia-ml1={REVISIONS[driver]}"
        self.root(f"apt-get install --yes --allow-downgrades {package}")

    def load(self, driver: str) -> None:
        line = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build"
        self.root(f"echo '{line}' > {ROOT}/proc/driver/nvidia/version")

    def version(self, package: str) -> str:
        """Of a package; empty where it is not installed."""
        form = "--showformat='${db:Status-Status} ${Version}'"
        output = self.host.run(f"dpkg-query --show {form} {package}").stdout
        return output.removeprefix("installed ") if output.startswith("installed ") else ""

    def process(self) -> str:
        """What changes whenever the Fabric Manager is started."""
        return str(
            self.root(f"systemctl show {MANAGER} --property=ExecMainStartTimestampMonotonic")
        )

    def says(self, line: str) -> None:
        """A line of the description of what NVML answers."""
        self.root(f"echo '{line}' >> {NVML}")


def verified(play, **variables) -> str:
    """What tasks/verify.yml alone finds wrong, as an operator runs it."""
    only = {"ansible.builtin.include_role": {"name": "nvidia_fabric", "tasks_from": "verify"}}
    show = {"ansible.builtin.debug": {"msg": "{{ __nvidia_fabric_verified | verify_failures }}"}}
    run = play([only, show], "--check", **variables)
    assert (run.code, run.changed) == (0, 0), run.output
    return str(run.output)


HGX = {"nvidia_fabric_gpu_model": "h100_sxm", "nvidia_fabric_gpu_count": 8}


def refused(run) -> str:
    assert run.code != 0, run.output
    return run.output


GB200 = {
    "nvidia_fabric_gpu_model": "gb200",
    "nvidia_fabric_gpu_count": 4,
    "nvidia_fabric_imex_domain": "rack1",
    "nvidia_fabric_imex_nodes": ["192.0.2.11", "192.0.2.12"],
    "nvidia_fabric_imex_timeout": 0,
}
