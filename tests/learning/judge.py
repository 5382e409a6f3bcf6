"""Validate learned rules on held-out drives and models, and on modified drives."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.catalogue.fingerprints import find_brand
from opwatch.counters.evidence import Attribute, Evidence, Statistics
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import CounterReading
from tests.learning.learn import learn_rules
from tests.learning.rows import drop_statistics
from tests.learning.truth import CANDIDATES, SECTOR, find_sound_sectors, find_wrapped_sectors, is_right

FOLDS = 5
KINDS = ("right", "wrong", "none")


@dataclass(slots=True)
class Verdicts:
    """Number of drives with a right value, a wrong value or no value, and the wrong drives."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count_drive(self, drive: Evidence, reading: CounterReading, sectors: int) -> None:
        """Count one drive by its reading. A correct lower bound counts as no value."""
        if reading.value is None or (
            reading.at_least and reading.value <= sectors * SECTOR + reading.quantum
        ):
            self.counts["none"] += 1
        elif is_right(reading.value, sectors, reading.quantum):
            self.counts["right"] += 1
        else:
            self.counts["wrong"] += 1
            self.wrong[drive.drive.model or "", drive.drive.firmware or ""] += 1

    @property
    def drive_count(self) -> int:
        return sum(self.counts.values())

    def compute_share(self, kind: str) -> float:
        return self.counts[kind] / self.drive_count if self.drive_count else 0.0


def _choose_fold(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % FOLDS


def _by_model(drive: Evidence) -> int:
    return _choose_fold(drive.drive.model or "")


def _by_brand(drive: Evidence) -> int:
    return _choose_fold(find_brand(drive.drive.model))


def _by_drive(drive: Evidence) -> int:
    return _choose_fold(f"{drive.drive.model} {[attribute.text for attribute in drive.attributes]}")


def read_host_writes(drive: Evidence, catalogue: Catalogue) -> CounterReading:
    return make_report(drive, catalogue).readings["host_written"]


def cross_validate(
    drives: Sequence[Evidence],
    catalogue: Catalogue,
    fold_of: Callable[[Evidence], int],
    truth: Callable[[Evidence], int | None] = find_sound_sectors,
) -> Verdicts:
    """Learn from four fifths and predict the last fifth from attributes alone, for each fifth."""
    verdicts = Verdicts()
    for fold in range(FOLDS):
        rules = learn_rules(drive for drive in drives if fold_of(drive) != fold)
        theirs = Catalogue(catalogue.entries, rules)
        for drive in drives:
            sectors = truth(drive) if fold_of(drive) == fold else None
            if sectors:
                verdicts.count_drive(drive, read_host_writes(drop_statistics(drive), theirs), sectors)
    return verdicts


def run_validations(drives: Sequence[Evidence], catalogue: Catalogue) -> dict[str, Verdicts]:
    """Run all cross-validations, with and without the catalogue's entries."""
    without = Catalogue(())
    return {
        "drives of known models": cross_validate(drives, catalogue, _by_drive),
        "unseen models": cross_validate(drives, catalogue, _by_model),
        "drives of known models, without the catalogue": cross_validate(drives, without, _by_drive),
        "unseen models, without the catalogue": cross_validate(drives, without, _by_model),
        "unseen brands, without the catalogue": cross_validate(drives, without, _by_brand),
        "unseen models, statistics modulo 2^32": cross_validate(
            drives, catalogue, _by_model, find_wrapped_sectors
        ),
    }


# --- one change per drive ---


def _scale_statistics(drive: Evidence, factor: float) -> Evidence:
    values = drive.statistics.values if drive.statistics else {}
    changed = {
        where: round(value * factor) if where == (1, 0x18) else value for where, value in values.items()
    }
    return replace(drive, statistics=Statistics(changed))


def _scale_attributes(drive: Evidence, factor: float) -> Evidence:
    def scale_attribute(attribute: Attribute) -> Attribute:
        raw = attribute.raw
        return attribute if raw is None or attribute.id < 200 else replace(attribute, raw=round(raw * factor))

    return replace(drive, attributes=tuple(map(scale_attribute, drive.attributes)))


def _duplicate_attribute(drive: Evidence) -> Evidence:
    number = max(
        (attribute.id for attribute in drive.attributes if attribute.id in (225, 241, 246)), default=0
    )
    again = tuple(
        replace(attribute, raw=(attribute.raw or 0) * 3)
        for attribute in drive.attributes
        if attribute.id == number
    )
    return replace(drive, attributes=(*drive.attributes, *again))


def _replace_model(drive: Evidence, other: Evidence) -> Evidence:
    facts = other.drive
    return replace(
        drive,
        drive=replace(drive.drive, model=facts.model, firmware=facts.firmware, family=facts.family),
    )


def _scale_capacity(drive: Evidence, factor: float) -> Evidence:
    capacity = drive.drive.capacity_bytes
    return replace(
        drive, drive=replace(drive.drive, capacity_bytes=round(capacity * factor) if capacity else None)
    )


def _has_witness(drive: Evidence) -> bool:
    """Return whether an attribute may count host writes. Otherwise nothing can contradict the statistics."""
    attributes = (drive.find_attribute(number) for number in CANDIDATES)
    return any(attribute and attribute.raw and attribute.raw >= 20 for attribute in attributes)


def run_perturbations(drives: Sequence[Evidence], catalogue: Catalogue) -> dict[str, Verdicts]:
    """Judge drives with one change each, with statistics and attributes unless the name says otherwise."""
    sound = [(drive, sectors) for drive in drives if (sectors := find_sound_sectors(drive))]
    others = [drive for drive, _ in sound]
    count = len(others)
    changes: dict[str, Callable[[int, Evidence], Evidence]] = {
        "statistics x 0.1": lambda _, drive: _scale_statistics(drive, 0.1),
        "statistics x 2": lambda _, drive: _scale_statistics(drive, 2),
        "statistics x 10": lambda _, drive: _scale_statistics(drive, 10),
        "attributes x 0.1": lambda _, drive: _scale_attributes(drive, 0.1),
        "attributes x 2": lambda _, drive: _scale_attributes(drive, 2),
        "attributes x 10": lambda _, drive: _scale_attributes(drive, 10),
        "another model": lambda index, drive: _replace_model(drive, others[(index * 7919 + 13) % count]),
        "another model, no statistics": lambda index, drive: drop_statistics(
            _replace_model(drive, others[(index * 7919 + 13) % count])
        ),
        "capacity x 0.1": lambda _, drive: _scale_capacity(drive, 0.1),
        "capacity x 10": lambda _, drive: _scale_capacity(drive, 10),
        "capacity x 10, no statistics": lambda _, drive: drop_statistics(_scale_capacity(drive, 10)),
        "duplicate attribute": lambda _, drive: _duplicate_attribute(drive),
        "duplicate attribute, no statistics": lambda _, drive: drop_statistics(_duplicate_attribute(drive)),
    }
    witnessed = [(drive, sectors) for drive, sectors in sound if _has_witness(drive)]
    alone = [(drive, sectors) for drive, sectors in sound if not _has_witness(drive)]
    verdicts = {name: _judge_changed(witnessed, catalogue, change) for name, change in changes.items()}
    lonely = _judge_changed(alone, catalogue, changes["statistics x 2"])
    return verdicts | {"statistics x 2, no attribute of host writes": lonely}


def _judge_changed(
    sound: Iterable[tuple[Evidence, int]],
    catalogue: Catalogue,
    change: Callable[[int, Evidence], Evidence],
) -> Verdicts:
    verdicts = Verdicts()
    for index, (drive, sectors) in enumerate(sound):
        verdicts.count_drive(drive, read_host_writes(change(index, drive), catalogue), sectors)
    return verdicts
