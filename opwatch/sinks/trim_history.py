"""What `opwatch trim record` recorded, and what `opwatch trim stale --history` makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TextIO

from opwatch import SCHEMA, units
from opwatch.sinks.terminal import Writer
from opwatch.sinks.trim_stale import (
    Free,
    heading,
    in_bytes,
    row,
    spare_document,
    spare_rows,
    untrimmable_rows,
)
from opwatch.trim.history.journal import Look
from opwatch.trim.stale.stale import Bounds, Spare


@dataclass(frozen=True, slots=True)
class Recorded:
    """The state of a recording at its end."""

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
    # Where this kernel runs no programs, and what that means for the recording.
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


def _recorded_lines(found: Recorded) -> Iterator[str]:
    yield f"{found.device}, {found.seconds:.1f} s recorded into {found.file}"
    yield from row("at start", found.kept)
    for name in ("written", "trimmed", "unknown"):
        size = getattr(found, f"{name}_bytes")
        share = 100 * size / found.size_bytes if found.size_bytes else 0.0
        yield from row(name, f"{units.capacity(size)}, {share:.2f} % of the disk")
    yield from row("extents", str(found.extents))
    forgotten = found.look.forgotten
    for why, count in forgotten.items():
        yield from row("forgotten", f"{'once' if count == 1 else f'{count} times'}: {why}")
    slack = (found.look.written_slack, found.look.discarded_slack)
    if slack == (0, 0):
        since = "since the last time, " if forgotten else ""
        yield from row("proof", f"{since}the kernel counted what was recorded, to the sector")
    else:
        shown = ["unknown" if each is None else f"{each * 512} bytes" for each in slack]
        yield from row("proof", f"could have been missed unnoticed: writes {shown[0]}, discards {shown[1]}")
    if found.missed_runs:
        yield from row("skipped", f"{found.missed_runs} events of all disks, by the kernel")
    if found.blind:
        yield from row("note", found.blind)


def write_recorded(found: Recorded, out: TextIO, *, as_json: bool) -> None:
    if as_json:
        text = asdict(found)
        del text["look"]
        slack = (found.look.written_slack, found.look.discarded_slack)
        text["complete"] = not found.look.forgotten and slack == (0, 0)
        Writer(out).json({"schema": SCHEMA, **text, **_look_document(found.look)}, indent=2)
        return
    Writer(out).lines(_recorded_lines(found))


class ShownHistory(Protocol):
    """A history as it can be believed at a moment."""

    @property
    def file(self) -> Path: ...
    @property
    def look(self) -> Look: ...
    @property
    def doubts(self) -> tuple[str, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


class ShownPart(Free, Protocol):
    """Free space on one device, and what is remembered of it."""

    @property
    def held_bytes(self) -> int: ...
    @property
    def unknown_bytes(self) -> int: ...
    @property
    def remembered(self) -> ShownHistory | None: ...


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """All that is said of the free space of a file system, by histories of its disks."""

    subject: str
    filesystem: str | None
    seconds: float
    parts: Sequence[ShownPart]
    stale: Bounds
    spare: Spare | None
    spare_reason: str | None
    physical_source: str | None
    notes: tuple[str, ...]

    @property
    def free_bytes(self) -> int:
        return sum(part.landing.extents.total for part in self.parts)

    @property
    def unknown_bytes(self) -> int:
        return sum(part.unknown_bytes for part in self.parts)


def _part_document(part: ShownPart) -> dict[str, Any]:
    found = part.remembered
    return {
        "device": part.landing.device,
        "stopped": part.landing.stopped,
        "free_bytes": part.landing.extents.total,
        "free_extents": len(part.landing.extents),
        "stale_bytes": part.held_bytes if found else None,
        "unknown_bytes": part.unknown_bytes,
        "granule_bytes": part.granule_bytes,
        "untrimmable_bytes": part.untrimmable_bytes,
        "history": str(found.file) if found else None,
        "doubts": list(found.doubts) if found else ["no history of this disk was given"],
    } | (_look_document(found.look) if found else {})


def history_document(report: HistoryReport) -> dict[str, Any]:
    """The report as one JSON document."""
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


def _part_rows(part: ShownPart) -> Iterator[str]:
    found = part.remembered
    where = part.landing.device
    if found is None:
        yield from row("disk", f"{where}: no history of it was given")
    else:
        yield from row("disk", f"{where}, recorded since {_moment(found.look.since_wall_ns)} ({found.file})")
        for words in found.doubts:
            yield from row("", words)
    if part.landing.stopped:
        yield from row("", part.landing.stopped)
    yield from untrimmable_rows(part)


def history_lines(report: HistoryReport) -> list[str]:
    """The report in 80 columns."""
    found = heading(report.subject, report.filesystem)
    extents = sum(len(part.landing.extents) for part in report.parts)
    found += row("free", f"{units.capacity(report.free_bytes)} in {extents} extents")
    low, high = (round(edge) for edge in (report.stale.low, report.stale.high))
    if report.unknown_bytes:
        found += row("stale", f"{units.capacity(low)} to {units.capacity(high)}")
        found += row(
            "unknown", f"{units.capacity(report.unknown_bytes)}, {_share(high - low, report.free_bytes)}"
        )
        found += row("", "a trim of it while its disk is recorded makes it known")
    else:
        found += row("stale", f"{units.capacity(low)}, {_share(low, report.free_bytes)}; exact: {low} bytes")
    for part in report.parts:
        found += _part_rows(part)
    found += spare_rows(report.spare, report.spare_reason, report.physical_source)
    for note in report.notes:
        found += row("note", note)
    return found
