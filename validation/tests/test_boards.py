"""The boards of ranks that communicate: what NVML says of them meanwhile, and how it is judged.

NVML is a stand-in's (tests/standins/nvml), the ranks of the first part are made up. Nothing here is
a test of a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import ANY

import pytest

from tests.standins.nvml import library
from validation.model import Verdict
from validation.payloads import boards, gpu_links
from validation.payloads.__main__ import COLLECTIVES
from validation.payloads.group import Group
from validation.tests import standin
from validation.tests.conftest import make_plan
from validation.tests.healthy_answers import REAL, healthy, result
from validation.tests.judging import put

pytest.importorskip("torch", reason="the collective payloads are torch programs")

from validation.tests import test_payloads_ranks as ranks

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
WATCHED = ("all_reduce", "collectives", "ddp", "pipeline")


# --- what is asked ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Itself:
    host: str
    gpu_uuid: str | None
    local_rank: int = 0


@dataclass
class Doing:
    said: list[str] = field(default_factory=list)

    def doing(self, what: str) -> None:
        self.said.append(what)


@dataclass
class OneNode:
    """The group of two ranks on one node, seen from the first of them."""

    itself: Itself
    uuids: tuple[str, ...]
    watch: Doing = field(default_factory=Doing)
    worked: list[tuple[float, float]] = field(default_factory=list)

    def gather(self, value: Any) -> list[Any]:
        return [[self.itself.host, uuid] for uuid in self.uuids]

    def on_each_node(self, what: str, work: Callable[[], Any]) -> list[Any]:
        return [work(), None]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with Group.at_work(cast(Group, self)):
            yield


UUIDS = tuple(f"GPU-{index:08x}-0000-4000-8000-000000000000" for index in range(2))


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library.build(tmp_path_factory.mktemp("nvml"))


Describe = Callable[..., None]


@pytest.fixture
def described(fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Describe:
    """Changes what NVML says to processes that begin to ask."""
    description = tmp_path / "description"
    for key, value in library.environment(fake, description).items():
        monkeypatch.setenv(key, value)

    def describe(*lines: str) -> None:
        description.write_text(library.describe(2, "h100_sxm", *lines))

    return describe


def watched(work: Callable[[OneNode], None]) -> dict[str, Any]:
    group = OneNode(Itself("gpu1", UUIDS[0]), UUIDS)

    def measure() -> dict[str, Any]:
        work(group)
        return {"sizes": []}

    measured = boards.watched(cast(Group, group), 120, measure)
    assert measured["sizes"] == []
    (node,) = measured["boards"]
    return dict(node)


def test_a_board_that_heat_holds_back_at_work_is_told_with_the_rank_that_has_it(
    described: Describe,
) -> None:
    described("gpu.1.clock_reasons = 64", "gpu.1.temperature_c = 88", "gpu.1.clock_sm_mhz = 990")

    def work(group: OneNode) -> None:
        with group.at_work():
            time.sleep(0.5)

    node = watched(work)
    assert (node["host"], node["nvml"]["error"]) == ("gpu1", None)
    assert 0.5 <= node["work_s"] <= node["seconds"]
    first, second = node["boards"]
    assert [first["rank"], first["index"], second["rank"], second["index"]] == [0, 0, 1, 1]
    (load,) = second["loads"]
    assert (load["load"], load["sm_mhz"], load["temperature_c"]) == ("communication", 990, 88)
    assert load["held_by"] == [{"reason": "hardware thermal slowdown", "share": 1.0}]
    assert 2 <= load["samples"] <= 6  # ten a second: small messages shall not feel it


def test_what_a_board_does_when_ranks_do_not_work_together_does_not_count(
    described: Describe,
) -> None:
    described("gpu.*.clock_reasons = 64")
    node = watched(lambda group: time.sleep(0.3))
    assert [board["loads"][0]["samples"] for board in node["boards"]] == [0, 0]
    assert node["work_s"] == 0


def test_of_links_those_alone_are_told_that_counted_something(described: Describe) -> None:
    described("gpu.1.nvlink.3.replay = 2")
    node = watched(lambda group: described("gpu.1.nvlink.3.replay = 5"))
    first, second = node["boards"]
    assert first["before"]["values"]["nvlinks"] == first["after"]["values"]["nvlinks"] == []
    for when, count in (("before", 2), ("after", 5)):
        (link,) = second[when]["values"]["nvlinks"]
        assert (link["link"], link["errors"]["replay"]) == (3, count)


def test_without_a_driver_the_answer_says_so(described: Describe) -> None:
    described("error.nvmlInit = DRIVER_NOT_LOADED")
    node = watched(lambda group: None)
    assert node["nvml"]["error"] == "NVML: Driver Not Loaded (code 9)"
    assert [board["index"] for board in node["boards"]] == [None, None]


@pytest.mark.parametrize("uuid", [None, "MIG-5b8e"])
def test_nvml_is_not_asked_of_ranks_on_cpus_or_instances(
    uuid: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_links, "Links", pytest.fail)
    group = cast(Group, OneNode(Itself("gpu1", uuid), ()))
    assert boards.watched(group, 120, lambda: {"steps": 5}) == {"steps": 5, "boards": None}


def test_nvml_has_an_answer_or_none_before_other_ranks_give_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def links(limit_s: float, ask_s: float, **_: Any) -> None:
        asked.append(ask_s)
        raise InterruptedError

    monkeypatch.setattr(gpu_links, "Links", links)
    group = cast(Group, OneNode(Itself("gpu1", UUIDS[0]), UUIDS))
    for timeout_s in (60.0, 600.0):
        with pytest.raises(InterruptedError):
            boards.watched(group, timeout_s, dict)
    assert asked == [15.0, 30.0]


def test_the_payloads_that_exchange_most_are_watched() -> None:
    assert tuple(name for name, payload in COLLECTIVES.items() if payload.watched) == WATCHED


# Ranks on CPUs, which say that they have a GPU each.
OF_GPUS = """
import dataclasses
from validation.payloads import group
describe = group._describe
def described(rendezvous, *others):
    uuid = f"GPU-{rendezvous.local_rank:08x}-0000-4000-8000-000000000000"
    return dataclasses.replace(describe(rendezvous, *others), gpu_uuid=uuid)
group._describe = described
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("payload", WATCHED)
def test_the_ranks_of_each_such_payload_say_when_they_work(
    payload: str, described: Describe
) -> None:
    """Two real ranks of one node, of which the first asks for both."""
    described("gpu.1.temperature_c = 71")
    config = ranks.of_suite(payload, "network" if payload == "collectives" else "quick")
    if payload == "collectives":
        config |= {"operations": ["all_gather"], "sizes_bytes": [32768]}
    document = ranks.document_of(
        ranks.run_ranks(
            payload, config, 2, faults=dict.fromkeys((0, 1), OF_GPUS),
            environ={"SLURMD_NODENAME": "gpu1"},
        )
    )  # fmt: skip
    (node,) = document["measured"]["boards"]
    assert (node["host"], node["nvml"]["error"]) == ("gpu1", None)
    assert 0 < node["work_s"] < node["seconds"]
    assert [(each["rank"], each["index"]) for each in node["boards"]] == [(0, 0), (1, 1)]
    assert all(each["before"] == each["after"] | {"seconds": ANY} for each in node["boards"])


# --- how it is judged ------------------------------------------------------------------------


def judge(check: str, *changes: tuple[tuple[Any, ...], Any]) -> Any:
    """A healthy answer of four ranks on two nodes, with values changed; paths below `boards`."""
    suite = "network" if check == "collectives" else "quick"
    (job,) = [job for job in make_plan(*REAL, suite=suite).jobs if job.payload == check]
    answer = getattr(standin, check)
    speed = {"busbw_gbs": 90.0} if check in ("all_reduce", "collectives") else {}
    document = answer(job.hosts, job.config, job.ranks_per_node, fabric="ib_ndr400", **speed)
    for path, value in changes:
        put(document["measured"]["boards"], path, value)
    return result(check, job, standin.line(document))


def board(number: int, *path: Any) -> tuple[Any, ...]:
    """Of one of the two boards of the second node, ranks 2 and 3."""
    return (1, "boards", number, *path)


def held(reason: str, share: float, samples: int = 20) -> list[tuple[tuple[Any, ...], Any]]:
    load = board(1, "loads", 0)
    by = [{"reason": reason, "share": share}]
    return [((*load, "held_by"), by), ((*load, "samples"), samples)]


def counter(name: str, count: int) -> tuple[tuple[Any, ...], Any]:
    return board(0, "after", "values", name), count


def links(name: str, count: int) -> list[tuple[tuple[Any, ...], Any]]:
    errors = dict.fromkeys(("replay", "recovery", "recovery_failed", "crc_flit", "crc_data"), 0)
    return [
        (board(0, when, "values", "nvlinks"), [{"link": 3, "errors": {**errors, **counted}}])
        for when, counted in (("before", {}), ("after", {name: count}))
    ]


@pytest.mark.parametrize("check", WATCHED)
def test_a_board_that_was_throttled_while_ranks_communicated_fails_by_name(check: str) -> None:
    told = judge(check, *held("hardware thermal slowdown", 0.4))
    assert told.verdict is FAIL
    words = "GPU 1 on gpu2: hardware thermal slowdown in 40% of the answers under communication"
    assert told.message.startswith(words)
    assert told.blamed == ("gpu2",)


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        (held("software power cap", 1.0), PASS, ""),
        (held("hardware power brake", 0.05), FAIL, "GPU 1 on gpu2: hardware power brake in 5% of"),
        (held("software thermal slowdown", 0.2), WARN, "software thermal slowdown in 20% of the"),
        (held("software thermal slowdown", 0.6), FAIL, "software thermal slowdown in 60% of the"),
        (held("hardware slowdown", 1.0), FAIL, "hardware slowdown in 100% of the answers under"),
        (held("hardware slowdown", 1.0, samples=2), PASS, ""),  # a clock that changes
        ([(board(0, "loads", 0, "temperature_c"), 87)], FAIL, "GPU 0 on gpu2: 87 °C under commu"),
        ([counter("ecc_volatile_uncorrected", 2)], FAIL, "GPU 0 on gpu2: 2 uncorrected ECC errors"),
        ([counter("ecc_volatile_corrected", 2)], WARN, "GPU 0 on gpu2: 2 corrected ECC errors"),
        ([counter("pcie_replays", 50)], WARN, "GPU 0 on gpu2: 50 PCIe replays in 30 s of work"),
        (links("replay", 1), FAIL, "GPU 0 on gpu2: its NVLinks counted new errors under load (1"),
        ([(board(1, "loads", 0, "samples"), 0)], UNKNOWN, "GPU 1 on gpu2: NVML did not report any"),
        (
            [(board(1, "loads", 0, "samples"), 0), ((1, "work_s"), 0.2)],
            PASS,  # too short for ten looks a second to see anything
            "",
        ),
        ([(board(0, "index"), None)], UNKNOWN, "GPU 0 on gpu2: NVML does not list it"),
        ([(board(0, "after"), None)], UNKNOWN, "GPU 0 on gpu2: NVML reported nothing about it"),
        ([((1, "nvml", "error"), "no driver")], UNKNOWN, "gpu2: NVML could not be asked: no dr"),
        ([(board(0, "rank"), 3)], FAIL, "NVML was asked on gpu2 for the boards of ranks [3, 3]"),
        ([((1,), ...)], FAIL, "NVML was asked on ['gpu1'], ranks were on ['gpu1', 'gpu2']"),
        ([((1, "work_s"), 31.0)], FAIL, "ranks worked for 31 s in 30 s"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_board_is_named(
    changes: list[tuple[tuple[Any, ...], Any]], verdict: Verdict, words: str
) -> None:
    told = judge("ddp", *changes)
    assert told.verdict is verdict
    assert words in told.message
    assert (told.message == "") is (verdict is PASS)


def test_the_worst_of_several_boards_comes_first_and_its_node_alone_is_blamed() -> None:
    warned = [{"reason": "software thermal slowdown", "share": 0.2}]
    told = judge(
        "ddp",
        *held("hardware power brake", 0.5),
        *(((0, "boards", number, "loads", 0, "held_by"), warned) for number in (0, 1)),
        (board(0, "loads", 0, "held_by"), warned),
    )
    assert told.message.startswith("GPU 1 on gpu2: hardware power brake in 50% of the answers")
    assert told.message.endswith("GPU 1 on gpu1: software thermal slowdown in 20% of the answers"
                                 " under communication; and 1 more")  # fmt: skip
    assert told.blamed == ("gpu2",)


def test_what_the_hardest_worked_board_showed_is_told() -> None:
    hot = (board(1, "loads", 0, "temperature_c"), 79)
    slow = (board(0, "loads", 0, "sm_mhz"), 1200)
    told = judge("ddp", hot, slow, *held("software power cap", 0.9))
    figures = {metric.name: (metric.value, metric.unit) for metric in told.metrics}
    assert figures["lowest SM clock under communication"] == (1200, "MHz")
    assert figures["highest temperature under communication"] == (79, "°C")
    assert figures["highest power under communication"] == (420, "W")
    assert figures["held back under communication"] == ("software power cap up to 90%", "")


@pytest.mark.parametrize("check", ["all_reduce", "collectives"])
def test_on_cpus_no_board_is_asked_for(check: str) -> None:
    answer = healthy(check)
    assert answer.document["measured"]["boards"] is None
    assert result(check, answer.job, standin.line(answer.document)).verdict is PASS


def test_of_instances_no_board_is_asked_for() -> None:
    answer = healthy("ddp")
    cut = (("1g.10gb", 14),)
    nodes = tuple(replace(node, gpus=replace(node.gpus, mig=cut)) for node in answer.job.nodes)
    document = {**answer.document, "measured": {**answer.document["measured"], "boards": None}}
    job = replace(answer.job, nodes=nodes)
    assert result("ddp", job, standin.line(document)).verdict is PASS
