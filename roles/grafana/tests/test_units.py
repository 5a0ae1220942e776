"""Numbers as Grafana writes them."""

import pytest

from roles.grafana.page import units
from roles.grafana.tests.test_dashboards import UNITS


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "short", "0"),
        (5, "short", "5"),
        (12345, "short", "12.3 K"),
        (0.375, "percentunit", "37.5%"),
        (1, "percentunit", "100%"),
        (0, "percentunit", "0%"),
        (44.44, "percent", "44.4%"),
        (0, "bytes", "0 B"),
        (1.25 * 2**40, "bytes", "1.25 TiB"),
        (60000, "mbytes", "58.6 GiB"),
        (0.5, "mbytes", "512 KiB"),
        (2e6, "Bps", "2 MB/s"),
        (3 * 2**20, "binBps", "3 MiB/s"),
        (4e11, "bps", "400 Gb/s"),
        (1.98e9, "hertz", "1.98 GHz"),
        (1700, "watt", "1.7 kW"),
        (0.5, "watt", "0.5 W"),
        (1100, "watth", "1.1 kWh"),
        (70, "celsius", "70 °C"),
        (0.000219, "s", "219 µs"),
        (1, "s", "1 s"),
        (86400, "s", "1 day"),
        (90 * 86400, "s", "12.9 weeks"),
        (-60, "s", "-1 min"),
        (0.1, "reqps", "0.1 req/s"),
        (0, "bool_yes_no", "No"),
        (1, "bool_yes_no", "Yes"),
        (3, "none", "3"),
        (3, "parsec", "3 parsec"),
    ],
)
def test_a_value_has_the_unit_that_fits_it(value, unit, text):
    assert units.written(value, unit) == text


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_every_unit_of_the_dashboards_is_known(unit):
    assert units.known(unit)
    assert not units.known("parsec")


def test_all_values_of_an_axis_have_one_unit():
    assert units.scale("bytes", 3 * 2**30) == (2**30, " GiB")
    assert units.scale("s", 0) == (1, " s")
