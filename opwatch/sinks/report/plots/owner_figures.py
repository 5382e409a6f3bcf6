"""Plots of request owners over time, stacked up to the total of the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opwatch.owners.cells import OwnedCounts, OwnerKey, add_counts
from opwatch.report.bins import TimeBin, thin_bins
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.markup import draw_boxes
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, make_linear_axis
from opwatch.sinks.report.plots.traces import Backdrop

# Maximum numbers of colours and columns that remain distinguishable.
MAX_OWNERS = 6
_MAX_COLUMNS = 240
_OTHER = ("op-other", "other")


@dataclass(frozen=True, slots=True)
class _StackedAmount:
    """The stacked quantity of an owner in a bin."""

    title: str
    unit: str
    value: Callable[[OwnedCounts, float], float]


_AMOUNTS = (
    _StackedAmount(
        "Throughput by owner",
        "MB/s read and written",
        lambda counts, seconds: counts.bytes / seconds / 1e6,
    ),
    _StackedAmount(
        "Requests by owner",
        "requests per second",
        lambda counts, seconds: counts.requests / seconds,
    ),
    _StackedAmount(
        "Time in the device by owner",
        "mean number of requests in the device",
        lambda counts, seconds: counts.sum_ns / 1e9 / seconds,
    ),
)


def plot_owners(
    owners: Sequence[tuple[OwnerKey, str]], bins: Sequence[TimeBin], begin_ns: int, back: Backdrop
) -> Iterator[Figure]:
    """Yield a plot per amount for these owners and all others. `owners` have the names used in the legend."""
    few = thin_bins([one for one in bins if one.owners], _MAX_COLUMNS)
    shown = owners[:MAX_OWNERS]
    for amount in _AMOUNTS:
        yield _plot_amount(amount, shown, few, begin_ns, back)


def _split_by_owner(one: TimeBin, owners: Sequence[tuple[OwnerKey, str]]) -> list[OwnedCounts]:
    """Return the counts of each owner in a bin, followed by those of all others."""
    if one.owners is None:
        return []
    own = [one.owners.find_counts(key) for key, _ in owners]
    shown = {key for key, _ in owners}
    rest = [counts for key, counts in one.owners.owners.items() if key not in shown]
    return [*own, add_counts((one.owners.other, *rest))]


def _plot_amount(
    amount: _StackedAmount,
    owners: Sequence[tuple[OwnerKey, str]],
    bins: Sequence[TimeBin],
    begin_ns: int,
    back: Backdrop,
) -> Figure:
    columns = [[amount.value(part, one.seconds) for part in _split_by_owner(one, owners)] for one in bins]
    y = make_linear_axis(max((sum(column) for column in columns), default=1.0))
    layers, legend = [], []
    named = [(f"run{place}", words) for place, (_, words) in enumerate(owners)]
    for place, (kind, words) in enumerate([*named, _OTHER]):
        layer = draw_boxes(_stack_boxes(columns, place, bins, begin_ns, back, y), f"bar {kind}")
        layers.append(layer)
        legend += [(kind, words)] if layer else []
    together = max((one.intervals for one in bins), default=1)
    return back.make_figure(
        amount.title,
        y,
        y_title=amount.unit,
        layers=layers,
        legend=legend,
        note=f"Each column covers {together} intervals." if together > 1 else "",
    )


def _stack_boxes(
    columns: Sequence[Sequence[float]],
    place: int,
    bins: Sequence[TimeBin],
    begin_ns: int,
    back: Backdrop,
    y: AxisScale,
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the boxes of a part of each column, stacked on the previous parts."""
    for column, one in zip(columns, bins, strict=True):
        below = sum(column[:place])
        top, bottom = (EXTENT - y.place_value(value) for value in (below + column[place], below))
        left, right = (back.time.place_value((at - begin_ns) / 1e9) for at in (one.begin_ns, one.end_ns))
        if bottom > top:
            yield left, top, max(right - left, 1), bottom - top
