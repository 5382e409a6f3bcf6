"""What more over-provisioning, a trim, or both would do to a recorded system. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from opwatch.sweep.advice.targets import (
    DAY_S,
    SweepTargets,
    TargetCheck,
    TargetKind,
    TargetVerdict,
    estimate_years,
    judge_value,
)
from opwatch.sweep.history.model import HistoryModel, take_units
from opwatch.sweep.history.prediction import NOTHING_TO_GAIN, PredictedChanges, WafBand, predict_changes
from opwatch.sweep.history.replaying import ReplayedChange
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.ranges import ValueRange
from opwatch.sweep.returns import MIN_GAIN


class ChangeWorth(StrEnum):
    """What a change is worth, by the whole band."""

    HELPS = "helps"  # WAF falls by 2 % or more
    NOTHING = "nothing"  # WAF falls by less than 2 %
    UNDECIDED = "undecided"
    IMPOSSIBLE = "impossible"  # the recorded system has no room for it
    UNKNOWN = "unknown"


class HistoryAnswer(StrEnum):
    NO_TARGETS = "no targets"
    NOT_NEEDED = "not needed"  # the drive meets the target as it is
    CHANGE = "change"  # a change meets the target
    NONE = "none"  # every change misses it
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class RecordedSystem:
    """A recorded disk.

    `unit_bytes` is the size on the disk that a unit of the model stands for. `free_bytes` is None if no free
    space was recorded. `written_bytes` were written in `seconds`, `discarded_bytes` discarded.
    `padding_ratio` is the written units over the written bytes, because a write of less than a unit programs
    it as a whole. `gaps` counts the times at which requests may be missing.
    """

    name: str
    model: HistoryModel
    capacity_bytes: int
    seconds: float
    written_bytes: int
    discarded_bytes: int
    free_bytes: int | None
    padding_ratio: float = 1.0
    gaps: int = 0

    @property
    def unit_bytes(self) -> float:
        return self.capacity_bytes / self.model.units

    @property
    def daily_bytes(self) -> int:
        """Return what the host writes per day at the recorded rate."""
        return round(self.written_bytes / self.seconds * DAY_S) if self.seconds > 0 else 0


@dataclass(frozen=True, slots=True)
class KnownDrive:
    """What is known of the drive: the WAF that it reported, its flash and its NAND endurance."""

    waf: ValueRange | None = None
    flash_bytes: int | None = None
    endurance_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A change: a level of over-provisioning, a trim of all free space once per recorded time, or both."""

    level: OpLevel | None
    trims: bool

    @property
    def label(self) -> str:
        words = [f"{self.level.label} OP"] if self.level else []
        return " and ".join([*words, "trim"] if self.trims else words)

    @property
    def given_up_bytes(self) -> int:
        return self.level.scale.capacity_bytes - self.level.usable_bytes if self.level else 0


@dataclass(frozen=True, slots=True)
class ChangeAdvice:
    """A change with its band, or with the reason why there is none.

    `gain` is the factor of the drive's life, `years` the life at the daily amount.
    """

    change: ProposedChange
    worth: ChangeWorth
    waf: WafBand | None = None
    gain: WafBand | None = None
    years: WafBand | None = None
    check: TargetCheck | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryAdvice:
    """The answer.

    `present` is the drive as it is; `chosen` the change of least capacity that meets the target, or without
    one the change of least capacity that has the full gain.
    """

    answer: HistoryAnswer
    targets: SweepTargets
    present: WafBand
    present_years: WafBand | None
    present_check: TargetCheck | None
    changes: tuple[ChangeAdvice, ...]
    collectors: tuple[str, ...]
    fresh_ratio: float
    chosen: ChangeAdvice | None = None


def list_changes(levels: Sequence[OpLevel]) -> list[ProposedChange]:
    """Return the trim alone, and each level alone and with a trim."""
    changes = [ProposedChange(None, trims=True)]
    for level in levels:
        if level.of_used_ratio:
            changes += [ProposedChange(level, trims=False), ProposedChange(level, trims=True)]
    return changes


def advise_system(
    system: RecordedSystem, facts: KnownDrive, levels: Sequence[OpLevel], targets: SweepTargets
) -> HistoryAdvice:
    """Return the answer. Raise NotEnoughData if nothing can be said."""
    fresh = system.model.require_enough()
    changes = list_changes(levels)
    objections = [_find_objection(system, change) for change in changes]
    possible = [one for one, objection in zip(changes, objections, strict=True) if not objection]
    predicted = _predict(system, facts, possible)
    bands, advised = iter(predicted.bands), list[ChangeAdvice]()
    for change, objection in zip(changes, objections, strict=True):
        if objection:
            advised.append(ChangeAdvice(change, objection[0], reason=objection[1]))
        else:
            advised.append(_describe(system, facts, targets, change, predicted.present, next(bands)))
    years = _estimate_life(system, facts, targets, predicted.present)
    advice = HistoryAdvice(
        answer=HistoryAnswer.NO_TARGETS,
        targets=targets,
        present=predicted.present,
        present_years=years,
        present_check=_check_life(targets, years),
        changes=tuple(advised),
        collectors=tuple(one.collector.name for one in predicted.fitted),
        fresh_ratio=fresh,
    )
    return _choose(advice)


def _predict(
    system: RecordedSystem, facts: KnownDrive, changes: Sequence[ProposedChange]
) -> PredictedChanges:
    """Return the bands, without a model if the drive hardly amplifies: then no change can gain anything."""
    if facts.waf and facts.waf.high < NOTHING_TO_GAIN:
        band = WafBand(1.0, facts.waf.high)
        return PredictedChanges(WafBand(facts.waf.low, facts.waf.high), (band,) * len(changes), ())
    spare = system.model.list_spare()
    flash = facts.flash_bytes and round(facts.flash_bytes / system.unit_bytes)
    replayed = [
        ReplayedChange(tuple(take_units(spare, round(one.given_up_bytes / system.unit_bytes))), one.trims)
        for one in changes
    ]
    padding = find_padding(system, facts)
    waf = ValueRange(facts.waf.value / padding, facts.waf.error / padding) if facts.waf else None
    predicted = predict_changes(system.model, replayed, waf, flash)
    return replace(
        predicted,
        present=predicted.present.scale(padding),
        bands=tuple(band.scale(padding) for band in predicted.bands),
    )


def find_padding(system: RecordedSystem, facts: KnownDrive) -> float:
    """Return the padding of partial units, or 1 if the WAF shows that the drive joins them in its buffer."""
    is_joined = facts.waf and facts.waf.value < system.padding_ratio
    return 1.0 if is_joined else system.padding_ratio


def _find_objection(system: RecordedSystem, change: ProposedChange) -> tuple[ChangeWorth, str] | None:
    """Return what a change is worth if it cannot be predicted, and the reason; None if it can."""
    if change.trims and system.free_bytes is None:
        return ChangeWorth.UNKNOWN, "the history has no free space of a mounted filesystem"
    spare = sum(one.size for one in system.model.list_spare()) * system.unit_bytes
    if change.given_up_bytes <= spare + system.unit_bytes:
        return None
    which = "was not" if system.free_bytes is None else "is free and was not"
    share = 100 * spare / system.capacity_bytes
    return ChangeWorth.IMPOSSIBLE, f"only {share:.1f} % of the disk {which} written during the history"


def _describe(
    system: RecordedSystem,
    facts: KnownDrive,
    targets: SweepTargets,
    change: ProposedChange,
    present: WafBand,
    band: WafBand,
) -> ChangeAdvice:
    gain = WafBand(present.low / band.high, present.high / band.low)
    worth = ChangeWorth.UNDECIDED
    if gain.low - 1 > MIN_GAIN:
        worth = ChangeWorth.HELPS
    elif gain.high - 1 <= MIN_GAIN:
        worth = ChangeWorth.NOTHING
    years = _estimate_life(system, facts, targets, band)
    return ChangeAdvice(
        change=change,
        worth=worth,
        waf=band,
        gain=gain,
        years=years,
        check=_check_life(targets, years),
    )


def _estimate_life(
    system: RecordedSystem, facts: KnownDrive, targets: SweepTargets, waf: WafBand
) -> WafBand | None:
    """Return the years that the drive lasts at the daily amount, or None without its endurance."""
    daily = SweepTargets(daily_bytes=targets.daily_bytes or system.daily_bytes)
    ends = [estimate_years(daily, ValueRange(one, 0.0), facts.endurance_bytes) for one in (waf.high, waf.low)]
    return WafBand(ends[0].value, ends[1].value) if ends[0] and ends[1] else None


def _check_life(targets: SweepTargets, years: WafBand | None) -> TargetCheck | None:
    if targets.life_years is None:
        return None
    value = ValueRange(years.middle, (years.high - years.low) / 2) if years else None
    return judge_value(
        TargetKind.LIFE, targets.life_years, value, "the drive's NAND endurance is unknown (--endurance)"
    )


def _choose(advice: HistoryAdvice) -> HistoryAdvice:
    """Return the answer with the change of least capacity that meets the target, or has the most gain."""
    if advice.targets.life_years is None:
        best = max((one.gain.low for one in advice.changes if one.gain), default=0.0)
        helpful = [
            one
            for one in advice.changes
            if one.worth is ChangeWorth.HELPS and one.gain and one.gain.low > best * (1 - MIN_GAIN)
        ]
        return replace(advice, chosen=_find_least(helpful))
    if advice.present_check and advice.present_check.verdict is TargetVerdict.MET:
        return replace(advice, answer=HistoryAnswer.NOT_NEEDED)
    verdicts = {id(one): one.check.verdict if one.check else TargetVerdict.UNKNOWN for one in advice.changes}
    meeting = [one for one in advice.changes if verdicts[id(one)] is TargetVerdict.MET]
    if meeting:
        return replace(advice, answer=HistoryAnswer.CHANGE, chosen=_find_least(meeting))
    possible = [one for one in advice.changes if one.worth is not ChangeWorth.IMPOSSIBLE]
    is_missed = bool(possible) and all(verdicts[id(one)] is TargetVerdict.MISSED for one in possible)
    now = advice.present_check
    is_missed = is_missed and now is not None and now.verdict is TargetVerdict.MISSED
    return replace(advice, answer=HistoryAnswer.NONE if is_missed else HistoryAnswer.UNDECIDED)


def _find_least(changes: Sequence[ChangeAdvice]) -> ChangeAdvice | None:
    """Return the change that gives up the least capacity; a trim gives up none."""
    return min(changes, key=lambda one: one.change.given_up_bytes, default=None)
