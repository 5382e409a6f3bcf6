"""When a drive's rated life ends if it goes on as in a recording: its load now, and not since it was new."""

from __future__ import annotations

import math
from collections.abc import Iterator

from opwatch.counters.prove.sanity import MOST_HOURS
from opwatch.counters.reading import CounterReading, Report, WearOutlook
from opwatch.frozen import frozen


@frozen
class LoadStretch:
    """Two polls and the hours between them, which may be wrong by `slack_h`. `assumes` is what an outlook
    takes for granted."""

    first: Report
    last: Report
    hours: float
    slack_h: float = 0.0
    assumes: str = "it goes on as in the recording"

    def grown(self, name: str) -> tuple[int, CounterReading] | None:
        """By how much a counter grew, and what it is now: of those that both looks have, the one that the
        last has first. It is None where there is none, or it went back. A lower bound of bytes does not grow
        with what it bounds."""
        begins = {(reading.source, reading.unit): reading.value for reading in _all(self.first, name)}
        for end in _all(self.last, name):
            if end.at_least and end.unit == "bytes":
                continue
            begin = begins.get((end.source, end.unit))
            if begin is not None and end.value is not None:
                return (end.value - begin, end) if end.value >= begin else None
        return None


def _all(report: Report, name: str) -> list[CounterReading]:
    first = [report.readings[name]] if name in report.readings else []
    return [*first, *report.others.get(name, [])]


def _outlook(stretch: LoadStretch, by: str, least: float, most: float, what: str) -> WearOutlook:
    """Whole hours from shares of the stretch. What is further than any drive has been on is not bounded."""
    least, most = least * (stretch.hours - stretch.slack_h), most * (stretch.hours + stretch.slack_h)
    bounded = None if most > MOST_HOURS else math.ceil(most)
    return WearOutlook(by, math.floor(min(least, MOST_HOURS)), bounded, f"{stretch.assumes}; {what}")


def _by_percentage(stretch: LoadStretch) -> WearOutlook | None:
    """Both percentages are integers, each less than 1 away from the wear. What did not grow by 2 says next to
    nothing: the average since the drive was new does."""
    grown, used = stretch.grown("percentage_used") or (0, None)
    if grown < 2 or used is None or used.value is None or used.value >= 100 or used.at_least:
        return None
    left = 100 - used.value
    return _outlook(
        stretch,
        f"{grown} % more used in {stretch.hours:.3g} hours",
        max(left - used.quantum, 0) / (grown + 1),
        (left + used.quantum) / (grown - 1),
        "100 % ends its rated life, not the drive",
    )


def _by_rating(stretch: LoadStretch, rated_bytes: int) -> WearOutlook | None:
    """Each count is less than one step from the truth, so the growth is less than one from its own."""
    grown, written = stretch.grown("host_written") or (0, None)
    if written is None or written.value is None or grown <= written.quantum:
        return None
    step = written.quantum
    left = rated_bytes - written.value
    return _outlook(
        stretch,
        f"{grown} bytes more written in {stretch.hours:.3g} hours",
        max(0.0, (left - step) / (grown + step)),
        max(0.0, (left + step) / (grown - step)),
        "the rating is the maker's",
    )


def outlooks_of(stretch: LoadStretch, rated_bytes: int | None) -> Iterator[WearOutlook]:
    """All that the recording tells of the end; nothing where it is too short to."""
    if stretch.hours <= 0:
        return
    if percentage := _by_percentage(stretch):
        yield percentage
    if rated_bytes and (rated := _by_rating(stretch, rated_bytes)):
        yield rated
