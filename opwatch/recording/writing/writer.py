"""Write entries to a recording in transactions. Nothing here waits or sleeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opwatch.clock import Anchor
from opwatch.counters.looks.sample import NvmeCommand
from opwatch.counters.reading import DriveFacts
from opwatch.cpu import CpuTimes
from opwatch.recording.coding.anchors import AnchorWriter, encode_anchors
from opwatch.recording.coding.blocks import compress_streams, concatenate_streams, join_streams
from opwatch.recording.coding.contents import ContentWriter, deflate_content
from opwatch.recording.coding.frames import FrameWriter, Streams
from opwatch.recording.coding.layout import Layout
from opwatch.recording.coding.plain import PlainEncoder
from opwatch.recording.schema import (
    ANCHOR,
    COUNTED,
    FILE,
    OTHERS,
    add_row_check,
    build_insert,
    format_json,
    replace_invalid,
)
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.samples.entries import (
    CountersRead,
    DiskRemoved,
    IntervalEnded,
    PressureRead,
    RunEntry,
    SlowRequestsSeen,
)
from opwatch.samples.entry_parts import find_start_ns, get_samples
from opwatch.samples.sample import MAX_DISKS, DiskSample, WatchedDisk
from opwatch.samples.slow import SlowRequest
from opwatch.trim.audit.live import DiscardSample

BLOCK_NS = 60 * 10**9
# Maximum number of rows per block, even with short intervals.
_MAX_ROWS = 1 << 14
# The largest integer of SQLite.
_MAX_VALUE = (1 << 63) - 1
# Maximum bytes per row of another program's file.
_PART = 1 << 20
# Values of these classes get their own rows and are referenced by number.
_FACTS = (WatchedDisk, DriveFacts, NvmeCommand)


@dataclass(slots=True)
class _DiskState:
    """A disk of the run, with the samples in the open block."""

    writer: FrameWriter = field(default_factory=FrameWriter)
    fact: int = 0
    written: list[Streams] = field(default_factory=list)
    has_left: bool = False


class RecordingWriter:
    """Writes to a new file.

    Every call is a separate transaction, or part of the transaction that the caller started. `quickly` is for
    files that are soon removed: less CPU time for a larger file.
    """

    def __init__(
        self, database: NewDatabase, header: Mapping[str, str | int], *, quickly: bool = False
    ) -> None:
        self._database, self._quickly = database, quickly
        self._execute = database.connection.execute
        self._places: dict[int, _DiskState] = {}
        self._facts: dict[object, int] = {}
        self._contents, self._anchors = ContentWriter(), AnchorWriter()
        self._to_plain = PlainEncoder(self._store_bytes, self._intern)
        self._shaped: set[str] = set()
        self._number = self._block = self._slow = 0
        self._samples: Mapping[int, DiskSample] = {}
        # Minutes count from the first entry. Readings may be late by part of an interval; the tolerance makes
        # blocks start with the samples that one-minute intervals need.
        self._origin_ns = 0
        self._half_ns = min(int(header.get("interval_ns", 0)), BLOCK_NS) // 2
        # State of the open block.
        self._begin_ns = self._end_ns = self._due_ns = self._first = self._rows = 0
        self._anchored: list[bytes] = []
        self._others: list[bytes] = []
        self._discards = DiscardReferences()
        self._write_header(header)

    def _write_header(self, header: Mapping[str, str | int]) -> None:
        layout = Layout()
        names = {"ops": layout.ops, "counters": layout.counters, "slots": layout.slots}
        rows: list[tuple[str, str | int]] = [(name, format_json(value)) for name, value in names.items()]
        for name, value in header.items():
            rows.append((name, replace_invalid(value) if isinstance(value, str) else value))
        self._execute("BEGIN")
        for row in rows:
            self._insert_row("header", row)
        self._execute("COMMIT")

    def _insert_row(self, table: str, row: tuple[Any, ...]) -> None:
        self._execute(build_insert(table), add_row_check(table, row))

    def begin_transaction(self) -> None:
        self._execute("BEGIN")

    def commit(self) -> None:
        self._execute("COMMIT")

    def roll_back(self) -> None:
        self._execute("ROLLBACK")

    def add_entry(self, entry: RunEntry) -> None:
        """Write the next entry."""
        self._samples = get_samples(entry)
        at_ns = find_start_ns(entry)
        is_full = self._rows >= _MAX_ROWS or len(self._places.keys() | self._samples.keys()) > MAX_DISKS
        if self._rows and (at_ns + self._half_ns >= self._due_ns or is_full):
            self._close_block()
        self._number += 1
        if not self._rows:
            self._first, self._begin_ns, self._end_ns = self._number, at_ns, at_ns
            self._due_ns = self._find_block_end(at_ns)
        self._end_ns = max(self._end_ns, at_ns)
        self._rows += 1 + len(self._samples)
        self._put_samples()
        self._put_body(entry, at_ns)
        if isinstance(entry, DiskRemoved):
            self._places[entry.place].has_left = True
        self._samples = {}

    def _find_block_end(self, at_ns: int) -> int:
        """Return the end of a block that starts now."""
        self._origin_ns = self._origin_ns or at_ns
        return self._origin_ns + BLOCK_NS * (1 + (at_ns + self._half_ns - self._origin_ns) // BLOCK_NS)

    def add_event(self, kind: str, words: str, mono_ns: int, status: int | None = None) -> None:
        """Keep an event: a command, a phase, a note, or entries left out."""
        self._insert_row("events", (self._number, mono_ns, kind, replace_invalid(words), status))

    def keep_clock(self, anchor: Anchor) -> None:
        """Keep a reading of both clocks, for runs without disk samples."""
        self._insert_row("clocks", (anchor.mono_ns, anchor.wall_ns, anchor.slack_ns))

    def add_file(self, name: str, raw: bytes, mono_ns: int) -> None:
        """Store another program's file as rows of `contents`."""
        contents = [self._store_bytes(raw[at : at + _PART]) for at in range(0, len(raw), _PART)]
        document = {"name": replace_invalid(name), "size": len(raw), "contents": contents}
        self.add_event(FILE, format_json(document), mono_ns)

    def end_recording(self, reason: str, mono_ns: int, left_out: int) -> None:
        """End the run cleanly. Without this call the file is marked as having no end."""
        self.begin_transaction()
        if self._rows:
            self._close_block()
        self._insert_row("trailer", (mono_ns, reason, self._number, left_out))
        self.commit()

    def _put_samples(self) -> None:
        shared: Anchor | None = None
        cpu: CpuTimes | None = None
        for place, sample in self._samples.items():
            if shared is None:
                shared, cpu = sample.anchor, sample.cpu
                if not self._anchored:
                    self._insert_row("clocks", (shared.mono_ns, shared.wall_ns, shared.slack_ns))
                written = self._anchors.encode_changes(self._number, shared, cpu)
                self._anchored.append(written)
                self._insert_row("tail", (self._number, ANCHOR, 0, written))
            self._put_sample(place, sample, shared, cpu)

    def _put_sample(self, place: int, sample: DiskSample, shared: Anchor, cpu: CpuTimes | None) -> None:
        at = self._places.setdefault(place, _DiskState())
        fact = self._number_fact(sample.disk)
        if at.fact != fact and at.written:
            raise ValueError(f"place {place} already belongs to another disk, not {sample.disk.device}")
        at.fact = fact
        why = sample.reading.no_witness
        reason = self._number_fact(why) if why is not None else 0
        streams = at.writer.encode_sample(self._number, sample, reason, shared, cpu)
        if not at.written:
            self._write_counts(place, sample)
        at.written.append(streams)
        self._insert_row("tail", (self._number, place, fact, join_streams(streams)))

    def _put_body(self, entry: RunEntry, at_ns: int) -> None:
        """Write an entry's values other than samples."""
        kind = type(entry).__name__
        is_frequent = isinstance(entry, IntervalEnded | CountersRead | SlowRequestsSeen | PressureRead)
        if isinstance(entry, IntervalEnded) and self._samples and not (entry.discards or entry.owners):
            return
        self._discards.may_refer = is_frequent
        values = self._to_plain.encode_fields(entry)
        self._write_shapes()
        if is_frequent:
            body = format_json([self._number, kind, values]).encode()
            self._others.append(body)
            self._insert_row("tail", (self._number, OTHERS, 0, body))
        else:
            self._insert_row("entries", (self._number, kind, at_ns, format_json(values)))

    def _close_block(self) -> None:
        """Compress the samples of the open block."""
        self._block += 1
        others = deflate_content(b"\n".join(self._others)) if self._others else b""
        anchors = encode_anchors(self._anchored)
        frames = sum(bool(at.written) for at in self._places.values())
        times = (self._begin_ns, self._end_ns)
        row = (self._block, self._first, self._number, *times, anchors, others, frames)
        self._insert_row("blocks", row)
        for place, at in self._places.items():
            if at.written:
                self._write_frames(place, at)
        self._places = {place: at for place, at in self._places.items() if not at.has_left}
        self._execute("DELETE FROM tail")
        self._anchors.reset()
        self._discards.reset()
        self._anchored, self._others, self._rows = [], [], 0

    def _write_frames(self, place: int, at: _DiskState) -> None:
        body = compress_streams(concatenate_streams(at.written), quickly=self._quickly)
        row = (self._block, place, at.fact, len(at.written), body)
        self._insert_row("frames", row)
        at.writer.reset()
        at.written = []

    def _write_counts(self, place: int, sample: DiskSample) -> None:
        """Write plain counters for SQL users of the file."""
        now = sample.reading.sample
        for op, counted in now.ops.items():
            values = [getattr(counted, name) for name in COUNTED]
            if any(values):
                fitting = [value if value <= _MAX_VALUE else None for value in values]
                self._insert_row("counts", (now.end_ns, place, op, *fitting))

    def _write_shapes(self) -> None:
        for name, fields in self._to_plain.shapes.items():
            if name not in self._shaped:
                self._shaped.add(name)
                self._insert_row("shapes", (name, format_json(fields)))

    def _store_bytes(self, raw: bytes) -> int:
        number, row = self._contents.add_content(raw)
        if row:
            self._insert_row("contents", (row.content, row.base, row.size, row.body))
        return number

    def _intern(self, value: object, to_plain: PlainEncoder) -> int | None:
        if isinstance(value, DiskSample):
            return next(place for place, sample in self._samples.items() if sample is value)
        if isinstance(value, SlowRequest):
            return self._put_slow(value)
        if isinstance(value, DiscardSample):
            return self._discards.find_reference(value)
        return self._number_fact(value) if isinstance(value, _FACTS) else None

    def _put_slow(self, one: SlowRequest) -> int:
        """Write a row for SQL users and return its number."""
        self._slow += 1
        who = one.submitter.value if one.submitter else None
        name, cgroup = (
            replace_invalid(text) if text is not None else None for text in (one.name, one.cgroup)
        )
        known = (one.place, one.end_ns, one.op, one.sector, one.bytes, one.latency_ns, one.queue_ns)
        row = (self._slow, *known, who, one.pid, name, one.cgroup_number, cgroup)
        self._insert_row("slow", row)
        return self._slow

    def _number_fact(self, value: WatchedDisk | DriveFacts | NvmeCommand | str) -> int:
        """Return the number of a value, which is written once."""
        number = self._facts.get(value)
        if number is None:
            number = self._facts[value] = len(self._facts) + 1
            plain = value if isinstance(value, str) else self._to_plain.encode_fields(value)
            self._write_shapes()
            self._insert_row("facts", (number, type(value).__name__, format_json(plain)))
        return number


class DiscardReferences:
    """Finds samples of discards that are unchanged since the last one in the block.

    Such samples are replaced by a reference: the number of samples written before in the block.
    """

    def __init__(self) -> None:
        self.may_refer = False
        self.reset()

    def reset(self) -> None:
        self._count = 0
        self._newest: dict[tuple[str, str | None], tuple[int, DiscardSample]] = {}

    def find_reference(self, sample: DiscardSample) -> int | None:
        """Return the reference to an unchanged sample, or None if the caller has to write the sample."""
        if not self.may_refer:
            return None
        at, newest = self._newest.get((sample.disk, sample.device), (0, None))
        if newest == sample:
            return at
        self._newest[sample.disk, sample.device] = (self._count, sample)
        self._count += 1
        return None
