"""Host writes by a unit learned from other drives with the same attributes."""

from __future__ import annotations

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.catalogue.fingerprints import UnitRule, UnitRules
from opwatch.counters.evidence import Evidence
from opwatch.counters.prove import sanity
from opwatch.counters.prove.limits import WriteLimits
from opwatch.counters.reading import CounterReading, Proof

# A smaller count of sectors may be a count of larger units.
_MIN_SECTORS = 1 << 21


class LearnedProof:
    """Host writes of one drive by learned rules."""

    def __init__(self, evidence: Evidence, catalogue: Catalogue, limits: WriteLimits) -> None:
        self._evidence = evidence
        self._limits = limits
        ids = frozenset(attribute.id for attribute in evidence.attributes)
        rules = catalogue.unit_rules if ids else UnitRules()
        self._same = rules.find_rule(ids)
        rule = self._same or rules.find_similar_rule(ids)
        drive = evidence.drive
        self._rule = rule if rule and rule.covers_model(drive.model, drive.firmware) else None

    def _read_raw(self, rule: UnitRule) -> int | None:
        attribute = self._evidence.find_attribute(rule.of)
        return attribute.raw if attribute and attribute.raw and attribute.raw < (1 << 48) - 1 else None

    def find_written_bytes(self) -> CounterReading | None:
        """Return the host writes in bytes, or a refusal with the reason. None if no rule covers the drive."""
        rule = self._rule
        raw = self._read_raw(rule) if rule else None
        if rule is None or raw is None:
            return None
        value = raw * rule.unit
        attribute = self._evidence.find_attribute(rule.of)
        name = attribute.name if attribute else ""
        source = f"attribute {rule.of} {name} x {rule.unit} B (learned: {rule.evidence})"
        reading = CounterReading(value, "bytes", rule.quantum_bytes, source, Proof.LEARNED)
        reason = sanity.find_first_reason(
            self._limits.check_limits(value),
            self._limits.check_likely_erases(value),
            f"{raw} sectors are too few to determine the unit"
            if raw < _MIN_SECTORS and rule.unit == 512
            else None,
            sanity.check_small_unit(value, self._limits.hours, rule.unit),
        )
        return reading.without_value(reason) if reason else reading

    def is_confirmed(self, value: int) -> bool | None:
        """Return whether drives with the same attributes count in this unit, or None if unknown."""
        rule = self._same
        raw = self._read_raw(rule) if rule else None
        if rule is None or raw is None:
            return None
        if self._evidence.drive.firmware in rule.not_firmware:
            return False
        return abs(raw * rule.unit - value) <= 0.02 * value + 2 * rule.quantum_bytes
