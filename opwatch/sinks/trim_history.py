"""Recordings of `opwatch trim record`, and the reports of `opwatch trim stale --history`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from opwatch import SCHEMA, units
from opwatch.sinks.terminal import Writer
from opwatch.sinks.trim_stale import (
    build_byte_bounds,
    build_spare_document,
    format_heading,
    format_row,
    format_spare,
    format_untrimmable,
)
from opwatch.trim.history.saved import Checkpoint
from opwatch.trim.stale.remembered import DeviceFreeSpace
from opwatch.trim.stale.report import HistoryReport


@dataclass(frozen=True, slots=True)
class HistoryState:
    """State of a history when its recorder ends."""

    device: str
    file: str
    seconds: float
    kept: str
    size_bytes: int
    written_bytes: int
    trimmed_bytes: int
    unknown_bytes: int
    extents: int
    look: Checkpoint
    missed_runs: int
    # Contexts in which this kernel runs no BPF programs, and the effect on the history.
    blind: str | None = None


def _format_time(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _build_look(look: Checkpoint) -> dict[str, Any]:
    return {
        "since": datetime.fromtimestamp(look.since_wall_ns / 1e9, UTC).isoformat(),
        "looked": datetime.fromtimestamp(look.wall_ns / 1e9, UTC).isoformat(),
        "slack_bytes": {
            name: None if slack is None else slack * 512
            for name, slack in (("write", look.written_slack), ("discard", look.discarded_slack))
        },
        "forgotten": look.forgotten,
    }


def _format_state(recorded: HistoryState) -> Iterator[str]:
    yield f"{recorded.device}, {recorded.seconds:.1f} s recorded to {recorded.file}"
    yield from format_row("at start", recorded.kept)
    for name in ("written", "trimmed", "unknown"):
        size = getattr(recorded, f"{name}_bytes")
        share = 100 * size / recorded.size_bytes if recorded.size_bytes else 0.0
        yield from format_row(name, f"{units.format_capacity(size)}, {share:.2f} % of the disk")
    yield from format_row("extents", str(recorded.extents))
    forgotten = recorded.look.forgotten
    for why, count in forgotten.items():
        yield from format_row("forgotten", f"{'once' if count == 1 else f'{count} times'}: {why}")
    slack = (recorded.look.written_slack, recorded.look.discarded_slack)
    if slack == (0, 0):
        since = " since the last loss" if forgotten else ""
        yield from format_row("proof", f"the recording matches the kernel's counts{since}, to the sector")
    else:
        shown = ["unknown" if sectors is None else f"{sectors * 512} bytes" for sectors in slack]
        yield from format_row("proof", f"possibly missed: writes {shown[0]}, discards {shown[1]}")
    if recorded.missed_runs:
        yield from format_row("skipped", f"{recorded.missed_runs} events on all disks, by the kernel")
    if recorded.blind:
        yield from format_row("note", recorded.blind)


def write_state(recorded: HistoryState, out: TextIO, *, as_json: bool) -> None:
    if as_json:
        text = asdict(recorded)
        del text["look"]
        slack = (recorded.look.written_slack, recorded.look.discarded_slack)
        text["complete"] = not recorded.look.forgotten and slack == (0, 0)
        Writer(out).write_json({"schema": SCHEMA, **text, **_build_look(recorded.look)}, indent=2)
        return
    Writer(out).write_lines(_format_state(recorded))


def _build_part(part: DeviceFreeSpace) -> dict[str, Any]:
    history = part.remembered
    return {
        "device": part.landing.device,
        "stopped": part.landing.stopped,
        "free_bytes": part.landing.extents.total_bytes,
        "free_extents": len(part.landing.extents),
        "stale_bytes": part.held_bytes if history else None,
        "unknown_bytes": part.unknown_bytes,
        "granule_bytes": part.granule_bytes,
        "untrimmable_bytes": part.untrimmable_bytes,
        "history": str(history.file) if history else None,
        "doubts": list(history.doubts) if history else ["no history given for this disk"],
    } | (_build_look(history.look) if history else {})


def build_history_document(report: HistoryReport) -> dict[str, Any]:
    """Return the report as one JSON document."""
    return {
        "schema": SCHEMA,
        "subject": report.subject,
        "filesystem": report.filesystem,
        "method": "history",
        "seconds": round(report.seconds, 3),
        "free_bytes": report.free_bytes,
        "exact": report.unknown_bytes == 0,
        "stale_bytes": build_byte_bounds(report.stale),
        "unknown_bytes": report.unknown_bytes,
        "drives": [_build_part(part) for part in report.parts],
        **build_spare_document(report.spare, report.spare_reason, report.physical_source),
        "notes": list(report.notes),
    }


def _format_share(part: float, whole: int) -> str:
    return f"{100 * part / whole:.2f} % of free space" if whole else "no free space"


def _format_part(part: DeviceFreeSpace) -> Iterator[str]:
    history = part.remembered
    where = part.landing.device
    if history is None:
        yield from format_row("disk", f"{where}: no history given")
    else:
        yield from format_row(
            "disk", f"{where}, recorded since {_format_time(history.look.since_wall_ns)} ({history.file})"
        )
        for words in history.doubts:
            yield from format_row("", words)
    if part.landing.stopped:
        yield from format_row("", part.landing.stopped)
    yield from format_untrimmable(part)


def format_history(report: HistoryReport) -> list[str]:
    """Return the report in 80 columns."""
    rows = format_heading(report.subject, report.filesystem)
    extents = sum(len(part.landing.extents) for part in report.parts)
    rows += format_row("free", f"{units.format_capacity(report.free_bytes)} in {extents} extents")
    low, high = (round(edge) for edge in (report.stale.low, report.stale.high))
    if report.unknown_bytes:
        rows += format_row("stale", f"{units.format_capacity(low)} to {units.format_capacity(high)}")
        rows += format_row(
            "unknown",
            f"{units.format_capacity(report.unknown_bytes)}, {_format_share(high - low, report.free_bytes)}",
        )
        rows += format_row("", "to resolve it, trim it while its disk is being recorded")
    else:
        rows += format_row(
            "stale",
            f"{units.format_capacity(low)}, {_format_share(low, report.free_bytes)}; exact: {low} bytes",
        )
    for part in report.parts:
        rows += _format_part(part)
    rows += format_spare(report.spare, report.spare_reason, report.physical_source)
    for note in report.notes:
        rows += format_row("note", note)
    return rows
