"""What Slurm says of its nodes, taken apart."""

import pytest

from cluster.slurm.node_states import slurm_nodes, words


def test_marks_of_old_versions_are_no_words() -> None:
    assert words("IDLE~+DRAIN$") == {"IDLE", "DRAIN"}


@pytest.mark.parametrize("text", ["", "IDLE+", "*", "<html>", "IDLE DRAIN"])
def test_a_node_without_a_state_is_not_in_service(text: str) -> None:
    with pytest.raises(ValueError, match="is no state"):
        words(text)


def test_an_answer_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'502'"):
        slurm_nodes("gpu1 IDLE\nBad 502 Gateway\n")
