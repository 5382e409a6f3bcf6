"""`opwatch flight status`: describe the contents of a dump made now."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime

from opwatch import SCHEMA, units
from opwatch.errors import NotEnoughData
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.joined import JoinedRun
from opwatch.samples.entries import DiskAdded, RunEntry
from opwatch.samples.entry_parts import find_start_ns, get_samples
from opwatch.sinks.terminal import open_stdout
from opwatch.times import format_duration
from opwatch.tools.commands.flight.keep import add_ring_argument


@dataclass(frozen=True, slots=True)
class RingStatus:
    """State of a ring. `since` and `until` cover the readable segments; None without any."""

    ring: str
    is_written: bool
    bytes: int
    segments: int
    since: str | None
    until: str | None
    seconds: float | None
    disks: tuple[str, ...]
    lost: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch flight status [--json] [--ring DIR]"
    add_ring_argument(parser)
    parser.add_argument("--json", action="store_true", help='print one JSON document, "schema":"opwatch/1"')


def run(args: argparse.Namespace) -> int:
    with closing(RingFolder(args.ring)) as folder, folder.keep_segments():
        status = _read_status(folder)
    out = open_stdout()
    if args.json:
        out.write_json({"schema": SCHEMA, "type": "flight_status", **asdict(status)})
        return 0
    out.write_lines(_format_status(status))
    return 0


def _read_status(folder: RingFolder) -> RingStatus:
    segments, is_written = folder.list_segments(), folder.is_owned()
    first = last = None
    disks: dict[str, None] = {}
    lost: tuple[str, ...] = ()
    try:
        with closing(JoinedRun(folder)) as joined:
            first = _get_entry_time(next(joined.iter_entries(), None))
            for entry in joined.iter_entries(last_only=True):
                last = _get_entry_time(entry) or last
                if isinstance(entry, DiskAdded):
                    disks[entry.sample.disk.device] = None
            lost = tuple(joined.lost)
    except NotEnoughData:
        pass
    return RingStatus(
        ring=str(folder.path),
        is_written=is_written,
        bytes=sum(segment.size for segment in segments),
        segments=len(segments),
        since=first[1].isoformat(timespec="seconds") if first else None,
        until=last[1].isoformat(timespec="seconds") if last else None,
        seconds=(last[0] - first[0]) / 1e9 if first and last else None,
        disks=tuple(disks),
        lost=lost,
    )


def _get_entry_time(entry: RunEntry | None) -> tuple[int, datetime] | None:
    """Return the time of an entry's samples by both clocks, or None if it has no samples."""
    samples = get_samples(entry) if entry else {}
    if not entry or not samples:
        return None
    at_ns = find_start_ns(entry)
    return at_ns, next(iter(samples.values())).anchor.to_wall_time(at_ns).astimezone()


def _format_status(status: RingStatus) -> Iterator[str]:
    writer = "a recorder writes to it" if status.is_written else "no recorder writes to it"
    yield f"{status.ring}: {units.format_capacity(status.bytes)} in {status.segments} segments; {writer}"
    if status.seconds is None:
        yield "it has no readable samples yet"
        return
    yield (
        f"from {status.since} to {status.until} ({format_duration(round(status.seconds))}), and everything "
        "since"
    )
    yield f"disks: {', '.join(status.disks)}"
    for problem in status.lost:
        yield f"cannot be read: {problem}"
