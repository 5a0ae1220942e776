"""Which node and which link: faults between five nodes, each named exactly, and nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
import yaml

from tests.live_validator import Run, fault, in_the_payload, of_container, on, run

__all__ = ["run"]

ALL = [f"gpu{number}" for number in range(1, 6)]


def address(node: str) -> str:
    return on(node, "hostname -I").split()[0]


def others(*named: str) -> list[str]:
    return [node for node in ALL if node not in named]


@contextlib.contextmanager
def dropped(node: str, rule: str) -> Iterator[None]:
    """Packets that reach a node and that this rule of nftables matches are dropped."""
    nft = ("nsenter", "--target={pid}", "--net", "nft")
    of_container(node, *nft, "add", "table", "inet", "fault")
    try:
        of_container(node, *nft, "add chain inet fault in { type filter hook input priority 0; }")
        of_container(node, *nft, f"add rule inet fault in {rule} drop")
        yield
    finally:
        of_container(node, *nft, "delete", "table", "inet", "fault")


@contextlib.contextmanager
def slow(*nodes: str) -> Iterator[None]:
    """These nodes, all that runs on them, get a twentieth of a CPU."""
    limit = ("podman", "update", "--cpus={cpus}", "{name}")

    def give(cpus: str) -> None:
        for node in nodes:
            of_container(node, *(word.replace("{cpus}", cpus) for word in limit))

    give("0.05")
    try:
        yield
    finally:
        give(str(os.cpu_count()))


def only(done: Run, *failing: str) -> None:
    """These nodes fail, and every other one passes."""
    assert done.code == 1, done.output[-4000:]
    assert done.nodes("failing") == list(failing), done.output[-4000:]
    assert done.nodes("passing") == others(*failing), done.output[-4000:]


@pytest.fixture
def four(request) -> Iterator[list[str]]:
    """Options for a cluster of four: the fifth node is drained."""
    with fault(
        "ctl1",
        "scontrol update nodename=gpu5 state=drain reason=spare",
        "scontrol update nodename=gpu5 state=resume",
    ):
        yield ["--exclude", "gpu5"]


# --- the suite network ----------------------------------------------------------------------------


def test_no_fault_at_all(run):
    done = run("--suite", "network")
    assert done.code == 0, done.output[-4000:]
    assert done.nodes("passing") == ALL


@pytest.mark.parametrize("bad", ["gpu1", "gpu3"])
def test_one_node_is_slow(run, bad):
    with slow(bad):
        only(run("--suite", "network"), bad)


def test_two_nodes_are_slow_at_once(run):
    with slow("gpu2", "gpu4"):
        only(run("--suite", "network"), "gpu2", "gpu4")


def of_link(done: Run, one: str, other: str, nodes: list[str]) -> None:
    """The link is named, its ends are not proven, nobody fails, and all others pass."""
    assert done.code == 1, done.output[-4000:]
    assert f"link between {one} and {other}" in done.output
    assert done.nodes("failing") == done.nodes("suspect") == [], done.output[-4000:]
    assert done.nodes("passing") == [node for node in nodes if node not in (one, other)]


def test_a_link_is_cut(run):
    with dropped("gpu2", f"ip saddr {address('gpu1')}"):
        of_link(run("--suite", "network"), "gpu1", "gpu2", ALL)


def test_a_link_is_cut_among_four(run, four):
    with dropped("gpu2", f"ip saddr {address('gpu1')}"):
        of_link(run("--suite", "network", *four), "gpu1", "gpu2", ALL[:4])


def test_a_link_loses_packets(run):
    """Every twentieth, at random."""
    lossy = f"ip saddr {address('gpu3')} numgen random mod 100 < 5"
    with dropped("gpu4", lossy):
        of_link(run("--suite", "network"), "gpu3", "gpu4", ALL)


def test_a_wrong_address_in_a_nodes_hosts_file(run):
    """Every job of this node and that one would wait: the node tier says it before."""
    wrong = r"cp /etc/hosts /root/hosts; sed -i -E 's/^\S+(\s+gpu1\b)/192.0.2.1\1/' /etc/hosts"
    with fault("gpu2", wrong, "cp /root/hosts /etc/hosts"):
        done = run("--suite", "network")
    only(done, "gpu2")
    assert "192.0.2.1 for gpu1" in done.output


def test_large_packets_to_a_node_are_lost(run):
    nodes = ", ".join(address(node) for node in others("gpu3"))
    with dropped("gpu3", f"ip saddr {{ {nodes} }} meta length gt 1000"):
        only(run("--suite", "network"), "gpu3")


# --- all nodes together fail ----------------------------------------------------------------------


def test_a_job_of_all_nodes_fails_and_pairs_name_the_node(run, four):
    """The suite quick has no pairs: they start by themselves; the rest is run without the node."""
    nodes = ", ".join(address(node) for node in ALL if node != "gpu3")
    with dropped("gpu3", f"ip saddr {{ {nodes} }}"):
        done = run(*four)
    assert done.nodes("failing") == ["gpu3"], done.output[-4000:]
    assert done.nodes("suspect") == []
    assert "ddp" not in done.failed()


def test_an_idle_third_node_tells_two_apart(run):
    with slow("gpu2"):
        done = run("--nodes", "gpu[1-2]")
    assert done.nodes("failing") == ["gpu2"], done.output[-4000:]
    assert done.nodes("suspect") == []


# --- trainings ------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path) -> list[str]:
    """Options that declare what the nodes share: a checkpoint lies there."""
    declared = {"all": {"vars": {"validation_shared_filesystems": ["/shared/home"]}}}
    path = tmp_path / "shared.yml"
    path.write_text(yaml.safe_dump(declared))
    return ["-i", str(path)]


FROZEN = """
    import os
    import signal
    import torch.distributed

    def freeze(*given, **options):
        os.kill(os.getpid(), signal.SIGSTOP)

    torch.distributed.all_to_all_single = freeze
"""

STALE = """
    import torch

    class Stale(torch.optim.SGD):
        def step(self, closure=None):
            if not self.state:  # the first step alone
                super().step(closure)

    torch.optim.SGD = Stale
"""

TORN = """
    import glob
    import os

    (path,) = glob.glob("/shared/home/**/plumbline-checkpoint-*/**/__1_0.distcp", recursive=True)
    os.truncate(path, os.path.getsize(path) // 2)
"""


def test_trainings_without_any_fault(run, shared):
    done = run(*shared, "--suite", "training")
    assert done.code == 0, done.output[-4000:]
    assert done.nodes("passing") == ALL
    assert done.passed() >= {"fsdp", "checkpoint", "resume", "inference", "scaling"}


def test_trainings_without_any_fault_on_four(run, shared, four):
    done = run(*shared, "--suite", "training", *four)
    assert done.code == 0, done.output[-4000:]
    assert done.nodes("passing") == ALL[:4]


def test_a_rank_is_frozen_in_all_to_all(run):
    with in_the_payload(("gpu3",), "collectives", FROZEN):
        done = run("--suite", "network")
    done.fails("gpu3")
    assert done.nodes("suspect") == []
    assert "all_to_all" in done.failed()["collectives"]


def test_a_shard_is_stale(run):
    """Its optimizer does nothing after the first step."""
    with in_the_payload(("gpu2",), "fsdp", STALE):
        done = run("--suite", "training", "--only", "ddp,fsdp")
    done.fails("gpu2")
    assert list(done.failed()) == ["fsdp"]
    assert "rank 1 on gpu2" in done.failed()["fsdp"]


def test_a_file_of_a_checkpoint_is_torn(run, shared):
    """All nodes read it alike: nobody is at fault but who keeps the files."""
    with in_the_payload(("gpu5",), "resume", TORN):
        done = run(*shared, "--suite", "training", "--only", "checkpoint,resume")
    assert done.code == 1, done.output[-4000:]
    assert done.nodes("failing") == []
    assert list(done.failed()) == ["resume"]
    assert "__1_0.distcp" in done.failed()["resume"]
    assert "rank 1" in done.failed()["resume"]
