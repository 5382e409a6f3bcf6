"""`opwatch flight dump -o FILE`: what the ring has, as a recording like any other."""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime

from opwatch import units
from opwatch.recording.reading.reader import RecordedEvent
from opwatch.recording.reading.window import between, ended
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.joined import JoinedRun
from opwatch.recording.schema import FILE
from opwatch.recording.writing.recorder import RecordingTarget
from opwatch.samples.entries import RunEntry
from opwatch.samples.entry_parts import first_moment
from opwatch.sinks.terminal import say
from opwatch.tools.arguments import time_between
from opwatch.tools.commands.flight.keep import add_ring_argument
from opwatch.tools.commands.record import add_recording_argument
from opwatch.tools.kept_run import made, whole

# So many entries are written and committed together.
_TOGETHER = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch flight dump -o FILE [--last T] [--ring DIR]"
    add_recording_argument(parser)
    parser.add_argument(
        "--last",
        type=time_between(0.01, 86400 * 7),
        metavar="T",
        help="no more than this (all that is there)",
    )
    add_ring_argument(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but what went wrong")


def run(args: argparse.Namespace) -> int:
    with closing(RingFolder(args.ring)) as folder, folder.kept():
        if folder.is_owned():
            folder.request()
        with closing(JoinedRun(folder)) as joined:
            for problem in joined.lost:
                say(f"left out: {problem}")
            begin_ns = _last_moment(joined) - round(args.last * 1e9) if args.last else 0
            entries = between(joined.entries(), begin_ns, None) if args.last else ended(joined.entries())
            headline = joined.header | {"dumped": datetime.now(UTC).isoformat(timespec="seconds")}
            target = made(args.output, headline)
            with whole(target):
                _write(entries, [event for event in joined.events if event.mono_ns >= begin_ns], target)
    if not args.quiet:
        say(f"{args.output}: {units.capacity(args.output.stat().st_size)}")
    return 0


def _last_moment(joined: JoinedRun) -> int:
    return max((first_moment(entry) for entry in joined.entries(last_only=True)), default=0)


def _write(entries: Iterable[RunEntry], events: Iterable[RecordedEvent], target: RecordingTarget) -> None:
    """Write entries and events. These stand behind the last entry that became known before them."""
    waiting = deque(events)
    target.begin()
    for count, entry in enumerate(entries, 1):
        at_ns = first_moment(entry)
        while waiting and waiting[0].mono_ns <= at_ns:
            _put(waiting.popleft(), target)
        target.put(entry)
        if count % _TOGETHER == 0:
            target.commit()
            target.begin()
    for event in waiting:
        _put(event, target)
    target.commit()
    target.end("written from the ring of a flight recorder", time.monotonic_ns(), 0)


def _put(event: RecordedEvent, target: RecordingTarget) -> None:
    # The contents that a file's event names are those of its segment.
    if event.kind != FILE:
        target.event(event.kind, event.words, event.mono_ns, event.status)
