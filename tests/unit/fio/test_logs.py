from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.errors import BadInput
from opwatch.fio.logs import (
    FioHistogramLog,
    FioLog,
    FioLogKind,
    FioLogRow,
    compute_bin_middle_ns,
    is_log_name,
    parse_log,
)
from opwatch.fio.report import parse_report
from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Scale

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOOD, BAD = FIXTURES / "good" / "fio", FIXTURES / "bad" / "fio"


def read_log(name: str) -> FioLog | FioHistogramLog:
    return parse_log((GOOD / name).read_bytes(), name)


def test_rates_and_bandwidths_are_parsed_per_operation() -> None:
    rates, bandwidths = read_log("two_iops.2.log"), read_log("two_bw.2.log")
    assert isinstance(rates, FioLog) and isinstance(bandwidths, FioLog)
    assert (rates.kind, rates.job) == (FioLogKind.RATE, 2)
    assert {row.operation for row in rates.iter_rows()} == {"read", "write"}
    for rate, bandwidth in zip(rates.iter_rows(), bandwidths.iter_rows(), strict=True):
        assert (rate.time_ms, rate.operation) == (bandwidth.time_ms, bandwidth.operation)
        # 8 KiB per request; both values are rounded.
        assert bandwidth.value == pytest.approx(8 * rate.value, abs=8)
    times = [row.time_ms for row in rates.iter_rows()]
    # A separate clock, not the time since the start.
    assert times == sorted(times) and times[0] > 10_000_000 and times[-1] - times[0] < 1500


def test_single_request_rows_have_offsets() -> None:
    log = read_log("each_lat.1.log")
    assert isinstance(log, FioLog)
    assert len(log) == 23
    first = next(log.iter_rows())
    assert first == FioLogRow(1, 774301, "read", 4096)


def test_histograms_add_up_to_the_report() -> None:
    log = read_log("two_clat_hist.2.log")
    assert isinstance(log, FioHistogramLog)
    job = parse_report((GOOD / "two.txt").read_text()).jobs[1]
    for name in ("read", "write"):
        logged = sum(count for row in log.rows if row.operation == name for _, count in row.bins)
        assert 0 < logged <= job.operations[name].requests


@given(st.integers(0, (1 << 34) - 1))
def test_bin_is_within_a_single_slot(value: int) -> None:
    place = Scale(bits=6, slots=29 * 64).find_slot(value)
    assert LATENCY.find_slot(compute_bin_middle_ns(place)) == LATENCY.find_slot(value)


@pytest.mark.parametrize("coarseness", range(7))
def test_coarse_bins_increase(coarseness: int) -> None:
    middles = [compute_bin_middle_ns(place, coarseness) for place in range(1856 >> coarseness)]
    assert middles == sorted(set(middles))


@pytest.mark.parametrize("name", ["a_bw.log", "a b_clat.12.log", "iops.1.log", "x_clat_hist.3.log"])
def test_log_names_are_parsed(name: str) -> None:
    assert is_log_name(name)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("words_bw.1.log", "words_bw.1.log, line 2: 1000, many"),
        ("operation_clat.1.log", "line 1: 4 is not an operation"),
        ("columns_iops.1.log", "line 1: 3 values, not 4 to 6"),
        ("bins_clat_hist.1.log", "line 1: 3 bins; fio writes 1856"),
    ],
)
def test_invalid_log_is_refused_with_its_line(name: str, place: str) -> None:
    with pytest.raises(BadInput, match=place):
        parse_log((BAD / name).read_bytes(), name)


def test_file_name_without_a_log_kind_is_refused() -> None:
    with pytest.raises(BadInput, match=r"notes\.txt"):
        parse_log(b"", "notes.txt")
