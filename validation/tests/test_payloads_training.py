"""The payloads of the suite `training` as real ranks, with faults that their checks must name."""

import json

import pytest

pytest.importorskip("torch", reason="the payloads are torch programs")

from cluster.errors import CannotRun
from validation import suites
from validation.checks import scaling as check
from validation.payloads import decoder, inference, scaling
from validation.payloads.config import load
from validation.tests import told_faults

# One of each check at each change; scripts/fault-table runs the rest, and so do the long tests.
ALWAYS = (
    ("resume", "a stale shard", 3),
    ("inference", "a cached key is 0, one rank", 2),
    ("scaling", "one element of one rank's parameters", 2),
)
ALL = tuple(
    (of, fault.name, told_faults.NODES)
    for of, faults in told_faults.FAULTS.items()
    for fault in faults
)


@pytest.mark.heavy("starts a process for each rank of two jobs")
@pytest.mark.parametrize(
    ("of", "name", "nodes"),
    [*ALWAYS, *(pytest.param(*case, marks=pytest.mark.long) for case in ALL)],
)
def test_each_fault_is_named_with_its_node(of, name, nodes):
    (fault,) = (fault for fault in told_faults.FAULTS[of] if fault.name == name)
    told = told_faults.run(of, nodes, fault)
    assert told.right, told.result


@pytest.mark.parametrize("backend", suites.BACKENDS)
def test_the_models_of_the_suite_are_as_large_as_they_say(backend):
    config = dict(suites.load("training").cluster["inference"][backend].config)
    shape = decoder.Shape(
        *(config[name] for name in ("vocabulary", "width", "heads", "hidden", "depth"))
    )
    weights = decoder.initial(1, shape)
    matrices = [matrix for block in weights.blocks for matrix in block.values()]
    multiplied = sum(matrix.numel() for matrix in (weights.head, *matrices))
    assert shape.multiplied == multiplied
    assert shape.parameters == multiplied + weights.embedding.numel()


@pytest.mark.parametrize(("heads", "parts"), [(16, 1), (16, 3), (16, 16), (17, 16)])
def test_all_heads_are_shared_out_once(heads, parts):
    shares = [decoder.share(heads, part, parts) for part in range(parts)]
    assert [head for share in shares for head in range(heads)[share]] == list(range(heads))
    assert max(s.stop - s.start for s in shares) - min(s.stop - s.start for s in shares) <= 1


def test_no_two_tokens_of_the_suite_are_nearly_as_likely():
    config = suites.load("training").cluster["inference"]["gloo"].config
    known = inference.reference(inference.Config(backend="gloo", **config))
    assert known.margin >= decoder.MARGIN
    assert known.tokens.shape == (config["prompts"], config["prompt_tokens"] + config["new_tokens"])
    # A model that only repeats what it reads would not show a wrong cache.
    assert all(len(set(row.tolist())) > 4 for row in known.tokens[:, config["prompt_tokens"] :])


def test_sizes_grow_by_nodes():
    assert scaling.sizes(24, 3) == [1, 8, 16, 24]
    assert scaling.sizes(5, 5) == [1, 2, 4, 5]
    assert scaling.sizes(8, 1) == [1, 8]
    assert scaling.sizes(1, 1) == [1]
    assert scaling.sizes(12800, 1600)[-2:] == [8192, 12800]


def test_both_sides_agree_on_the_sizes():
    for each in (1, 4, 8):
        for nodes in (1, 2, 3, 5, 16, 100, 1600):
            assert scaling.sizes(each * nodes, nodes) == check.sizes(each * nodes, nodes)


@pytest.mark.parametrize("changes", [{"heads": 3}, {"heads": 15}, {"width": 48}, {"new_tokens": 0}])
def test_a_model_that_cannot_be_shared_out_is_refused(changes):
    config = {"backend": "gloo", **suites.load("training").cluster["inference"]["gloo"].config}
    with pytest.raises(CannotRun):
        load(inference.Config, json.dumps({**config, **changes}))
