"""Recordings of `opwatch trim record`, and the reports of `opwatch trim stale --history`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from opwatch import SCHEMA, units
from opwatch.sinks.terminal import Writer
from opwatch.sinks.trim_stale import (
    heading,
    in_bytes,
    row,
    spare_document,
    spare_rows,
    untrimmable_rows,
)
from opwatch.trim.history.journal import Look
from opwatch.trim.stale.remembered import Part
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
    look: Look
    missed_runs: int
    # Contexts in which this kernel runs no BPF programs, and the effect on the history.
    blind: str | None = None


def _moment(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _look_document(look: Look) -> dict[str, Any]:
    return {
        "since": datetime.fromtimestamp(look.since_wall_ns / 1e9, UTC).isoformat(),
        "looked": datetime.fromtimestamp(look.wall_ns / 1e9, UTC).isoformat(),
        "slack_bytes": {
            name: None if slack is None else slack * 512
            for name, slack in (("write", look.written_slack), ("discard", look.discarded_slack))
        },
        "forgotten": look.forgotten,
    }


def _state_lines(recorded: HistoryState) -> Iterator[str]:
    yield f"{recorded.device}, {recorded.seconds:.1f} s recorded into {recorded.file}"
    yield from row("at start", recorded.kept)
    for name in ("written", "trimmed", "unknown"):
        size = getattr(recorded, f"{name}_bytes")
        share = 100 * size / recorded.size_bytes if recorded.size_bytes else 0.0
        yield from row(name, f"{units.capacity(size)}, {share:.2f} % of the disk")
    yield from row("extents", str(recorded.extents))
    forgotten = recorded.look.forgotten
    for why, count in forgotten.items():
        yield from row("forgotten", f"{'once' if count == 1 else f'{count} times'}: {why}")
    slack = (recorded.look.written_slack, recorded.look.discarded_slack)
    if slack == (0, 0):
        since = "since the last time, " if forgotten else ""
        yield from row("proof", f"{since}the kernel counted what was recorded, to the sector")
    else:
        shown = ["unknown" if sectors is None else f"{sectors * 512} bytes" for sectors in slack]
        yield from row("proof", f"could have been missed unnoticed: writes {shown[0]}, discards {shown[1]}")
    if recorded.missed_runs:
        yield from row("skipped", f"{recorded.missed_runs} events of all disks, by the kernel")
    if recorded.blind:
        yield from row("note", recorded.blind)


def write_state(recorded: HistoryState, out: TextIO, *, as_json: bool) -> None:
    if as_json:
        text = asdict(recorded)
        del text["look"]
        slack = (recorded.look.written_slack, recorded.look.discarded_slack)
        text["complete"] = not recorded.look.forgotten and slack == (0, 0)
        Writer(out).json({"schema": SCHEMA, **text, **_look_document(recorded.look)}, indent=2)
        return
    Writer(out).lines(_state_lines(recorded))


def _part_document(part: Part) -> dict[str, Any]:
    history = part.remembered
    return {
        "device": part.landing.device,
        "stopped": part.landing.stopped,
        "free_bytes": part.landing.extents.total,
        "free_extents": len(part.landing.extents),
        "stale_bytes": part.held_bytes if history else None,
        "unknown_bytes": part.unknown_bytes,
        "granule_bytes": part.granule_bytes,
        "untrimmable_bytes": part.untrimmable_bytes,
        "history": str(history.file) if history else None,
        "doubts": list(history.doubts) if history else ["no history of this disk was given"],
    } | (_look_document(history.look) if history else {})


def history_document(report: HistoryReport) -> dict[str, Any]:
    """Return the report as one JSON document."""
    return {
        "schema": SCHEMA,
        "subject": report.subject,
        "filesystem": report.filesystem,
        "method": "history",
        "seconds": round(report.seconds, 3),
        "free_bytes": report.free_bytes,
        "exact": report.unknown_bytes == 0,
        "stale_bytes": in_bytes(report.stale),
        "unknown_bytes": report.unknown_bytes,
        "drives": [_part_document(part) for part in report.parts],
        **spare_document(report.spare, report.spare_reason, report.physical_source),
        "notes": list(report.notes),
    }


def _share(part: float, whole: int) -> str:
    return f"{100 * part / whole:.2f} % of it" if whole else "there is no free space"


def _part_rows(part: Part) -> Iterator[str]:
    history = part.remembered
    where = part.landing.device
    if history is None:
        yield from row("disk", f"{where}: no history of it was given")
    else:
        yield from row(
            "disk", f"{where}, recorded since {_moment(history.look.since_wall_ns)} ({history.file})"
        )
        for words in history.doubts:
            yield from row("", words)
    if part.landing.stopped:
        yield from row("", part.landing.stopped)
    yield from untrimmable_rows(part)


def history_lines(report: HistoryReport) -> list[str]:
    """Return the report in 80 columns."""
    rows = heading(report.subject, report.filesystem)
    extents = sum(len(part.landing.extents) for part in report.parts)
    rows += row("free", f"{units.capacity(report.free_bytes)} in {extents} extents")
    low, high = (round(edge) for edge in (report.stale.low, report.stale.high))
    if report.unknown_bytes:
        rows += row("stale", f"{units.capacity(low)} to {units.capacity(high)}")
        rows += row(
            "unknown", f"{units.capacity(report.unknown_bytes)}, {_share(high - low, report.free_bytes)}"
        )
        rows += row("", "a trim of it while its disk is recorded makes it known")
    else:
        rows += row("stale", f"{units.capacity(low)}, {_share(low, report.free_bytes)}; exact: {low} bytes")
    for part in report.parts:
        rows += _part_rows(part)
    rows += spare_rows(report.spare, report.spare_reason, report.physical_source)
    for note in report.notes:
        rows += row("note", note)
    return rows
