"""Plots of request owners over time, stacked up to the total of the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opwatch.owners.cells import OwnedCounts, OwnerKey, counts_sum
from opwatch.report.bins import TimeBin, thinned
from opwatch.sinks.report.plots.figure import Figure
from opwatch.sinks.report.plots.markup import boxes
from opwatch.sinks.report.plots.scales import EXTENT, AxisScale, linear
from opwatch.sinks.report.plots.traces import Backdrop

# Maximum numbers of colours and columns that remain distinguishable.
MOST_OWNERS = 6
_MOST_COLUMNS = 240
_OTHER = ("op-other", "other")


@dataclass(frozen=True, slots=True)
class _Amount:
    """The stacked quantity of an owner in a bin."""

    title: str
    unit: str
    value: Callable[[OwnedCounts, float], float]


_AMOUNTS = (
    _Amount(
        "Throughput by owner",
        "MB/s read and written",
        lambda counts, seconds: counts.bytes / seconds / 1e6,
    ),
    _Amount(
        "Requests by owner",
        "requests a second",
        lambda counts, seconds: counts.requests / seconds,
    ),
    _Amount(
        "Time in the device by owner",
        "requests in the device, on the average",
        lambda counts, seconds: counts.sum_ns / 1e9 / seconds,
    ),
)


def owner_figures(
    owners: Sequence[tuple[OwnerKey, str]], bins: Sequence[TimeBin], begin_ns: int, back: Backdrop
) -> Iterator[Figure]:
    """Yield a plot per amount for these owners and all others. `owners` have the names used in the legend."""
    few = thinned([one for one in bins if one.owners], _MOST_COLUMNS)
    shown = owners[:MOST_OWNERS]
    for amount in _AMOUNTS:
        yield _figure(amount, shown, few, begin_ns, back)


def _parts(one: TimeBin, owners: Sequence[tuple[OwnerKey, str]]) -> list[OwnedCounts]:
    """Return the counts of each owner in a bin, followed by those of all others."""
    if one.owners is None:
        return []
    own = [one.owners.of(key) for key, _ in owners]
    shown = {key for key, _ in owners}
    rest = [counts for key, counts in one.owners.owners.items() if key not in shown]
    return [*own, counts_sum((one.owners.other, *rest))]


def _figure(
    amount: _Amount,
    owners: Sequence[tuple[OwnerKey, str]],
    bins: Sequence[TimeBin],
    begin_ns: int,
    back: Backdrop,
) -> Figure:
    columns = [[amount.value(part, one.seconds) for part in _parts(one, owners)] for one in bins]
    y = linear(max((sum(column) for column in columns), default=1.0))
    layers, legend = [], []
    named = [(f"run{place}", words) for place, (_, words) in enumerate(owners)]
    for place, (kind, words) in enumerate([*named, _OTHER]):
        layer = boxes(_stacked(columns, place, bins, begin_ns, back, y), f"bar {kind}")
        layers.append(layer)
        legend += [(kind, words)] if layer else []
    together = max((one.intervals for one in bins), default=1)
    return back.figure(
        amount.title,
        y,
        y_title=amount.unit,
        layers=layers,
        legend=legend,
        note=f"A column is {together} intervals." if together > 1 else "",
    )


def _stacked(
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
        top, bottom = (EXTENT - y.at(value) for value in (below + column[place], below))
        left, right = (back.time.at((at - begin_ns) / 1e9) for at in (one.begin_ns, one.end_ns))
        if bottom > top:
            yield left, top, max(right - left, 1), bottom - top
