"""Prove ATA device statistics: compare logical sectors written with the drive's other counters."""

from __future__ import annotations

from opwatch.counters.evidence import Attribute, Evidence, Statistics
from opwatch.counters.prove import sanity
from opwatch.counters.prove.limits import WriteLimits
from opwatch.counters.reading import CounterReading, Proof, make_unknown

WRAP = 1 << 32
RAW_BITS = 48
# Units of host counters on real SATA drives. Units of other protocols would match by chance.
UNITS = (512, 1 << 24, 1 << 25, 10**9, 1 << 30)
# SandForce controllers save their attributes occasionally and lose the latest growth.
_LAG = 0.15
# Smaller counts may match by chance.
_CHANCE = 10_000
_SLACK_SECTORS = 1 << 20
_WRAPS = "device statistics of these drives wrap at 2^32 sectors (2.2 TB)"


def is_close(ours: int, theirs: int, quantum: int, tolerance: float = 0.02) -> bool:
    """Check S1: return whether two counts agree within 2 % and two steps."""
    return abs(ours - theirs) <= tolerance * max(ours, theirs) + 2 * quantum


def is_lagging(attribute: int, statistics: int, quantum: int) -> bool:
    """Return whether an attribute equals the statistics, or lags by growth not saved yet."""
    return -_LAG * statistics - 2 * quantum <= attribute - statistics <= 0.005 * statistics + 2 * quantum


def is_wrapped(statistics: int, attribute: int, quantum: int) -> bool:
    """Return whether the device statistics equal an attribute's sectors modulo 2^32."""
    if statistics >= WRAP or attribute < WRAP:
        return False
    apart = (statistics - attribute) % WRAP
    return min(apart, WRAP - apart) <= 2 * quantum // 512 + _SLACK_SECTORS // 64


def refuse_wrapped(statistics: CounterReading) -> CounterReading:
    """Refuse statistics that an attribute proves to have wrapped."""
    return statistics.without_value("wrapped at 2^32 sectors (2.2 TB)")


class StatisticsProof:
    """Device statistics of one drive. `wraps`: drives of this kind are known to wrap."""

    def __init__(self, evidence: Evidence, limits: WriteLimits, *, wraps: bool) -> None:
        self._evidence = evidence
        self._limits = limits
        self._wraps = wraps

    def find_written_bytes(self) -> CounterReading | None:
        """Return the bytes that the host wrote, not yet compared with attributes. None without statistics."""
        statistics = self._evidence.statistics
        sectors = statistics.sectors_written if statistics else None
        if sectors is None or statistics is None:
            return None
        lba = self._limits.lba
        source = "device statistics 01h/018h, logical sectors written"
        reading = CounterReading(sectors * lba, "bytes", lba, source, Proof.SPEC)
        if sectors >= (1 << RAW_BITS) - 1:
            return reading.without_value("all ones: saturated or not supported")
        if not sectors and statistics.write_commands != 0:
            return reading.without_value("the counter is 0: nothing was written, or the drive does not count")
        reason = self._limits.check_limits(sectors * lba) or self._check_copied(statistics)
        return reading.without_value(reason) if reason else reading

    def _check_copied(self, statistics: Statistics) -> str | None:
        """Return a reason if the firmware copies attributes into the statistics page."""
        commands = statistics.write_commands or 0
        attribute = self._evidence.find_attribute(241)
        if commands < _CHANCE or commands not in (attribute and attribute.raw, statistics.sectors_written):
            return None
        return "their count of commands repeats another counter: the page does not follow the standard"

    def check_unconfirmed(self, reading: CounterReading) -> CounterReading:
        """Check statistics that no attribute of known unit confirms."""
        value, lba = reading.value or 0, self._limits.lba
        if self._wraps and value < WRAP * lba:
            return reading.without_value(_WRAPS)
        statistics = self._evidence.statistics
        commands = statistics.write_commands if statistics else None
        reason = sanity.find_first_reason(
            self._check_contradiction(value),
            sanity.check_mean_write(value, commands, lba, 32 << 20),
            sanity.check_wrap(value, commands),
        )
        return reading.without_value(reason) if reason else reading

    def _check_contradiction(self, value: int) -> str | None:
        """Return a reason if an attribute of host writes equals the statistics in no unit, or None."""
        attributes = (self._evidence.find_attribute(number) for number in (241, 246, 225))
        names = ("LBA", "Host", "Write", "Wts")
        shown = [
            attribute
            for attribute in attributes
            if attribute and attribute.raw and any(name in attribute.name for name in names)
        ]
        if not shown or self._is_confirmed(value, shown) or self._is_repeated(value):
            return None
        source = f"attribute {shown[0].id} {shown[0].name}"
        if value < WRAP * self._limits.lba:
            return f"{source} differs from them in every unit: they may have wrapped"
        return f"{source} differs from them in every unit: one of the two counts something else"

    def _is_confirmed(self, value: int, attributes: list[Attribute]) -> bool:
        """Return whether an attribute matches the statistics in some unit, or lags by unsaved growth."""
        return any(
            is_lagging((attribute.raw or 0) * unit, value, unit) for attribute in attributes for unit in UNITS
        )

    def _is_repeated(self, value: int) -> bool:
        """Return whether 233 or 235, used by some vendors for host writes, matches the statistics exactly."""
        attributes = (self._evidence.find_attribute(number) for number in (233, 235))
        raws = [
            attribute.raw for attribute in attributes if attribute and attribute.raw and attribute.raw >= 1000
        ]
        return any(abs(raw * unit - value) <= 2 * unit for raw in raws for unit in UNITS)

    def find_unwrapped(self, statistics: CounterReading) -> CounterReading | None:
        """Return an attribute with the full value of wrapped statistics, for an uncatalogued drive."""
        readings: list[CounterReading] = []
        for number in (241, 246):
            attribute = self._evidence.find_attribute(number)
            if not attribute or attribute.raw is None or statistics.value is None:
                continue
            for unit in UNITS:
                value = attribute.raw * unit
                if is_close(value, statistics.value, unit, 0.005):
                    return None
                if unit > 1 << 25 or not is_wrapped(statistics.value // 512, value // 512, unit):
                    continue
                if not self._limits.check_limits(value):
                    source = f"attribute {number} {attribute.name} x {unit} B"
                    readings.append(CounterReading(value, "bytes", unit, source, Proof.CALIBRATED))
        return readings[0] if len(readings) == 1 else None

    def find_read_bytes(self) -> CounterReading:
        """Return the bytes that the host read."""
        statistics = self._evidence.statistics
        sectors = statistics.sectors_read if statistics else None
        if sectors is None or statistics is None:
            return make_unknown("no device statistics")
        lba = self._limits.lba
        source = "device statistics 01h/028h, logical sectors read"
        reading = CounterReading(sectors * lba, "bytes", lba, source, Proof.SPEC)
        if self._wraps and sectors < WRAP:
            return reading.without_value(_WRAPS)
        if sectors >= (1 << RAW_BITS) - 1:
            return reading.without_value("all ones")
        reason = sanity.check_speed(sectors * lba, self._limits.hours, "ata")
        return reading.without_value(reason) if reason else reading
