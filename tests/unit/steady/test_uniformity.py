"""Chi squared of the written regions, for writes with known results."""

from __future__ import annotations

import math

import pytest

from opwatch.steady.coverage import WriteMap

UNIT = 4096


def write_units(written: WriteMap, *counts: tuple[int, int]) -> None:
    """Record the given number of one-unit writes at each unit."""
    for unit, count in counts:
        for _ in range(count):
            written.record_write(unit * UNIT, UNIT)


def test_sigmas_are_the_excess_of_chi_squared() -> None:
    written = WriteMap(2 * UNIT)
    write_units(written, (0, 8), (1, 2))
    # Five writes of each unit are expected: (9 + 9) / 5, less one degree of freedom.
    assert written.measure_spread().uneven_sigmas == pytest.approx((3.6 - 1) / math.sqrt(2))


def test_only_regions_with_start_positions_are_compared() -> None:
    written = WriteMap(10 * UNIT)
    write_units(written, (0, 20), (4, 20), (8, 10))
    # All writes start at multiples of four units: (100 + 100 + 400) / 9 / (50 / 3) = 4, with two degrees of
    # freedom.
    assert written.measure_spread().uneven_sigmas == pytest.approx((4 - 2) / math.sqrt(4))


def test_uniformity_needs_five_writes_per_region() -> None:
    """Few writes are compared in fewer regions, and in no less than sixteen."""
    written = WriteMap(2560 * UNIT)
    write_units(written, (0, 78), (1, 1))
    assert written.measure_spread().uneven_sigmas is None
    write_units(written, (1, 1))
    assert written.measure_spread().is_uniform is False


def test_single_region_has_no_uniformity() -> None:
    written = WriteMap(UNIT)
    write_units(written, (0, 100))
    assert written.measure_spread().uneven_sigmas is None


def test_fill_does_not_count_as_random_writes() -> None:
    written = WriteMap(2 * UNIT)
    for _ in range(100):
        written.record_write(0, UNIT, counted=False)
    assert written.measure_spread().coverage_ratio == 0.5
    assert written.measure_spread().uneven_sigmas is None
    # A write outside of the area, and one that covers no unit.
    written.record_write(2 * UNIT, UNIT)
    written.record_write(UNIT // 2, UNIT)
    write_units(written, (0, 8), (1, 2))
    assert written.measure_spread().uneven_sigmas == pytest.approx((3.6 - 1) / math.sqrt(2))
