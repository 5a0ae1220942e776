"""What the scenarios of this role have in common."""

CORE = "datacenter-gpu-manager-4-core"
OLD = "datacenter-gpu-manager"


def version(host, package: str = CORE) -> str:
    result = host.run("dpkg-query --show --showformat='${db:Status-Status} ${Version}' %s", package)
    return result.stdout.split()[1] if result.stdout.startswith("installed") else ""


def started(host) -> str:
    return host.check_output("systemctl show nvidia-dcgm --property=ActiveEnterTimestampMonotonic")


def diagnose(host, *options: str):
    with host.sudo():
        return host.run(f"plumbline-dcgm-diag --gpus 2 {' '.join(options)}")
