"""SATA: attributes and device statistics, each checked against the other and against the catalogue."""

from __future__ import annotations

from opwatch.counters.catalogue.families import Catalogue, Counter, Entry
from opwatch.counters.evidence import Attribute, Evidence
from opwatch.counters.prove import sanity
from opwatch.counters.reading import CounterReading, Proof, unknown

_WRAP = 1 << 32
_RAW_BITS = 48
# Units that host counters of real drives have.
UNITS = (512, 4096, 65536, 1 << 20, 512_000, 10**6, 1 << 25, 10**9, 1 << 30)
_HOST_IDS = (225, 233, 235, 241, 246)
# What smartctl calls an attribute that it does not know.
_DEFAULT_NAMES = {233: "Media_Wearout_Indicator", 241: "Total_LBAs_Written"}
_SLACK_SECTORS = 1 << 20


def close(ours: int, theirs: int, quantum: int, tolerance: float = 0.02) -> bool:
    """S1: two counts of the same within 2 % and two steps."""
    return abs(ours - theirs) <= tolerance * max(ours, theirs) + 2 * quantum


def is_wrapped(statistics: int, attribute: int, quantum: int) -> bool:
    """Whether sectors of the device statistics are those of an attribute, modulo 2^32."""
    if statistics >= _WRAP or attribute < _WRAP:
        return False
    apart = (statistics - attribute) % _WRAP
    return min(apart, _WRAP - apart) <= 2 * quantum // 512 + _SLACK_SECTORS // 64


class AtaProof:
    """One drive's attributes and statistics, and what follows from them."""

    def __init__(self, evidence: Evidence, catalogue: Catalogue) -> None:
        self._evidence = evidence
        self._capacity = evidence.drive.capacity_bytes
        statistics = evidence.statistics
        hours = statistics.power_on_hours if statistics else None
        known = [count for count in (evidence.power_on_hours, hours) if count is not None]
        self._hours = max(known) if known else None
        self._lba = evidence.drive.lba_bytes or 512
        matching = catalogue.matching(evidence.drive, "ata")
        problems = [(entry, self._misfit(entry)) for entry in matching]
        self.entry = next((entry for entry, problem in problems if problem is None), None)
        self._problem = next((f"{entry.name}: {problem}" for entry, problem in problems if problem), None)
        self._wraps = any(entry.statistics_wrap for entry in matching)

    # --- whether an entry is about this drive ---

    def _misfit(self, entry: Entry) -> str | None:
        """What speaks against it, None when its attributes are as the entry says."""
        raws: dict[int, int] = {}
        for number in entry.requires:
            attribute = self._evidence.attribute(number)
            if attribute is None:
                return f"attribute {number} is not there"
            raws[number] = -1 if attribute.raw is None else attribute.raw
        for group in entry.equal:
            if len({raws.get(number, -1) for number in group}) != 1:
                return f"attributes {' and '.join(map(str, group))} differ"
        if entry.sum_of:
            total, factor, parts = entry.sum_of
            expected = factor * sum(raws.get(part, 0) for part in parts)
            if abs(raws.get(total, -1) - expected) > 64 * factor:
                return f"attribute {total} is not {factor} times the sum of {' and '.join(map(str, parts))}"
        return self._misnamed(entry)

    def _misnamed(self, entry: Entry) -> str | None:
        for counter in (entry.host, entry.nand):
            for term in counter.terms if counter else ():
                attribute = self._evidence.attribute(int(term)) if term.isdigit() else None
                if attribute and not self._named(entry, attribute):
                    return f"attribute {term} is called {attribute.name}"
        return None

    def _named(self, entry: Entry, attribute: Attribute) -> bool:
        if attribute.name.startswith(("Unknown_", "Unkn_")):
            return True
        expected = (*entry.names.get(str(attribute.id), ()), _DEFAULT_NAMES.get(attribute.id))
        return attribute.name in expected

    # --- readings ---

    def _sum(self, counter: Counter, entry: Entry) -> CounterReading:
        attributes = [self._evidence.attribute(int(term)) for term in counter.terms if term.isdigit()]
        names = " + ".join(f"{attribute.id} {attribute.name}" for attribute in attributes if attribute)
        source = f"attribute {names} x {counter.units[0]} B (catalogue: {entry.name})"
        raws = [attribute.raw for attribute in attributes if attribute and attribute.raw is not None]
        if len(raws) != len(counter.terms):
            return unknown("not every attribute of it is there as one number", source=source)
        if any(raw >= (1 << _RAW_BITS) - 1 for raw in raws):
            return unknown("an attribute is all ones: it is saturated or not supported", source=source)
        value = sum(raws) * counter.units[0]
        return CounterReading(value, "bytes", counter.quantum, source, Proof.CATALOGUE, caveat=counter.caveat)

    def _average_erases(self) -> float | None:
        for term in self.entry.erase if self.entry else ():
            attribute = self._evidence.attribute(int(term))
            # More than this is several numbers in one.
            if attribute and attribute.raw is not None and attribute.raw < 1 << 20:
                return float(attribute.raw)
        return None

    def erase_average(self) -> CounterReading | None:
        """The average erase count, where the catalogue knows the attribute."""
        average = self._average_erases()
        if average is None or self.entry is None:
            return None
        source = f"attribute {self.entry.erase[0]} (catalogue: {self.entry.name})"
        return CounterReading(int(average), "erases", 1, source, Proof.CATALOGUE)

    def _from_attribute(self) -> CounterReading | None:
        entry = self.entry
        if not entry or not entry.host:
            return None
        reading = self._sum(entry.host, entry)
        if reading.value is None:
            return reading
        if not reading.value:
            return reading.refused("the counter is 0: nothing was written, or the drive does not count")
        reason = sanity.first(
            sanity.too_fast(reading.value, self._hours, "ata"),
            sanity.too_little(reading.value, self._hours, entry.host.units[0]),
            self._host_erases(reading.value),
            self._loose(reading.value, entry) if entry.tight else None,
        )
        return reading.refused(reason) if reason else reading

    def _loose(self, host: int, entry: Entry) -> str | None:
        """What speaks against the unit of a family that has several: NAND writes must be what the erases
        hold, and above the host's."""
        nand = self._sum(entry.nand, entry).value if entry.nand else None
        average = self._average_erases()
        if not nand or not average or average < 10 or not self._capacity:
            return "there are too few erases to prove the unit by"
        if host <= 1.02 * nand and 1 / 3 <= nand / (average * self._capacity) <= 3:
            return None
        return f"{average:.0f} erases do not confirm the unit"

    def _host_erases(self, value: int) -> str | None:
        """Host writes cannot be many times what the erases of the drive hold."""
        average = self._average_erases()
        if not average or average < 10 or not self._capacity:
            return None
        fit = value / (average * self._capacity)
        if max(average - 150, 0) / average / 300 <= fit <= 10:
            return None
        return f"{fit:.2g} times what {average:.0f} erases of the drive hold: the unit is another"

    def _from_statistics(self) -> CounterReading | None:
        statistics = self._evidence.statistics
        sectors = statistics.sectors_written if statistics else None
        if sectors is None or statistics is None:
            return None
        source = "device statistics 01h/018h, logical sectors written"
        reading = CounterReading(sectors * self._lba, "bytes", self._lba, source, Proof.SPEC)
        if sectors >= (1 << _RAW_BITS) - 1:
            return reading.refused("all ones: saturated or not supported")
        if not sectors and statistics.write_commands != 0:
            return reading.refused("the counter is 0: nothing was written, or the drive does not count")
        return reading

    def _alone(self, reading: CounterReading) -> CounterReading:
        """Statistics that no attribute confirms."""
        value = reading.value or 0
        if self._wraps and value < _WRAP * self._lba:
            return reading.refused("device statistics of these drives wrap at 2^32 sectors (2.2 TB)")
        statistics = self._evidence.statistics
        commands = statistics.write_commands if statistics else None
        reason = sanity.first(
            self._contradicted(value),
            sanity.mean_write(value, commands, self._lba, 32 << 20),
            sanity.too_fast(value, self._hours, "ata"),
        )
        return reading.refused(reason) if reason else reading

    def _contradicted(self, value: int) -> str | None:
        """What speaks against statistics below 2^32 sectors, which may have wrapped: an attribute of host
        writes that equals them in no unit."""
        if value >= _WRAP * self._lba:
            return None
        attributes = (self._evidence.attribute(number) for number in (241, 246, 225))
        names = ("LBA", "Host", "Write", "Wts")
        shown = [
            attribute
            for attribute in attributes
            if attribute and attribute.raw and any(name in attribute.name for name in names)
        ]
        confirmed = any(
            close((attribute.raw or 0) * unit, value, unit, 0.005) for attribute in shown for unit in UNITS
        )
        if not shown or confirmed or self._repeated(value):
            return None
        return f"attribute {shown[0].id} {shown[0].name} is in no unit what they say: they may have wrapped"

    def _repeated(self, value: int) -> bool:
        """Whether an attribute where some makers put host writes repeats the statistics to the step."""
        attributes = (self._evidence.attribute(number) for number in (233, 235))
        raws = [
            attribute.raw for attribute in attributes if attribute and attribute.raw and attribute.raw >= 1000
        ]
        return any(abs(raw * unit - value) <= 2 * unit for raw in raws for unit in UNITS)

    def _unwrapped(self, statistics: CounterReading) -> CounterReading | None:
        """An attribute of a drive not in the catalogue that shows the statistics before they wrapped."""
        readings: list[CounterReading] = []
        for number in (241, 246):
            attribute = self._evidence.attribute(number)
            if not attribute or attribute.raw is None or statistics.value is None:
                continue
            for unit in UNITS:
                value = attribute.raw * unit
                if close(value, statistics.value, unit, 0.005):
                    return None
                if unit <= 1 << 25 and is_wrapped(statistics.value // 512, value // 512, unit):
                    source = f"attribute {number} {attribute.name} x {unit} B"
                    readings.append(CounterReading(value, "bytes", unit, source, Proof.CALIBRATED))
        return readings[0] if len(readings) == 1 else None

    def host(self) -> list[CounterReading]:
        """Every source of bytes that the host wrote, the best first."""
        statistics, attribute = self._from_statistics(), self._from_attribute()
        if statistics and statistics.value is not None and attribute and attribute.value is not None:
            return self._both(statistics, attribute)
        if statistics and statistics.value is not None:
            other = self._unwrapped(statistics)
            if other:
                return [other.noted("device statistics agree modulo 2^32 sectors"), _wrapped(statistics)]
            readings = [self._alone(statistics), attribute]
        else:
            readings = [attribute, statistics]
        listed = sorted(
            (reading for reading in readings if reading), key=lambda reading: reading.value is None
        )
        return listed or [unknown(self._why_not(), source=self._candidate())]

    def _both(self, statistics: CounterReading, attribute: CounterReading) -> list[CounterReading]:
        theirs, ours = statistics.value or 0, attribute.value or 0
        confirmed = CounterReading(
            ours, "bytes", attribute.quantum, attribute.source, Proof.CALIBRATED, caveat=attribute.caveat
        )
        if close(ours, theirs, attribute.quantum):
            return [statistics, confirmed]
        if is_wrapped(theirs // 512, ours // 512, attribute.quantum):
            return [confirmed.noted("device statistics agree modulo 2^32 sectors"), _wrapped(statistics)]
        reason = f"device statistics say {theirs} bytes and the attribute {ours}: one of them is wrong"
        return [statistics.refused(reason), attribute.refused(reason)]

    def _candidate(self) -> str:
        for number in _HOST_IDS:
            attribute = self._evidence.attribute(number)
            if attribute and number in (225, 241, 246):
                return f"attribute {number} {attribute.name}"
        return "none"

    def _why_not(self) -> str:
        if self._problem:
            return f"the drive is not as the catalogue knows it: {self._problem}"
        if not self._evidence.attributes:
            return "no attributes and no device statistics were read"
        return "no device statistics, and no entry of the catalogue proves the unit of an attribute"

    def nand(self, host: CounterReading) -> list[CounterReading]:
        """Bytes written to NAND."""
        entry = self.entry
        if entry and entry.no_nand:
            return [unknown(entry.no_nand)]
        if not entry or not entry.nand:
            return [unknown(self._problem or "no attribute of it is proven to count NAND writes")]
        reading = self._sum(entry.nand, entry)
        if reading.value is None:
            return [reading]
        if host.value is None:
            return [reading.refused("without a proven count of host writes its unit is unproven too")]
        reason = sanity.first(
            "the counter is 0 although the host wrote: it is not implemented" if not reading.value else None,
            sanity.ratio(reading.value, host.value, self._capacity),
            sanity.erases(reading.value, self._average_erases(), self._capacity),
            self._below(reading, host, entry),
        )
        if reason:
            return [reading.refused(reason)]
        below = reading.value + reading.quantum <= host.value - host.quantum
        return [reading.noted("below the host's writes") if below else reading]

    def _below(self, reading: CounterReading, host: CounterReading, entry: Entry) -> str | None:
        """S6: at lifetime a drive that does not compress wrote at least what the host did."""
        value, least = reading.value or 0, (host.value or 0) * 0.98 - 2 * (reading.quantum + host.quantum)
        if entry.below_host or value >= least:
            return None
        return f"{value} bytes are less than the host wrote: it counts something else, or in another unit"

    def host_read(self) -> CounterReading:
        """Bytes that the host read."""
        statistics = self._evidence.statistics
        sectors = statistics.sectors_read if statistics else None
        if sectors is None:
            return unknown("no device statistics")
        source = "device statistics 01h/028h, logical sectors read"
        reading = CounterReading(sectors * self._lba, "bytes", self._lba, source, Proof.SPEC)
        if self._wraps and sectors < _WRAP:
            return reading.refused("device statistics of these drives wrap at 2^32 sectors (2.2 TB)")
        return reading.refused("all ones") if sectors >= (1 << _RAW_BITS) - 1 else reading


def _wrapped(statistics: CounterReading) -> CounterReading:
    return statistics.refused("wrapped at 2^32 sectors (2.2 TB)")
