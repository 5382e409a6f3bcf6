"""Claims of the throughput comparison."""

from __future__ import annotations

import io

from opwatch.sinks.terminal import Writer
from opwatch.tools.commands.overhead import Throughput, _print_throughput


def format_throughput(*ratios: float) -> str:
    stream = io.StringIO()
    _print_throughput(Writer(stream), Throughput(list(ratios), 1000.0))
    return stream.getvalue()


def test_single_pair_proves_no_difference() -> None:
    one = Throughput([0.97], 1000.0)
    assert one.confidence_level == 0.0
    assert one.note and one.note in format_throughput(0.97)
    assert "1 pair," in format_throughput(0.97) and "confidence" not in format_throughput(0.97)


def test_range_reports_its_confidence() -> None:
    """All of n fair coins fall on the same side in 2 of 2^n cases."""
    assert Throughput([0.9, 1.0, 0.95], 1000.0).confidence_level == 0.75
    assert "0.900 to 1.000, 5 pairs" in format_throughput(0.9, 1.0, 0.95, 0.97, 0.93)
    assert "93.75 % confidence" in format_throughput(0.9, 1.0, 0.95, 0.97, 0.93)
