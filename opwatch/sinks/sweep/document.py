"""The JSON document of a sweep, docs/schema/sweep.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from opwatch import SCHEMA
from opwatch.codec import Signed, encode
from opwatch.guard.identity import DiskIdentity
from opwatch.sinks.sweep.advice_text import summarize_advice
from opwatch.steady.pts import PtsReport
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictReport
from opwatch.sweep.advice.advice import advise
from opwatch.sweep.advice.targets import SweepTargets
from opwatch.sweep.band import ModelBand, SpareFit
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.outcome import LevelFigures, LevelOutcome, LevelSecond
from opwatch.sweep.plan import StepKind, SweepPlan, SweepRefusal
from opwatch.sweep.result import ModelScale, SweepResult
from opwatch.sweep.returns import LevelGain, StepWorth

TYPE: Final = "sweep"


@dataclass(frozen=True, slots=True)
class FilesDocument:
    """The files of a level on a filesystem. `least_used_bytes` is the minimum in use."""

    load_bytes: int
    ballast_bytes: int
    least_used_bytes: int
    most_of_used_ratio: float


@dataclass(frozen=True, slots=True)
class LevelDocument:
    """A level in bytes, with both common definitions of over-provisioning.

    `used_bytes` is the maximum in use for a level made of files.
    """

    label: str
    used_bytes: int
    capacity_bytes: int
    flash_bytes: int | None
    of_used_ratio: float
    of_whole_ratio: float
    files: FilesDocument | None


@dataclass(frozen=True, slots=True)
class OutcomeDocument(LevelDocument):
    """A level with its results."""

    figures: LevelFigures
    rounds: tuple[Round, ...]
    pts: PtsReport | None
    opwatch: StrictReport
    is_model: bool
    seconds: tuple[LevelSecond, ...] = field(default=(), metadata={"added": True})
    band: ModelBand | None = None
    predicted_waf: Signed | None = None
    years: float | None = None


@dataclass(frozen=True, slots=True)
class FitDocument:
    """The spare area that explains the WAF of all levels, at `level`.

    `least_spare_ratio` is that of superblocks of 64 pages, if the drive's superblocks are not known.
    """

    flash_bytes: int
    level: str
    spare_ratio: Signed
    collector: str
    alike: tuple[str, ...]
    rms_ratio: float | None
    least_spare_ratio: Signed | None = field(default=None, metadata={"added": True})


@dataclass(frozen=True, slots=True)
class StepDocument:
    """The gain of a step between neighbouring levels.

    `lost_bytes` is the capacity that the step gives up, and `worth` what the step is worth for that.
    """

    begin: str
    end: str
    percents: Signed
    iops_ratio: float | None
    waf_ratio: float | None
    iops_per_percent: Signed | None
    waf_per_percent: Signed | None
    years: Signed | None
    is_gain: bool | None
    iops_error_ratio: float | None = field(default=None, metadata={"added": True})
    waf_error_ratio: float | None = field(default=None, metadata={"added": True})
    lost_bytes: int | None = field(default=None, metadata={"added": True})
    worth: StepWorth | None = field(default=None, metadata={"added": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDocument:
    """The results of a sweep, as printed and stored.

    Of a drive, `sweep` is the name of the sweep in its journal, and `is_ended` is false while levels remain.
    `scenario` is the repeated experiment.
    """

    schema: Literal["opwatch/1"] = SCHEMA
    type: Literal["sweep"] = TYPE
    target: str
    method: str
    workload: str
    is_uniform: bool = field(default=True, metadata={"added": True})
    superblock_pages: int | None = field(default=None, metadata={"added": True})
    model: ModelScale | None = None
    levels: tuple[OutcomeDocument, ...]
    fit: FitDocument | None
    returns: tuple[StepDocument, ...]
    endurance_bytes: int | None
    endurance_reason: str | None
    advice: str
    sweep: str | None = field(default=None, metadata={"added": True})
    created: str | None = field(default=None, metadata={"added": True})
    disk: DiskIdentity | None = field(default=None, metadata={"added": True})
    is_ended: bool | None = field(default=None, metadata={"added": True})
    scenario: Mapping[str, Any] | None = field(default=None, metadata={"added": True})

    def find_flaw(self) -> str | None:
        is_explained = self.endurance_bytes is not None or self.endurance_reason is not None
        return None if is_explained else "endurance_reason is missing"


@dataclass(frozen=True, slots=True)
class StepPlanDocument:
    """A step, run `at_least` to `at_most` times. Bytes and seconds are per run."""

    kind: StepKind
    what: str
    level: str | None
    write_bytes: int
    discard_bytes: int
    seconds: float | None
    at_least: int
    at_most: int


@dataclass(frozen=True, slots=True)
class RangeDocument:
    """The least and the most of a sum over all steps."""

    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """The plan of a sweep. Nothing has been executed yet."""

    schema: Literal["opwatch/1"] = SCHEMA
    type: Literal["sweep-plan"] = "sweep-plan"
    target: str
    method: str
    workload: str
    is_model: bool
    levels: tuple[LevelDocument, ...]
    steps: tuple[StepPlanDocument, ...]
    write_bytes: RangeDocument
    bytes_reason: str | None
    seconds: RangeDocument | None
    life_ratio: RangeDocument | None
    life_reason: str | None
    refusals: tuple[SweepRefusal, ...]


def build_result_document(result: SweepResult) -> dict[str, Any]:
    fit = result.fit_levels()
    has_endurance = result.endurance_bytes is not None
    document: dict[str, Any] = encode(
        SweepDocument(
            target=result.target,
            method=result.method,
            workload=result.workload,
            is_uniform=result.is_uniform,
            superblock_pages=result.superblock_pages,
            model=result.model,
            levels=tuple(_build_outcome(result, outcome, fit) for outcome in result.outcomes),
            fit=_build_fit(result, fit) if fit else None,
            returns=tuple(map(build_step, result.compute_gains())),
            endurance_bytes=result.endurance_bytes,
            endurance_reason=None if has_endurance else result.endurance_reason,
            advice=summarize_advice(advise(result, SweepTargets())),
        )
    )
    return document


def build_level_document(level: OpLevel) -> LevelDocument:
    return LevelDocument(
        label=level.label,
        used_bytes=level.usable_bytes,
        capacity_bytes=level.scale.capacity_bytes,
        flash_bytes=level.flash_bytes,
        of_used_ratio=level.of_used_ratio,
        of_whole_ratio=level.of_whole_ratio,
        files=FilesDocument(
            level.load_bytes, level.ballast_bytes, level.active_bytes, level.most_of_used_ratio
        )
        if level.files
        else None,
    )


def _build_outcome(result: SweepResult, outcome: LevelOutcome, fit: SpareFit | None) -> OutcomeDocument:
    level = build_level_document(outcome.level)
    return OutcomeDocument(
        **{one.name: getattr(level, one.name) for one in fields(level)},
        figures=outcome.figures,
        rounds=outcome.rounds,
        pts=outcome.pts.to_report() if outcome.pts else None,
        opwatch=outcome.strict.to_report(),
        is_model=outcome.is_model,
        seconds=outcome.seconds,
        band=result.find_band(outcome, fit),
        predicted_waf=result.predict_waf(outcome, fit),
        years=result.estimate_years(outcome),
    )


def _build_fit(result: SweepResult, fit: SpareFit) -> FitDocument:
    largest = max((outcome.level for outcome in result.outcomes), key=lambda level: level.usable_bytes)
    least = result.find_least_flash_bytes(fit)
    return FitDocument(
        flash_bytes=round(fit.flash_bytes),
        level=largest.label,
        spare_ratio=fit.compute_spare_ratio(largest.active_bytes),
        collector=fit.model.name,
        alike=tuple(fit.alike),
        rms_ratio=fit.rms_ratio,
        least_spare_ratio=None if least is None else least / largest.active_bytes - 1,
    )


def build_step(step: LevelGain) -> StepDocument:
    return StepDocument(
        begin=step.begin.level.label,
        end=step.end.level.label,
        percents=step.percents,
        iops_ratio=step.iops_ratio,
        waf_ratio=step.waf_ratio,
        iops_per_percent=step.iops_per_percent,
        waf_per_percent=step.waf_per_percent,
        years=step.years,
        is_gain=step.is_gain,
        iops_error_ratio=step.iops.error_ratio if step.iops else None,
        waf_error_ratio=step.writes.error_ratio if step.writes else None,
        lost_bytes=step.lost_bytes,
        worth=step.worth,
    )


def build_plan_document(plan: SweepPlan) -> dict[str, Any]:
    """Return the plan as a document."""
    steps = (
        StepPlanDocument(
            kind=step.kind,
            what=step.what,
            level=step.level.label if step.level else None,
            write_bytes=step.write_bytes,
            discard_bytes=step.discard_bytes,
            seconds=step.seconds,
            at_least=step.at_least,
            at_most=step.at_most,
        )
        for step in plan.steps
    )
    document: dict[str, Any] = encode(
        PlanDocument(
            target=plan.target,
            method=plan.method,
            workload=plan.workload,
            is_model=plan.is_model,
            levels=tuple(map(build_level_document, plan.levels)),
            steps=tuple(steps),
            write_bytes=RangeDocument(*plan.write_bytes),
            bytes_reason=plan.bytes_reason or None,
            seconds=RangeDocument(*plan.seconds) if plan.seconds else None,
            life_ratio=RangeDocument(*plan.life_ratio) if plan.life_ratio else None,
            life_reason=plan.life_reason or None,
            refusals=plan.refusals,
        )
    )
    return document
