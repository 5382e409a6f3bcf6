"""Estimate the end of a drive's rated life from its load in a recording, instead of its lifetime average."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.counters.prove.sanity import MAX_HOURS
from opwatch.counters.reading import CounterReading, Report, WearOutlook


@dataclass(frozen=True, slots=True)
class LoadInterval:
    """Two polls and the hours between them, with an error of `slack_h`. `assumes` names the assumption of an
    outlook."""

    first: Report
    last: Report
    hours: float
    slack_h: float = 0.0
    assumes: str = "the load continues as in the recording"

    def find_growth(self, name: str) -> tuple[int, CounterReading] | None:
        """Return (growth, last reading) of a counter, or None if missing or decreasing.

        Uses the first source of the last poll that also exists in the first poll. Lower bounds of bytes are
        skipped, because they do not grow with the true value.
        """
        begins = {
            (reading.source, reading.unit): reading.value for reading in _list_readings(self.first, name)
        }
        for end in _list_readings(self.last, name):
            if end.at_least and end.unit == "bytes":
                continue
            begin = begins.get((end.source, end.unit))
            if begin is not None and end.value is not None:
                return (end.value - begin, end) if end.value >= begin else None
        return None


def _list_readings(report: Report, name: str) -> list[CounterReading]:
    first = [report.readings[name]] if name in report.readings else []
    return [*first, *report.others.get(name, [])]


def _make_outlook(stretch: LoadInterval, by: str, least: float, most: float, what: str) -> WearOutlook:
    """Convert shares of the interval to whole hours. Times beyond any drive's life are left unbounded."""
    least, most = least * (stretch.hours - stretch.slack_h), most * (stretch.hours + stretch.slack_h)
    bounded = None if most > MAX_HOURS else math.ceil(most)
    return WearOutlook(by, math.floor(min(least, MAX_HOURS)), bounded, f"{stretch.assumes}; {what}")


def _estimate_by_percentage(stretch: LoadInterval) -> WearOutlook | None:
    """Estimate by percentage used.

    Both percentages are integers, each less than 1 from the wear, so a growth below 2 says almost nothing.
    The lifetime average is the better estimate then.
    """
    grown, used = stretch.find_growth("percentage_used") or (0, None)
    if grown < 2 or used is None or used.value is None or used.value >= 100 or used.at_least:
        return None
    left = 100 - used.value
    return _make_outlook(
        stretch,
        f"{grown} % more used in {stretch.hours:.3g} hours",
        max(left - used.quantum, 0) / (grown + 1),
        (left + used.quantum) / (grown - 1),
        "100 % is the end of the rated life, not of the drive",
    )


def _estimate_by_rating(stretch: LoadInterval, rated_bytes: int) -> WearOutlook | None:
    """Estimate by the rated bytes. Each count has an error below one step, and so has the growth."""
    grown, written = stretch.find_growth("host_written") or (0, None)
    if written is None or written.value is None or grown <= written.quantum:
        return None
    step = written.quantum
    left = rated_bytes - written.value
    return _make_outlook(
        stretch,
        f"{grown} more bytes written in {stretch.hours:.3g} hours",
        max(0.0, (left - step) / (grown + step)),
        max(0.0, (left + step) / (grown - step)),
        "the rating is the vendor's",
    )


def estimate_outlooks(stretch: LoadInterval, rated_bytes: int | None) -> Iterator[WearOutlook]:
    """Yield the estimates for a recording. Nothing if it is too short."""
    if stretch.hours <= 0:
        return
    if percentage := _estimate_by_percentage(stretch):
        yield percentage
    if rated_bytes and (rated := _estimate_by_rating(stretch, rated_bytes)):
        yield rated
