"""The way between GPUs and network cards, as the health check of a node judges it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.declaration import Gpus
from cluster.readers import pci
from tests.standins import pci_bus as bus
from validation.node_health import rdma_path as check
from validation.node_health.config import HealthSettings
from validation.node_health.outcome import FAIL, PASS, SKIP, UNKNOWN, Outcome

H100 = Gpus("h100_sxm", 8)


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The outcome on a bus, on a machine of x86 that is a real one."""
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(pci, "virtual", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")

    def outcome(gpus: Gpus = H100, fabric: str = "ib_ndr400", **changes: Any) -> Outcome:
        bus.build(tmp_path, **changes)
        settings = HealthSettings("n1", gpus, fabric, None, 0, (), ())
        return check.rdma_path(settings, {})

    return outcome


@pytest.mark.parametrize("domain", ["identity", ""])
def test_a_way_without_acs_and_translation_passes(judged: Any, domain: str) -> None:
    assert judged(domain=domain) == Outcome(PASS)


def test_a_bridge_that_redirects_is_named(judged: Any) -> None:
    outcome = judged(acs={bus.TO_CARD: bus.ISOLATING, bus.OTHER_PORT: bus.ISOLATING})
    assert outcome == Outcome(
        FAIL, "ACS redirects what GPUs and network cards send each other at 0000:18:01.0"
    )


def test_an_iommu_that_translates_is_told_with_what_to_set(judged: Any) -> None:
    outcome = judged(domain="DMA-FQ", acs={bus.TO_GPU: bus.ISOLATING})
    assert outcome.verdict == FAIL
    assert "ACS redirects" in outcome.text
    assert outcome.text.endswith(
        "the IOMMU translates the addresses of 0000:19:00.0, 0000:1a:00.0, 0000:27:00.0: "
        "boot with iommu=pt"
    )


def test_on_arm_the_iommu_stays(judged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert judged(domain="DMA-FQ") == Outcome(PASS)


@pytest.mark.parametrize(
    ("gpus", "fabric"),
    [
        (Gpus("none", 0), "ib_ndr400"),
        (Gpus("virtual", 2), "ib_ndr400"),
        (H100, "ethernet"),
        (H100, "efa_3200"),
    ],
)
def test_it_is_judged_only_where_gpus_and_rdma_are_declared(
    judged: Any, gpus: Gpus, fabric: str
) -> None:
    assert judged(gpus, fabric, acs={bus.TO_GPU: bus.ISOLATING}).verdict == SKIP


def test_a_virtual_machine_is_its_hosts_matter(
    judged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pci, "virtual", lambda: "kvm")
    outcome = judged(acs={bus.TO_GPU: bus.ISOLATING})
    assert outcome == Outcome(SKIP, "a virtual machine (kvm): its host sets the ways on the bus")


@pytest.mark.parametrize(
    ("without", "text"), [((bus.GPU,), "no GPU"), ((bus.CARD, bus.OTHER_CARD), "no network card")]
)
def test_a_bus_without_what_is_declared_is_not_in_order(
    judged: Any, without: tuple[str, ...], text: str
) -> None:
    outcome = judged(without=without)
    assert (outcome.verdict, outcome.text) == (UNKNOWN, f"the PCI bus shows {text}")


def test_cards_that_meet_gpus_at_the_processor_have_no_bridge_to_judge(judged: Any) -> None:
    outcome = judged(without=(bus.CARD,), acs={bus.TO_GPU: bus.ISOLATING})
    assert outcome == Outcome(PASS, "no network card has a PCIe switch in common with a GPU")


def test_a_configuration_that_cannot_be_read_is_no_pass(
    judged: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "space", lambda control: bytes(64))
    outcome = judged()
    assert outcome.verdict == UNKNOWN
    assert "only 64 bytes" in outcome.text
