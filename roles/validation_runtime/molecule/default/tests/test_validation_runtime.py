"""What the payloads find on a node."""

import json

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
