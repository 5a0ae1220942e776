"""What the payloads find on a node."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.role_play import Case

PYTHON = "/opt/plumbline/bin/python"


def test_torch_has_what_the_payloads_use(host):
    program = (
        "import torch.distributed as dist;"
        "from torch.distributed.pipelining import PipelineStage, Schedule1F1B;"
        "print(dist.is_gloo_available())"
    )
    assert host.check_output(f"{PYTHON} -c '{program}'") == "True"


def test_the_path_is_any_users_and_nobodys_to_change(host):
    file = host.file(PYTHON)
    assert (file.user, file.mode) == ("root", 0o755)


def test_arguments_and_exit_status_pass_through(host):
    shown = host.run(f"{PYTHON} -c 'import sys; print(sys.argv[1:]); sys.exit(5)' 'a b' c")
    assert (shown.rc, shown.stdout.strip()) == (5, "['a b', 'c']")


def test_the_declaration_is_there_for_a_login_node(host):
    declared = json.loads(host.file("/etc/plumbline/cluster.json").content_string)
    assert declared == {"schema": 1, "cluster": "scenario"}


def test_the_account_of_the_validation_may_work_and_nothing_else(host):
    account = host.user("plumbline-validation")
    assert (account.uid, account.gid, account.groups) == (61000, 61000, [account.name])
    with host.sudo():
        home = host.file(account.home)
        assert (home.user, home.mode) == (account.name, 0o700)
        assert host.check_output(f"getent shadow {account.name}").split(":")[1] == "*"
        assert "not allowed to run sudo" in host.check_output(f"sudo -n -l -U {account.name}")
        run = host.run(f"runuser -u {account.name} -- sh -c 'touch ~/x && rm ~/x && sudo -n true'")
    assert "a password is required" in run.stderr
    assert account.shell == "/usr/sbin/nologin"


def test_the_timer_of_the_validation_in_the_background_waits(host):
    timer = host.service("plumbline-background.timer")
    assert timer.is_enabled
    assert timer.is_running
    service = "/etc/systemd/system/plumbline-background.service"
    with host.sudo():
        verified = host.run(f"systemd-analyze verify {service}")
    assert (verified.rc, verified.stderr) == (0, "")
    command = re.search(r"^ExecStart=(.+)$", host.file(service).content_string, re.MULTILINE)
    assert command
    metrics = "--metrics=/var/lib/prometheus/node-exporter-validation"
    assert command[1].endswith(f" --at-most=50m {metrics} --qos=scavenger")
    program = command[1].split(" --", 1)[0]
    with host.sudo("plumbline-validation"):
        assert "burn-in" in host.check_output(f"{program} --list")


TRAINING = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print(f" {dist.get_rank()}:{ones.item():.0f} ", end="")
dist.destroy_process_group()
"""


@pytest.mark.skipif(
    os.environ.get("PLUMBLINE_OS", "debian13") != "debian13",
    reason="only Debian 13 has a torch of the distribution's",
)
@pytest.mark.parametrize("options", ["", "--rdzv-backend=c10d --rdzv-endpoint=localhost:29501"])
def test_torchrun_works_with_the_distributions_torch(host, options):
    host.check_output(f"cat > /tmp/training.py <<'END'\n{TRAINING}END")
    output = host.check_output(
        "env USE_LIBUV=0 PATH=/opt/plumbline/torch/bin:$PATH "
        f"torchrun {options} --nproc-per-node=2 /tmp/training.py"
    )
    assert sorted(output.split()) == ["0:2", "1:2"]


# --- GPUs that are declared ----------------------------------------------------------------------


def only(file: str) -> list[dict[str, Any]]:
    """The tasks of one file of the role."""
    return [
        {
            "ansible.builtin.include_role": {
                "name": "validation_runtime",
                "tasks_from": f"{file}.yml",
            }
        }
    ]


def test_a_torch_that_does_not_reach_declared_gpus_fails_in_its_own_words(host, attempts):
    """The torch here has no CUDA; it is asked again in the next run, for it was not good."""
    before = host.run("ls -A /opt/plumbline").stdout
    own = {"validation_runtime_gpu_model": "h100_sxm"}
    outcomes = attempts([Case(name, own, "service") for name in ("first", "next")])
    for outcome in outcomes.values():
        outcome.refuses("Torch not compiled with CUDA enabled")
    assert host.run("ls -A /opt/plumbline").stdout == before


# --- wheels that the control node collects, with hashes ------------------------------------------

OTHER = "/opt/other"
SMALL = "nvidia-ml-py==13.615.71"


@pytest.fixture
def hashes(tmp_path):
    """A file of requirements with hashes: what this checkout itself asks for."""
    locked = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"], "../../requirements.txt").read_text()
    match = re.search(rf"^{re.escape(SMALL)}.*?(?=^\S)", locked, re.MULTILINE | re.DOTALL)
    file = tmp_path / "requirements.txt"
    assert match
    file.write_text(match[0])
    return file


@pytest.mark.long
def test_the_control_node_collects_wheels_once_and_nodes_take_no_others(
    host, play, hashes, tmp_path
):
    folder = tmp_path / "wheels"
    variables = {
        "validation_runtime_source": "venv",
        "validation_runtime_prefix": OTHER,
        "validation_runtime_requirements_file": str(hashes),
        "validation_runtime_control_wheel_folder": str(folder),
    }
    first = play(only("install"), **variables)
    assert first.code == 0, first.output
    [kind] = folder.iterdir()
    [wheel] = kind.iterdir()
    assert wheel.name.startswith("nvidia_ml_py-13.615.71-")
    assert SMALL in host.check_output(f"{OTHER}/venv/bin/python -m pip freeze")
    assert not host.file(f"{OTHER}/wheels").exists

    for arguments in ((), ("--check",)):
        again = play(only("install"), *arguments, **variables)
        assert (again.code, again.changed) == (0, 0), again.output

    # What somebody removed is seen in check mode, and comes back from the same wheels.
    with host.sudo():
        host.check_output(f"{OTHER}/venv/bin/python -m pip uninstall --yes nvidia-ml-py")
    seen = play(only("install"), "--check", **variables)
    assert (seen.code, seen.changed) == (0, 1), seen.output
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    spoilt = play(only("install"), **variables)
    assert spoilt.code != 0
    assert "DO NOT MATCH THE HASHES" in spoilt.output
    with host.sudo():
        host.check_output(f"rm -r {OTHER}")
