"""Each row, as it passes and as it fails; the ports are those that the validation's tests have."""

import pytest

from roles.rdma.plugin_utils import rows
from validation.tests import standin_host

SAID = """\
package installed rdma-core 56.1-1
package installed libibverbs1 56.1-1
login unlimited
slurmd LoadState=loaded
slurmd LimitMEMLOCK=infinity
device /dev/infiniband/uverbs0
kernel 6.12.41+deb13-amd64
nvidia open
nvidia loaded
"""
DECLARED = {
    "fabric": "ib_ndr400",
    "ports": 1,
    "hcas": "",
    "gpus": True,
    "peermem": False,
    "memlock": "unlimited",
    "packages": ["rdma-core", "libibverbs1"],
    "doca_version": "",
}


def ports(*states):
    read = [standin_host.port(number, **state) for number, state in enumerate(states)]
    return {"error": None, "ports": read}


UP: dict[str, str] = {}
DOWN = {"state": "1: DOWN", "phys_state": "3: Disabled"}
ROCE = {"link_layer": "Ethernet"}


def judged(answer=None, output=SAID, **declared):
    return rows.rows(answer or ports(UP, UP), output, DECLARED | declared)


def failed(*arguments, **declared):
    return [row["what"] for row in judged(*arguments, **declared) if row["verdict"] != "PASS"]


def row(what, *arguments, **declared):
    return next(row for row in judged(*arguments, **declared) if row["what"].startswith(what))


def test_what_is_in_order_passes():
    assert failed() == []
    assert len(judged()) == 6


@pytest.mark.parametrize("fabric", ["ethernet", "opa_400", "efa_3200", "slingshot_200"])
def test_other_fabrics_are_skipped_by_declaration(fabric):
    assert [row["verdict"] for row in judged(fabric=fabric)] == ["SKIP"]


@pytest.mark.parametrize(
    ("line", "instead", "what"),
    [
        ("package installed rdma-core", "package config-files rdma-core", "packages"),
        ("login unlimited", "login 8192", "locked memory of a login"),
        ("login unlimited", "login su: Permission denied", "locked memory of a login"),
        ("login unlimited\n", "", "locked memory of a login"),
        ("LimitMEMLOCK=infinity", "LimitMEMLOCK=65536", "locked memory of slurmd"),
        ("slurmd LimitMEMLOCK=infinity\n", "", "locked memory of slurmd"),
        ("device /dev/infiniband/uverbs0\n", "", "devices for jobs (uverbs)"),
    ],
)
def test_what_is_not_fails_by_its_name(line, instead, what):
    assert line in SAID
    assert failed(None, SAID.replace(line, instead)) == [what]


def test_a_slurmd_that_is_not_installed_has_no_limit():
    answer = SAID.replace("LoadState=loaded", "LoadState=not-found").replace("infinity", "8388608")
    assert failed(None, answer) == []


@pytest.mark.parametrize(
    ("answer", "declared", "is_", "expected"),
    [
        (ports(UP, DOWN), {}, "1", "2"),
        (ports(UP, UP), {"ports": 8}, "2", "8"),
        (ports(), {}, "0", "1"),
        (ports(DOWN, DOWN), {"ports": 2}, "0", "2"),
        (ports(UP, UP), {"fabric": "ib_xdr800"}, "0", "2"),
        (ports(ROCE), {}, "0", "1"),
        (ports(UP), {"fabric": "roce_400"}, "0", "1"),
        (ports(ROCE | DOWN, ROCE), {"fabric": "roce_400", "ports": 2}, "1", "2"),
        (ports(ROCE | DOWN, ROCE), {"fabric": "roce_400", "hcas": "mlx5"}, "1", "2"),
        (ports(UP), {"hcas": "=mlx5_7"}, "0", "1"),
        ({"error": "no answer within 10 s", "ports": None}, {}, "unknown", "1"),
        ({"skipped": True}, {}, "unknown", "1"),
        ({"error": None, "ports": [{"device": "mlx5_0"}]}, {}, "unknown", "1"),
    ],
)
def test_ports_that_are_not_as_declared(answer, declared, is_, expected):
    ended = row("ports of", answer, **declared)
    assert (ended["found"], ended["expected"], ended["verdict"]) == (is_, expected, "FAIL")
    assert ended["advice"]


@pytest.mark.parametrize(
    ("answer", "declared"),
    [
        (ports(UP, DOWN), {"hcas": "=mlx5_0"}),
        (ports(ROCE, ROCE), {"fabric": "roce_400"}),
        (ports(ROCE, ROCE | DOWN), {"fabric": "roce_400"}),  # the other may be the login's network
        (ports(UP, UP), {"fabric": "ib_ndr200"}),  # more than declared
        (ports(UP, ROCE | DOWN), {}),
    ],
)
def test_ports_that_are(answer, declared):
    assert row("ports of", answer, **declared)["verdict"] == "PASS"


@pytest.mark.parametrize(
    ("version", "declared", "verdict"),
    [
        ("3.2.0-046000", "3.2", "PASS"),
        ("3.2.0-046000", "3.2.0", "PASS"),
        ("3.2.0-046000", "3.2.0-046000", "PASS"),
        ("3.20.0-1", "3.2", "FAIL"),
        ("2.9.1-1", "3.2", "FAIL"),
    ],
)
def test_the_version_of_doca_ofed(version, declared, verdict):
    answer = SAID + f"package installed doca-ofed {version}\n"
    assert row("DOCA", None, answer, doca_version=declared)["verdict"] == verdict


def test_a_doca_ofed_that_is_not_there_has_no_version():
    assert failed(doca_version="3.2") == ["DOCA-OFED"]


def test_a_sites_own_packages_are_skipped_and_the_rest_is_not():
    assert [row["verdict"] for row in judged(packages=[])] == ["SKIP"] + ["PASS"] * 5


OPEN, LOADED, OLD = "nvidia open\n", "nvidia loaded\n", ("6.12.41+deb13-amd64", "5.11.0-27-generic")
PEERMEM = f"{LOADED}nvidia peermem\n"


@pytest.mark.parametrize(
    ("changes", "peermem", "found", "verdict"),
    [
        ((), False, "DMA-BUF", "PASS"),
        ((), True, "DMA-BUF", "PASS"),  # declared and not needed: preflight warns
        (((LOADED, PEERMEM),), True, "DMA-BUF", "PASS"),
        ((OLD, (LOADED, PEERMEM)), True, "nvidia_peermem", "PASS"),
        ((("kernel 6.12.41+deb13-amd64\n", ""), (LOADED, PEERMEM)), True, "nvidia_peermem", "PASS"),
        (((OPEN, ""), (LOADED, PEERMEM)), True, "nvidia_peermem", "PASS"),
        (((OPEN, ""), (LOADED, PEERMEM)), False, "nvidia_peermem", "PASS"),
        (((OPEN, ""),), True, "not loaded", "FAIL"),
        ((OLD,), True, "not loaded", "FAIL"),
        (((OPEN, ""),), False, "neither DMA-BUF, which needs the open modules", "SKIP"),
    ],
)
def test_the_interface_by_which_cards_reach_the_gpus_memory(changes, peermem, found, verdict):
    output = SAID
    for old, new in changes:
        assert old in output
        output = output.replace(old, new)
    ended = row("RDMA to GPU memory", None, output, peermem=peermem)
    assert (ended["found"].startswith(found), ended["verdict"]) == (True, verdict), ended


def test_without_gpus_or_a_driver_there_is_no_such_interface():
    for output, declared in ((SAID, {"gpus": False}), (SAID.replace(OPEN + LOADED, ""), {})):
        rows_of = judged(None, output, **declared)
        assert "RDMA to GPU memory" not in [row["what"] for row in rows_of]
