"""scripts/init: the inventory that it makes passes preflight, and nothing is there half-done."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import new_inventory
from tests.conftest import REPOSITORY, load_script
from tests.live_cluster import on, virtual_cluster
from tests.processes import passes, run
from tests.standins.inventories import judged, site

init = load_script("init")

CPUS = {"sockets": 2, "cores_per_socket": 56, "threads_per_core": 2}


def hardware(gpus: int = 8, memory: int = 2000123, **more: Any) -> dict[str, Any]:
    return {
        "node_cpus": CPUS,
        "node_memory_mb": memory,
        "gpus_on_the_pci_bus": gpus,
        **more,
    }


WORDS = (
    *("--controller", "ctl1=192.0.2.1", "--login", "login1=192.0.2.2", "--user", "ops"),
    *("--compute", "gpu[1-3]=192.0.2.[11-13]", "--compute", "no=192.0.2.21"),
    *("--gpu-model", "h100_sxm", "--fabric", "ib_ndr400"),
)
SEEN = {
    "gpu1": hardware(),
    "gpu2": hardware(memory=1999000),
    "gpu3": hardware(mig={"1g.10gb": 7}),
    "no": hardware(gpus=0, memory=3875),
}


def make(
    folder: Path,
    words: tuple[str, ...] = WORDS,
    seen: Mapping[str, Any] = SEEN,
    failed: Mapping[str, str] | None = None,
) -> Any:
    options = init.parser().parse_args([str(folder), *words])
    return init.make(options, lambda *_: (seen, failed or {}))


def test_what_is_made_passes_preflight(tmp_path: Path) -> None:
    assert make(tmp_path / "site") == {}
    judgement = judged(tmp_path / "site")
    assert judgement.sentences == []
    nodes = {node["name"]: node for node in judgement.cluster.nodes}
    assert list(nodes) == ["gpu1", "gpu2", "gpu3", "no"]
    assert nodes["gpu1"]["memory_mb"] == nodes["gpu2"]["memory_mb"] == 1999000
    assert nodes["gpu3"]["gpus"] == {"model": "h100_sxm", "count": 8, "mig": {"1g.10gb": 7}}
    assert nodes["gpu3"]["fabric"] == "ib_ndr400"
    assert nodes["no"]["gpus"]["count"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_nodes_that_are_not_seen_get_what_no_node_has(tmp_path: Path) -> None:
    why = "No route \x1b[31mto\u2028host\x85- evil: true"
    seen = {"gpu1": SEEN["gpu1"]}
    unseen = make(tmp_path / "site", seen=seen, failed={"no": init.new_inventory.one_line(why)})
    assert list(unseen) == ["gpu2", "gpu3", "no"]
    judgement = judged(tmp_path / "site")
    assert judgement.sentences == []
    assert [node["memory_mb"] for node in judgement.cluster.nodes] == [
        2000100,
        *[new_inventory.UNKNOWN_MEMORY] * 3,
    ]
    text = (tmp_path / "site/group_vars/unseen.yml").read_text()
    assert "# no: No route [31mto host - evil: true\n" in text
    assert "# gpu[2-3]: told nothing" in text


def test_a_name_with_a_domain_is_its_address(tmp_path: Path) -> None:
    words = (
        *("--controller", "ctl1.example.org", "--user", "ops", "--name", "lab"),
        *("--compute", "gpu[01-12].example.org", "--compute", "cpu7"),
    )
    seen = {f"gpu{n:02}": hardware(gpus=0) for n in range(1, 13)} | {"cpu7": hardware(gpus=0)}
    make(tmp_path / "site", words, seen)
    text = (tmp_path / "site/hosts.yml").read_text()
    assert (
        'gpu[01:12]:\n                  ansible_host: "{{ inventory_hostname }}.example.org"'
        in text
    )
    read = site(tmp_path / "site")
    assert read.names == ["ctl1", *(f"gpu{n:02}" for n in range(1, 13)), "cpu7"]
    assert read.values.value("gpu07", "ansible_host") == "gpu07.example.org"
    assert not read.values.defined("cpu7", "ansible_host")


def test_secrets_are_kept_out_of_git(tmp_path: Path) -> None:
    make(tmp_path / "site")
    run("git", "-C", tmp_path, "init", "--quiet")
    for name in (".secrets/munge.key", ".vault-password", ".plumbline-hold"):
        path = tmp_path / "site" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    status = run("git", "-C", tmp_path, "status", "--porcelain", "-uall")
    assert ".secrets" not in status.stdout
    assert "?? site/hosts.yml" in status.stdout
    assert ".vault" not in status.stdout + status.stderr
    assert "plumbline" not in status.stdout
    page = (REPOSITORY / "docs/operate/inventory-in-git.md").read_text()
    assert "\n".join(new_inventory.IGNORED) in page


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no nodes": (("--controller", "a", "--compute", " "), "there is no compute node"),
    "both": (("--controller", "a", "--compute", "a"), "a would be controller and compute node"),
    "range": (("--controller", "a", "--compute", "gpu[8-1]"), "runs backwards"),
    "pairs": (("--controller", "a", "--compute", "g[1-2]=h[1-3]"), "2 names and 3 addresses"),
    "short": (
        ("--controller", "a", "--compute", "g1.x.org g1.y.org"),
        "g1 would be both g1.x.org and g1.y.org",
    ),
    "moved": (("--controller", "a=b", "--compute", "c", "--login", "a=d"), "both b and d"),
    "name": (("--controller", "default", "--compute", "c"), "default cannot be the name"),
    "cluster": (("--controller", "a", "--compute", "c", "--name", "A B"), "cluster_name is 'A B'"),
    "user": (("--controller", "a", "--compute", "c", "--user", "a\nb"), "no name of a user"),
    "address": (("--controller", "a=-x", "--compute", "c"), "-x is no address"),
    "model": (("--controller", "a", "--compute", "gpu1"), "give it with --gpu-model, one of"),
    "fabric": ((*WORDS[:-1], "ib_ndr"), "'ib_ndr' is no fabric"),
    "no fabric": (WORDS[:-2], "joined by a fabric; give it with --fabric"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_leaves_nothing(tmp_path: Path, case: str) -> None:
    words, sentence = REFUSED[case]
    with pytest.raises(new_inventory.Refused, match=re.escape(sentence)):
        make(tmp_path / "site", words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        (tmp_path / "site").mkdir()
    else:
        (tmp_path / "site").symlink_to("nowhere")
    with pytest.raises(new_inventory.Refused, match="exists; give a folder that does not"):
        make(tmp_path / "site")
    assert os.listdir(tmp_path) == ["site"]


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, OSError])
def test_an_interrupted_one_leaves_nothing(tmp_path: Path, end: type[BaseException]) -> None:
    def look(_: object, folder: Path) -> Any:
        assert (folder / "hosts.yml").exists()
        raise end

    options = init.parser().parse_args([str(tmp_path / "site"), *WORDS])
    with pytest.raises((end, new_inventory.Refused)):
        init.make(options, look)
    assert list(tmp_path.iterdir()) == []


def test_it_asks_for_what_the_options_do_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["", "ops", "ctl1=192.0.2.1", "", "", "gpu1=192.0.2.11", "", "h100_sxm", ""])
    asked = []

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr("builtins.input", answer)
    make(tmp_path / "my site", (), {"gpu1": hardware()})
    assert asked[0] == "Name of the cluster [my-site]: "
    assert judged(tmp_path / "my site").sentences == []
    assert next(answers, "none left") == "none left"


def test_without_an_answer_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda _: (_ for _ in ()).throw(EOFError))
    with pytest.raises(new_inventory.Refused, match="give it as an option"):
        make(tmp_path / "site", ())
    assert list(tmp_path.iterdir()) == []


def test_what_ansible_prints_is_read() -> None:
    hosts = {
        "gpu1": {"msg": hardware(), "changed": False},
        "gpu2": {"msg": "Task failed: no\nroute", "unreachable": True},
    }
    document = {"plays": [{"tasks": [{"hosts": hosts}]}], "stats": {}}
    output = f"warning\n{json.dumps(document, indent=4)}\n\nSUMMARY ***\n"
    assert init.described(output) == ({"gpu1": hardware()}, {"gpu2": "no route"})
    with pytest.raises(new_inventory.Refused, match="could not be looked at: no such"):
        init.described("no such file")


def test_the_next_command_has_what_was_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(init, "preflight", lambda *_: 0)
    monkeypatch.setattr(init, "make", lambda *_: {})
    assert init.main([str(tmp_path / "x"), *WORDS, "-K", "--ssh-common-args=-F a"]) == init.DONE
    after = "playbooks/slurm-cluster.yml --check --ask-become-pass '--ssh-common-args=-F a'\n"
    assert capsys.readouterr().out.endswith(after)


@pytest.mark.parametrize("passed", [True, False])
def test_its_exit_status_is_honest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed: bool
) -> None:
    monkeypatch.setattr(init, "preflight", lambda *_: 0 if passed else 2)
    for number, seen in enumerate((SEEN, {})):
        monkeypatch.setattr(init, "make", lambda *_, seen=seen: {} if seen else {"gpu1": "away"})
        wanted = init.FAILED if not passed else (init.DONE, init.UNSEEN)[number]
        assert init.main([str(tmp_path / "x"), *WORDS]) == wanted


@pytest.mark.long
def test_hosts_that_do_not_answer_are_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, REPOSITORY / "scripts/init", tmp_path / "site", *WORDS),
            "--ssh-common-args=-o ProxyCommand=false",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == init.UNSEEN, done.stdout + done.stderr
    assert "did not answer" in done.stderr
    assert "The inventory passed the checks" in done.stdout
    assert yaml.safe_load((tmp_path / "site/hosts.yml").read_text())["all"]["vars"]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Addresses of bare nodes, and the option by which SSH gets there."""
    name = f"init-{os.getpid()}"
    try:
        made = virtual_cluster(name, "up", "--gpus=0", f"--inventory={tmp_path / 'up'}")
        assert made.returncode == 0, made.stdout + made.stderr
        hosts = yaml.safe_load((tmp_path / "up/nodes.yml").read_text())["all"]["hosts"]
        for host in hosts:  # as on the images of clouds
            on(name, host, "sudo usermod --append --groups sudo ops")
        config = REPOSITORY / f".cache/virtual-cluster/{name}/ssh_config"
        addresses = {host: values["ansible_host"] for host, values in hosts.items()}
        yield addresses, f"--ssh-common-args=-F {config}"
    finally:
        virtual_cluster(name, "down")


@pytest.mark.long
def test_bare_nodes_become_an_inventory_that_is_ready(
    nodes: tuple[dict[str, str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """From questions to a green preflight of the hosts, and a plan of their validation."""
    where, ssh = nodes
    # The nodes are containers, and where this machine has cgroup v1 so have they (inventory/demo).
    shipped = tmp_path / "shipped"
    shutil.copytree(init.SHIPPED, shipped)
    limits = ("cpu_quota", "memory_max", "memory_swap_max", "tasks_max")
    off = {f"login_limits_{name}": "" for name in limits}
    (shipped / "limits.yml").write_text(yaml.safe_dump(off))
    monkeypatch.setattr(init, "SHIPPED", shipped)
    monkeypatch.setattr(init, "KEPT", (*init.KEPT, "limits.yml"))

    compute = " ".join(f"{name}={where[name]}" for name in ("gpu1", "gpu2"))
    first, login = f"ctl1={where['ctl1']}", f"login1={where['login1']}"
    answers = iter(["", "ops", first, "", login, compute, "ctl1", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    status = init.main([str(tmp_path / "site"), ssh])
    said = "".join(capfd.readouterr())
    assert status == init.DONE, said
    assert "All 4 hosts passed the checks; nothing was changed." in said
    assert ".secrets" in (tmp_path / "site/.gitignore").read_text()
    text = (tmp_path / "site/group_vars/cpu.yml").read_text()
    assert "# What gpu[1-2] told of themselves." in text
    assert f"cores_per_socket: {cores()}" in text
    command = ("-m", "validation.run", "-i", tmp_path / "site", "--dry-run")
    plan = passes(sys.executable, *command, cwd=REPOSITORY)
    assert "cluster site · 2 nodes, 0 GPUs" in plan


def cores() -> int:
    """Cores of this machine in each socket, which its containers see."""
    words = dict(line.split(":", 1) for line in passes("lscpu").splitlines() if ":" in line)
    return int(words["Core(s) per socket"])
