"""NCCL's log, release by release: each release's own words are read, and judged alike.

The formats are those in NVIDIA's libraries (validation/nccl_formats). The lines are made up from
them.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from cluster.declaration import Gpus
from validation.checks import transport
from validation.model import Verdict
from validation.nccl_formats import number, recorded
from validation.payloads import nccl_log
from validation.payloads.nccl_log import Choice, NetDevice, Summary, summarize

RELEASES = recorded().releases
WARN, FAIL, UNKNOWN = Verdict.WARN, Verdict.FAIL, Verdict.INCONCLUSIVE

# Each line's format from the release on that brought it. Where a later one has more places, these
# are the last ones.
FORMATS = {name: recorded().formats(name) for name in recorded().lines}
NO_COLLNET = "Cannot initialize CollNet, using point-to-point network instead"
PLACE = re.compile(r"(?P<before>(?P<word>\w*)[ =]?(?:0x)?)%[0-9]*(?P<type>[dixsuf])")


def since(first: str) -> tuple[str, ...]:
    return tuple(release for release in RELEASES if number(release) >= number(first))


def form(name: str, release: str) -> str:
    """A line's format in a release, as Python's % takes it."""
    brought = [first for first in FORMATS[name] if number(first) <= number(release)]
    text = FORMATS[name][brought[-1]].replace("%p", "0x%x")
    return re.sub(r"%([0-9]*)[lz]*([dixsuf])", r"%\1\2", text)


def printed(name: str, release: str, *values: object) -> str:
    """A line's text; what this release's format has no place for is left out."""
    text = form(name, release)
    return text % values[: len(PLACE.findall(text))]


def filled(name: str, release: str, **numbers: int) -> str:
    """A line's text whose numbers are known by the word before them; the others do not matter."""

    def fill(place: re.Match[str]) -> str:
        value = "mlx5_0" if place["type"] == "s" else str(numbers.get(place["word"], 16))
        return place["before"] + value

    return PLACE.sub(fill, form(name, release))


class Log:
    """The log of one rank."""

    def __init__(self, release: str, rank: int = 0, hosts: tuple[str, ...] = ("n1",)) -> None:
        self.release, self.rank, self.hosts = release, rank, hosts
        self.text = ""
        version = f"NCCL version {release}+cuda12.9"
        if number(release) >= (2, 22):
            self.tell(version)
        elif rank == 0:
            self.text += f"{version}\n"

    def tell(self, text: str, level: str = "INFO") -> None:
        pid = 1000 + self.rank
        place = ("transport/net_ib/p2p.cc", 1234, "ncclIbTest")
        self.text += printed(level, self.release, self.hosts[self.rank], pid, pid, 0, *place)
        self.text += f"{text}\n"

    def say(self, name: str, *values: object, level: str = "INFO") -> None:
        self.tell(printed(name, self.release, *values), level)

    @property
    def summary(self) -> Summary:
        return summarize(self.text)


@dataclass(frozen=True)
class Run:
    """What ranks do, each of which has a neighbour in its node and one in the next."""

    fabric: str = "ib_ndr400"
    model: str = "h100_sxm"
    hosts: tuple[str, ...] = ("n1", "n1", "n2", "n2")
    inside: str | None = "CUMEM"
    network: str | None = "IB"
    layer: str = "IB"
    mbps: int = 400000
    fused: bool = False
    rails: bool = False
    direct: str = "/GDRDMA"
    pci: str = ""
    relay: bool = False
    rates: tuple[str, ...] = ("virtual",)

    def log(self, release: str, rank: int) -> Log:
        log = Log(release, rank, self.hosts)
        log.say("bootstrap", " [0]eth0:192.0.2.1<0>")
        if self.network == "IB":
            self._ports(log)
        else:
            log.say("sockets", " [0]eth0:192.0.2.1<0>")
        log.tell(f"Using network {self.network or 'Socket'}")
        log.tell(filled("complete", release, rank=rank, nranks=len(self.hosts)))
        ends = (0, 0, rank, 0, (rank + 1) % len(self.hosts), 0)
        if self.inside == "SHM":
            log.say("shm", 0, *ends[2:], "direct", "direct")
        elif self.inside == "NVLS":
            log.tell(filled("nvls", release))
        elif self.inside:
            log.say("p2p", *ends, self.inside, "/read", "")
        if self.network:
            device = 2 if self.fused else 0
            way = (self.direct, self.pci, "")
            log.say("send", *ends, self.network, device, *way)
            flush = ("/flush=", "Always") if self.direct else ("", "")
            log.say("receive", *ends, self.network, device, *way, *flush)
            if self.relay:
                log.say("send by another GPU", *ends, self.network, device, 1, *way)
        return log

    def _ports(self, log: Log) -> None:
        cards = ("mlx5_0", "mlx5_1")
        name, rail = ("port listed with its rail", (0, 1)) if self.rails else ("port listed", ())
        ports = [
            printed(name, log.release, i, c, 1, *rail, self.layer) for i, c in enumerate(cards)
        ]
        for i, card in enumerate(cards):
            if "port" in self.rates and log.release in since("2.27.3"):
                port = (i, card, f"uverbs{i}", 1, self.layer, "Mlx5", self.mbps)
                log.say("port", *port, 4096, "/sys/devices/pci0000:00/0000:00:01.0", 1, 0)
            if "virtual" in self.rates and log.release in since("2.24.3"):
                log.say("virtual", i, card, self.mbps, 1, -1, -1)
        log.say("ports", "".join(ports), "[RO]", "eth0", "192.0.2.1<0>")
        if self.fused and "virtual" in self.rates:
            log.say("virtual", 2, "+".join(cards), 2 * self.mbps, 2, 0, 0)

    def verdict(self, release: str, *lines: Callable[[Log], None]) -> Verdict | None:
        """What all ranks' logs come to, after further lines in that of rank 0."""
        logs = [self.log(release, rank) for rank in range(len(self.hosts))]
        for more in lines:
            more(logs[0])
        summaries = json.loads(json.dumps([log.summary.to_json() for log in logs]))
        gpus = Gpus(self.model, self.hosts.count(self.hosts[0]))
        problem = transport.judge(summaries, self.hosts, self.fabric, gpus)
        return None if problem is None else problem.verdict


IB = Run()
ROCE = Run("roce_400", layer="RoCE")
SOCKETS = Run(network="Socket", direct="")
ONE_NODE = Run("ethernet", hosts=("n1", "n1"), network=None)
VERDICTS: dict[str, tuple[Run, str, Verdict | None]] = {
    "InfiniBand as declared": (IB, "2.18.1", None),
    "InfiniBand at half its rate": (replace(IB, mbps=200000), "2.24.3", FAIL),
    "InfiniBand with rails in NCCL_IB_HCA": (replace(IB, rails=True), "2.30.7", None),
    "InfiniBand fused, at half its rate": (replace(IB, fused=True, mbps=200000), "2.24.3", FAIL),
    "InfiniBand fused": (replace(IB, fused=True), "2.24.3", None),
    "InfiniBand without GPUDirect": (replace(IB, direct=""), "2.18.1", WARN),
    "GPUDirect over PCI, and PXN": (replace(IB, pci="(PCI)", relay=True), "2.26.2", None),
    "sockets for InfiniBand": (SOCKETS, "2.18.1", FAIL),
    "RoCE for InfiniBand": (replace(IB, layer="RoCE"), "2.18.1", FAIL),
    "RoCE as declared": (ROCE, "2.18.1", None),
    "RoCE at a quarter of its rate": (replace(ROCE, mbps=100000), "2.24.3", FAIL),
    "sockets for Ethernet": (replace(SOCKETS, fabric="ethernet"), "2.18.1", None),
    "two L40S by host memory": (replace(ONE_NODE, inside="SHM", model="l40s"), "2.18.1", None),
    "H100 by host memory": (replace(ONE_NODE, inside="SHM"), "2.18.1", WARN),
    "one rank": (replace(ONE_NODE, hosts=("n1",), inside=None), "2.18.1", None),
    "NVLS in a node": (replace(ONE_NODE, inside="NVLS"), "2.18.1", None),
    "NVLink between nodes": (
        Run(model="gb200", inside="MNNVL", network=None),
        "2.20.5",
        WARN,
    ),
}


@pytest.mark.parametrize(("run", "first", "verdict"), VERDICTS.values(), ids=VERDICTS)
def test_each_release_is_judged_alike(run, first, verdict):
    verdicts = {release: run.verdict(release) for release in since(first)}
    assert verdicts == dict.fromkeys(since(first), verdict)


def test_a_collnet_that_was_given_up_is_not_claimed_in_any_release():
    for release in RELEASES:
        for level in ("WARN", "ATTN") if release in since("2.32.3") else ("WARN",):
            log = IB.log(release, 0)
            log.say("collnet", 0, 0, 0, "SHARP", 0, "/GDRDMA", "")
            kinds = {item.kind for item in log.summary.transports}
            assert "COLLNET" in kinds, release
            log.tell(NO_COLLNET, level)
            told = {item.kind for item in log.summary.transports}
            assert told == kinds - {"COLLNET"}, release


def told_warnings(name, first, level="WARN"):
    """For each release the warnings of a log that has this line, and its text."""
    for release in since(first):
        log = Log(release)
        text = filled(name, release)
        log.tell(text, level)
        yield log.summary.warnings, (text,)


@pytest.mark.parametrize(
    ("name", "first", "level"),
    [
        ("completion", "2.18.1", "WARN"),
        ("one GPU", "2.18.1", "WARN"),
        ("one GPU", "2.32.3", "ATTN"),
        ("hint", "2.30.7", "INFO"),
    ],
)
def test_what_each_release_warns_of_is_kept(name, first, level):
    kept, told = zip(*told_warnings(name, first, level), strict=True)
    assert kept == told


NUMBERED = (8192, 1, 2, 1.5)
NAMED = ("AllReduce", 8192, "RING", "SIMPLE", 0, 3, 2)
CHOSEN = {
    "2.20.5": (NUMBERED, Choice(None, "RING", "SIMPLE", 8192, 8192, None)),
    "2.23.4": (
        ("AllReduce", *NUMBERED),
        Choice("AllReduce", "RING", "SIMPLE", 8192, 8192, None),
    ),
    "2.24.3": (NAMED, Choice("AllReduce", "RING", "SIMPLE", 8192, 8192, 4)),
}


def test_the_algorithm_that_each_release_chose_is_read():
    for release in since("2.20.5"):
        values, choice = CHOSEN[[first for first in CHOSEN if release in since(first)][-1]]
        log = Log(release)
        log.say("choice", *values)
        assert log.summary.choices == (choice,), release


@pytest.mark.parametrize(
    ("name", "values", "choice"),
    [
        (
            "symmetric",
            ("AllReduce", 64, "AllReduce_AGxLL_R", 8, 512, 1),
            Choice("AllReduce", "SYMMETRIC", "ALLREDUCE_AGXLL_R", 64, 64, 8),
        ),
        (
            "copies",
            ("AllGather", 64, "BatchAsync"),
            Choice("AllGather", "COPY_ENGINE", "CUDAMEMCPYBATCHASYNC", 64, 64, None),
        ),
    ],
)
def test_choices_without_an_algorithm_are_read(name, values, choice):
    for release in since(next(iter(FORMATS[name]))):
        log = Log(release)
        log.say(name, *values)
        assert log.summary.choices == (choice,), release


def test_the_part_of_a_communicator_is_read_in_each_release():
    for release in since("2.21.5"):
        log = Log(release)
        log.tell(filled("split", release, rank=1, nranks=2))
        assert [(c.rank, c.ranks) for c in log.summary.communicators] == [(1, 2)], release


# --- rates -----------------------------------------------------------------------------------


def test_the_rate_of_a_device_is_read_in_each_release():
    for release in since("2.24.3"):
        fused = replace(IB, fused=True)
        assert fused.log(release, 0).summary.devices == (
            NetDevice(0, "mlx5_0:1", "IB", False, 400000),
            NetDevice(1, "mlx5_1:1", "IB", False, 400000),
            NetDevice(2, "mlx5_0:1+mlx5_1:1", "IB", False, 800000),
        ), release


@pytest.mark.parametrize(("mbps", "verdict"), [(400000, None), (200000, FAIL)])
def test_the_rate_of_ports_stands_in_for_that_of_devices(mbps, verdict):
    for rates in (("port",), ("port", "virtual")):
        run = replace(IB, rates=rates, mbps=mbps)
        assert {run.verdict(release) for release in since("2.27.3")} == {verdict}


def test_a_rate_that_a_release_should_tell_and_does_not_is_inconclusive():
    silent = replace(IB, rates=())
    verdicts = {release: silent.verdict(release) for release in RELEASES}
    telling = since("2.24.3")
    assert verdicts == {release: UNKNOWN if release in telling else None for release in RELEASES}


def test_a_release_that_is_not_known_should_tell_its_rates():
    summaries = [replace(IB, rates=()).log("2.18.1", rank).summary for rank in range(4)]
    documents = [replace(summary, version=None).to_json() for summary in summaries]
    documents = json.loads(json.dumps(documents))
    problem = transport.judge(documents, IB.hosts, IB.fabric, Gpus("h100_sxm", 2))
    assert problem is not None
    assert problem.verdict is UNKNOWN
    assert problem.sentence.startswith("NCCL's log does not show the rate of mlx5_0:1 on n1, n2,")


def changes(*rates, card="mlx5_0", level="INFO"):
    """Speed changes of a port, from one rate to the next."""

    def more(log: Log) -> None:
        for before, after in pairwise(rates):
            log.say("speed", card, 1, before, after, level=level)

    return more


@pytest.mark.parametrize(
    ("run", "lines", "verdict"),
    [
        (IB, changes(400000, 200000), FAIL),
        (IB, changes(400000, 200000, level="WARN"), FAIL),
        (IB, changes(400000, 200000, 400000), FAIL),
        (IB, changes(400000, 800000), None),
        (IB, changes(400000, 200000, card="mlx5_1"), None),  # which no channel uses
        (replace(IB, fused=True), changes(400000, 200000, card="mlx5_1"), FAIL),
        (replace(IB, rates=("port",)), changes(400000, 100000), FAIL),
    ],
)
def test_a_device_is_judged_by_the_lowest_rate_that_it_fell_to(run, lines, verdict):
    assert {run.verdict(release, lines) for release in since("2.30.7")} == {verdict}


def test_a_rate_that_becomes_unknown_is_inconclusive():
    assert IB.verdict("2.30.7", changes(400000, "unknown")) is UNKNOWN


def test_a_speed_change_in_other_words_is_noticed():
    more = "NET/IB : mlx5_0:1 speed change detected: it is slower now"
    assert IB.verdict("2.32.3", lambda log: log.tell(more)) is WARN


def test_ports_of_one_card_are_told_apart():
    log = Log("2.30.7")
    for index in range(2):
        log.say("virtual", index, "mlx5_0", 100000 * (index + 1), 1, -1, -1)
    log.say("ports", " [0]mlx5_0:1/IB [1]mlx5_0:2/RoCE", "[RO]", "eth0", "192.0.2.1<0>")
    log.say("virtual", 2, "mlx5_0+mlx5_0", 300000, 2, -1, -1)
    assert log.summary.devices == (
        NetDevice(0, "mlx5_0:1", "IB", False, 100000),
        NetDevice(1, "mlx5_0:2", "RoCE", False, 200000),
        NetDevice(2, "mlx5_0:1+mlx5_0:2", None, False, 300000),
    )


FUTURE = {
    "NET spelled otherwise": (" via NET/", " over net:"),
    "sends without their end": (" [send] via", " [tx] via"),
    "ports listed otherwise": (":1/IB", " port 1 (IB)"),
    "rates told in words": ("speed=400000", "rate=NDR"),
    "communicators told otherwise": ("Init COMPLETE", "Init DONE"),
}


@pytest.mark.parametrize("change", FUTURE)
def test_words_of_a_release_that_there_is_not_yet_prove_nothing(change):
    """Invented ones. A faulty fabric in such words must not pass either."""
    old, new = FUTURE[change]
    for run in (IB, replace(IB, mbps=200000), SOCKETS):
        texts = [run.log(RELEASES[-1], rank).text for rank in range(4)]
        if not any(old in text for text in texts):
            continue
        texts = [text.replace(old, new).replace(RELEASES[-1], "2.99.1") for text in texts]
        summaries = [summarize(text).to_json() for text in texts]
        documents = json.loads(json.dumps(summaries))
        problem = transport.judge(documents, run.hosts, run.fabric, Gpus("h100_sxm", 2))
        assert problem is not None
        assert problem.verdict in (UNKNOWN, FAIL), (change, run)


# --- ports that are lost ---------------------------------------------------------------------


def test_a_port_that_nccl_gave_up_fails_though_the_job_went_on():
    fused = replace(IB, fused=True)
    for release in since("2.29.7"):

        def lost(log: Log) -> None:
            log.say("failed port", 1, "send", 4096, level="WARN")

        assert fused.verdict(release, lost) is FAIL, release
        log = fused.log(release, 0)
        lost(log)
        assert log.summary.failed_ports == 1


def test_a_node_with_fewer_ports_than_the_others_is_a_warning():
    texts = [IB.log("2.30.7", rank).text for rank in range(4)]
    fewer = [text.replace(" [1]mlx5_1:1/IB", "") for text in texts[2:]]
    summaries = [summarize(text).to_json() for text in (*texts[:2], *fewer)]
    documents = json.loads(json.dumps(summaries))
    problem = transport.judge(documents, IB.hosts, IB.fabric, Gpus("h100_sxm", 2))
    assert problem is not None
    assert (problem.verdict, problem.nodes) == (WARN, ("n2",))
    assert problem.sentence == "NCCL found 2 ports of ib_ndr400 on other nodes, but 1 on n2"


# --- why a job failed ------------------------------------------------------------------------


def test_the_last_warning_and_the_hints_after_it_explain_a_failure():
    for release in RELEASES:
        log = Log(release)
        log.tell("nvmlDeviceGetHandleByPciBusId() failed: Not Found", "WARN")
        log.tell(filled("completion", release), "WARN")
        reason = filled("completion", release)
        if release in since("2.30.7"):
            log.tell(filled("hint", release))
            reason += f" {filled('hint', release)}"
        log.tell("ncclCommAbort")
        assert nccl_log.complaint(log.text) == reason, release


def test_a_warning_of_a_function_without_a_name_is_read():
    text = "n1:1:2 [0] graph/topo.cc:9 (operator()) NCCL WARN no path\n"
    assert nccl_log.complaint(text) == "no path"
    assert summarize(text).warnings == ("no path",)


@pytest.mark.parametrize(
    "text",
    ["", "n1:1:2 [0] a.cc:9 (f) NCCL WARN cut", Log("2.32.3").text],
    ids=["nothing", "cut", "healthy"],
)
def test_a_log_without_a_warning_explains_nothing(text):
    assert nccl_log.complaint(text) is None
