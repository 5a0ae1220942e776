"""What Slurm says of its nodes, taken apart."""

from pathlib import Path

import pytest
import yaml

from cluster.slurm import node_states
from cluster.slurm.node_states import NodeState, NodeStatus, slurm_nodes, words

WORDS: dict[str, list[str]] = {
    what: text.split()
    for what, text in yaml.safe_load(
        (Path(__file__).parent / "node_states.yml").read_text()
    ).items()
}
SCONTROL = WORDS.pop("words")


def of_sinfo(word: str) -> str:
    """What this module makes of a state of sinfo, in the words of the table."""
    state = NodeState("gpu1", word)
    base, flags = node_states.split(word)
    if node_states.out_of_service(state):
        return "broken"
    if node_states.on_purpose(state) or flags.strip(node_states.ASLEEP):
        return "on purpose"
    if node_states.asleep(state):
        return "asleep"
    return "reserved" if base in node_states.RESERVED else "takes jobs"


@pytest.mark.parametrize("what", WORDS)
def test_every_state_of_sinfo_means_what_slurm_means_by_it(what: str) -> None:
    assert {word: of_sinfo(word) for word in WORDS[what]} == dict.fromkeys(WORDS[what], what)
    assert {of_sinfo(word.upper()) for word in WORDS[what]} == {what}


@pytest.mark.parametrize(
    ("state", "busy", "completing", "free"),
    [
        ("idle", False, False, True),
        ("idle~", False, False, False),
        ("mixed", True, False, False),
        ("mixed-", True, False, False),
        ("allocated+", True, True, False),
        ("comp", True, True, False),
        ("blocked", True, False, False),
        ("planned", False, False, False),
        ("reserved", False, False, True),
        ("reboot^", False, False, False),
        ("powered_down", False, False, False),
    ],
)
def test_who_uses_a_node(state: str, busy: bool, completing: bool, free: bool) -> None:
    node = NodeState("gpu1", state)
    seen = (node_states.busy(node), node_states.completing(node), node_states.free(node))
    assert seen == (busy, completing, free)


def test_a_maintenance_reservation_that_the_jobs_are_in_excuses_nothing() -> None:
    for state in ("maint*", "down$", "drained$"):  # a node that is idle there is judged
        node = NodeState("gpu1", state)
        assert node_states.on_purpose(node) == "is in a maintenance reservation"
        assert node_states.on_purpose(node, reserved=True) == ""


UNSETTLED = """
    DOWN FAIL INVALID_REG NOT_RESPONDING UNKNOWN
    POWERED_DOWN POWERING_DOWN POWERING_UP REBOOT_ISSUED
"""


@pytest.mark.parametrize("word", SCONTROL)
def test_every_word_of_scontrol_is_one(word: str) -> None:
    assert words(f"IDLE+{word}") == {"IDLE", word}
    assert words(f"IDLE+{word}+?") == {"IDLE", word}  # a flag that this Slurm cannot name
    status = NodeStatus(words(word), "")
    assert status.unsettled is (word in UNSETTLED.split())
    assert status.busy is (word in ("ALLOCATED", "MIXED", "COMPLETING"))
    assert status.drained is (word == "DRAIN")


def test_marks_of_old_versions_are_no_words() -> None:
    assert words("IDLE~+DRAIN$") == {"IDLE", "DRAIN"}


@pytest.mark.parametrize("text", ["", "IDLE+", "*", "<html>", "IDLE DRAIN"])
def test_a_node_without_a_state_is_not_in_service(text: str) -> None:
    with pytest.raises(ValueError, match="is no state"):
        words(text)


def test_an_answer_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'502'"):
        slurm_nodes("gpu1 IDLE\nBad 502 Gateway\n")


def test_a_reason_has_nothing_that_a_terminal_would_obey():
    """Whoever is root on one node may give one, for any node."""
    (node,) = slurm_nodes("gpu1 DOWN \x1b]0;owned\a\x1b[2Jbad   disk\u202e").values()
    assert node.reason == "]0;owned [2Jbad disk"
