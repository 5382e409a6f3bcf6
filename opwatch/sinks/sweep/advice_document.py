"""The JSON document of an answer, docs/schema/sweep-advice.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from opwatch import SCHEMA
from opwatch.codec import Signed, encode
from opwatch.sinks.sweep.advice_text import describe_advice
from opwatch.sinks.sweep.document import StepDocument, build_step
from opwatch.steady.strict import StrictState
from opwatch.sweep.advice.advice import AdviceKind, LevelAdvice, SweepAdvice
from opwatch.sweep.advice.between import LevelBetween
from opwatch.sweep.advice.price import CapacityPrice
from opwatch.sweep.advice.targets import SweepTargets, TargetCheck, TargetKind, TargetVerdict
from opwatch.sweep.ranges import ValueRange
from opwatch.sweep.result import SweepResult
from opwatch.sweep.returns import LevelGain

ADVICE_TYPE: Final = "sweep-advice"
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class ValueDocument:
    """A value and its error at the document's confidence."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class CheckDocument:
    """A target at a level. Bytes per day, years, I/Os per second, or nanoseconds."""

    target: TargetKind
    wanted: float
    measured: ValueDocument | None
    verdict: TargetVerdict
    reason: str | None


@dataclass(frozen=True, slots=True)
class LevelAdviceDocument:
    """A level with its figures, its life and its checks."""

    label: str
    used_bytes: int
    capacity_bytes: int
    of_used_ratio: float
    of_whole_ratio: float
    state: StrictState
    reason: str | None
    waf: ValueDocument | None
    iops: ValueDocument | None
    p99_ns: ValueDocument | None
    tbw_bytes: ValueDocument | None
    dwpd: ValueDocument | None
    years: ValueDocument | None
    verdict: TargetVerdict | None
    checks: tuple[CheckDocument, ...]


@dataclass(frozen=True, slots=True)
class BetweenDocument:
    """A level between two measured ones that meets all targets by the model."""

    used_bytes: int
    of_used_ratio: float
    of_whole_ratio: float
    checks: tuple[CheckDocument, ...]


@dataclass(frozen=True, slots=True)
class AdviceStepDocument(StepDocument):
    """A step with the life gained at the daily amount, and the price of the capacity given up."""

    years_gained: Signed | None = None
    price: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceDocument:
    """The answer of a sweep.

    `answer` names its kind; `level`, `nearest`, `knee` and `worthless_from` are labels of levels.
    `confidence` is that of every error.
    """

    schema: Literal["opwatch/1"] = SCHEMA
    type: Literal["sweep-advice"] = ADVICE_TYPE
    sweep: str
    target: str
    workload: str
    is_model: bool
    confidence: float = _CONFIDENCE
    targets: SweepTargets
    price_per_tb: CapacityPrice | None
    endurance_bytes: int | None
    endurance_reason: str | None
    answer: AdviceKind
    level: str | None
    between: BetweenDocument | None
    nearest: str | None
    unjudged: tuple[TargetKind, ...]
    knee: str | None
    next_step: AdviceStepDocument | None
    worthless_from: str | None
    sentences: tuple[str, ...]
    levels: tuple[LevelAdviceDocument, ...]
    steps: tuple[AdviceStepDocument, ...]


def build_advice_document(
    name: str, result: SweepResult, advice: SweepAdvice, price: CapacityPrice | None
) -> dict[str, Any]:
    step, knee, worthless = advice.next_step, advice.knee, advice.worthless_from
    document: dict[str, Any] = encode(
        AdviceDocument(
            sweep=name,
            target=result.target,
            workload=result.workload,
            is_model=result.model is not None,
            targets=advice.targets,
            price_per_tb=price,
            endurance_bytes=result.endurance_bytes,
            endurance_reason=result.endurance_reason if result.endurance_bytes is None else None,
            answer=advice.kind,
            level=advice.chosen.label if advice.chosen else None,
            between=_build_between(advice.between) if advice.between else None,
            nearest=advice.nearest.label if advice.nearest else None,
            unjudged=tuple(check.kind for check in advice.unjudged),
            knee=knee.level.label if knee else None,
            next_step=_build_step(advice, step, price) if step else None,
            worthless_from=worthless.level.label if worthless else None,
            sentences=tuple(describe_advice(advice, price)),
            levels=tuple(map(_build_level, advice.levels)),
            steps=tuple(_build_step(advice, one, price) for one in advice.steps),
        )
    )
    return document


def _build_level(one: LevelAdvice) -> LevelAdviceDocument:
    level, strict = one.outcome.level, one.outcome.strict
    return LevelAdviceDocument(
        label=level.label,
        used_bytes=level.usable_bytes,
        capacity_bytes=level.scale.capacity_bytes,
        of_used_ratio=level.of_used_ratio,
        of_whole_ratio=level.of_whole_ratio,
        state=strict.state,
        reason=strict.reason or None,
        waf=_build_value(one.outcome.find_waf()),
        iops=_build_value(one.outcome.find_iops()),
        p99_ns=_build_value(one.outcome.proven_figures.find_latency_range("p99")),
        tbw_bytes=_build_value(one.tbw_bytes),
        dwpd=_build_value(one.dwpd),
        years=_build_value(one.years),
        verdict=one.verdict if one.checks else None,
        checks=_build_checks(one.checks),
    )


def _build_value(value: ValueRange | None) -> ValueDocument | None:
    return ValueDocument(value.value, value.error) if value else None


def _build_checks(checks: Sequence[TargetCheck]) -> tuple[CheckDocument, ...]:
    return tuple(
        CheckDocument(one.kind, one.wanted, _build_value(one.value), one.verdict, one.reason)
        for one in checks
    )


def _build_between(between: LevelBetween) -> BetweenDocument:
    return BetweenDocument(
        between.used_bytes, between.of_used_ratio, between.of_whole_ratio, _build_checks(between.checks)
    )


def _build_step(advice: SweepAdvice, step: LevelGain, price: CapacityPrice | None) -> AdviceStepDocument:
    plain = build_step(step)
    return AdviceStepDocument(
        **{one.name: getattr(plain, one.name) for one in fields(plain)},
        years_gained=advice.find_years_gained(step),
        price=price.compute_cost(step.lost_bytes) if price else None,
    )
