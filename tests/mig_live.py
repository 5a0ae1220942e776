"""What the scenarios of nvidia_mig share: GPUs that a stand-in has, and a Slurm for them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
LOOK = {"ansible.builtin.include_role": {"name": "nvidia_mig", "tasks_from": "verify"}}
NAMES = [
    f"gpu{gpu}-3g.20gb-{number}.{what}"
    for gpu in (0, 1)
    for number in (0, 1)
    for what in ("ci", "gi")
]
JOB = "srun --immediate=60"
SHOW = "sh -c 'echo $CUDA_VISIBLE_DEVICES'"
ROLES = [{"ansible.builtin.include_role": {"name": name}} for name in ("munge", "slurm")]
SETTINGS = yaml.safe_load((ROOT / "group_vars/all/nvidia_mig.yml").read_text())


def state(host):
    return json.loads(host.file("/var/lib/nvidia-smi.json").content_string)


def write(host, document):
    with host.sudo():
        host.run_expect([0], f"echo '{json.dumps(document)}' > /var/lib/nvidia-smi.json")


def names(host):
    return host.run("ls /dev/plumbline-mig").stdout.split()


def verified(play, **variables):
    show = {
        "ansible.builtin.debug": {
            "msg": "{{ __nvidia_mig_verified | map(attribute='verdict') | join(' ') }} done"
        }
    }
    run = play([LOOK, show], "--check", **variables)
    assert (run.code, run.changed) == (0, 0), run.output
    return run.output.partition("msg: ")[2].partition(" done")[0]


@pytest.fixture
def whole(host, play):
    """Puts the declared layout back."""
    yield
    with host.sudo():
        host.run("systemctl stop a-job")  # where there is one
    document = state(host)
    for gpu in document["gpus"]:
        gpu |= {"reset": "told", "processes": []}
        gpu["on"] = gpu["pending"]
    write(host, document)
    run = play()
    assert run.code == 0, run.output


# --- Slurm ----------------------------------------------------------------------------------------


def cluster(address, layout):
    """One node that is controller and compute node, with two boards."""
    nodes = [
        {
            "name": "node",
            "address": address,
            "cpus": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1},
            "memory_mb": 1024,
            "gpus": {"model": "a100_sxm", "count": 2, "mig": layout},
        }
    ]
    last = list(layout)[-1]
    return {
        "munge_key_file": f"{os.environ['MOLECULE_EPHEMERAL_DIRECTORY']}/.secrets/munge.key",
        "slurm_roles": ["controller", "compute"],
        "slurm_controllers": [{"name": "node", "address": address}],
        "slurm_nodes": nodes,
        "cluster_nodes": nodes,
        "slurm_devices": [f"/dev/plumbline-mig/gpu1-{last}-{layout[last] - 1}.ci"],
        "slurm_devices_timeout": 5,
        "slurm_registration_timeout": 30,
        # Jobs here have instances and CPUs to be told apart; memory is this machine's.
        "slurm_settings": {"SlurmdParameters": "config_overrides"},
        "nvidia_mig_layout": layout,
        "nvidia_mig_required_by": ["slurmd.service"],
        "__nvidia_mig_task_prolog": SETTINGS["__nvidia_mig_task_prolog"],
        "slurm_components": {"nvidia_mig": SETTINGS["slurm_component_nvidia_mig"]},
    }


def uuids(host):
    """MIG's UUIDs by the names of the instances."""
    document = host.check_output("cat /run/plumbline-mig.json")
    return {
        instance["devices"][0][:-3].rpartition("/")[2]: instance["uuid"]
        for instance in yaml.safe_load(document)
    }


applied: list[dict[str, int]] = []


@pytest.fixture
def slurm(host, play):
    """A function that gives the node a layout and Slurm with it, unless it has both."""

    def with_(layout):
        if applied[-1:] != [layout]:
            address = host.check_output("hostname -I").split()[0]
            cut = {"ansible.builtin.include_role": {"name": "nvidia_mig"}}
            for role in (cut, *ROLES):
                run = play([role], **cluster(address, layout))
                assert run.code == 0, run.output
            applied.append(layout)
        return uuids(host)

    return with_


def opened(host, arguments, names):
    """Which of the device files a job may open: there is no driver behind them (ENXIO)."""
    tries = " ".join(f"/dev/plumbline-mig/{name}.{what}" for name in names for what in ("gi", "ci"))
    all_ = f"{tries} /dev/nvidia0 /dev/nvidia1"
    tried = host.run(f"{JOB} {arguments} sh -c 'for f in {all_}; do head -c1 $f; done'")

    def of(words):
        return [line.split("'")[1] for line in tried.stderr.splitlines() if words in line]

    refused, openable = of("Operation not permitted"), of("No such device or address")
    assert len(refused) + len(openable) == 2 * len(names) + 2, tried.stderr
    return {path.rpartition("/")[2] for path in openable}
