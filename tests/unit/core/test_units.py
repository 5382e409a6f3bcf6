from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0n"),
        (850, "850n"),
        (999.4, "999n"),
        (999.6, "1.00u"),
        (17_400, "17.4u"),
        (1_020_000, "1.02m"),
        (999_499, "999u"),
        (999_500, "1.00m"),
        (68_700_000_000, "68.7s"),
    ],
)
def test_duration_is_rounded_with_its_unit(ns: float | None, text: str) -> None:
    assert units.format_ns(ns) == text


@given(st.floats(0, 9e12))
def test_durations_fit_their_column_and_are_right_to_half_a_percent(ns: float) -> None:
    text = units.format_ns(ns)
    assert len(text) <= 5
    value = float(text[:-1]) * {"n": 1, "u": 1e3, "m": 1e6, "s": 1e9}[text[-1]]
    assert value == pytest.approx(ns, rel=0.0051, abs=0.5)


@given(st.floats(0, 9e9))
def test_rates_fit_their_column(per_second: float) -> None:
    assert len(units.format_rate(per_second)) <= 6


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(None, "-"), (512, "512"), (4096, "4k"), (1 << 20, "1M"), (1_310_720, "1.25M"), (3 << 30, "3G")],
)
def test_size_is_rounded_with_its_unit(n_bytes: int | None, text: str) -> None:
    assert units.format_size(n_bytes) == text


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(0, "0 B"), (960_197_124_096, "960 GB"), (1_920_383_410_176, "1.92 TB")]
)
def test_capacity_is_rounded_with_its_unit(n_bytes: int, text: str) -> None:
    assert units.format_capacity(n_bytes) == text


def test_plain_numbers_have_no_exponents() -> None:
    values = (0.0, 1e-7, 0.004, 0.0312, 0.31, 1.0, 19.4, 268.3, 41234.0)
    assert [units.format_plain(value) for value in values] == [
        "0",
        "<0.01",
        "<0.01",
        "0.031",
        "0.31",
        "1",
        "19",
        "268",
        "41234",
    ]
    assert units.format_plain(999.96, 4) == "1000"
