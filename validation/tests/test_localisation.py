"""The short form of scripts/campaign --localisation, and that it simulates what it says."""

from __future__ import annotations

import random
from itertools import combinations
from xml.etree import ElementTree

import pytest

from validation.localise import MOST_ROUNDS
from validation.tests import localisation_table
from validation.tests.localisation import (
    ALGORITHMS,
    OTHERS,
    OURS,
    SIZES,
    Lab,
    World,
    cluster,
    score,
    world,
)

RUNS = {16: 150, 64: 100, 256: 25, 1024: 4, 16384: 1}


def judged(size, seeds):
    scores = [score(OURS, cluster(size), seed) for seed in seeds]
    assert [one for one in scores if one.accused or one.wrong] == []
    assert max(one.rounds for one in scores) <= MOST_ROUNDS
    # With a node, a link and the switch of four nodes at fault, one may stay open.
    open_ones = [one for one in scores if not one.exact]
    assert len(open_ones) <= (len(scores) / 200 if size == min(SIZES) else 0), open_ones


@pytest.mark.parametrize("size", RUNS)
def test_what_is_there_is_named_in_three_rounds_after_the_first_and_nobody_else(size):
    judged(size, range(RUNS[size]))


@pytest.mark.long
@pytest.mark.heavy("a thousand runs of clusters of up to 16,384 nodes")
@pytest.mark.parametrize("size", SIZES)
def test_a_thousand_runs_of_each_size(size):
    judged(size, range(1000))


def test_a_world_of_a_seed_is_always_the_same_and_has_faults_of_every_kind():
    small = cluster(64)
    first = OURS.first(small, random.Random(0))
    worlds = [world(small, seed, first) for seed in range(60)]
    assert worlds == [world(small, seed, first) for seed in range(60)]
    assert {bool(one.bad) for one in worlds} == {True, False}
    assert max(len(one.bad) for one in worlds) == 3
    assert {len(one.links) for one in worlds} == {0, 1}
    kinds = {(bool(one.walls), len(one.walls) > 1, bool(one.dead)) for one in worlds}
    assert kinds == {
        (False, False, False), (True, False, False), (True, True, False), (False, False, True),
    }  # fmt: skip


def test_what_runs_in_a_world():
    small = cluster(16)
    one, two, three, five, nine = (small.nodes[number] for number in (0, 1, 2, 4, 8))
    assert World(small).runs(small.nodes)
    assert not World(small, bad=frozenset((one,))).runs((one, two))
    link = World(small, links=frozenset((frozenset((one, two)),)))
    assert not link.runs((one, two))
    assert link.runs((one, three))
    assert not link.runs((three, two, one))
    out = World(small, walls=frozenset(("leaf0",)))
    assert out.runs((one, two))
    assert not out.runs((one, five))
    assert out.runs((five, nine))
    assert not World(small, dead=frozenset(("leaf0",))).runs((one, two))


# --- the other programs --------------------------------------------------------------------------


def named(algorithm, faults):
    draw = random.Random(1)
    first = algorithm.first(faults.cluster, draw)
    lab = Lab(faults)
    return algorithm.find(faults.cluster, lab, first, draw), lab


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_on_a_healthy_cluster_nobody_names_anything(algorithm):
    found, lab = named(algorithm, World(cluster(16)))
    assert (found.nodes, found.links, found.switches) == (set(), set(), set())
    assert lab.tests


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_one_bad_node_is_found_by_everybody(algorithm):
    found, _ = named(algorithm, World(cluster(64), bad=frozenset(("gpu00021",))))
    assert "gpu00021" in found.nodes


@pytest.mark.parametrize("algorithm", [one for one in OTHERS if one.cost], ids=lambda one: one.name)
def test_the_cost_by_formula_is_the_one_that_is_measured(algorithm):
    _, lab = named(algorithm, World(cluster(16)))
    assert (lab.rounds, lab.tests) == algorithm.cost(16)


def test_the_circle_pairs_each_with_each_once():
    class Noted(Lab):
        def side_by_side(self, groups):
            pairs = list(groups)
            assert len({node for pair in pairs for node in pair}) == 16
            seen.extend(map(frozenset, pairs))
            return super().side_by_side(pairs)

    seen: list[frozenset[str]] = []
    (circle,) = (one for one in OTHERS if one.name == "SuperBench")
    small = cluster(16)
    circle.find(small, Noted(World(small)), [], random.Random(0))
    assert sorted(map(sorted, seen)) == sorted(map(sorted, combinations(small.nodes, 2)))


def test_a_bisection_names_the_good_half_of_a_pair_too():
    (bisect,) = (one for one in OTHERS if one.name == "Primus")
    found, lab = named(bisect, World(cluster(16), bad=frozenset(("gpu00004",))))
    assert found.nodes == {"gpu00004", "gpu00005"}
    assert lab.rounds == 4


def test_a_bad_reference_accuses_everybody():
    (reference,) = (one for one in OTHERS if one.name == "cvs")
    found, _ = named(reference, World(cluster(16), bad=frozenset(("gpu00000",))))
    assert found.nodes == set(cluster(16).nodes[1:])


# --- table and plot ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return list(localisation_table.rows((16, 1024), range(2), range(1)))


def test_the_table_has_a_line_for_each_algorithm_and_size(rows):
    lines = localisation_table.table(rows).splitlines()
    assert len(lines) == 2 + 2 * len(ALGORITHMS)
    columns = {line.count(" | ") for line in lines if not line.startswith("|--")}
    assert columns == {10}
    assert "| GCM | 1,024 | by formula | 523,776 | 523,776 | 523,776 | – |" in "\n".join(lines)


def test_what_is_not_all_is_not_rounded_up():
    share = localisation_table.share
    assert [share(9999, 10000), share(10000, 10000), share(0, 0)] == ["99.9 %", "100 %", "–"]


def test_the_plot_has_a_line_for_each_algorithm(rows):
    picture = ElementTree.fromstring(localisation_table.plot(rows))
    texts = {element.text for element in picture.iter() if element.tag.endswith("text")}
    assert {algorithm.name for algorithm in ALGORITHMS} <= texts
    assert {"16", "1,024", "nodes"} <= texts
