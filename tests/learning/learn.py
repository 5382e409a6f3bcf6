"""Learn rules from drives: the attribute and unit of host writes for each set of attribute ids."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from opwatch.counters.catalogue.fingerprints import (
    FIRMWARE,
    Ids,
    UnitRule,
    UnitRules,
    find_brand,
    find_core_ids,
)
from opwatch.counters.evidence import Evidence
from opwatch.counters.prove.statistics import UNITS
from tests.learning.truth import (
    CANDIDATES,
    MIN_RAW,
    SECTOR,
    find_sound_sectors,
    find_wrapped_sectors,
    is_right,
)

# For smaller values, one step is too coarse to distinguish units.
_MIN_BYTES = 20 << 30
# A few drives prove a rule only if they are of several brands. Otherwise the rule is limited to their brand.
LEAST_DRIVES, ENOUGH_DRIVES, LEAST_SHARE = 3, 10, 0.99
_TOLERANCE = 0.005
# Maximum probability of a step by chance, for an accepted step.
_CHANCE = 1e-6
_Unit = tuple[int, int]


@dataclass(slots=True)
class _Votes:
    """Number of drives with a set of ids, and the number that agree per attribute and unit."""

    drives: int = 0
    models: set[str] = field(default_factory=set)
    agreeing: dict[_Unit, int] = field(default_factory=lambda: defaultdict(int))
    close: dict[_Unit, int] = field(default_factory=lambda: defaultdict(int))
    # Units that fit each drive, by firmware.
    fits: dict[str, list[set[_Unit]]] = field(default_factory=lambda: defaultdict(list))
    # All values of each attribute, including drives without a known truth.
    counts: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def find_best(self) -> _Unit:
        """Return the attribute and unit with the most drives."""
        votes = self.agreeing.items()
        return max(
            votes,
            key=lambda vote: (vote[1], -CANDIDATES.index(vote[0][0]), -vote[0][1]),
            default=((0, 0), 0),
        )[0]

    def make_rule(self) -> UnitRule | None:
        """Return the rule that the drives agree on, or None for too few drives."""
        if self.drives < LEAST_DRIVES:
            return None
        # Statistics slightly older than the attribute do not mean another unit.
        share = self.close[self.find_best()] / self.drives
        others = self._find_other_firmwares()
        if share < LEAST_SHARE or not all(FIRMWARE.fullmatch(other) for other in others):
            return self.make_contested_rule()
        of, unit = self.find_best()
        return UnitRule(
            of=of,
            unit=unit,
            drives=self.drives,
            models=len(self.models),
            share=round(share, 4),
            brand=self._find_only_brand(),
            step=self._find_step(of),
            not_firmware=others,
        )

    def list_units(self) -> set[int]:
        return {unit for _, unit in self.agreeing}

    def make_contested_rule(self) -> UnitRule:
        share = round(self.close[self.find_best()] / self.drives, 4)
        return UnitRule(of=0, unit=0, drives=self.drives, models=len(self.models), share=share)

    def _find_only_brand(self) -> str | None:
        brands = {find_brand(model) for model in self.models}
        return brands.pop() or "UNKNOWN" if len(brands) == 1 and self.drives < ENOUGH_DRIVES else None

    def _find_other_firmwares(self) -> tuple[str, ...]:
        """Return the firmwares with drives that count in another unit."""
        best = self.find_best()
        return tuple(
            sorted(
                name for name, fits in self.fits.items() if any(units and best not in units for units in fits)
            )
        )

    def _find_step(self, number: int) -> int:
        """Return the largest step that divides all counts, or 1 if possibly chance."""
        counts = self.counts[number]
        step = math.gcd(*counts)
        return step if len(counts) >= LEAST_DRIVES and step ** -len(counts) < _CHANCE else 1


def collect_ids(drive: Evidence) -> Ids:
    return frozenset(attribute.id for attribute in drive.attributes)


def _collect_raws(drive: Evidence) -> dict[int, int]:
    """Return the raw values of attributes that may count host writes."""
    attributes = (drive.find_attribute(number) for number in CANDIDATES)
    raws = {attribute.id: attribute.raw or 0 for attribute in attributes if attribute}
    return {number: raw for number, raw in raws.items() if raw >= MIN_RAW}


def _count_votes(votes: _Votes, drive: Evidence, sectors: int) -> None:
    votes.drives += 1
    votes.models.add(drive.drive.model or "")
    close: set[_Unit] = set()
    for number, raw in _collect_raws(drive).items():
        for unit in UNITS:
            if is_right(raw * unit, sectors, unit):
                votes.close[number, unit] += 1
                close.add((number, unit))
            if is_right(raw * unit, sectors, unit, _TOLERANCE):
                votes.agreeing[number, unit] += 1
    votes.fits[drive.drive.firmware or ""].append(close)


def _drop_late_rules(exact: dict[Ids, _Votes], core: dict[Ids, _Votes]) -> dict[Ids, UnitRule]:
    """Return the rules of whole sets.

    If a core is contested although no other unit occurs in it, its drives save the counter late. A few
    up-to-date drives of one brand then prove nothing.
    """
    rules = _make_rules(exact)
    for ids, rule in rules.items():
        kind = core.get(find_core_ids(ids))
        of_kind = kind.make_rule() if kind else None
        if kind and of_kind and of_kind.is_contested and rule.brand and kind.list_units() == {rule.unit}:
            rules[ids] = exact[ids].make_contested_rule()
    return rules


def _make_rules(votes: dict[Ids, _Votes]) -> dict[Ids, UnitRule]:
    rules = {ids: ballot.make_rule() for ids, ballot in votes.items()}
    return {ids: rule for ids, rule in rules.items() if rule}


def _find_truth(drive: Evidence) -> int | None:
    """Return sectors to learn from, possibly modulo 2^32, or None if too few or not credible."""
    sectors = find_sound_sectors(drive)
    if sectors:
        return sectors if sectors * SECTOR >= _MIN_BYTES else None
    return find_wrapped_sectors(drive)


def learn_rules(drives: Iterable[Evidence]) -> UnitRules:
    """Return the rules proven by these drives, independent of their order."""
    exact: dict[Ids, _Votes] = defaultdict(_Votes)
    core: dict[Ids, _Votes] = defaultdict(_Votes)
    for drive in drives:
        sectors, ids = _find_truth(drive), collect_ids(drive)
        for votes in (exact[ids], core[find_core_ids(ids)]) if find_core_ids(ids) else (exact[ids],):
            for number, raw in _collect_raws(drive).items():
                votes.counts[number].add(raw)
            if sectors:
                _count_votes(votes, drive, sectors)
    return UnitRules(_drop_late_rules(exact, core), _make_rules(core))
