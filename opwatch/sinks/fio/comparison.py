"""fio's own latencies beside those of the disks, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opwatch import SCHEMA, units
from opwatch.fio.comparison import PERCENTILE_ERROR, JobComparison, MeasuredRow

HEADER = "fio's own latencies, each followed by those of the disks during the job"
TITLE = "Latencies measured by fio itself"
_ERROR = f"fio's percentiles are bin midpoints: up to {PERCENTILE_ERROR * 100:.1f} % off"
_COARSE = ", or 1 us"
COLUMNS_HEADER = f"{'':<39} {'requests':>10} {'mean':>6} {'p50':>6} {'p99':>6} {'p99.9':>6}"
_NAME, _LABEL = 24, 13
NOTHING = "shorter than two samples, or no I/O reached a disk"


def format_rows(rows: Sequence[JobComparison]) -> Iterator[str]:
    """Yield a table of at most 80 columns."""
    yield ""
    yield TITLE if all(row.is_imported for row in rows) else HEADER
    yield COLUMNS_HEADER
    for row in rows:
        yield _format_row(f"{row.job[:_NAME]:<{_NAME}} {row.op:<{_LABEL}}", row.fio)
        for disk in row.disks:
            yield _format_row(f"{'':<{_NAME}} {(disk.device or '')[:_LABEL]:<{_LABEL}}", disk)
        if not row.disks and not row.is_imported:
            yield f"{'':<{_NAME}} {NOTHING}"
    yield describe_error(rows)


def format_runs(runs: Iterable[tuple[str, Sequence[JobComparison]]]) -> Iterator[str]:
    """Yield the tables of several recordings, each under its file name."""
    for name, rows in runs:
        if rows:
            yield from ("", name)
            yield from [*format_rows(rows)][1:]


def build_runs_document(runs: Iterable[tuple[str, Sequence[JobComparison]]]) -> list[dict[str, Any]]:
    """Return one object per recording with the rows, which may be empty."""
    return [{"file": name, "rows": [build_row_document(row) for row in rows]} for name, rows in runs]


def describe_error(rows: Sequence[JobComparison]) -> str:
    """Return the error of fio's percentiles as a sentence."""
    return _ERROR + (_COARSE if any(row.fio.quantum_ns > 1 for row in rows) else "")


def _format_row(head: str, row: MeasuredRow) -> str:
    times = [row.mean_ns, *row.percentiles_ns.values()]
    return f"{head} {row.requests:>10} " + " ".join(f"{units.format_ns(time):>6}" for time in times)


def build_row_document(row: JobComparison) -> dict[str, Any]:
    """Return one row as JSON."""
    phase = row.phase
    return {
        "schema": SCHEMA,
        "type": "fio",
        "job": row.job,
        "op": row.op,
        "begin_mono_ns": phase.begin_ns if phase else None,
        "end_mono_ns": phase.end_ns if phase else None,
        "fio": {
            **_build_times(row.fio),
            "percentiles_ns": {f"{at:g}": value for at, value in row.fio.own_percentiles_ns.items()},
            "percentile_error_ratio": PERCENTILE_ERROR,
            "quantum_ns": row.fio.quantum_ns,
        },
        "disks": [{"device": disk.device, **_build_times(disk)} for disk in row.disks],
    }


def _build_times(row: MeasuredRow) -> dict[str, Any]:
    return {"requests": row.requests, "latency_ns": {"mean": row.mean_ns, **row.percentiles_ns}}
