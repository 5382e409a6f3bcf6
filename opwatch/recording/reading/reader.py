"""A recording, entry by entry: equal to what was recorded, or BadInput with the place."""

from __future__ import annotations

import contextlib
import sys
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from opwatch.clock import Anchor
from opwatch.counters.looks.sample import NvmeCommand
from opwatch.counters.reading import DriveFacts
from opwatch.errors import BadInput
from opwatch.frozen import frozen
from opwatch.recording.coding.contents import MOST_BYTES, expanded
from opwatch.recording.coding.layout import Layout
from opwatch.recording.coding.plain import FromPlain
from opwatch.recording.reading.mending import mended
from opwatch.recording.reading.opening import CheckedFile, Damaged, small_document
from opwatch.recording.reading.slow import slow_request
from opwatch.recording.reading.steps import Steps
from opwatch.recording.reading.stretches import (
    Facts,
    RunStretch,
    Skipping,
    compressed_stretch,
    entries_of,
    looks_of,
    rare_bodies,
    tail_stretch,
)
from opwatch.recording.reading.succession import Succession
from opwatch.recording.schema import SLOW_VERSION
from opwatch.samples.entries import NotWatched, RunEntry
from opwatch.samples.observation import Event
from opwatch.samples.sample import WatchedDisk
from opwatch.samples.slow import SlowRequest
from opwatch.trace.abi import SLOTS

_MOST_FACTS, _MOST_FACT_BYTES = 1 << 16, 8 << 20
# No run comes near, and what is added to it still fits SQLite's integers.
_MOST_ENTRIES = 1 << 62
_MOST_BLOCKS = 1 << 20
_MOST_EVENTS = 1 << 16
# So many minutes are asked for one by one, where their table is damaged.
_MOST_LOOKED_FOR = 1 << 16
_MOST_SHAPES, _MOST_NAMES = 256, 1024
_MOST_KEPT = 32
_FACTS: dict[str, type] = {kind.__name__: kind for kind in (WatchedDisk, DriveFacts, NvmeCommand, str)}


# A row of `clocks`.
Clock = tuple[Any, ...]


@frozen
class RecordedEvent:
    """What happened beside the disks, after the entry of this number."""

    number: int
    mono_ns: int
    kind: str
    words: str
    status: int | None


@frozen
class Trailer:
    """Tells of a recording's clean end. `left_out` counts the entries for which the disk was too slow."""

    mono_ns: int
    reason: str
    entries: int
    left_out: int


@frozen
class MinuteBlock:
    """A minute that was compressed: its entries, and when they became known."""

    first: int
    last: int
    begin_ns: int
    end_ns: int
    row: tuple[Any, ...]


@frozen
class LostMinute:
    """A minute that cannot be read. The moments are 0 where they are not known."""

    error: Damaged
    begin_ns: int = 0
    end_ns: int = 0


class RecordedRun:
    """A recording that is read. It is open from construction to close()."""

    def __init__(self, path: Path) -> None:
        self._file = CheckedFile(path)
        self.name = self._file.name
        try:
            self.header: dict[str, str | int] = dict(self._file.rows("header", "LIMIT 256"))
            events = self._at_the_end("events", f"ORDER BY rowid LIMIT {_MOST_EVENTS}")
            self.events = [RecordedEvent(*row) for row in events]
            self.trailer = next((Trailer(*row) for row in self._at_the_end("trailer", "LIMIT 1")), None)
            self._contents: dict[int, bytes] = {}
            self._clocks: tuple[list[Clock], list[Clock]] | None = None
            self._facts = self._read_facts()
        except BaseException:
            self.close()
            raise

    @property
    def missing(self) -> int:
        """How many bytes were cut off the file, as far as it tells."""
        return self._file.missing

    def close(self) -> None:
        self._file.close()

    def wall(self, mono_ns: int) -> datetime | None:
        """The wall time of a moment, by the last reading of both clocks before it, or the first of all; None
        where there is none."""
        if self._clocks is None:
            rows = [*self._file.rows("clocks", f"LIMIT {_MOST_BLOCKS}")]
            # The first one that was read stands for what was before all of them.
            self._clocks = rows[:1], sorted(rows)
        first, clocks = self._clocks
        at = bisect_right(clocks, mono_ns, key=itemgetter(0))
        rows = clocks[at - 1 : at] if at else first
        # Sums of numbers of 64 bits are some hundred years from 1970: times of a calendar.
        return Anchor(*rows[0]).wall(mono_ns) if rows else None

    def content(self, number: int) -> bytes:
        """A row of `contents`: what a drive, a tool or another program said."""
        return self._content(number)

    def entries(self, since_ns: int = 0, steps: Steps | None = None) -> Iterator[RunEntry]:
        """All entries in their order. With `since_ns`, stretches that lie wholly before it give only those
        that say what is watched, with the samples around them; with `steps`, samples are missing that
        in_steps() would leave out. Both go on together, entry by entry."""
        succession, has_gap, lost = Succession(self.name), False, None
        for stretch in self._stretches(since_ns, steps):
            try:
                if isinstance(stretch, LostMinute):
                    raise stretch.error
                for number, read in entries_of(stretch, self._facts):
                    for entry in mended(read, succession.newest) if has_gap else (read,):
                        succession.check(number, entry)
                        yield entry
            except Damaged as error:
                if self.missing:
                    raise
                has_gap, lost = True, error
                yield NotWatched(self._gap(stretch, error))
        if lost and not succession.newest:
            # There was nothing else.
            raise lost

    def _gap(self, stretch: RunStretch | LostMinute, error: Damaged) -> Event:
        """Say what was left out, and why."""
        begin_ns, end_ns = stretch.begin_ns, stretch.end_ns
        begin, end = self.wall(begin_ns), self.wall(end_ns)
        when = f"{begin.astimezone():%H:%M:%S} to {end.astimezone():%H:%M:%S}" if begin and end else "its end"
        text = f"{error}. What was recorded from {when} is left out; the next interval covers it"
        return Event("damaged", "", "", begin or datetime.fromtimestamp(0, UTC), begin_ns, text)

    def _stretches(self, since_ns: int, steps: Steps | None) -> Iterator[RunStretch | LostMinute]:
        last, waiting, is_lost = 0, None, False
        for row in self._block_rows():
            if isinstance(row, LostMinute):
                is_lost = True
                if waiting:
                    yield self._stretch(waiting, None, steps)
                waiting = None
                yield row
                continue
            block = MinuteBlock(row[1], row[2], row[3], row[4], row)
            if (block.first != last + 1 and not (is_lost and block.first > last)) or block.last < block.first:
                raise BadInput(f"{self.name}: table blocks, row {row[0]}: begins at entry {block.first}")
            last, is_lost = block.last, False
            if last > _MOST_ENTRIES:
                raise BadInput(f"{self.name}: table blocks, row {row[0]}: no run has {last} entries")
            # The one before a moment is wanted as well: the first interval begins with a sample in it.
            if waiting and (block.begin_ns >= since_ns or self._says_what_is_watched(waiting)):
                yield self._stretch(waiting, block, steps)
            waiting = block
        if waiting:
            yield self._stretch(waiting, None, steps)
        try:
            yield tail_stretch(self._file, last + 1)
        except Damaged as error:
            yield LostMinute(error)

    def _block_rows(self) -> Iterator[tuple[Any, ...] | LostMinute]:
        """The rows of `blocks`, one by one where a page of them is damaged."""
        newest = 0
        try:
            for row in self._file.rows("blocks", f"ORDER BY block LIMIT {_MOST_BLOCKS}"):
                newest = row[0]
                yield row
        except Damaged as error:
            if self.missing:
                raise
            most = max(
                [newest, *(row[0] for row in self._file.rows("frames", "ORDER BY block DESC LIMIT 1"))]
            )
            yield LostMinute(error)
            for number in range(newest + 1, min(most, newest + _MOST_LOOKED_FOR) + 1):
                try:
                    yield from self._file.rows("blocks", "WHERE block = ?", (number,))
                except Damaged:
                    continue

    def _stretch(
        self, block: MinuteBlock, next_one: MinuteBlock | None, steps: Steps | None
    ) -> RunStretch | LostMinute:
        """The entries of a minute, without samples that are not needed."""
        try:
            return self._read_stretch(block, next_one, steps)
        except Damaged as error:
            return LostMinute(error, block.begin_ns, block.end_ns)

    def _read_stretch(
        self, block: MinuteBlock, next_one: MinuteBlock | None, steps: Steps | None
    ) -> RunStretch:
        if not steps or steps.has_mark(block.begin_ns, next_one.end_ns if next_one else sys.maxsize):
            return compressed_stretch(self._file, block.row)
        skipping = Skipping(steps, block.end_ns, next_one is not None and self._begins_with_samples(next_one))
        if skipping.is_over and not self._says_what_is_watched(block):
            looks = looks_of(self._file, block.row)
            if looks:
                return looks
        return compressed_stretch(self._file, block.row, skipping)

    def _begins_with_samples(self, block: MinuteBlock) -> bool:
        """Whether there are samples, and nothing rare that could come before them."""
        has_samples = any(self._file.rows("frames", "WHERE block = ? LIMIT 1", (block.row[0],)))
        return has_samples and not self._says_what_is_watched(block)

    def _at_the_end(self, table: str, behind: str) -> list[tuple[Any, ...]]:
        """Rows of a table that was written to until the end: as many as can be read."""
        rows: list[tuple[Any, ...]] = []
        # Where it is damaged, what stands before that is shown.
        with contextlib.suppress(Damaged):
            rows.extend(self._file.rows(table, behind))
        return rows

    def _says_what_is_watched(self, block: MinuteBlock) -> bool:
        return bool(rare_bodies(self._file, block.first, block.last))

    def _read_facts(self) -> Facts:
        layout = Layout(self._header_names("ops"), self._header_names("counters"))
        if self._document("slots") != list(SLOTS):
            raise BadInput(f"{self.name}: its histograms have other slots than {list(SLOTS)}")
        shapes = {
            name: self._names(fields, f"{self.name}: table shapes, {name}")
            for name, fields in self._file.rows("shapes", f"LIMIT {_MOST_SHAPES}")
        }
        values: dict[int, Any] = {}
        from_plain = FromPlain(shapes, self._content, _no_value)
        size = 0
        for fact, kind, body in self._file.rows("facts", f"ORDER BY fact LIMIT {_MOST_FACTS}"):
            where = f"{self.name}: table facts, row {fact}"
            size += len(body)
            if size > _MOST_FACT_BYTES:
                raise BadInput(f"{where}: facts of more than {_MOST_FACT_BYTES} bytes")
            if kind not in _FACTS:
                raise BadInput(f"{where}: {kind!r} is no kind of fact")
            values[fact] = from_plain.value(_FACTS[kind], small_document(body, where), where)
        return Facts(layout, shapes, values, self._content, self._slow)

    def _document(self, name: str) -> Any:  # noqa: ANN401
        where = f"{self.name}: table header, {name}"
        text = self.header.get(name)
        if not isinstance(text, str):
            raise BadInput(f"{where} is missing")
        return small_document(text, where)

    def _header_names(self, name: str) -> tuple[str, ...]:
        return self._names(str(self.header.get(name)), f"{self.name}: table header, {name}")

    def _names(self, text: str, where: str) -> tuple[str, ...]:
        names = small_document(text, where)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BadInput(f"{where} is no list of names")
        if len(names) > _MOST_NAMES or len(set(names)) != len(names):
            raise BadInput(f"{where} has too many names, or one twice")
        return tuple(names)

    def _content(self, number: int) -> bytes:
        """Bytes that were put away under a number."""
        if number not in self._contents:
            if len(self._contents) >= _MOST_KEPT:
                self._contents.clear()
            self._contents[number] = self._read_content(number)
        return self._contents[number]

    def _slow(self, number: int, where: str) -> SlowRequest:
        """A slow request, by its row."""
        has_some = self._file.version >= SLOW_VERSION
        row = next(self._file.rows("slow", "WHERE request = ?", (number,)), None) if has_some else None
        if row is None:
            raise BadInput(f"{where}: there is no slow request {number}")
        return slow_request(row, f"{self.name}: table slow, row {number}")

    def _read_content(self, number: int, *, may_have_base: bool = True) -> bytes:
        where = f"{self.name}: table contents, row {number}"
        row = next(self._file.rows("contents", "WHERE content = ?", (number,)), None)
        if row is None:
            raise BadInput(f"{where} is missing")
        _, base, size, body = row
        if not 0 <= size <= MOST_BYTES or (base is not None and not may_have_base):
            raise BadInput(f"{where} has {size} bytes, or a base of a base")
        before = b"" if base is None else self._read_content(base, may_have_base=False)
        raw = expanded(body, MOST_BYTES, where, before)
        if len(raw) != size:
            raise BadInput(f"{where} has {len(raw)} bytes, not {size}")
        return raw


def _no_value(kind: type, number: int, where: str) -> object:
    raise BadInput(f"{where}: a {kind.__name__} cannot be number {number} here")
