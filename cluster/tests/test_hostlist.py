"""Node list expressions, compared with what `scontrol show hostnames` prints for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.hostlist import HostlistError, compress, expand


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("gpu1", ["gpu1"]),
        ("login1,gpu1", ["login1", "gpu1"]),
        ("gpu[01-03,07],login1", ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]),
        ("gpu[8-11]", ["gpu8", "gpu9", "gpu10", "gpu11"]),
        ("gpu[008-010]", ["gpu008", "gpu009", "gpu010"]),
        ("gpu[9-10,098-100]", ["gpu9", "gpu10", "gpu098", "gpu099", "gpu100"]),
        ("r[1-2]n[1,3]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
        ("r[1-2]n1-ib", ["r1n1-ib", "r2n1-ib"]),
        ("gpu[5]", ["gpu5"]),
        ("gpu-a.site_1", ["gpu-a.site_1"]),
        (" gpu1, gpu2 ", ["gpu1", "gpu2"]),
        ("gpu1,gpu1", ["gpu1", "gpu1"]),
    ],
)
def test_an_expression_expands_in_its_own_order(expression, names):
    assert expand(expression) == names


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("", "names no node"),
        ("(null)", "names no node"),
        ("gpu[1-2", "unbalanced"),
        ("gpu1-2]", "unbalanced"),
        ("gpu[[1]]", "unbalanced"),
        ("gpu[]", "neither a number nor a range"),
        ("gpu[a-b]", "neither a number nor a range"),
        ("gpu[1-2-3]", "neither a number nor a range"),
        ("gpu[3-1]", "runs backwards"),
        ("gpu[0-99999999]", "more than"),
        ("a[1-999]b[1-999]c[1-999]", "more than"),
        ("gpu1,,gpu2", "not a node name"),
        ("gpu 1", "not a node name"),
        ("gpu1;reboot", "not a node name"),
    ],
)
def test_what_is_no_node_list_is_refused_in_one_sentence(expression, complaint):
    with pytest.raises(HostlistError, match=complaint) as caught:
        expand(expression)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        ([], ""),
        (["gpu1"], "gpu1"),
        (["login1", "gpu07", "gpu03", "gpu01", "gpu02"], "gpu[01-03,07],login1"),
        (["login1", "gpu1", "ctl", "gpu2"], "ctl,gpu[1-2],login1"),
        (["gpu10", "gpu9", "gpu8"], "gpu[8-10]"),
        (["gpu099", "gpu100"], "gpu[099-100]"),
        (["gpu9", "gpu010"], "gpu[9,010]"),
        (["gpu09", "gpu10", "gpu010"], "gpu[09-10,010]"),
        (["gpu", "gpu1", "gpu2"], "gpu,gpu[1-2]"),
        (["gpu1", "gpu1"], "gpu1"),
        (["r1-gpu1", "r1-gpu2", "r2-gpu1"], "r1-gpu[1-2],r2-gpu1"),
        (["1", "2"], "[1-2]"),
        ([f"gpu{n:03}" for n in [*range(1, 101), 105]], "gpu[001-100,105]"),
        ([f"n{n}" for n in range(10_000)], "n[0-9999]"),
    ],
)
def test_names_compress_to_the_usual_expression(names, expression):
    assert compress(names) == expression


_NAMES = st.from_regex(r"[a-z]{1,3}(-?[0-9]{1,4}){0,2}", fullmatch=True)


@given(st.sets(_NAMES, min_size=1, max_size=40))
def test_expanding_undoes_compressing(names):
    expanded = expand(compress(names))
    assert len(expanded) == len(names)
    assert set(expanded) == names


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (["gpu2", "gpu1"], "gpu[2,1]"),
        (["gpu1", "cpu1", "gpu2"], "gpu1,cpu1,gpu2"),
        (["10.0.0.9", "10.0.0.10", "10.0.1.1"], "10.0.0.[9-10],10.0.1.1"),
    ],
)
def test_an_ordered_host_list_keeps_every_name_where_it_is(names, expression):
    assert compress(names, ordered=True) == expression
    assert expand(expression) == names
