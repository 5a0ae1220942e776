"""A public auditor's view of the cluster, as it is by default and with options that a site may add.

Each check passes, or the table says who makes it pass. `--renew-golden` writes the page from a run.
"""

import re

import pytest
import yaml

from tests.live_cluster import REPOSITORY

SCENARIO = REPOSITORY / "molecule/clients"
TABLE = yaml.safe_load((SCENARIO / "vars/clustermax.yml").read_text(encoding="utf-8"))
OPTIONS = SCENARIO / "vars/options.yml"
PAGE = REPOSITORY / "docs/reference/clustermax.md"
REQUIREMENTS = (SCENARIO / "requirements.txt").read_text(encoding="utf-8")
(VERSION,) = re.findall(r"^clustermax==(\S+)", REQUIREMENTS, re.MULTILINE)
KINDS = {
    "hardware": "with hardware",
    "option": "option",
    "elsewhere": "option, not run here",
    "kernel": "option, not run here",
    "not_ours": "not ours",
}
HEAD = """\
# ClusterMAX

[ClusterMAX](https://clustermax.semianalysis.com/) rates GPU clusters in public. Its program
`cmax audit --slurm` only reads. This is what version {version} says of the virtual cluster of
`scripts/demo`, to its operator on the login node: of {all} checks {default} pass by default, and
{with_options} with these lines in the inventory:

```yaml
{options}```

Of each other check the table says who makes it pass. Nothing here was run on real GPUs.

- **with hardware**: the roles install it on nodes with real GPUs or a fabric, or there is nothing
  to judge without them.
- **option**: a line in the inventory ([More software](../operate/login-nodes.md#more-software)).
- **option, not run here**: the same, from a download that the run of this page did not have, or a
  setting of the kernel, which containers share with their host.
- **not ours**: a choice of the site or of Plumbline, and why.

| Check | By default | With the options | Passes | How, or why not |
|---|---|---|---|---|
"""


def verdicts(output: str) -> dict[str, str]:
    """The verdict of each check, by its key."""
    lines = re.findall(r"^(PASS|WARNING|FAIL|SKIPPED)\s.*\[(\S+)\]$", output, re.MULTILINE)
    return {key: verdict for verdict, key in lines}


def passing(found: dict[str, str]) -> set[str]:
    return {key for key, verdict in found.items() if verdict == "PASS"}


def reasons() -> dict[str, tuple[str, str]]:
    return {
        key: (KINDS[kind], reason) for kind, part in TABLE.items() for key, reason in part.items()
    }


def page(default: dict[str, str], with_options: dict[str, str]) -> str:
    rows = []
    for key in sorted(default.keys() | with_options.keys()):
        kind, reason = reasons().get(key, ("yes", ""))
        columns = [found.get(key, "not asked").lower() for found in (default, with_options)]
        rows.append(f"| `{key}` | {' | '.join(columns)} | {kind} | {reason} |\n")
    lines = OPTIONS.read_text(encoding="utf-8").splitlines(keepends=True)
    head = HEAD.format(
        version=VERSION,
        default=len(passing(default)),
        with_options=len(passing(with_options)),
        all=len(rows),
        options="".join(line for line in lines if not line.startswith(("#", "---"))),
    )
    return head + "".join(rows)


@pytest.fixture(scope="module")
def audit(operator):
    """A function that asks the auditor, as the operator on the login node."""

    def run() -> dict[str, str]:
        program = "~/auditor/bin/cmax"
        done = operator.virtual_cluster(
            "ssh",
            "login1",
            f"[ -x {program} ] || {{ python3 -m venv ~/auditor"
            f" && ~/auditor/bin/pip install --quiet clustermax=={VERSION}; }}"
            f" && {program} audit --slurm --yes </dev/null",
        )
        found = verdicts(done.stdout)
        assert len(found) > 50, done.stdout + done.stderr
        # Of the kernel's settings the auditor asks once there is perf.
        return found | {
            key: "the host's" for key in TABLE["kernel"] if found.get(key, "SKIPPED") != "SKIPPED"
        }

    return run


def test_each_check_passes_or_the_table_says_who_makes_it_pass(operator, audit, golden):
    default = audit()
    deployed = operator.playbook("slurm-cluster.yml", "--extra-vars", f"@{OPTIONS}")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    with_options = audit()
    assert default.keys() - passing(default) == reasons().keys() & default.keys()
    assert passing(with_options) - passing(default) == TABLE["option"].keys()
    assert reasons().keys() <= default.keys() | with_options.keys()
    golden(PAGE, page(default, with_options))


def test_docker_has_no_bridge_that_mpi_would_wait_on_and_nobody_is_in_its_group(node):
    """After the options above. Of two nodes with one address each rank asks itself for ever."""
    gpu = node("gpu1")
    assert gpu.check_output("docker --version").startswith("Docker version")
    with gpu.sudo():
        assert gpu.check_output("docker network ls --format '{{.Name}}'").split() == [
            "host",
            "none",
        ]
    assert "docker0" not in gpu.check_output("ls /sys/class/net").split()
    assert gpu.check_output("getent group docker").endswith(":")


def test_a_user_loads_nccl_on_a_node(operator):
    """As the module has it; Lmod names no folder that is not there."""
    done = operator.virtual_cluster(
        "ssh",
        "ada@login1",
        "srun --time=1 bash -c 'module load nccl && echo $LD_LIBRARY_PATH $CPATH'",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/opt/nccl/2.32.3-cuda13/lib " in done.stdout + " "
    assert "/opt/nccl/2.32.3-cuda13/include" in done.stdout
