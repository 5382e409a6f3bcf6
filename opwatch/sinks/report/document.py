"""A report as one JSON document: docs/schema/report.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opwatch import SCHEMA
from opwatch.compare.comparison import RunComparison
from opwatch.owners.cells import OwnedCounts
from opwatch.report.bins import TimeBin
from opwatch.report.changes import MetricChanges
from opwatch.report.drive_timeline import DriveTimeline
from opwatch.report.levels import Step
from opwatch.report.owner_bins import OwnersBin
from opwatch.report.run_picture import DiskPicture
from opwatch.report.subject import ReportedRun
from opwatch.sinks.compare import build_comparison_document as compared_document
from opwatch.sinks.fio.comparison import build_row_document as fio_document
from opwatch.sinks.fio.comparison import build_runs_document as compared_fio
from opwatch.sinks.jsonl import build_observation_document
from opwatch.sinks.report.change_text import name_step
from opwatch.sinks.report.owner_table import explain_missing_owners
from opwatch.sinks.report.sentences import describe_trust, summarize_run
from opwatch.sinks.report.slow_table import build_slow_document


def build_report_document(runs: Sequence[ReportedRun], comparison: RunComparison | None) -> dict[str, Any]:
    """Return recordings as a report shows them, and their comparison if there are several."""
    return {
        "schema": SCHEMA,
        "type": "report",
        "runs": [_build_run(run) for run in runs],
        "comparison": _build_comparison(runs, comparison) if comparison else None,
    }


def _build_comparison(runs: Sequence[ReportedRun], comparison: RunComparison) -> dict[str, Any]:
    """Return the document of `opwatch compare`."""
    imported = [[row for row in run.fio if row.is_imported] for run in runs]
    fio = compared_fio(zip(comparison.files, imported, strict=True))
    return {**compared_document(comparison, ()), "fio": fio}


def _build_run(run: ReportedRun) -> dict[str, Any]:
    """Return a recording. Its summaries are the same as in a replay."""
    _, is_well = describe_trust(run)
    begin = run.to_wall_time(run.picture.begin_ns)
    return {
        "file": run.name,
        "header": run.header,
        "time": begin.isoformat(timespec="milliseconds") if begin else None,
        "begin_mono_ns": run.picture.begin_ns,
        "seconds": run.picture.seconds,
        "ending": run.ending,
        "sentences": summarize_run(run),
        "is_accounted_for": is_well,
        "unexplained": run.picture.unexplained,
        "explained": run.picture.explained,
        "devices": [_build_disk(run, disk) for disk in run.picture.disks.values()],
        "drives": [_build_drive(course) for course in run.drives.values()],
        "phases": [
            {"name": phase.name, "begin_mono_ns": phase.begin_ns, "end_mono_ns": phase.end_ns}
            for phase in run.phases
        ],
        "events": [{"mono_ns": mark.at_ns, "kind": mark.kind, "text": mark.text} for mark in run.marks],
        "notes": list(run.notes),
        "fio": [fio_document(row) for row in run.fio],
        "slow": [build_slow_document(one) for one in run.slow],
        "slow_notes": list(run.slow_notes),
    }


def _build_disk(run: ReportedRun, disk: DiskPicture) -> dict[str, Any]:
    drive = run.drive_of(disk.device)
    return {
        "device": disk.device,
        "label": disk.label,
        "drive": drive.name if drive else None,
        "intervals": disk.interval_count,
        "owners_reason": explain_missing_owners(disk),
        "summaries": [build_observation_document(final) for final in disk.finals],
        "changes": [_build_change(change) for change in run.changes[disk.label]],
        "bins": [_build_bin(one) for one in disk.bins],
    }


def _build_change(change: MetricChanges) -> dict[str, Any]:
    rest, period = change.levels.rest, change.period
    return {
        "figure": change.figure,
        "op": change.op,
        "phase": change.phase,
        "reason": change.levels.reason,
        "levels": [
            {
                "begin_mono_ns": level.begin_ns,
                "end_mono_ns": level.end_ns,
                "intervals": level.intervals,
                "value": level.value,
                "p5": level.usual_low,
                "p95": level.usual_high,
            }
            for level in change.levels.levels
        ],
        "steps": [_build_step(change, step) for step in change.levels.steps],
        "pauses": [
            {
                "begin_mono_ns": pause.begin_ns,
                "end_mono_ns": pause.end_ns,
                "intervals": pause.intervals,
                "in_flight": list(pause.in_flight) if pause.in_flight else None,
            }
            for pause in change.levels.pauses
        ],
        "is_steady": rest.is_steady if rest else None,
        "halves_low": rest.low if rest else None,
        "halves_high": rest.high if rest else None,
        "rest_reason": rest.reason if rest else None,
        "period_s": period.intervals * change.interval_s if period else None,
        "period_likeness": period.likeness if period else None,
    }


def _build_step(change: MetricChanges, step: Step) -> dict[str, Any]:
    return {
        "name": name_step(change, step),
        "mono_ns": step.at_ns,
        "ratio": step.difference.ratio,
        "ratio_low": step.difference.low,
        "ratio_high": step.difference.high,
        "load_changes": _build_load(step),
    }


def _build_load(step: Step) -> list[dict[str, Any]] | None:
    """Return the load changes at a step, or None if they are unknown."""
    if step.load is None:
        return None
    return [
        {"figure": load.figure.value, "op": load.op, "before": load.before, "after": load.after}
        for load in step.load
    ]


def _build_bin(one: TimeBin) -> dict[str, Any]:
    return {
        "begin_mono_ns": one.begin_ns,
        "end_mono_ns": one.end_ns,
        "intervals": one.intervals,
        "ops": {
            name: {
                "count": op.count,
                "bytes": op.bytes,
                "per_s": {"mean": one.per_s(name), "least": op.per_s.least, "most": op.per_s.most},
                "bytes_per_s": {
                    "mean": one.bytes_per_s(name),
                    "least": op.bytes_per_s.least,
                    "most": op.bytes_per_s.most,
                },
                "queue_depth": one.mean_depth(name),
                "latency_ns": {
                    "p50": op.find_quantile_ns(0.5),
                    "p99": op.find_quantile_ns(0.99),
                    "max": op.most_ns,
                },
            }
            for name, op in one.ops.items()
        },
        "owners": _build_owners(one.owners) if one.owners else None,
    }


def _build_owners(owners: OwnersBin) -> list[dict[str, Any]]:
    """Return the counts by owner key, as in summaries. The remainder has no key."""
    rows = [
        {"kind": key.kind.value, "number": key.number, "since_ns": key.since_ns, **_build_counts(counts)}
        for key, counts in owners.owners.items()
    ]
    return [*rows, {"kind": None, "number": None, "since_ns": None, **_build_counts(owners.other)}]


def _build_counts(counts: OwnedCounts) -> dict[str, int]:
    return {"count": counts.requests, "moved_bytes": counts.bytes, "time_ns": counts.sum_ns}


def _build_drive(course: DriveTimeline) -> dict[str, Any]:
    return {
        "name": course.name,
        "model": course.facts.model,
        "serial": course.facts.serial,
        "firmware": course.facts.firmware,
        "capacity_bytes": course.facts.capacity_bytes,
        "waf": course.waf,
        "waf_error": course.error,
        "reason": course.reason,
        "split": _build_split(course),
        "parts": [
            {
                "end_mono_ns": part.end_ns,
                "seconds": part.seconds,
                "host_bytes": part.host_bytes,
                "nand_bytes": part.nand_bytes,
                "error_bytes": part.error_bytes,
                "written_bytes": part.written,
            }
            for part in course.parts
        ],
        "health": [
            {
                "mono_ns": point.at_ns,
                "temperature_celsius": point.temperature,
                "percentage_used": point.percentage_used,
                "available_spare": point.available_spare,
            }
            for point in course.health
        ],
    }


def _build_split(course: DriveTimeline) -> dict[str, Any] | None:
    split = course.measured.split if course.measured else None
    if split is None:
        return None
    return {
        "is_even": course.is_even,
        "per_host_byte": split.a,
        "per_host_byte_error": split.a_error,
        "bytes_per_s": split.b_bytes_per_s,
        "bytes_per_s_error": split.b_error,
        "reason": split.reason,
    }
