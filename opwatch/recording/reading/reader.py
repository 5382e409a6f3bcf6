"""Read a recording entry by entry: the entries equal those recorded, or BadInput names the invalid row."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opwatch.counters.looks.sample import NvmeCommand
from opwatch.counters.reading import DriveFacts
from opwatch.errors import BadInput
from opwatch.recording.coding.contents import MAX_BYTES, inflate_content
from opwatch.recording.coding.layout import Layout
from opwatch.recording.coding.plain import PlainDecoder
from opwatch.recording.reading.entry_order import OrderChecker
from opwatch.recording.reading.gaps import bridge_gap
from opwatch.recording.reading.minutes import MinuteStarts, read_minute_starts
from opwatch.recording.reading.opening import (
    CheckedFile,
    DamagedError,
    parse_names,
    parse_small_document,
    read_shapes,
)
from opwatch.recording.reading.slow import decode_slow_request
from opwatch.recording.reading.steps import IntervalSteps
from opwatch.recording.reading.stretches import (
    EntryRange,
    Facts,
    SkipPermission,
    has_rare_bodies,
    iterate_entries,
    max_samples,
    max_stream_bytes,
    read_block,
    read_tail,
    read_without_samples,
)
from opwatch.recording.schema import HISTORY
from opwatch.samples.entries import EventReported, RunEntry
from opwatch.samples.observation import Event
from opwatch.samples.sample import WatchedDisk
from opwatch.samples.slow import SlowRequest
from opwatch.trace.abi import SLOTS

_MAX_FACTS, _MAX_FACT_BYTES = 1 << 16, 8 << 20
# Far above any run, and sums with such numbers still fit SQLite's integers.
_MAX_ENTRIES = 1 << 62
_MAX_BLOCKS = 1 << 20
_MAX_EVENTS = 1 << 16
# Maximum number of minutes to read individually if their table is damaged.
_MAX_SEARCHED = 1 << 16
# Limits of the tables that are read and kept when the file is opened.
_MAX_SMALL, _MAX_EVENT_BYTES = 1 << 20, 16 << 20
# No version had more operations or counters per sample.
_MAX_OPS, _MAX_COUNTERS = 8, 48
# Cached contents: their number and bytes.
_MAX_KEPT, _MAX_KEPT_BYTES = 32, 8 << 20
_NO_HEADER = (
    "the file is cut or damaged at its beginning, and no part of it can be read: take a copy, or record again"
)
# Limit of the expanded contents in one reading; a drive sample takes some KiB.
_CONTENTS, _CONTENTS_PER_BYTE = 64 << 20, 16
_FACTS: dict[str, type] = {kind.__name__: kind for kind in (WatchedDisk, DriveFacts, NvmeCommand, str)}


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event other than samples, after the entry with this number."""

    number: int
    mono_ns: int
    kind: str
    words: str
    status: int | None


@dataclass(frozen=True, slots=True)
class Trailer:
    """The clean end of a recording. `left_out` is the number of entries left out because the disk was too
    slow."""

    mono_ns: int
    reason: str
    entries: int
    left_out: int


@dataclass(frozen=True, slots=True)
class MinuteBlock:
    """A compressed minute: entries, start and end."""

    first: int
    last: int
    begin_ns: int
    end_ns: int
    row: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LostMinute:
    """A minute that cannot be read. The times are 0 if unknown."""

    error: BadInput
    begin_ns: int = 0
    end_ns: int = 0


def is_damage(entry: RunEntry) -> bool:
    """Whether an entry reports that a part of the recording was left out."""
    return isinstance(entry, EventReported) and entry.event.kind == "damaged"


class RecordedRun:
    """A recording that is open for reading from construction to close()."""

    def __init__(self, path: Path) -> None:
        self._file = CheckedFile(path)
        self.name = self._file.name
        try:
            self.header: dict[str, str | int] = dict(
                self._file.iter_rows("header", "LIMIT 256", most_bytes=_MAX_SMALL)
            )
            if HISTORY in self.header:
                raise BadInput(
                    f"{path} is the history of a disk: read it with opwatch trim stale --history {path}"
                )
            events = self._read_until_damage("events", f"ORDER BY rowid LIMIT {_MAX_EVENTS}")
            self.events = [RecordedEvent(*row) for row in events]
            self.trailer = next(
                (Trailer(*row) for row in self._read_until_damage("trailer", "LIMIT 1")), None
            )
            self._contents: dict[int, bytes] = {}
            self._kept_bytes = self._content_bytes = 0
            self._facts = self._read_facts()
        except BaseException:
            self.close()
            raise

    @property
    def missing_bytes(self) -> int:
        """Number of bytes cut off the file, as far as known."""
        return self._file.missing

    @property
    def damage(self) -> str | None:
        """What is wrong with the file, if its rows came from its pages. entries() reports it too."""
        words = self._file.damage
        return f"{words}. The rows that can still be read are shown" if words else None

    @property
    def sample_count(self) -> int:
        """Number of samples of all disks, without reading them; a lower bound if the file is damaged."""
        return self._file.count_samples()

    def read_minute_starts(self) -> MinuteStarts:
        """Return the plain counters at the start of each minute, without reading samples."""
        return read_minute_starts(self._file)

    def list_disks(self) -> dict[int, WatchedDisk]:
        """Return the watched disks by place, without reading samples."""
        found = {place: self._facts.values.get(fact) for place, fact in self._file.list_places()}
        return {place: disk for place, disk in found.items() if isinstance(disk, WatchedDisk)}

    def close(self) -> None:
        self._file.close()

    def to_wall_time(self, mono_ns: int) -> datetime | None:
        """Return the wall time by the last clock reading before `mono_ns`, or by the first; None without
        readings."""
        anchor = self._file.read_clocks().find_anchor(mono_ns)
        # Sums of 64-bit numbers are within some hundred years of 1970, which datetime can represent.
        return anchor.to_wall_time(mono_ns) if anchor else None

    def read_content(self, number: int) -> bytes:
        """Return a row of `contents`: bytes from a drive, a tool or another program."""
        return self._cached_content(number)

    def iter_entries(
        self,
        since_ns: int = 0,
        steps: IntervalSteps | None = None,
        minutes: Mapping[int, frozenset[int]] | None = None,
    ) -> Iterator[RunEntry]:
        """Yield all entries in order.

        With `since_ns`, stretches that end earlier yield only the entries on watched disks, with the samples
        around them. With `steps`, the samples that in_steps() would leave out are skipped. Both advance
        together, entry by entry. With `minutes`, only these blocks are read, with the samples of these
        places, and the blocks with rare entries, with all samples.
        """
        damage = self._file.damage
        succession, has_gap, lost, samples = OrderChecker(self.name), damage is not None, None, 0
        streams = 0
        facts = replace(self._facts, slow=_SlowRequests(self._read_slow).read_next)
        self._content_bytes = 0
        if self.damage:
            yield EventReported(self._event(self.damage))
        for stretch in self._iterate_ranges(since_ns, steps, minutes):
            try:
                if isinstance(stretch, LostMinute):
                    raise stretch.error
                samples += sum(frames.samples for frames in stretch.frames.values())
                streams += sum(frames.size for frames in stretch.frames.values())
                if samples > max_samples(self._file) or streams > max_stream_bytes(self._file):
                    raise BadInput(f"{stretch.where}: more samples than fit into the file")
                for number, read in iterate_entries(stretch, facts):
                    for entry in bridge_gap(read, succession.newest_samples) if has_gap else (read,):
                        succession.check_entry(number, entry)
                        yield entry
            except self._loss as error:
                if self.missing_bytes and not damage:
                    raise
                has_gap, lost = True, error
                yield EventReported(self._make_gap_event(stretch, error))
        if lost and not succession.newest_samples:
            # No other entries could be read.
            raise DamagedError(f"{damage}; no minute of it can be read") if damage else lost

    @property
    def _loss(self) -> type[BadInput]:
        """The error of a minute that is left out: where rows are missing, others may refer to them."""
        return BadInput if self._file.damage else DamagedError

    def _make_gap_event(self, stretch: EntryRange | LostMinute, error: BadInput) -> Event:
        """Return an event on the minutes left out, with the reason."""
        begin_ns, end_ns = stretch.begin_ns, stretch.end_ns
        begin, end = self.to_wall_time(begin_ns), self.to_wall_time(end_ns)
        start = f"{begin.astimezone():%H:%M:%S}" if begin and begin_ns else "its start"
        stop = f"{end.astimezone():%H:%M:%S}" if end and end_ns else "its end"
        text = f"{error}. What was recorded from {start} to {stop} is left out; the next interval includes it"
        return self._event(text, begin_ns)

    def _event(self, text: str, at_ns: int = 0) -> Event:
        """Return an event at a moment, or at the first that is known."""
        at_ns = at_ns or next(
            (row[0] for row in self._file.iter_rows("clocks", "ORDER BY mono_ns LIMIT 1")), 0
        )
        at = self.to_wall_time(at_ns) or datetime.fromtimestamp(0, UTC)
        return Event("damaged", "", "", at, at_ns, text)

    def _iterate_ranges(
        self, since_ns: int, steps: IntervalSteps | None, minutes: Mapping[int, frozenset[int]] | None
    ) -> Iterator[EntryRange | LostMinute]:
        last, waiting, is_lost, end_ns = 0, None, False, 0
        for row in self._iterate_block_rows():
            if isinstance(row, LostMinute):
                is_lost = True
                if waiting:
                    yield self._read_minute(waiting, None, steps)
                waiting = None
                yield row
                continue
            block = MinuteBlock(row[1], row[2], row[3], row[4], row)
            if self._file.damage and block.first > last + 1:
                is_lost = True
                if waiting:
                    yield self._read_minute(waiting, None, steps)
                yield self._lost_entries(last + 1, block.first - 1, end_ns, block.begin_ns)
                waiting = None
            end_ns = block.end_ns
            if (block.first != last + 1 and not (is_lost and block.first > last)) or block.last < block.first:
                raise BadInput(f"{self.name}: table blocks, row {row[0]}: wrong first entry {block.first}")
            last, is_lost = block.last, False
            if last > _MAX_ENTRIES:
                raise BadInput(f"{self.name}: table blocks, row {row[0]}: {last} entries are too many")
            # Also read the stretch before `since_ns`, which has the sample at the start of the first
            # interval.
            if waiting and (block.begin_ns >= since_ns or self._has_rare_entries(waiting)):
                yield from self._read_chosen(waiting, block, steps, minutes)
            waiting = block
        if waiting:
            yield from self._read_chosen(waiting, None, steps, minutes)
        try:
            tail = replace(read_tail(self._file, last + 1), begin_ns=end_ns)
            last = max(last, tail.last)
            yield tail
        except self._loss as error:
            yield LostMinute(error, end_ns)
        most = self.trailer.entries if self.trailer else last
        if self._file.damage and (most > last or (self.missing_bytes and not self.trailer)):
            yield self._lost_entries(last + 1, most, end_ns, self.trailer.mono_ns if self.trailer else 0)

    def _lost_entries(self, first: int, last: int, begin_ns: int, end_ns: int) -> LostMinute:
        """Say that these entries have no rows any more; `last` is less than `first` if it is unknown."""
        entries = f"entries {first} to {last}" if last >= first else f"all entries from {first} on"
        return LostMinute(DamagedError(f"{self.name}: {entries} are missing or damaged"), begin_ns, end_ns)

    def _iterate_block_rows(self) -> Iterator[tuple[Any, ...] | LostMinute]:
        """Yield the rows of `blocks`, individually if a page is damaged."""
        newest = 0
        try:
            for row in self._file.iter_rows("blocks", f"ORDER BY block LIMIT {_MAX_BLOCKS}"):
                newest = row[0]
                yield row
        except DamagedError as error:
            if self.missing_bytes:
                raise
            most = max(
                [newest, *(row[0] for row in self._file.iter_rows("frames", "ORDER BY block DESC LIMIT 1"))]
            )
            yield LostMinute(error)
            for number in range(newest + 1, min(most, newest + _MAX_SEARCHED) + 1):
                try:
                    yield from self._file.iter_rows("blocks", "WHERE block = ?", (number,))
                except DamagedError:
                    continue

    def _read_minute(
        self, block: MinuteBlock, next_one: MinuteBlock | None, steps: IntervalSteps | None
    ) -> EntryRange | LostMinute:
        """Return the entries of a minute, without samples that are not needed."""
        try:
            return self._read_range(block, next_one, steps)
        except self._loss as error:
            return LostMinute(error, block.begin_ns, block.end_ns)

    def _read_chosen(
        self,
        block: MinuteBlock,
        next_one: MinuteBlock | None,
        steps: IntervalSteps | None,
        minutes: Mapping[int, frozenset[int]] | None,
    ) -> Iterator[EntryRange | LostMinute]:
        """Yield the entries of a minute, if it is needed."""
        if minutes is None or self._has_rare_entries(block):
            yield self._read_minute(block, next_one, steps)
        elif places := minutes.get(block.row[0]):
            try:
                yield read_block(self._file, block.row, places=places)
            except self._loss as error:
                yield LostMinute(error, block.begin_ns, block.end_ns)

    def _read_range(
        self, block: MinuteBlock, next_one: MinuteBlock | None, steps: IntervalSteps | None
    ) -> EntryRange:
        if not steps or steps.has_mark(block.begin_ns, next_one.end_ns if next_one else sys.maxsize):
            return read_block(self._file, block.row)
        skipping = SkipPermission(
            steps, block.end_ns, next_one is not None and self._starts_with_samples(next_one)
        )
        if skipping.is_over and not self._has_rare_entries(block):
            looks = read_without_samples(self._file, block.row)
            if looks:
                return looks
        return read_block(self._file, block.row, skipping)

    def _starts_with_samples(self, block: MinuteBlock) -> bool:
        """Return true if the block has samples and no rare entry before the first sample."""
        has_samples = any(self._file.iter_rows("frames", "WHERE block = ? LIMIT 1", (block.row[0],)))
        return has_samples and not self._has_rare_entries(block)

    def _read_until_damage(self, table: str, behind: str) -> list[tuple[Any, ...]]:
        """Return the readable rows of a table that is written until the end."""
        rows: list[tuple[Any, ...]] = []
        # Ignore the damage, and return the rows before it.
        with contextlib.suppress(DamagedError):
            rows.extend(self._file.iter_rows(table, behind, most_bytes=_MAX_EVENT_BYTES))
        return rows

    def _has_rare_entries(self, block: MinuteBlock) -> bool:
        return has_rare_bodies(self._file, block.first, block.last)

    def _read_facts(self) -> Facts:
        layout = Layout(
            self._parse_header_names("ops", _MAX_OPS), self._parse_header_names("counters", _MAX_COUNTERS)
        )
        if self._parse_header_value("slots") != list(SLOTS):
            raise BadInput(f"{self.name}: its histograms do not have {list(SLOTS)} slots")
        shapes = read_shapes(self._file)
        values: dict[int, Any] = {}
        from_plain = PlainDecoder(shapes, self._cached_content, _refuse_value)
        order = f"ORDER BY fact LIMIT {_MAX_FACTS}"
        for fact, kind, body in self._file.iter_rows("facts", order, most_bytes=_MAX_FACT_BYTES):
            where = f"{self.name}: table facts, row {fact}"
            if kind not in _FACTS:
                raise BadInput(f"{where}: unknown kind of fact {kind!r}")
            # Minutes that refer to a fact that cannot be read are left out.
            with contextlib.suppress(*([BadInput] if self._file.damage else [])):
                values[fact] = from_plain.decode_value(_FACTS[kind], parse_small_document(body, where), where)
        return Facts(layout, shapes, values, self._cached_content, self._read_slow)

    def _parse_header_value(self, name: str) -> Any:  # noqa: ANN401
        where = f"{self.name}: table header, {name}"
        text = self.header.get(name)
        if not isinstance(text, str):
            raise BadInput(f"{where} is missing; {_NO_HEADER}")
        return parse_small_document(text, where)

    def _parse_header_names(self, name: str, most: int) -> tuple[str, ...]:
        if name not in self.header:
            raise BadInput(f"{self.name}: table header, {name} is missing; {_NO_HEADER}")
        return parse_names(str(self.header[name]), f"{self.name}: table header, {name}", most)

    def _cached_content(self, number: int) -> bytes:
        """Return the bytes with this number, from the cache or the file."""
        if number not in self._contents:
            if len(self._contents) >= _MAX_KEPT or self._kept_bytes > _MAX_KEPT_BYTES:
                self._contents.clear()
                self._kept_bytes = 0
            self._contents[number] = self._read_content(number)
            self._kept_bytes += len(self._contents[number])
        return self._contents[number]

    def _read_slow(self, number: int, where: str) -> SlowRequest:
        """Return the slow request in a row."""
        row = next(self._file.iter_rows("slow", "WHERE request = ?", (number,)), None)
        if row is None:
            raise BadInput(f"{where}: slow request {number} does not exist")
        return decode_slow_request(row, f"{self.name}: table slow, row {number}")

    def _read_content(self, number: int, *, may_have_base: bool = True) -> bytes:
        where = f"{self.name}: table contents, row {number}"
        row = next(self._file.iter_rows("contents", "WHERE content = ?", (number,)), None)
        if row is None:
            raise BadInput(f"{where} is missing")
        _, base, size, body = row
        if not 0 <= size <= MAX_BYTES or (base is not None and not may_have_base):
            raise BadInput(f"{where} has an invalid size ({size} bytes) or a nested base")
        before = b"" if base is None else self._read_content(base, may_have_base=False)
        self._content_bytes += size
        if self._content_bytes > _CONTENTS + _CONTENTS_PER_BYTE * self._file.size:
            raise BadInput(f"{where}: contents expand to more bytes than the file allows")
        raw = inflate_content(body, MAX_BYTES, where, before)
        if len(raw) != size:
            raise BadInput(f"{where} has {len(raw)} bytes, not {size}")
        return raw


class _SlowRequests:
    """Returns the slow requests of a reading.

    Entries must refer to them in order and once each, so the time for reading a file is limited by the number
    of rows.
    """

    def __init__(self, at: Callable[[int, str], SlowRequest]) -> None:
        self._at, self._newest = at, -1

    def read_next(self, number: int, where: str) -> SlowRequest:
        if number <= self._newest:
            raise BadInput(f"{where}: slow request {number} out of order, after {self._newest}")
        self._newest = number
        return self._at(number, where)


def _refuse_value(kind: type, number: int, where: str) -> object:
    raise BadInput(f"{where}: a {kind.__name__} cannot be a reference ({number}) here")
