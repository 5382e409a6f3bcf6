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
from opwatch.samples.entries import Began, RunEntry
from opwatch.samples.entry_parts import first_moment, samples_in
from opwatch.sinks.terminal import data
from opwatch.times import spell
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
    parser.add_argument("--json", action="store_true", help='one document, "schema":"opwatch/1"')


def run(args: argparse.Namespace) -> int:
    with closing(RingFolder(args.ring)) as folder, folder.kept():
        status = _status(folder)
    out = data()
    if args.json:
        out.json({"schema": SCHEMA, "type": "flight_status", **asdict(status)})
        return 0
    out.lines(_lines(status))
    return 0


def _status(folder: RingFolder) -> RingStatus:
    segments, is_written = folder.segments(), folder.is_owned()
    first = last = None
    disks: dict[str, None] = {}
    lost: tuple[str, ...] = ()
    try:
        with closing(JoinedRun(folder)) as joined:
            first = _moment(next(joined.entries(), None))
            for entry in joined.entries(last_only=True):
                last = _moment(entry) or last
                if isinstance(entry, Began):
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


def _moment(entry: RunEntry | None) -> tuple[int, datetime] | None:
    """Return the time of an entry's samples by both clocks, or None if it has no samples."""
    samples = samples_in(entry) if entry else {}
    if not entry or not samples:
        return None
    at_ns = first_moment(entry)
    return at_ns, next(iter(samples.values())).anchor.wall(at_ns).astimezone()


def _lines(status: RingStatus) -> Iterator[str]:
    writer = "a recorder writes to it" if status.is_written else "no recorder writes to it"
    yield f"{status.ring}: {units.capacity(status.bytes)} in {status.segments} segments; {writer}"
    if status.seconds is None:
        yield "nothing in it can be read yet"
        return
    yield f"from {status.since} to {status.until} ({spell(round(status.seconds))}), and what came since"
    yield f"disks: {', '.join(status.disks)}"
    for problem in status.lost:
        yield f"cannot be read: {problem}"
