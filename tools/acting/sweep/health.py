"""Read the health of a drive for comparison with budgets."""

from __future__ import annotations

from opwatch.collectors.firmware.counting import CounterPoller
from opwatch.counters.decode.pages import BadPage
from opwatch.counters.decode.smart_log import decode_smart_log
from opwatch.counters.looks.sample import CommandKind, FirmwareSample
from opwatch.counters.reading import Report
from opwatch.guard.budget import Health

_SMART_LOG = 0x02


def read_health(counting: CounterPoller) -> Health:
    report = counting.read_report()
    return make_health(report, counting.read_sample())


def make_health(report: Report, sample: FirmwareSample) -> Health:
    def find_value(name: str) -> int | None:
        reading = report.readings.get(name)
        return reading.value if reading else None

    return Health(
        host_bytes=sample.after,
        percentage_used=find_value("percentage_used"),
        available_spare=find_value("available_spare"),
        spare_threshold=find_value("spare_threshold"),
        critical_warning=_decode_warning(sample),
        celsius=find_value("temperature"),
    )


def _decode_warning(sample: FirmwareSample) -> int | None:
    """Return the critical warning byte of an NVMe drive, or None for others."""
    for answered in sample.answers:
        is_smart = answered.command.kind is CommandKind.LOG and answered.command.number == _SMART_LOG
        if is_smart and isinstance(answered.answer, bytes):
            try:
                return decode_smart_log(answered.answer).critical_warning
            except BadPage:
                return None
    return None
