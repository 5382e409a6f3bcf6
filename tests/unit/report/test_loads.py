"""A slower drive and a smaller load are distinguished by queue depth and request rate."""

from __future__ import annotations

from opwatch.report.bins import OpBin, TimeBin
from opwatch.report.loads import LoadFigure, find_load_changes

S = 10**9


def make_op_bin(
    depth: float = 8.0, *, rate: int = 1000, size: int = 4096, ordered: float | None = None
) -> OpBin:
    return OpBin(
        count=rate,
        bytes=rate * size,
        device_s=depth,
        ordered=rate if ordered is not None else 0,
        sequential=rate * (ordered or 0.0),
    )


def make_bins(**ops: OpBin) -> list[TimeBin]:
    return [TimeBin(at * S, (at + 1) * S, 1.0, 1, ops) for at in range(5)]


def list_figures(before: list[TimeBin], after: list[TimeBin], op: str = "write") -> list[LoadFigure] | None:
    changes = find_load_changes(op, before, after)
    return None if changes is None else [change.figure for change in changes]


def test_a_drive_that_gets_slower_under_the_same_load() -> None:
    assert list_figures(make_bins(write=make_op_bin()), make_bins(write=make_op_bin(rate=300))) == []
    # An open load on a slower drive has more requests in flight.
    assert list_figures(make_bins(write=make_op_bin()), make_bins(write=make_op_bin(16.0, rate=300))) == []
    assert list_figures(make_bins(write=make_op_bin(rate=300)), make_bins(write=make_op_bin(4.0))) == []


def test_fewer_in_flight_are_a_smaller_load() -> None:
    before = make_bins(write=make_op_bin())
    assert list_figures(before, make_bins(write=make_op_bin(2.4, rate=300))) == [LoadFigure.DEPTH]
    assert list_figures(make_bins(write=make_op_bin(2.4, rate=300)), before) == [LoadFigure.DEPTH]


def test_other_sizes_and_another_order_are_another_load() -> None:
    before = make_bins(write=make_op_bin(ordered=0.98))
    assert list_figures(before, make_bins(write=make_op_bin(rate=100, size=65536))) == [LoadFigure.SIZE]
    assert list_figures(before, make_bins(write=make_op_bin(rate=300, ordered=0.02))) == [
        LoadFigure.SEQUENTIAL
    ]


def test_other_operation_with_a_larger_share_is_another_load() -> None:
    before = make_bins(write=make_op_bin(), read=make_op_bin(0.1, rate=50))
    after = make_bins(write=make_op_bin(rate=300), read=make_op_bin(rate=4000))
    (change,) = find_load_changes("write", before, after) or ()
    assert (change.figure, change.op, change.before, change.after) == (LoadFigure.OTHER, "read", 50, 4000)
    # Reads are faster at the same queue depth because there are fewer writes.
    assert (
        list_figures(
            make_bins(write=make_op_bin(), read=make_op_bin()),
            make_bins(write=make_op_bin(rate=300), read=make_op_bin(rate=2000)),
        )
        == []
    )


def test_load_change_is_unknown_without_queue_depths() -> None:
    assert (
        list_figures(make_bins(write=make_op_bin(0.0)), make_bins(write=make_op_bin(0.0, rate=300))) is None
    )
    assert list_figures([], make_bins(write=make_op_bin())) is None
