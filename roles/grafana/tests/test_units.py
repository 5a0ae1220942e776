"""Numbers as Grafana writes them."""

import pytest

from roles.grafana.page import units


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "locale", "0"),
        (1000, "locale", "1,000"),
        (12345.5, "locale", "12,345.5"),
        (0.375, "percentunit", "37.5%"),
        (1, "percentunit", "100%"),
        (0, "percentunit", "0%"),
        (70, "celsius", "70 °C"),
        (0, "s", "0 s"),
        (1, "s", "1 s"),
        (86400, "s", "1 day"),
        (90 * 86400, "s", "90 days"),
        (-60, "s", "-1 min"),
    ],
)
def test_a_value_has_the_unit_that_fits_it(value, unit, text):
    assert units.written(value, unit) == text
