"""What scenarios of a whole cluster share: the operator's programs, and what they say of hosts."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests import processes

REPOSITORY = Path(__file__).resolve().parents[1]

# Molecule asks for colours, which would stand between the words that are looked for.
PLAIN = {
    "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
    "ANSIBLE_FORCE_COLOR": "false",
    "ANSIBLE_NOCOLOR": "true",
    "FORCE_COLOR": "",
    "NO_COLOR": "1",
    "PY_COLORS": "0",
}


def under_test(project: str = "cluster") -> str:
    """The cluster of the scenario that runs, as `molecule/shared/vars/main.yml` names it."""
    scenario = os.environ["MOLECULE_SCENARIO_NAME"].replace("_", "-")
    return os.environ.get("PLUMBLINE_ON", f"test-{project}-{scenario}")


def virtual_cluster(cluster: str, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ("scripts/virtual-cluster", verb, f"--name={cluster}", *arguments)
    return processes.run(*command, cwd=REPOSITORY, timeout=300)


def on(cluster: str, node: str, words: str) -> str:
    """What a command prints on a node; its failure is the test's."""
    done = virtual_cluster(cluster, "ssh", node, words)
    assert done.returncode == 0, f"{node}: {words}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def operate(
    *argv: object, timeout: float = 600, environment: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Runs what an operator runs on the control node."""
    settings = {**os.environ, **PLAIN, **environment}
    return processes.run(*argv, cwd=REPOSITORY, env=settings, timeout=timeout)


def sources(inventory: Path) -> tuple[str, ...]:
    """As molecule's converge has them: the secrets lie beside the first."""
    return ("-i", str(inventory), "-i", str(REPOSITORY / "inventory/demo/groups.yml"))


# --- nodes and jobs -------------------------------------------------------------------------------

SAMPLES = "/run/samples"
SAMPLER = f"while sleep 0.2; do scontrol -o show node; echo; done > {SAMPLES}"


def boot(cluster: str, node: str) -> str:
    return on(cluster, node, "cat /proc/sys/kernel/random/boot_id")


def ends_of(cluster: str, job: str) -> list[str]:
    """How a job ended; one that was requeued has more than one end."""
    return on(cluster, "login1", f"sacct -D -X -n -P -o state -j {job}").split()


@contextmanager
def watched(cluster: str) -> Iterator[list[dict[str, str]]]:
    """What Slurm said meanwhile: for each moment NodeName -> state; known afterwards."""
    seen: list[dict[str, str]] = []
    on(cluster, "ctl1", f"sudo systemd-run --quiet --unit=sampler bash -c '{SAMPLER}'")
    try:
        yield seen
    finally:
        on(cluster, "ctl1", "sudo systemctl stop sampler")
        for moment in on(cluster, "ctl1", f"cat {SAMPLES}").split("\n\n"):
            seen.append(dict(re.findall(r"^NodeName=(\S+) .* State=(\S+) ", moment, re.MULTILINE)))


def after_a_crash() -> list[str]:
    """Root's commands of docs/operate/ha.md for what a crash of slurmctld leaves behind.

    The first has nodes tell which jobs they have, the others mend what is left then.
    """
    page = (REPOSITORY / "docs/operate/ha.md").read_text(encoding="utf-8")
    section = page.partition("## After a crash\n")[2].partition("\n## ")[0]
    return re.findall(r"^root@ctl2# (.+)$", section, re.MULTILINE)


# --- what a playbook said -------------------------------------------------------------------------


def words(run: subprocess.CompletedProcess[str]) -> str:
    """Its lines as one."""
    return re.sub(r"\s+", " ", run.stdout)


def changed(output: str) -> dict[str, str]:
    """By host, how many tasks changed it, from the recap."""
    return dict(re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.MULTILINE))
