"""From drives to rules: which set of attribute ids has one that counts the host's writes, in what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from opwatch.counters.catalogue.fingerprints import Ids, UnitRule, UnitRules, brand_of, core_of
from opwatch.counters.evidence import Evidence
from opwatch.counters.prove.statistics import UNITS
from tests.learning.truth import SECTOR, is_right, sound_sectors

# In this order where several of a drive are the same.
CANDIDATES = (241, 246, 225, 233, 235, 251)
# Below these a step is too much of the number to tell units apart.
_LEAST_BYTES, _LEAST_RAW = 20 << 30, 20
# Few drives prove a rule if they are of several brands; else it is one of their own brand.
LEAST_DRIVES, ENOUGH_DRIVES, LEAST_SHARE = 3, 10, 0.99
_TOLERANCE = 0.005


@dataclass(slots=True)
class _Votes:
    """How many drives of a set there are, and in how many an attribute times a unit was the truth."""

    drives: int = 0
    models: set[str] = field(default_factory=set)
    agreeing: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    close: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))

    def best(self) -> tuple[int, int]:
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
        if share < LEAST_SHARE:
            return self.contested()
        return UnitRule(*self.best(), self.drives, len(self.models), round(share, 4), self._only_brand())

    def units(self) -> set[int]:
        return {unit for _, unit in self.agreeing}

    def contested(self) -> UnitRule:
        return UnitRule(0, 0, self.drives, len(self.models), round(self.close[self.best()] / self.drives, 4))

    def _only_brand(self) -> str | None:
        brands = {brand_of(model) for model in self.models}
        return brands.pop() or "UNKNOWN" if len(brands) == 1 and self.drives < ENOUGH_DRIVES else None


def ids_of(drive: Evidence) -> Ids:
    return frozenset(attribute.id for attribute in drive.attributes)


def _count(votes: _Votes, drive: Evidence, sectors: int) -> None:
    votes.drives += 1
    votes.models.add(drive.drive.model or "")
    for number in CANDIDATES:
        attribute = drive.attribute(number)
        raw = attribute.raw if attribute else None
        for unit in UNITS if raw and raw >= _LEAST_RAW else ():
            if is_right((raw or 0) * unit, sectors, unit):
                votes.close[number, unit] += 1
            if is_right((raw or 0) * unit, sectors, unit, _TOLERANCE):
                votes.agreeing[number, unit] += 1


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


def learn(drives: Iterable[Evidence]) -> UnitRules:
    """The rules that these drives prove. The order of the drives changes nothing."""
    exact: dict[Ids, _Votes] = defaultdict(_Votes)
    core: dict[Ids, _Votes] = defaultdict(_Votes)
    for drive in drives:
        sectors, ids = sound_sectors(drive), ids_of(drive)
        if sectors and sectors * SECTOR >= _LEAST_BYTES:
            _count(exact[ids], drive, sectors)
            if core_of(ids):
                _count(core[core_of(ids)], drive, sectors)
    return UnitRules(_without_late(exact, core), _rules(core))
