"""Prove SATA counters by checks between attributes, device statistics and the catalogue."""

from __future__ import annotations

from opwatch.counters.catalogue.families import Catalogue, Counter, Entry
from opwatch.counters.evidence import Attribute, Evidence
from opwatch.counters.prove import sanity
from opwatch.counters.prove.learned import LearnedProof
from opwatch.counters.prove.limits import MAX_ERASES, WriteLimits
from opwatch.counters.prove.statistics import (
    RAW_BITS,
    StatisticsProof,
    is_close,
    is_lagging,
    is_wrapped,
    refuse_wrapped,
)
from opwatch.counters.reading import CounterReading, LifetimeRatio, Proof, make_unknown

_HOST_IDS = (225, 233, 235, 241, 246)
# smartctl's default names for unknown attributes.
_DEFAULT_NAMES = {233: "Media_Wearout_Indicator", 241: "Total_LBAs_Written"}

_ANOTHER = (
    "other drives with these attributes use another unit: the drive is not the model that it claims to be"
)


class AtaProof:
    """Proven counters from one drive's attributes and statistics."""

    def __init__(self, evidence: Evidence, catalogue: Catalogue) -> None:
        self._evidence = evidence
        self._limits = WriteLimits(evidence)
        self._capacity = self._limits.capacity
        matching = catalogue.find_entries(evidence.drive, "ata")
        problems = [(entry, self._find_mismatch(entry)) for entry in matching]
        self.entry = next((entry for entry, problem in problems if problem is None), None)
        self._problem = next(
            (
                f"{entry.name}: {problem}"
                for entry, problem in problems
                if problem and not entry.by_attributes
            ),
            None,
        )
        wraps = any(entry.statistics_wrap for entry in matching)
        self._statistics = StatisticsProof(evidence, self._limits, wraps=wraps)
        self._learned = LearnedProof(evidence, catalogue, self._limits)

    # --- does an entry match this drive? ---

    def _find_mismatch(self, entry: Entry) -> str | None:
        """Return the reason for a mismatch between entry and attributes, or None if the entry fits."""
        raws: dict[int, int] = {}
        for number in entry.requires:
            attribute = self._evidence.find_attribute(number)
            if attribute is None:
                return f"attribute {number} is missing"
            raws[number] = -1 if attribute.raw is None else attribute.raw
        for number in entry.forbids:
            if self._evidence.find_attribute(number):
                return f"attribute {number} is present, which these drives do not have"
        for group in entry.equal:
            if len({raws.get(number, -1) for number in group}) != 1:
                return f"attributes {' and '.join(map(str, group))} differ"
        if entry.sum_of:
            total, factor, parts = entry.sum_of
            expected = factor * sum(raws.get(part, 0) for part in parts)
            if abs(raws.get(total, -1) - expected) > 64 * factor:
                return f"attribute {total} is not {factor} times the sum of {' and '.join(map(str, parts))}"
        return self._find_misnamed(entry)

    def _find_misnamed(self, entry: Entry) -> str | None:
        for counter in (entry.host, entry.nand):
            for term in counter.terms if counter else ():
                attribute = self._evidence.find_attribute(int(term)) if term.isdigit() else None
                if attribute and not self._has_expected_name(entry, attribute):
                    return f"attribute {term} has the name {attribute.name}"
        return None

    def _has_expected_name(self, entry: Entry, attribute: Attribute) -> bool:
        if attribute.name.startswith(("Unknown_", "Unkn_")):
            return True
        expected = (*entry.names.get(str(attribute.id), ()), _DEFAULT_NAMES.get(attribute.id))
        return attribute.name in expected

    # --- readings ---

    def _sum_attributes(self, counter: Counter, entry: Entry) -> CounterReading:
        attributes = [self._evidence.find_attribute(int(term)) for term in counter.terms if term.isdigit()]
        names = " + ".join(f"{attribute.id} {attribute.name}" for attribute in attributes if attribute)
        source = f"attribute {names} x {counter.units[0]} B (catalogue: {entry.name})"
        raws = [attribute.raw for attribute in attributes if attribute and attribute.raw is not None]
        if len(raws) != len(counter.terms):
            return make_unknown("one of its attributes is missing or not a single number", source=source)
        if any(raw >= (1 << RAW_BITS) - 1 for raw in raws):
            return make_unknown("an attribute is all ones: it is saturated or not supported", source=source)
        value = sum(raws) * counter.units[0]
        reading = CounterReading(
            value, "bytes", counter.quantum, source, Proof.CATALOGUE, caveat=counter.caveat
        )
        return reading.as_lower_bound() if counter.at_least else reading

    def _find_average_erases(self) -> float | None:
        for term in self.entry.erase if self.entry else ():
            attribute = self._evidence.find_attribute(int(term))
            if attribute and attribute.raw is not None and attribute.raw < MAX_ERASES:
                return float(attribute.raw)
        return None

    def find_erase_average(self) -> CounterReading | None:
        """Return the average erase count, or None if the catalogue does not know the attribute."""
        average = self._find_average_erases()
        if average is None or self.entry is None:
            return None
        source = f"attribute {self.entry.erase[0]} (catalogue: {self.entry.name})"
        return CounterReading(int(average), "erases", 1, source, Proof.CATALOGUE)

    def _read_host_attribute(self) -> CounterReading | None:
        entry = self.entry
        if entry and entry.fault:
            return make_unknown(entry.fault, source=self._describe_candidate())
        if not entry or not entry.host:
            return None if entry and entry.nand else self._learned.find_written_bytes()
        reading = self._sum_attributes(entry.host, entry)
        if reading.value is None:
            return reading
        if not reading.value:
            return reading.without_value("the counter is 0: nothing was written, or the drive does not count")
        agrees = self._learned.is_confirmed(reading.value)
        reason = sanity.find_first_reason(
            self._limits.check_limits(reading.value),
            sanity.check_small_unit(reading.value, self._limits.hours, entry.host.units[0]),
            self._check_host_erases(reading.value),
            self._check_family_unit(reading.value, entry) if entry.tight and not agrees else None,
            _ANOTHER if agrees is False and not entry.own else None,
        )
        return reading.without_value(reason) if reason else reading

    def _check_family_unit(self, host: int, entry: Entry) -> str | None:
        """Return the reason to doubt the unit in a family that uses several, or None.

        NAND writes must exceed the host writes and match the erase counts.
        """
        nand = self._sum_attributes(entry.nand, entry).value if entry.nand else None
        average = self._find_average_erases()
        if not nand or not average or average < 10 or not self._capacity:
            return "there are too few erases to prove the unit"
        if host <= 1.02 * nand and 1 / 3 <= nand / (average * self._capacity) <= 3:
            return None
        return f"{average:.0f} erases do not confirm the unit"

    def _check_host_erases(self, value: int) -> str | None:
        """Return a reason if host writes and erase counts contradict each other, or None."""
        average = self._find_average_erases()
        if not average or average < 10 or not self._capacity:
            return None
        fit = value / (average * self._capacity)
        if max(average - 150, 0) / average / 300 <= fit <= 10:
            return None
        return f"{fit:.2g} times the bytes of {average:.0f} erases of the drive: the unit is wrong"

    def list_host_counts(self) -> list[CounterReading]:
        """Return all sources of host writes in bytes, best first."""
        statistics, attribute = self._statistics.find_written_bytes(), self._read_host_attribute()
        if statistics and statistics.value is not None and attribute and attribute.value is not None:
            return self._combine_readings(statistics, attribute)
        if statistics and statistics.value is not None:
            other = self._statistics.find_unwrapped(statistics)
            if other:
                return [
                    other.with_caveat("device statistics agree modulo 2^32 sectors"),
                    refuse_wrapped(statistics),
                ]
            readings = [self._statistics.check_unconfirmed(statistics), attribute]
        else:
            readings = [attribute, statistics]
        listed = sorted(
            (reading for reading in readings if reading), key=lambda reading: reading.value is None
        )
        return listed or [make_unknown(self._explain_missing(), source=self._describe_candidate())]

    def _combine_readings(
        self, statistics: CounterReading, attribute: CounterReading
    ) -> list[CounterReading]:
        theirs, ours = statistics.value or 0, attribute.value or 0
        confirmed = CounterReading(
            ours, "bytes", attribute.quantum, attribute.source, Proof.CALIBRATED, caveat=attribute.caveat
        )
        if is_close(ours, theirs, attribute.quantum):
            return [statistics, confirmed]
        saves_late = attribute.proof is Proof.LEARNED or (self.entry and self.entry.below_host)
        if saves_late and is_lagging(ours, theirs, attribute.quantum):
            return [statistics, attribute.with_caveat("it lags behind the device statistics")]
        if is_wrapped(theirs // 512, ours // 512, attribute.quantum):
            return [
                confirmed.with_caveat("device statistics agree modulo 2^32 sectors"),
                refuse_wrapped(statistics),
            ]
        reason = f"device statistics report {theirs} bytes, the attribute {ours} bytes: one of them is wrong"
        return [statistics.without_value(reason), attribute.without_value(reason)]

    def _describe_candidate(self) -> str:
        for number in _HOST_IDS:
            attribute = self._evidence.find_attribute(number)
            if attribute and number in (225, 241, 246):
                return f"attribute {number} {attribute.name}"
        return "none"

    def _explain_missing(self) -> str:
        if self._problem:
            return f"the drive does not match its catalogue entry {self._problem}"
        if not self._evidence.attributes:
            return "no attributes and no device statistics were read"
        return "no device statistics, and no catalogue entry proves the unit of an attribute"

    def list_nand_counts(self, host: CounterReading) -> list[CounterReading]:
        """Return all sources of NAND writes in bytes, best first."""
        entry = self.entry
        if entry and entry.no_nand:
            return [make_unknown(entry.no_nand)]
        if not entry or not entry.nand:
            return [make_unknown(self._problem or "none of its attributes is proven to count NAND writes")]
        reading = self._sum_attributes(entry.nand, entry)
        if reading.value is None:
            return [reading]
        if host.value is None:
            return [reading.without_value("its unit is unproven because no count of host writes is proven")]
        reason = sanity.find_first_reason(
            "the counter is 0 although the host wrote data: it is not implemented"
            if not reading.value
            else None,
            sanity.check_ratio(reading.value, host.value, self._capacity),
            sanity.check_erases(reading.value, self._find_average_erases(), self._capacity),
            self._check_host_pages(host, entry),
            self._check_erases(entry),
            self._check_minimum(reading, host, entry),
        )
        if reason:
            return [reading.without_value(reason)]
        below = reading.value + reading.quantum <= host.value - host.quantum
        return [reading.with_caveat("below the host's writes") if below else reading]

    def _check_host_pages(self, host: CounterReading, entry: Entry) -> str | None:
        """Return a reason if the pages programmed for the host cannot hold the host writes (count
        was reset)."""
        pages = self._sum_attributes(entry.for_host, entry) if entry.for_host else None
        if not pages or host.value is None:
            return None
        if pages.value is not None and host.value <= 1.005 * pages.value + 2 * (host.quantum + pages.quantum):
            return None
        return (
            f"{pages.value} bytes programmed for host data cannot hold the {host.value} bytes of host writes"
        )

    def _check_erases(self, entry: Entry) -> str | None:
        """Return a reason if the NAND writes that erases should match do not. Needs at least 10 erases."""
        counted = self._sum_attributes(entry.worn, entry).value if entry.worn else None
        average = self._find_average_erases()
        if counted is None or not average or average < 10 or not self._capacity:
            return None
        fit = counted / (average * self._capacity)
        least, most = entry.worn_fit
        if least <= fit <= most:
            return None
        why = "it misses NAND writes, or its unit is wrong" if fit < least else "the unit is wrong"
        return f"{counted} bytes are {fit:.2g} times the bytes of {average:.0f} erases: {why}"

    def compute_page_ratio(self) -> LifetimeRatio | None:
        """Return NAND pages per host page, if an entry knows that both have the same size."""
        attributes = (
            [self._evidence.find_attribute(number) for number in self.entry.page_ratio] if self.entry else []
        )
        raws = [attribute.raw for attribute in attributes if attribute and attribute.raw is not None]
        if len(raws) != 2 or not 2 < raws[0] < (1 << RAW_BITS) - 1 or not raws[1] < (1 << RAW_BITS) - 1:
            return None
        total = raws[0] + raws[1]
        source = f"attributes {' and '.join(map(str, self.entry.page_ratio if self.entry else ()))}"
        return LifetimeRatio(total / raws[0], (total - 2) / (raws[0] + 1), None, source)

    def _check_minimum(self, reading: CounterReading, host: CounterReading, entry: Entry) -> str | None:
        """Check S6: without compression, lifetime NAND writes are at least the host writes."""
        value, least = reading.value or 0, (host.value or 0) * 0.98 - 2 * (reading.quantum + host.quantum)
        if entry.below_host or value >= least:
            return None
        return f"{value} bytes are less than the host wrote: the counter or its unit is a different one"

    def find_host_read(self) -> CounterReading:
        """Return the bytes that the host read."""
        return self._statistics.find_read_bytes()
