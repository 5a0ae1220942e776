"""Every command in the documentation, run against the cluster under test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validation.checks.registry import CHECKS

REPOSITORY = Path(__file__).resolve().parents[3]
# What users type is typed by one, in test_6_examples.py.
USERS_PAGES = {REPOSITORY / "docs/use/jobs.md", *(REPOSITORY / "docs/use/course").glob("*.md")}
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted(
        set((REPOSITORY / "docs").rglob("*.md"))
        - USERS_PAGES
        - {*(REPOSITORY / "docs/runbooks").glob("*.md")}  # test_8_monitoring.py
    ),
    *sorted(REPOSITORY.glob("roles/*/README.md")),
]
BLOCK = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)

# Commands that make, remove or test what these tests stand on, and where each of them is run.
ELSEWHERE = {
    "git clone": "CI starts from a fresh clone",
    "scripts/setup": "scripts/test runs it first",
    "scripts/demo": "its parts are the stages of this scenario",
    "scripts/test": "is what runs this",
    "scripts/docs": "scripts/test, stage lint",
    "scripts/bench --nodes 4 --stage unchanged": "molecule/growth",
    "scripts/test-role": "scripts/test, stage roles",
    "scripts/pack-local": "tests/test_pack_local.py packs it and starts it",
    "scripts/record-machine": "tests/test_record_machine.py packs it and starts it",
    "scripts/new-role": "tests/test_new_role.py makes one, in a folder of its own",
    "scripts/fault-table": "validation/tests run the short one; the whole table takes minutes",
    ". .venv/bin/activate && cd roles/": "scripts/test, stage roles",
    "scripts/virtual-cluster up": "create.yml of this scenario; --nvml: test_7_nvml.py",
    "scripts/virtual-cluster down": "destroy.yml of this scenario",
    "scripts/virtual-cluster packages": "scripts/test runs it first",
    "scripts/virtual-cluster ssh --name": "names the nodes of a role's scenario",
    "ansible-playbook -i inventory/demo playbooks/add-nodes.yml": "molecule/growth",
    "ansible-playbook -i inventory/demo playbooks/remove-nodes.yml": "molecule/growth",
    "python -m validation.run --here": "test_3_validation.py runs it on login1",
    "python -m validation.run -i inventory/demo --container-image": "needs pyxis; its tests do it",
    "python -m validation.run -i inventory/demo --record-baseline": "real GPUs only; unit tests",
    "python -m validation.run -i inventory/demo --suite burn-in": "test_burn_in.py, with a clock",
    "python -m validation.run -i inventory/demo --background": "test_background.py, simulated",
    "python -m validation.run -i inventory/demo --drain": "molecule/localise; test_drain.py",
    "python -m validation.run -i inventory/demo --undrain": "molecule/localise; test_drain.py",
    "systemctl status plumbline-background": "roles/validation_runtime's tests",
    "journalctl -u plumbline-background": "roles/validation_runtime's tests",
    "python3 -m venv ~/plumbline": "would write into the home of who runs this",
    "pip install plumbline-VERSION": "of a release, which a checkout has not",
    "python -m validation.declare": "validation/tests/test_declare.py reads its options",
    "python -m validation.explain": "validation/tests/test_explain.py",
    "python -m validation.history": "validation/tests/test_history.py",
    "python -m validation.compare": "validation/tests/test_history.py",
    "python -m validation.tests.": "validation/tests run short ones; no node is asked",
    'srun --nodelist="$(paste': "test_3_validation.py reads that file",
    "ansible-playbook -i inventory/demo playbooks/slurm.yml --limit slurm_controller "
    "--tags slurm -e": "molecule/interruptions/tests/test_users_with_jobs.py",
    "export $(scontrol token": "roles/slurmrestd's tests run all of docs/operate/rest-api.md",
    "rest() {": "roles/slurmrestd's tests",
    "rest http": "roles/slurmrestd's tests",
    "rest --json": "roles/slurmrestd's tests",
    "ssh NODE 'sudo systemctl restart": "roles/shared_storage/molecule/glusterfs",
    # Advice for hardware that containers do not have.
    "ssh NODE 'cd /sys/class/infiniband": "RDMA ports only",
    "ssh NODE dmidecode": "real machines only",
    "ssh NODE 'cpupower": "real machines only",
    "ssh NODE 'grep MHz": "real machines only",
    "ssh NODE 'findmnt; dmesg": "a container has no kernel log",
    "ssh NODE 'sudo mlxfwmanager": "RDMA ports only",
    "ssh NODE 'sudo perfquery": "RDMA ports only",
    "ssh NODE nft": "these nodes have no firewall",
    "ssh NODE 'dmesg": "real machines only",
    "ssh NODE 'ls -l /dev/nvidia": "real GPUs only",
    "ssh NODE 'nvidia-smi": "real GPUs only",
    "ssh NODE sudo nvidia-smi": "real GPUs only",
    "ssh NODE 'sudo nvidia-smi": "real GPUs only",
    "ssh NODE 'systemctl status nvidia-fabricmanager": "real GPUs only",
    "ssh NODE 'dcgmi": "real GPUs only",
    'ssh NODE "sudo lspci': "real GPUs only",
    'ssh NODE "sudo journalctl --dmesg': "a container has no kernel log",
    "ssh NODE 'ps -o pid": "of a process on a GPU",
    "scripts/completion": "tests/test_completion.py reads it in bash and in zsh",
    "scripts/init": "tests/test_init.py makes one, in a folder of its own",
}

# Whole commands that other steps of this scenario, or other stages, run with the same meaning.
SAME = {
    "ansible-playbook -i inventory/demo playbooks/slurm-cluster.yml": "converge; test_2",
    "ansible-playbook -i inventory/demo playbooks/slurm-cluster.yml --check": "built: check",
    "ansible-playbook -i inventory/demo playbooks/slurm-cluster.yml --limit gpu7": "test_2, --full",
    "ansible-playbook -i inventory/demo playbooks/preflight.yml": "with one word more, below",
    "ansible-playbook -i inventory/demo playbooks/slurm.yml --limit slurm_controller "
    "--tags slurm": "molecule/interruptions/tests/test_users_with_jobs.py",
    "ansible-playbook -i inventory/demo playbooks/slurm.yml --limit slurm_controller "
    "--tags slurm_associations --check --diff": "test_1_accounts.py, with another limit",
    "ansible-playbook -i inventory/demo playbooks/users.yml": "a layer of converge; test_2",
    "ansible-playbook -i inventory/demo playbooks/users.yml --check --diff": "roles' own: check",
    "ansible-playbook -i inventory/demo playbooks/slurm.yml --limit slurm_controller "
    "--tags slurm_associations": "test_1_accounts.py, in check mode",
    "scripts/verify -i inventory/demo": "test_1_security.py",
    "pytest roles/prometheus/tests/test_rules.py": "scripts/test, stage unit",
    "scripts/dashboards write FOLDER": "roles/grafana/tests/test_dashboards.py",
    "scripts/role-chains": "scripts/test, stage roles",
    "python -m validation.run -i inventory/demo": "test_3, as --suite quick",
    "python -m validation.run -i inventory/demo --suite full": "test_7_nvml.py, --full",
    "python -m validation.run -i inventory/demo --suite network --only collectives": "test_7, full",
    "python -m validation.run -i inventory/demo "
    "--metrics /var/lib/prometheus/node-exporter-validation": "conftest.py, for test_3 and test_8",
}

# What takes minutes, or is a longer form of what unit tests run or of what other tests ask nodes.
LONG = (
    "scripts/bench ",
    "scripts/campaign ",
    "scripts/mutate ",
    "ansible-playbook -i inventory/demo playbooks/nodes.yml --tags node_base",
    "ansible-playbook -i inventory/demo playbooks/preflight.yml --ssh-common-args=",
)


def commands():
    """Commands of all pages; an inventory of a site is that of the demo here."""
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                command = re.sub(r"\s{2,}#.*$", "", line.strip().removeprefix("$ ").strip())
                if command:
                    yield command.replace("inventory/site", "inventory/demo")


def commands_of_checks():
    """Those of the page that scripts/docs makes of the checks."""
    for check in CHECKS.values():
        yield from (command.format(node="NODE") for command in check.info.commands)


DOCUMENTED = {*commands(), *commands_of_checks()}
RUN = sorted(
    command for command in DOCUMENTED - SAME.keys() if not command.startswith(tuple(ELSEWHERE))
)


def test_there_are_commands_to_run():
    assert len(RUN) >= 15


def test_what_is_run_elsewhere_is_documented():
    """An entry that no page has any more would hide the command that replaced it."""
    assert not SAME.keys() - DOCUMENTED
    assert not [start for start in ELSEWHERE if not any(c.startswith(start) for c in DOCUMENTED)]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.long] if command.startswith(LONG) else [])
        for command in RUN
    ],
)
def test_a_command_of_the_documentation_works(operator, command, tmp_path):
    here = command.replace("-i inventory/demo", " ".join(operator.inventories))
    # A page writes `ssh NODE` and Slurm's commands as they are typed; here they go through the
    # program that reaches the nodes, `update` as the administrator that it needs.
    login = "scripts/virtual-cluster ssh"
    here = re.sub(r"^ssh NODE ", f"{login} gpu1 ", here)
    here = re.sub(r"^scontrol update ", f"{login} ctl1 sudo scontrol update ", here)
    here = re.sub(r"^scontrol show ", f"{login} login1 scontrol show ", here)
    here = re.sub(r"^(systemctl|sacctmgr|sshare|sreport) ", rf"{login} ctl1 \1 ", here)
    if "state=resume" in here:  # what is not drained cannot be given back
        here = f"{login} ctl1 sudo scontrol update nodename=NODE state=drain reason=docs && {here}"
    here = here.replace("NODE", "gpu1")
    here = re.sub(r"(scripts/virtual-cluster \w+)", rf"\1 --name={operator.cluster}", here)
    if "validation.run" in here and not re.search("--list|--dry-run|--help|--version", here):
        here += f" --output {tmp_path / 'run'}"
    done = operator("bash", "-c", here)
    assert done.returncode == 0, f"{here}\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}"
