"""The trainings of a transformer as real processes, with Gloo over loopback; see fault_table.

Sizes are those of the shipped suite. What these trainings have in common with ddp and pipeline is
in test_payloads_ranks.
"""

import json
import math

import pytest

torch = pytest.importorskip("torch", reason="the collective payloads are torch programs")

from validation.checks import mesh as mesh_check  # noqa: E402 - importorskip
from validation.checks import schedules as schedules_check  # noqa: E402
from validation.checks import training as training_check  # noqa: E402
from validation.checks.registry import ALONE  # noqa: E402
from validation.payloads import (  # noqa: E402
    chains,
    expert_parallel,
    experts,
    mesh,
    reference,
    schedules,
    sharded,
    tensor_parallel,
    training,
    transformer,
    transformer_reference,
)
from validation.payloads.config import load  # noqa: E402
from validation.tests import fault_table  # noqa: E402
from validation.tests.conftest import make_plan  # noqa: E402
from validation.tests.torch_processes import Order, started  # noqa: E402

torch.set_num_threads(1)

NEW = ("fsdp", "tensor_parallel", "schedules", "expert_parallel", "mesh")
# Of each kind one that nothing else in this file runs by default.
SOME = {
    "fsdp": ("one rank's shards are stale", "one rank does not gather", "no reduce-scatter"),
    "tensor_parallel": ("one rank has another slice", "one rank's share of a sum is lost"),
    "schedules": ("one microbatch's zeros come back", "one microbatch late, last link"),
    "expert_parallel": ("one rank's experts swapped", "one rank's tokens in another order"),
    "mesh": ("one rank's shards are stale",),
}


def config_of(payload, module):
    return load(module.Config, json.dumps(fault_table.config_of(payload, "gloo", 2)))


# --- the formula ---------------------------------------------------------------------------------


def test_the_formula_is_what_torch_trains():
    """In a process of its own: torch.optim cannot be imported where Ansible has been."""
    code = f"from {__name__} import hold_the_formula_against_autograd as hold; hold()"
    with started([Order(code)]) as (process,):
        assert process.wait(180) == 0, process.err


def hold_the_formula_against_autograd():
    """In float64, with one perceptron and with the experts of a rank alone, which use autograd."""
    config = config_of("expert_parallel", expert_parallel)
    weights = torch.linspace(0.5, 1.5, config.batch, dtype=torch.float64)
    weights /= config.batch * config.tokens * config.width
    for count in (1, config.experts):
        shape = config.shape(config.depth, experts=count)
        values = transformer_reference.initial(config.seed, shape)
        routes = expert_parallel.routes(config, 1) if count > 1 else None
        expected = reference.train(
            values,
            transformer_reference.of(shape, routes),
            training.sequences(config, config.batch),
            weights,
            config.lr,
        )
        model = transformer.stack(shape, values) if count == 1 else alone(config, shape, values)
        model.double()
        optimizer = training.sgd(model, config.lr)
        for step, (inputs, targets) in enumerate(training.sequences(config, config.batch)):
            optimizer.zero_grad()
            losses = transformer.squared_distances(model(inputs.double()), targets.double())
            loss = weights @ losses
            torch.autograd.backward(loss)
            if step == 0:
                found = training.gradients(model)
                assert reference.difference(found, expected.first.gradients) < 1e-10
            optimizer.step()
            assert loss.item() == pytest.approx(expected.losses[step], rel=1e-9)
            after = expected.parameters[step + 1]
            assert reference.difference(model.parameters(), after, expected.parameters[0]) < 1e-9


def alone(config, shape, values):
    """A model whose experts are all on one rank: what it exchanges, it has."""
    experts.exchange = lambda tokens, *_: tokens
    (way,) = expert_parallel.ways(config, 1)
    blocks = [shape.block(values, number) for number in range(shape.depth)]
    return torch.nn.Sequential(
        *(experts.ExpertBlock(shape, block[:4], block[4:], way, None) for block in blocks)
    )


def test_no_token_sees_a_later_one():
    config = config_of("fsdp", sharded)
    shape = config.shape(config.depth)
    values = transformer_reference.initial(config.seed, shape)
    inputs, _ = next(training.sequences(config, 1))
    changed = inputs.clone()
    changed[:, -1] += 1
    for model in (
        lambda x: transformer_reference.forward(values, shape, x)[0][-1],
        transformer.stack(shape, values),
    ):
        before, after = model(inputs), model(changed)
        assert torch.equal(before[:, :-1], after[:, :-1])
        assert not torch.equal(before[:, -1], after[:, -1])


# --- how ranks stand -----------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 7, 11, 13, 17])
def test_a_prime_number_of_ranks_has_rows_of_one(ranks):
    assert mesh.columns(ranks, 1) == 1


@pytest.mark.parametrize(
    ("nodes", "each", "columns"),
    [(4, 1, 2), (6, 1, 2), (16, 1, 4), (1, 8, 2), (3, 8, 4), (2, 8, 4), (64, 8, 8), (5, 4, 4)],
)
def test_rows_of_the_mesh_lie_within_a_node_and_are_no_longer_than_columns(nodes, each, columns):
    assert mesh.columns(nodes * each, each) == columns
    job = next(job for job in jobs_of(nodes, each) if job.payload == "mesh")
    assert mesh_check.columns(job) == columns


def jobs_of(nodes, each):
    names = [(f"g{number}", "h100_sxm" if each > 1 else "virtual", each) for number in range(nodes)]
    return make_plan(*names, suite="training").jobs


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 9, 24, 100])
def test_payload_and_check_agree_on_who_works_together(ranks):
    rows = chains.chains(ranks, tensor_parallel.LONGEST_ROW)
    assert list(map(len, rows)) == training_check.chains(ranks, 8)
    assert {name: n for name, (_, n) in schedules.SCHEDULES.items()} == schedules_check.STAGES
    order = schedules_check.order_of(list(map(len, rows)), 2)
    assert order == [rank for row in rows for _ in range(2) for rank in row]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_token_has_a_way_there_and_back(ranks):
    config = config_of("expert_parallel", expert_parallel)
    ways = expert_parallel.ways(config, ranks)
    for rank, way in enumerate(ways):
        assert way.came == [other.sent[rank] for other in ways]
        assert sum(way.sent) == config.batch * config.tokens == len(set(way.order.tolist()))
        assert sorted(torch.cat(way.tokens).tolist()) == list(range(sum(way.came)))
        assert all(map(len, way.tokens))  # an expert without tokens would not be trained


@pytest.mark.parametrize("ranks", [2, 40, 500])
def test_shards_and_slices_make_the_whole(ranks):
    config = config_of("mesh", sharded)
    tensor = mesh.columns(ranks, 1)
    shape = config.shape(config.depth, tensor)
    values = transformer_reference.initial(config.seed, shape)
    model = sharded.Model(range(ranks), tensor)
    cells = [sharded.Cell(rank, model, None, None) for rank in range(ranks)]
    held = [cell.shards(cell.slices(shape, values), cell.row) for cell in cells]
    assert sum(part.numel() for parts in held for part in parts) == sum(v.numel() for v in values)
    # What has no elements is no difference, and nothing that stood still.
    assert reference.difference(held[-1], held[-1], held[-1]) == 0


# --- real ranks ----------------------------------------------------------------------------------


def judged(ranks, orders):
    return fault_table.run_orders(ranks, orders)


def assert_right(cases, ranks):
    assert [item for item in cases if not item.right] == []
    everyone = tuple(f"gpu{number + 1}" for number in range(ranks))
    for item in cases:
        blamed = item.result.blamed
        if item.fault.of_one_node:
            assert blamed == everyone[-1:], item
        elif item.fault.name != fault_table.HEALTHY:
            # Nobody, or everybody where all did it, or who it was.
            assert blamed in (None, everyone, everyone[-1:]), item


@pytest.mark.heavy("trains five models on two ranks, whole and spoiled")
def test_trainings_follow_their_reference_and_faults_show():
    cases = judged(
        2, [(name, "gloo", fault) for name in NEW for fault in (fault_table.HEALTHY, *SOME[name])]
    )
    assert_right(cases, 2)


@pytest.mark.long
@pytest.mark.heavy("trains five models on three ranks")
def test_an_odd_number_of_ranks_follows_its_reference():
    assert_right(judged(3, [(name, "gloo", fault_table.HEALTHY) for name in NEW]), 3)


def test_a_rank_alone_trains_and_says_so():
    cases = judged(1, [(name, "gloo", fault_table.HEALTHY) for name in NEW])
    assert_right(cases, 1)
    assert {item.result.message for item in cases} == {ALONE}


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("payload", NEW)
def test_every_fault_shows_at_the_sizes_of_both_backends(payload, ranks):
    assert_right(fault_table.run(ranks, [payload], fault_table.BACKENDS), ranks)


@pytest.mark.long
@pytest.mark.parametrize("payload", ["tensor_parallel", "schedules", "expert_parallel"])
def test_more_ranks_than_a_row_has_make_several(payload):
    (case,) = judged(9, [(payload, "gloo", fault_table.HEALTHY)])
    assert case.right
    assert math.isfinite(case.multiple)
