"""Compare two polls of a drive: write amplification, pace, and a forecast at that pace."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

from opwatch.counters.evidence import Evidence
from opwatch.counters.prove.outlook import LoadInterval, estimate_outlooks
from opwatch.counters.prove.sanity import MAX_HOURS
from opwatch.counters.reading import (
    CounterReading,
    LifetimeRatio,
    Pace,
    PolledInterval,
    Report,
    WearOutlook,
)
from opwatch.errors import UsageError

# The local times of two reports may be in different time zones.
_ZONES_H = 14
_DAY_H = 24
# Later dates are not a credible forecast.
_MAX_DAYS = 36_525
_ASSUMES = "the load continues as between the two polls"


def make_interval_report(
    polls: tuple[Evidence, Evidence], reports: tuple[Report, Report], rated: int | None
) -> Report:
    """Return the last report with the growth since the first, or raise UsageError for a wrong order."""
    first, last = reports
    begin, end = (one.readings["power_on_hours"].value for one in reports)
    if begin is None or end is None:
        raise UsageError(
            "the two reports are from different times, and one has no power-on hours: interval unknown"
        )
    if end < begin:
        raise UsageError(
            f"the second report is older ({end} power-on hours, the first {begin}): give the older one first"
        )
    # Hours are integers, each less than 1 from the true value.
    least, most = max(end - begin - 1, 0), end - begin + 1
    days = _count_days(polls)
    stretch = LoadInterval(first, last, (least + most) / 2, (most - least) / 2, _ASSUMES)
    interval = PolledInterval(least, most, days, *_compute_amplification(stretch))
    named = first.drive.serial and last.drive.serial
    doubt = () if named else ("a report has no serial number: it is not proven that both are from one drive",)
    return replace(
        last,
        interval=interval,
        paces=tuple(_compute_paces(stretch, least, most)),
        outlooks=tuple(_add_dates(one, polls[1], interval) for one in estimate_outlooks(stretch, rated))
        if least
        else (),
        failures=(*doubt, *last.failures),
    )


def _count_days(polls: tuple[Evidence, Evidence]) -> float | None:
    begin, end = (poll.local_time_s for poll in polls)
    return (end - begin) / 86400 if begin is not None and end is not None and end > begin else None


def _compute_amplification(stretch: LoadInterval) -> tuple[LifetimeRatio | None, str | None]:
    """Return the write amplification with its bounds, or a reason for its absence."""
    host, nand = stretch.find_growth("host_written"), stretch.find_growth("nand_written")
    if host is None or nand is None:
        side = "host" if host is None else "NAND"
        return None, f"no counter of {side} writes is proven in both reports, or it decreased"
    (written, by_host), (programmed, by_nand) = host, nand
    steps, nand_steps = (
        _compute_growth_error(by_host, written, stretch),
        _compute_growth_error(by_nand, programmed, stretch),
    )
    if written <= 2 * steps or programmed <= 2 * nand_steps:
        return None, "too little was written between the polls for the step and the age of the counters"
    return LifetimeRatio(
        programmed / written,
        (programmed - nand_steps) / (written + steps),
        (programmed + nand_steps) / (written - steps),
    ), None


def _compute_growth_error(reading: CounterReading, grown: int, stretch: LoadInterval) -> int:
    """Return the error of a growth: one step, plus the writes missing in an outdated page at the
    mean rate."""
    stale = grown * (reading.refresh_s or 0) / (3600 * max(stretch.hours - stretch.slack_h, 1))
    return reading.quantum + round(stale)


def _compute_paces(stretch: LoadInterval, least: int, most: int) -> list[Pace]:
    paces: list[Pace] = []
    for name, what in (("host_written", "host writes"), ("nand_written", "NAND writes")):
        grown = stretch.find_growth(name)
        if grown and least:
            bytes_grown, reading = grown
            low, high = max(bytes_grown - reading.quantum, 0), bytes_grown + reading.quantum
            bounds = low * _DAY_H / most, high * _DAY_H / least
            paces.append(Pace(what, "bytes per power-on day", *bounds))
    grown = stretch.find_growth("percentage_used")
    if grown and least and not grown[1].at_least:
        bounds = 1000 * max(grown[0] - 1, 0) / most, 1000 * (grown[0] + 1) / least
        paces.append(Pace("wear", "% per 1000 power-on hours", *bounds))
    return paces


def _add_dates(outlook: WearOutlook, last: Evidence, interval: PolledInterval) -> WearOutlook:
    """Add dates to an outlook, if both reports have a time. Assumes a constant share of power-on time."""
    if interval.days is None or last.local_time_s is None or not interval.least_hours:
        return outlook
    now = date(1970, 1, 1) + timedelta(seconds=last.local_time_s)
    zone = _ZONES_H / 24
    soonest = outlook.least_hours * max(interval.days - zone, 0) / interval.most_hours
    latest = None
    if outlook.most_hours is not None and outlook.most_hours < MAX_HOURS:
        latest = outlook.most_hours * (interval.days + zone) / interval.least_hours
    return replace(
        outlook, least_date=_format_date_after(now, soonest), most_date=_format_date_after(now, latest)
    )


def _format_date_after(now: date, days: float | None) -> str | None:
    return (now + timedelta(days=days)).isoformat() if days is not None and days <= _MAX_DAYS else None
