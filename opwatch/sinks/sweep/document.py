"""The JSON document of a sweep, docs/schema/sweep.json."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from opwatch import SCHEMA
from opwatch.sweep.band import SpareFit
from opwatch.sweep.levels import LevelFiles, OpLevel
from opwatch.sweep.outcome import LevelOutcome
from opwatch.sweep.plan import SweepPlan
from opwatch.sweep.result import ModelScale, SweepResult
from opwatch.sweep.returns import LevelGain


def build_result_document(result: SweepResult) -> dict[str, Any]:
    fit = result.fit_levels()
    return {
        "schema": SCHEMA,
        "type": "sweep",
        "target": result.target,
        "method": result.method,
        "workload": result.workload,
        "is_uniform": result.is_uniform,
        "model": _build_model(result.model) if result.model else None,
        "levels": [_build_outcome(result, outcome, fit) for outcome in result.outcomes],
        "fit": _build_fit(result, fit),
        "returns": [_build_step(step) for step in result.compute_gains()],
        "endurance_bytes": result.endurance_bytes,
        "endurance_reason": None if result.endurance_bytes is not None else result.endurance_reason,
        "advice": result.format_advice(),
    }


def _build_model(model: ModelScale) -> dict[str, Any]:
    return asdict(model) | {"error_ratios": list(model.error_ratios)}


def build_level_fields(level: OpLevel) -> dict[str, Any]:
    """Return a level in bytes, with both common definitions of over-provisioning."""
    return {
        "label": level.label,
        "used_bytes": level.usable_bytes,
        "capacity_bytes": level.scale.capacity_bytes,
        "flash_bytes": level.flash_bytes,
        "of_used_ratio": level.of_used_ratio,
        "of_whole_ratio": level.of_whole_ratio,
        "files": _build_files(level, level.files) if level.files else None,
    }


def _build_files(level: OpLevel, files: LevelFiles) -> dict[str, Any]:
    """Return the files of a level on a filesystem. `used_bytes` is the maximum in use, `least_used_bytes` the
    minimum."""
    return {
        **asdict(files),
        "least_used_bytes": level.active_bytes,
        "most_of_used_ratio": level.most_of_used_ratio,
    }


def _build_outcome(result: SweepResult, outcome: LevelOutcome, fit: SpareFit | None) -> dict[str, Any]:
    band = result.find_band(outcome, fit)
    return {
        **build_level_fields(outcome.level),
        "figures": asdict(outcome.figures),
        "rounds": [asdict(one) for one in outcome.rounds],
        "pts": outcome.pts.to_report() if outcome.pts else None,
        "opwatch": outcome.strict.to_report(),
        "is_model": outcome.is_model,
        "seconds": [list(second) for second in outcome.seconds],
        "band": asdict(band) if band else None,
        "predicted_waf": result.predict_waf(outcome, fit),
        "years": result.estimate_years(outcome),
    }


def _build_fit(result: SweepResult, fit: SpareFit | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    largest = max((outcome.level for outcome in result.outcomes), key=lambda level: level.usable_bytes)
    return {
        "flash_bytes": round(fit.flash_bytes),
        "level": largest.label,
        "spare_ratio": fit.compute_spare_ratio(largest.active_bytes),
        "collector": fit.model.name,
        "alike": list(fit.alike),
        "rms_ratio": fit.rms_ratio,
    }


def _build_step(step: LevelGain) -> dict[str, Any]:
    return {
        "begin": step.begin.level.label,
        "end": step.end.level.label,
        "percents": step.percents,
        "iops_ratio": step.iops_ratio,
        "waf_ratio": step.waf_ratio,
        "iops_per_percent": step.iops_per_percent,
        "waf_per_percent": step.waf_per_percent,
        "years": step.years,
        "is_gain": step.is_gain,
    }


def build_plan_document(plan: SweepPlan) -> dict[str, Any]:
    """Return the plan as a document. Nothing has been executed yet."""
    least, most = plan.write_bytes
    return {
        "schema": SCHEMA,
        "type": "sweep-plan",
        "target": plan.target,
        "method": plan.method,
        "workload": plan.workload,
        "is_model": plan.is_model,
        "levels": [build_level_fields(level) for level in plan.levels],
        "steps": [
            {
                "kind": step.kind.value,
                "what": step.what,
                "level": step.level.label if step.level else None,
                "write_bytes": step.write_bytes,
                "discard_bytes": step.discard_bytes,
                "seconds": step.seconds,
                "at_least": step.at_least,
                "at_most": step.at_most,
            }
            for step in plan.steps
        ],
        "write_bytes": {"least": least, "most": most},
        "bytes_reason": plan.bytes_reason or None,
        "seconds": dict(zip(("least", "most"), plan.seconds, strict=True)) if plan.seconds else None,
        "life_ratio": dict(zip(("least", "most"), plan.life_ratio, strict=True)) if plan.life_ratio else None,
        "life_reason": plan.life_reason or None,
        "refusals": [asdict(refusal) for refusal in plan.refusals],
    }
