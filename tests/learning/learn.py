"""From drives to rules: which set of attribute ids has one that counts the host's writes, in what."""

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
    brand_of,
    core_of,
)
from opwatch.counters.evidence import Evidence
from opwatch.counters.prove.statistics import UNITS
from tests.learning.truth import (
    CANDIDATES,
    LEAST_RAW,
    SECTOR,
    is_right,
    sound_sectors,
    wrapped_sectors,
)

# Below this a step is too much of the number to tell units apart.
_LEAST_BYTES = 20 << 30
# Few drives prove a rule if they are of several brands; else it is one of their own brand.
LEAST_DRIVES, ENOUGH_DRIVES, LEAST_SHARE = 3, 10, 0.99
_TOLERANCE = 0.005
# A step is one if counts that have none are all multiples of it less often than this.
_CHANCE = 1e-6
_Unit = tuple[int, int]


@dataclass(slots=True)
class _Votes:
    """How many drives of a set there are, and in how many an attribute times a unit was the truth."""

    drives: int = 0
    models: set[str] = field(default_factory=set)
    agreeing: dict[_Unit, int] = field(default_factory=lambda: defaultdict(int))
    close: dict[_Unit, int] = field(default_factory=lambda: defaultdict(int))
    # By firmware: the units that fit each of its drives.
    fits: dict[str, list[set[_Unit]]] = field(default_factory=lambda: defaultdict(list))
    # All counts of an attribute, of drives without a truth too.
    counts: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def best(self) -> _Unit:
        """The attribute and the unit of most drives."""
        votes = self.agreeing.items()
        return max(
            votes,
            key=lambda vote: (vote[1], -CANDIDATES.index(vote[0][0]), -vote[0][1]),
            default=((0, 0), 0),
        )[0]

    def rule(self) -> UnitRule | None:
        """What the drives agree about; None where there are too few of them."""
        if self.drives < LEAST_DRIVES:
            return None
        # A page of statistics may be a little older than the attribute: that is no other unit.
        share = self.close[self.best()] / self.drives
        others = self._other_firmwares()
        if share < LEAST_SHARE or not all(FIRMWARE.fullmatch(other) for other in others):
            return self.contested()
        of, unit = self.best()
        return UnitRule(
            of=of,
            unit=unit,
            drives=self.drives,
            models=len(self.models),
            share=round(share, 4),
            brand=self._only_brand(),
            step=self._step(of),
            not_firmware=others,
        )

    def units(self) -> set[int]:
        return {unit for _, unit in self.agreeing}

    def contested(self) -> UnitRule:
        share = round(self.close[self.best()] / self.drives, 4)
        return UnitRule(of=0, unit=0, drives=self.drives, models=len(self.models), share=share)

    def _only_brand(self) -> str | None:
        brands = {brand_of(model) for model in self.models}
        return brands.pop() or "UNKNOWN" if len(brands) == 1 and self.drives < ENOUGH_DRIVES else None

    def _other_firmwares(self) -> tuple[str, ...]:
        """Firmwares of which a drive counts in another unit."""
        best = self.best()
        return tuple(
            sorted(
                name for name, fits in self.fits.items() if any(units and best not in units for units in fits)
            )
        )

    def _step(self, number: int) -> int:
        """The largest step of which all counts are multiples, or 1 if that may be chance."""
        counts = self.counts[number]
        step = math.gcd(*counts)
        return step if len(counts) >= LEAST_DRIVES and step ** -len(counts) < _CHANCE else 1


def ids_of(drive: Evidence) -> Ids:
    return frozenset(attribute.id for attribute in drive.attributes)


def _raws(drive: Evidence) -> dict[int, int]:
    """The counts of attributes that may be host writes."""
    attributes = (drive.attribute(number) for number in CANDIDATES)
    raws = {attribute.id: attribute.raw or 0 for attribute in attributes if attribute}
    return {number: raw for number, raw in raws.items() if raw >= LEAST_RAW}


def _count(votes: _Votes, drive: Evidence, sectors: int) -> None:
    votes.drives += 1
    votes.models.add(drive.drive.model or "")
    close: set[_Unit] = set()
    for number, raw in _raws(drive).items():
        for unit in UNITS:
            if is_right(raw * unit, sectors, unit):
                votes.close[number, unit] += 1
                close.add((number, unit))
            if is_right(raw * unit, sectors, unit, _TOLERANCE):
                votes.agreeing[number, unit] += 1
    votes.fits[drive.drive.firmware or ""].append(close)


def _without_late(exact: dict[Ids, _Votes], core: dict[Ids, _Votes]) -> dict[Ids, UnitRule]:
    """The rules of whole sets. Where their core is contested although nothing in it counts in another unit,
    its drives save the counter late: few of one brand that happen to be in time prove nothing."""
    rules = _rules(exact)
    for ids, rule in rules.items():
        kind = core.get(core_of(ids))
        of_kind = kind.rule() if kind else None
        if kind and of_kind and of_kind.contested and rule.brand and kind.units() == {rule.unit}:
            rules[ids] = exact[ids].contested()
    return rules


def _rules(votes: dict[Ids, _Votes]) -> dict[Ids, UnitRule]:
    rules = {ids: ballot.rule() for ids, ballot in votes.items()}
    return {ids: rule for ids, rule in rules.items() if rule}


def _truth(drive: Evidence) -> int | None:
    """Sectors to learn from, maybe modulo 2^32; None where they are too few or not to be believed."""
    sectors = sound_sectors(drive)
    if sectors:
        return sectors if sectors * SECTOR >= _LEAST_BYTES else None
    return wrapped_sectors(drive)


def learn(drives: Iterable[Evidence]) -> UnitRules:
    """The rules that these drives prove. The order of the drives changes nothing."""
    exact: dict[Ids, _Votes] = defaultdict(_Votes)
    core: dict[Ids, _Votes] = defaultdict(_Votes)
    for drive in drives:
        sectors, ids = _truth(drive), ids_of(drive)
        for votes in (exact[ids], core[core_of(ids)]) if core_of(ids) else (exact[ids],):
            for number, raw in _raws(drive).items():
                votes.counts[number].add(raw)
            if sectors:
                _count(votes, drive, sectors)
    return UnitRules(_without_late(exact, core), _rules(core))
