"""The JSON document of a prediction from a history, docs/schema/history-advice.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from opwatch import SCHEMA
from opwatch.codec import encode
from opwatch.sinks.sweep.history_text import describe_assumptions, describe_history_advice
from opwatch.sweep.advice.price import CapacityPrice
from opwatch.sweep.advice.targets import SweepTargets, TargetVerdict
from opwatch.sweep.history.advice import (
    ChangeAdvice,
    ChangeWorth,
    HistoryAdvice,
    HistoryAnswer,
    KnownDrive,
    RecordedSystem,
)
from opwatch.sweep.history.prediction import WafBand

HISTORY_ADVICE_TYPE: Final = "history-advice"


@dataclass(frozen=True, slots=True)
class BandDocument:
    """The range in which a value is expected."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ChangeDocument:
    """A change: `given_up_bytes` of over-provisioning, a trim, or both. `life_factor` is relative to now."""

    label: str
    given_up_bytes: int
    trims: bool
    worth: ChangeWorth
    waf: BandDocument | None
    life_factor: BandDocument | None
    years: BandDocument | None
    verdict: TargetVerdict | None
    price: float | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryAdviceDocument:
    """What changes would do to a recorded system.

    `answer` names its kind, and `change` is the label of the chosen change. `waf` and `flash_bytes` are as
    given. `fresh_ratio` is the share of the last writes that went to places not written before.
    """

    schema: Literal["opwatch/1"] = SCHEMA
    type: Literal["history-advice"] = HISTORY_ADVICE_TYPE
    history: str
    capacity_bytes: int
    seconds: float
    written_bytes: int
    discarded_bytes: int
    free_bytes: int | None
    gaps: int
    targets: SweepTargets
    price_per_tb: CapacityPrice | None
    waf: BandDocument | None
    flash_bytes: int | None
    endurance_bytes: int | None
    answer: HistoryAnswer
    change: str | None
    now: BandDocument
    years: BandDocument | None
    changes: tuple[ChangeDocument, ...]
    collectors: tuple[str, ...]
    fresh_ratio: float
    sentences: tuple[str, ...]
    assumptions: tuple[str, ...]


def build_history_advice(
    system: RecordedSystem, facts: KnownDrive, advice: HistoryAdvice, price: CapacityPrice | None
) -> dict[str, Any]:
    document: dict[str, Any] = encode(
        HistoryAdviceDocument(
            history=system.name,
            capacity_bytes=system.capacity_bytes,
            seconds=system.seconds,
            written_bytes=system.written_bytes,
            discarded_bytes=system.discarded_bytes,
            free_bytes=system.free_bytes,
            gaps=system.gaps,
            targets=advice.targets,
            price_per_tb=price,
            waf=BandDocument(facts.waf.low, facts.waf.high) if facts.waf else None,
            flash_bytes=facts.flash_bytes,
            endurance_bytes=facts.endurance_bytes,
            answer=advice.answer,
            change=advice.chosen.change.label if advice.chosen else None,
            now=BandDocument(*advice.present),
            years=_build_band(advice.present_years),
            changes=tuple(_build_change(one, price) for one in advice.changes),
            collectors=advice.collectors,
            fresh_ratio=advice.fresh_ratio,
            sentences=tuple(describe_history_advice(system, advice, price)),
            assumptions=tuple(describe_assumptions(system, facts, advice)),
        )
    )
    return document


def _build_change(one: ChangeAdvice, price: CapacityPrice | None) -> ChangeDocument:
    return ChangeDocument(
        label=one.change.label,
        given_up_bytes=one.change.given_up_bytes,
        trims=one.change.trims,
        worth=one.worth,
        waf=_build_band(one.waf),
        life_factor=_build_band(one.gain),
        years=_build_band(one.years),
        verdict=one.check.verdict if one.check else None,
        price=price.compute_cost(one.change.given_up_bytes) if price else None,
        reason=one.reason,
    )


def _build_band(band: WafBand | None) -> BandDocument | None:
    return BandDocument(*band) if band else None
