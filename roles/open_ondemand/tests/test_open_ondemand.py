"""The files that Open OnDemand reads, made from a declaration."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cluster.partitions import PartitionError
from roles.open_ondemand.plugin_utils import ood

CPUS = {"sockets": 2, "cores_per_socket": 32, "threads_per_core": 1}
TITLE = 'Alpha: "fast" & new'


def node(name: str, memory_mb: int = 512_000, **gpus: object) -> dict[str, object]:
    known = {"model": "none", "count": 0} | gpus
    return {"name": name, "cpus": CPUS, "memory_mb": memory_mb, "gpus": known}


SITE: dict[str, Any] = {
    "cluster": "alpha",
    "title": TITLE,
    "url": "",
    "login_host": "login1",
    "conf": "/etc/slurm/slurm.conf",
    "partitions": [
        {"name": "cpu", "nodes": ["thin"]},
        {"name": "gpu", "nodes": ["fat"], "default": True},
        {"name": "mig", "nodes": ["cut1"]},
    ],
    "nodes": [
        node("cpu1", 256_000),
        node("gpu1", model="h100_sxm", count=8),
        node("gpu2", model="h100_sxm", count=4),
        node("cut1", model="a100_sxm", count=1, mig={"1g.10gb": 7}),
    ],
    "groups": {"thin": ["cpu1"], "fat": ["gpu1", "gpu2"]},
    "notebook_prefix": "/opt/plumbline/notebook",
}


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return ood.files(SITE)


def test_the_cluster_file(written: dict[str, str]) -> None:
    cluster = yaml.safe_load(written["etc/ood/config/clusters.d/alpha.yml"])["v2"]
    assert cluster["metadata"] == {"title": TITLE}
    assert cluster["login"] == {"host": "login1"}
    assert cluster["job"]["adapter"] == "slurm"
    assert cluster["job"]["cluster"] == "alpha"


def test_the_form_offers_what_is_declared(written: dict[str, str]) -> None:
    form = yaml.safe_load(written[f"{ood.APP}/form.yml"])
    assert form["cluster"] == "alpha"
    attributes = form["attributes"]
    assert list(attributes) == form["form"]
    assert [name for _, name in attributes["bc_queue"]["options"]] == ["gpu", "cpu", "mig"]
    types = {option[1]: option[2] for option in attributes["gpu_type"]["options"]}
    assert types["h100_sxm"] == {
        "data-max-gpus": 8,
        "data-option-for-bc-queue-cpu": False,
        "data-option-for-bc-queue-mig": False,
    }
    assert types["1g.10gb"]["data-max-gpus"] == 7
    assert "data-option-for-bc-queue-mig" not in types["1g.10gb"]
    assert types["none"] == {"data-max-gpus": 0}
    assert attributes["gpus"]["max"] == 8
    assert attributes["cpus"]["max"] == 64
    assert attributes["memory"]["max"] == 500


def test_a_cluster_without_gpus() -> None:
    bare = SITE | {"partitions": SITE["partitions"][:1], "nodes": SITE["nodes"][:1]}
    form = yaml.safe_load(ood.files(bare)[f"{ood.APP}/form.yml"])
    assert form["attributes"]["gpus"]["max"] == 0
    assert [option[1] for option in form["attributes"]["gpu_type"]["options"]] == ["none"]


def test_a_partition_of_nobody_is_refused() -> None:
    with pytest.raises(PartitionError, match="neither a compute node nor a group"):
        ood.files(SITE | {"partitions": [{"name": "x", "nodes": ["nowhere"]}]})


def test_what_a_user_types_is_a_number_or_a_plain_word(written: dict[str, str]) -> None:
    """The page's fields reach sbatch as single options; no user's text is in a script."""
    submit = written[f"{ood.APP}/submit.yml.erb"]
    assert "cpus.to_i" in submit
    assert "memory.to_i" in submit
    assert r"[/\A[A-Za-z0-9_.-]+\z/]" in submit
    for name in ("before", "script"):
        assert "<%" not in written[f"{ood.APP}/template/{name}.sh.erb"]


def test_texts_that_are_no_plain_ones_are_written() -> None:
    class Tagged(str):
        """As Ansible hands on what comes from an inventory."""

    site = SITE | {"title": Tagged(TITLE), "cluster": Tagged("alpha")}
    assert ood.files(site) == ood.files(SITE)


def test_problems() -> None:
    assert ood.problems(SITE) == []
    assert "open_ondemand_login_host is empty" in ood.problems(SITE | {"login_host": ""})[0]
    assert "open_ondemand_cluster is 'a b'" in ood.problems(SITE | {"cluster": "a b"})[0]
