"""What a board can be cut into, held against what NVIDIA's MIG user guide says of it."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import mig
from cluster.contract import load
from playbooks.filter_plugins.mig import mig_described, mig_devices, mig_plan, mig_problems

# The column "Number of Instances Available" of supported-mig-profiles.html.
MOST = [
    ("a30", {"1g.6gb": 4, "2g.12gb": 2, "4g.24gb": 1}),
    ("a100_sxm", {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}),
    ("a100_pcie", {"1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}),
    (
        "h100_sxm",
        {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1},
    ),
    (
        "h100_nvl",
        {"1g.12gb": 7, "1g.24gb": 4, "2g.24gb": 3, "3g.47gb": 2, "4g.47gb": 1, "7g.94gb": 1},
    ),
    ("gh200", {"1g.12gb": 7, "1g.24gb": 4, "2g.24gb": 3, "3g.48gb": 2, "4g.48gb": 1, "7g.96gb": 1}),
    (
        "h200_sxm",
        {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1},
    ),
    (
        "h20_sxm",
        {"1g.12gb": 7, "1g.24gb": 4, "2g.24gb": 3, "3g.48gb": 2, "4g.48gb": 1, "7g.96gb": 1},
    ),
    ("rtx_pro_6000", {"1g.24gb": 4, "2g.48gb": 2, "4g.96gb": 1}),
    (
        "b200",
        {"1g.23gb": 7, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1},
    ),
]


@pytest.mark.parametrize(
    ("model", "profile", "most"),
    [(model, profile, most) for model, all_ in MOST for profile, most in all_.items()],
)
def test_as_many_of_a_profile_as_nvidia_says_and_no_more(model, profile, most):
    assert mig_problems({profile: most}, model) == []
    [sentence] = mig_problems({profile: most + 1}, model)
    assert sentence.startswith(f"node_gpus.mig wants {most + 1} of {profile} on every GPU")


@pytest.mark.parametrize(
    ("model", "layout", "words"),
    [
        ("a100_sxm", {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}, ""),  # all-balanced of mig-parted
        ("a100_sxm", {"4g.20gb": 1, "3g.20gb": 1}, ""),
        ("a100_sxm", {"4g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}, ""),
        ("a100_sxm", {"1g.5gb": 4, "3g.20gb": 1}, ""),  # the 3g must lie behind
        ("a100_sxm", {"1g.10gb": 4}, ""),
        ("a100_sxm", {"1g.10gb": 7}, ""),  # of 80 GB
        ("a100_sxm", {"1g.5gb": 5, "3g.20gb": 1}, "no a100_sxm has room"),
        ("a100_sxm", {"1g.5gb": 1, "3g.40gb": 1}, "no a100_sxm has all of them"),
        ("a100_sxm", {"1g.12gb": 1}, "1g.12gb, which no a100_sxm has; it has 1g.5gb, 1g.10gb,"),
        ("a30", {"2g.12gb": 1, "1g.6gb": 3}, "no a30 has room"),
        ("l40s", {"1g.12gb": 1}, "the model l40s has no MIG"),
        ("l40", {"1g.12gb": 1}, "the model l40 has no MIG"),
        ("a10", {"1g.6gb": 1}, "the model a10 has no MIG"),
        ("h20_sxm", {"4g.71gb": 1, "3g.71gb": 1}, ""),  # of 141 GB
        ("rtx_pro_6000", {"2g.48gb": 1, "1g.24gb": 2}, ""),  # all-balanced of mig-parted
        ("rtx_pro_6000", {"2g.48gb": 2, "1g.24gb": 1}, "no rtx_pro_6000 has room"),
        ("rtx_pro_6000", {"1g.12gb": 1}, "it has 1g.24gb, 2g.48gb, 4g.96gb"),
        ("sites_own", {"1g.12gb": 7}, ""),
        ("sites_own", {"1g.12gb": 8}, "takes 8 slices"),
        ("sites_own", {"3g.40gb": 2, "2g.20gb": 1}, "takes 8 slices of every GPU, which has 7"),
        ("b300", {"1g.34gb": 7}, ""),
        ("gb300", {"1g.35gb": 7}, ""),
        ("gb300", {"1g.31gb": 7}, ""),  # by a newer driver
        ("h100_sxm", {"1g10gb": 7}, "1g10gb is no profile"),
        ("none", {}, ""),
    ],
)
def test_layouts_that_fit_and_others(model, layout, words):
    problems = " ".join(mig_problems(layout, model))
    assert words in problems
    assert bool(problems) is bool(words)


def test_every_model_of_the_contract_is_known_or_left_to_its_site():
    models = load().gpu_models
    assert [m for m in models if m not in mig.BOARDS and m not in mig.WITHOUT] == ["b300", "gb300"]
    assert not mig.WITHOUT & mig.BOARDS.keys()


layouts = st.dictionaries(st.sampled_from(list(mig.BOARDS["h100_nvl"][0])), st.integers(1, 3))


@given(layouts)
def test_places_are_those_of_the_board_and_never_shared(layout):
    board = mig.BOARDS["h100_nvl"][0]
    places = mig.placed(board, layout)
    if places is None:
        wanted = [profile for profile, each in layout.items() for _ in range(each)]
        if len(wanted) < 6:  # no order of them fits, either, each at the first free place
            assert not any(_greedy(board, order) for order in set(permutations(wanted)))
        return
    taken = [at for profile, start in places for at in range(start, start + board[profile].size)]
    assert len(taken) == len({*taken})
    assert all(start in board[profile].starts for profile, start in places)
    names = [profile for profile, _ in places]
    assert {profile: names.count(profile) for profile in names} == layout


def _greedy(board, order):
    taken: set[int] = set()
    for profile in order:
        places = [{*range(at, at + board[profile].size)} for at in board[profile].starts]
        free = [place for place in places if not place & taken]
        if not free:
            return False
        taken |= free[0]
    return True


def test_the_plan_is_the_same_on_the_node_and_in_gres_conf():
    plan = mig_plan({"3g.20gb": 1, "1g.5gb": 2}, "a100_sxm", 2)
    assert plan["create"] == ["3g.20gb:0", "1g.5gb:4", "1g.5gb:5"]
    assert [instance["devices"][0] for instance in plan["instances"]] == [
        f"/dev/plumbline-mig/gpu{gpu}-{name}.gi"
        for names in (["3g.20gb-0"], ["1g.5gb-0", "1g.5gb-1"])
        for gpu in (0, 1)
        for name in names
    ]
    nothing = {"gpus": 2, "layout": {}, "create": [], "instances": []}
    assert mig_plan({}, "a100_sxm", 2) == nothing
    # The memory of this one has twelve slices.
    halves = mig_plan({"1g.24gb": 2, "2g.48gb": 1}, "rtx_pro_6000", 1)
    assert halves["create"] == ["2g.48gb:0", "1g.24gb:6", "1g.24gb:9"]
    small_first = mig_plan({"1g.5gb": 2, "3g.20gb": 1}, "a100_sxm", 1)
    assert small_first["create"] == plan["create"]
    assert small_first["instances"][0]["profile"] == "1g.5gb"
    # Without a table the driver chooses the places, for the large ones first.
    own = mig_plan({"1g.34gb": 1, "3g.135gb": 1}, "b300", 1)
    assert own["create"] == ["3g.135gb", "1g.34gb"]


def test_slurmd_waits_for_what_is_made_last():
    halves = {"model": "a100_sxm", "count": 8, "mig": {"1g.5gb": 1, "3g.20gb": 1}}
    assert mig_devices(halves) == ["/dev/nvidia7", "/dev/plumbline-mig/gpu7-3g.20gb-0.ci"]
    assert mig_devices({"model": "l4", "count": 1}) == ["/dev/nvidia0"]
    assert mig_devices({"model": "none", "count": 0}) == []


def test_nodes_are_described_in_the_words_of_the_declaration():
    def gpu(*profiles):
        instances = [{"name": f"NVIDIA A100 MIG {name}", "uuid": "MIG-1"} for name in profiles]
        return {"index": 0, "values": {"mig_instances": instances or None}}

    assert mig_described([gpu("3g.20gb", "3g.20gb")] * 2) == {"mig": {"3g.20gb": 2}}
    assert mig_described([gpu("3g.20gb"), gpu()]) == {"mig_of_each_gpu": [{"3g.20gb": 1}, {}]}
    assert mig_described([gpu(), gpu()]) == {}
    assert mig_described([]) == {}
