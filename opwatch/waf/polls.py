"""Converts a reading of a drive's counters to a poll of a trail."""

from __future__ import annotations

from opwatch.counters.looks.sample import FirmwareSample
from opwatch.counters.reading import CounterReading, Report
from opwatch.waf.trail import Poll

_BOUND = "a lower bound does not grow with the true value"
_SHUTDOWNS = ("unsafe_shutdowns", "incomplete_shutdowns")


def make_poll(
    report: Report,
    begin_ns: int,
    end_ns: int,
    before: int | None,
    after: int | None,
    flying: int = 0,
    parts: dict[str, int] | None = None,
) -> Poll:
    """Return the poll for a report."""

    def list_readings(name: str) -> tuple[CounterReading, ...]:
        readings = (report.readings[name], *report.others.get(name, []))
        return tuple(reading.without_value(_BOUND) if reading.at_least else reading for reading in readings)

    shutdowns = {name: report.readings[name].value for name in _SHUTDOWNS if name in report.readings}
    return Poll(
        begin_ns=begin_ns,
        end_ns=end_ns,
        before=before,
        after=after,
        flying=flying,
        host=list_readings("host_written"),
        nand=list_readings("nand_written"),
        shutdowns={name: count for name, count in shutdowns.items() if count is not None},
        parts=parts or {},
    )


def make_poll_from_sample(sample: FirmwareSample, report: Report) -> Poll:
    """Return the poll for a reading with this report."""
    return make_poll(
        report=report,
        begin_ns=sample.begin_ns,
        end_ns=sample.end_ns,
        before=sample.before,
        after=sample.after,
        flying=sample.flying,
        parts=dict(sample.parts),
    )
