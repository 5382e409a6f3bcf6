"""Reconstruct the entries of a stretch from samples, anchors and bodies.

A stretch is a compressed minute, or the entries that a killed recorder had not yet compressed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opwatch.errors import BadInput
from opwatch.recording.coding import contents
from opwatch.recording.coding.anchors import SharedClocks, decode_anchors, read_anchors
from opwatch.recording.coding.blocks import (
    expand_streams,
    make_readers,
    read_expanded_size,
    split_streams,
)
from opwatch.recording.coding.frames import FrameReader, FrameStreams, References, Streams
from opwatch.recording.coding.layout import Layout
from opwatch.recording.coding.plain import PlainDecoder
from opwatch.recording.coding.varints import Varints
from opwatch.recording.reading.opening import CheckedFile, DamagedError, parse_small_document
from opwatch.recording.reading.steps import IntervalSteps
from opwatch.recording.schema import ANCHOR, OTHERS
from opwatch.samples.entries import IntervalEnded, RunEntry
from opwatch.samples.entry_parts import KINDS
from opwatch.samples.sample import MAX_DISKS, DiskSample, WatchedDisk
from opwatch.samples.slow import SlowRequest
from opwatch.trim.audit.live import DiscardSample

# Maximum rows of a minute: the recorder closes a minute after 2^14 samples and entries.
_MAX_ROWS = (1 << 14) + 512
_MAX_BODY_BYTES = 16 << 20
_NUMBER = re.compile(rb"\[([0-9]{1,18}),")
# Entries to keep even if the samples around them are skipped.
_UNSKIPPABLE = re.compile(rb'\[[0-9]{1,18},"(?:CountersRead|SlowRequestsSeen|PressureRead)",')
# Kinds whose bodies are in `blocks`, so that their discards may refer to others of the block.
_FREQUENT = ("IntervalEnded", "CountersRead", "SlowRequestsSeen", "PressureRead")
_INTERVAL_ENDED = re.compile(rb'\[[0-9]{1,18},"IntervalEnded",')
_MAX_TAIL = 64 << 20
# Each entry has up to three kinds of rows in `tail`: its body, its anchor, and its samples.
_MAX_TAIL_ROWS = 3 * _MAX_ROWS
# Limit of all streams of a minute, which has at most 16,000 samples and entries with small differences.
_MAX_BLOCK = 64 << 20
# Limit of all streams of a file. Expanded streams are a few times as long as in the file, and ten times for
# an idle disk.
_STREAMS, _STREAMS_PER_BYTE = 1 << 18, 16
# Even 24 imported disks without requests take more than two bytes per sample.
_SAMPLES, _BYTES_PER_SAMPLE = 4096, 2
# Limit of the rare entries in a minute, such as disks that come and leave.
_MAX_RARE = 16 << 20


@dataclass(frozen=True, slots=True)
class DiskFrames:
    """The frames of a disk in a stretch. `size`: the size of the streams before compression."""

    fact: int
    samples: int
    streams: FrameStreams
    size: int = 0


@dataclass(frozen=True, slots=True)
class EntryBody:
    """An entry's values other than samples.

    They stay text until needed, because a parsed document takes many times the memory. If `kind` is None, the
    kind is part of the text.
    """

    kind: str | None
    text: bytes | str
    where: str

    def has_prefix(self, begin: re.Pattern[bytes]) -> bool:
        """Return true if the kind is part of the text and the text starts with the pattern."""
        return self.kind is None and isinstance(self.text, bytes) and begin.match(self.text) is not None

    def read_entry(self, number: int) -> tuple[str, Any]:
        document = parse_small_document(self.text, self.where)
        if self.kind is not None:
            return self.kind, document
        if not isinstance(document, list) or len(document) != 3 or not isinstance(document[1], str):
            raise BadInput(f"{self.where}: an entry's body is invalid")
        if document[0] != number:
            raise BadInput(f"{self.where}: a body belongs to entry {document[0]}, not to {number}")
        return document[1], document[2]


@dataclass(frozen=True, slots=True)
class SkipPermission:
    """Permission to skip samples that `steps` does not need, in a stretch that ends at `end_ns`.

    `is_followed`: the next stretch has samples before any rare entry.
    """

    steps: IntervalSteps
    end_ns: int
    is_followed: bool

    @property
    def is_over(self) -> bool:
        """True if the rest of the stretch is not needed."""
        return self.is_followed and not self.steps.ends_interval(self.end_ns)


@dataclass(frozen=True, slots=True)
class EntryRange:
    """The entries from `first` to `last`. `bodies` are the entries' values other than samples."""

    where: str
    first: int
    last: int
    moments: SharedClocks = field(default_factory=SharedClocks)
    bodies: Mapping[int, EntryBody] = field(default_factory=dict)
    frames: Mapping[int, DiskFrames] = field(default_factory=dict)
    skipping: SkipPermission | None = None
    begin_ns: int = 0
    end_ns: int = 0
    # The disks that are read, None for all.
    places: frozenset[int] | None = None

    def find_unskippable(self) -> set[int]:
        """Return the entries that steps must not skip: entries without samples, and the last samples before a
        rare entry or an end."""
        looks = {number for number, body in self.bodies.items() if body.has_prefix(_UNSKIPPABLE)}
        rare = {number for number, body in self.bodies.items() if body.kind is not None}
        newest = set()
        is_followed = self.skipping is not None and self.skipping.is_followed
        for end in rare if is_followed else {*rare, self.last + 1}:
            before = end - 1
            while before in looks:
                before -= 1
            newest.add(before)
        return looks | rare | newest


@dataclass(frozen=True, slots=True)
class Facts:
    """Values that entries refer to by number: disks, drives, sentences, bytes, slow requests."""

    layout: Layout
    shapes: Mapping[str, tuple[str, ...]]
    values: Mapping[int, Any]
    content: Callable[[int], bytes]
    slow: Callable[[int, str], SlowRequest]

    @property
    def reasons(self) -> dict[int, str]:
        return {number: value for number, value in self.values.items() if isinstance(value, str)}


def read_block(
    file: CheckedFile,
    row: tuple[Any, ...],
    skipping: SkipPermission | None = None,
    places: frozenset[int] | None = None,
) -> EntryRange:
    """Return the stretch of a minute, from its row of `blocks`; with `places`, the samples of these only."""
    block, first, last, begin_ns, end_ns, anchors, _, frame_count = row
    where = f"{file.name}: block {block}"
    known = decode_anchors(anchors, where)
    bodies = read_frequent_bodies(file, row) | read_rare_bodies(file, first, last)
    frames, found = _read_frames(file, block, where, places)
    if found != frame_count:
        raise DamagedError(f"{where} has {found} frames, not {frame_count}")
    return EntryRange(
        where,
        first,
        last,
        known,
        bodies,
        frames=frames,
        skipping=skipping,
        begin_ns=begin_ns,
        end_ns=end_ns,
        places=places,
    )


def _read_frames(
    file: CheckedFile, block: int, where: str, places: frozenset[int] | None
) -> tuple[dict[int, DiskFrames], int]:
    """Return the frames of a minute, those of `places` if given, and the number of all of them."""
    frames: dict[int, DiskFrames] = {}
    found: set[int] = set()
    size = count = 0
    rows = file.iter_rows("frames", "WHERE block = ? ORDER BY rowid", (block,))
    for _, place, fact, samples, body in rows:
        count += samples
        if count > _MAX_ROWS:
            raise BadInput(f"{where} has more than {_MAX_ROWS} samples")
        if place in found or len(found) >= MAX_DISKS or samples < 1:
            raise BadInput(f"{where}: place {place} is a duplicate, one too many, or has {samples} samples")
        found.add(place)
        if places is not None and place not in places:
            continue
        at = f"{where}, place {place}"
        own = read_expanded_size(body, at)
        size += own
        if size > min(_MAX_BLOCK, max_stream_bytes(file)):
            raise BadInput(f"{where} expands to {size} bytes, more than the file allows")
        frames[place] = DiskFrames(fact, samples, expand_streams(body, samples, at), own)
    return frames, len(found)


def max_samples(file: CheckedFile) -> int:
    """Return the maximum number of samples in the file."""
    return _SAMPLES + file.size // _BYTES_PER_SAMPLE


def max_stream_bytes(file: CheckedFile) -> int:
    """Return the maximum size of the file's expanded streams."""
    return _STREAMS + _STREAMS_PER_BYTE * file.size


def read_frequent_bodies(file: CheckedFile, row: tuple[Any, ...]) -> dict[int, EntryBody]:
    """Return the bodies compressed in a row of `blocks`."""
    where, others = f"{file.name}: block {row[0]}", row[6]
    text = contents.inflate_content(others, _MAX_BODY_BYTES, where) if others else b""
    if text.count(b"\n") >= _MAX_ROWS:
        raise BadInput(f"{where} has more than {_MAX_ROWS} entries")
    return _parse_bodies(text.split(b"\n") if text else [], where)


def read_tail(file: CheckedFile, first: int) -> EntryRange:
    """Return the stretch after the last block."""
    where = f"{file.name}: table tail"
    parts: dict[int, list[Streams]] = {}
    facts: dict[int, int] = {}
    anchors, texts, size, last = [], [], 0, first - 1
    for count, (number, place, fact, body) in enumerate(file.iter_rows("tail", "ORDER BY rowid")):
        if count >= _MAX_TAIL_ROWS:
            raise BadInput(f"{where} has more than {_MAX_TAIL_ROWS} rows")
        size += len(body)
        if number < first or size > _MAX_TAIL:
            raise BadInput(f"{where}: entry {number} is repeated, or there are more than {_MAX_TAIL} bytes")
        last = max(last, number)
        if place == OTHERS:
            texts.append(body)
        elif place == ANCHOR:
            anchors.append(body)
        else:
            if facts.setdefault(place, fact) != fact or len(facts) > MAX_DISKS:
                raise BadInput(f"{where}: place {place} has two disks, or there are too many")
            parts.setdefault(place, []).append(split_streams(body, f"{where}, place {place}"))
    frames = {
        place: DiskFrames(facts[place], len(some), make_readers(some, f"{where}, place {place}"))
        for place, some in parts.items()
    }
    rare = read_rare_bodies(file, first, None)
    known = read_anchors(Varints(b"".join(anchors), where))
    return EntryRange(where, first, max([last, *rare]), known, _parse_bodies(texts, where) | rare, frames)


def read_rare_bodies(file: CheckedFile, first: int, last: int | None) -> dict[int, EntryBody]:
    """Return the bodies that have separate rows."""
    condition = "WHERE number >= ? " + ("" if last is None else "AND number <= ? ") + "ORDER BY number"
    bounds = (first,) if last is None else (first, last)
    bodies: dict[int, EntryBody] = {}
    for number, kind, _, text in file.iter_rows("entries", condition, bounds, _MAX_RARE):
        where = f"{file.name}: table entries, row {number}"
        if len(bodies) >= _MAX_ROWS:
            raise BadInput(f"{where}: a minute has more than {_MAX_ROWS} entries")
        bodies[number] = EntryBody(kind, text, where)
    return bodies


def has_rare_bodies(file: CheckedFile, first: int, last: int) -> bool:
    """Return true if there are bodies with separate rows."""
    condition = "WHERE number >= ? AND number <= ? ORDER BY number LIMIT 1"
    return any(True for _ in file.iter_rows("entries", condition, (first, last)))


def _parse_bodies(texts: Iterable[bytes], where: str) -> dict[int, EntryBody]:
    bodies: dict[int, EntryBody] = {}
    for text in texts:
        begin = _NUMBER.match(text)
        if not begin or int(begin[1]) in bodies:
            raise BadInput(f"{where}: a body belongs to no entry, or an entry has two")
        bodies[int(begin[1])] = EntryBody(None, text, where)
    return bodies


class _EntryBuilder(PlainDecoder):
    """Builds values that refer to samples of their entry, to facts, and to earlier discards."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts.shapes, facts.content, self._resolve_reference)
        self._facts = facts
        self._discards: list[DiscardSample] = []
        self.samples: dict[int, DiskSample] = {}
        self.is_frequent = False

    def decode_instance(self, kind: Any, plain: Any, where: str) -> Any:  # noqa: ANN401
        value = super().decode_instance(kind, plain, where)
        if self.is_frequent and kind is DiscardSample and isinstance(plain, list):
            self._discards.append(value)
        return value

    def skip_entry(self, body: EntryBody, number: int) -> None:
        """Keep the discards of a skipped entry, because later entries may refer to them."""
        kind, values = body.read_entry(number)
        names = self._facts.shapes.get(kind, ())
        if kind != "IntervalEnded" or not isinstance(values, list) or len(values) != len(names):
            raise BadInput(f"{body.where}: entry {number} is invalid")
        self.is_frequent = True
        for pair in dict(zip(names, values, strict=True)).get("discards") or ():
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], list):
                self.decode_instance(DiscardSample, pair[1], f"{body.where}, entry {number}")

    def build_interval(
        self,
        values: Any,  # noqa: ANN401
        places: frozenset[int],
        where: str,
    ) -> IntervalEnded:
        """Return an interval with the samples, owners and discards of these places only."""
        names = self._facts.shapes.get("IntervalEnded", ())
        if isinstance(values, list) and len(values) == len(names):
            values = [
                _select_pairs(value, places) if name in ("samples", "owners") else value
                for name, value in zip(names, values, strict=True)
            ]
        self.is_frequent = True
        # Later entries may refer to the discards of any disk.
        entry: IntervalEnded = self.decode_instance(IntervalEnded, values, where)
        kept = {place: sample for place, sample in entry.discards.items() if place in places}
        return replace(entry, discards=kept)

    def _resolve_reference(self, kind: type, number: int, where: str) -> object:
        if kind is DiskSample:
            value: object = self.samples.get(number)
        elif kind is SlowRequest:
            value = self._facts.slow(number, where)
        elif kind is DiscardSample:
            value = self._discards[number] if 0 <= number < len(self._discards) else None
        else:
            value = self._facts.values.get(number)
        if not isinstance(value, kind):
            raise BadInput(f"{where}: {number} is not a {kind.__name__}")
        return value


class _DiskCursor:
    """The next sample of one disk."""

    def __init__(self, frames: DiskFrames, facts: Facts, known: References, where: str) -> None:
        disk = facts.values.get(frames.fact)
        if not isinstance(disk, WatchedDisk):
            raise BadInput(f"{where}: fact {frames.fact} is not a disk")
        self._known, self._where, self._left = known, where, frames.samples
        self._reader = FrameReader(facts.layout, frames.streams, disk)
        self.number, self.at_ns = self._reader.advance()

    def read_sample(self) -> DiskSample:
        return self._reader.read_sample(self._known, self._where)

    def advance(self) -> bool:
        """Move to the next sample; return false at the end."""
        self._left -= 1
        if not self._left:
            if not self._reader.is_at_end:
                raise BadInput(f"{self._where}: extra data after its samples")
            return False
        before = self.number
        self.number, self.at_ns = self._reader.advance()
        if self.number <= before:
            raise BadInput(f"{self._where}: entry {self.number} out of order, after entry {before}")
        return True


def read_without_samples(file: CheckedFile, row: tuple[Any, ...]) -> EntryRange | None:
    """Return a minute's stretch without samples, or None if the minute has entries that are neither samples,
    slow requests nor drive samples."""
    bodies = read_frequent_bodies(file, row)
    if not all(body.has_prefix(_UNSKIPPABLE) or body.has_prefix(_INTERVAL_ENDED) for body in bodies.values()):
        return None
    looks = {number: body for number, body in bodies.items() if body.has_prefix(_UNSKIPPABLE)}
    return EntryRange(f"{file.name}: block {row[0]}", row[1], row[2], bodies=looks)


def iterate_entries(stretch: EntryRange, facts: Facts) -> Iterator[tuple[int, RunEntry]]:
    """Yield the entries of a stretch with their numbers, in order."""
    known = References(stretch.moments.anchors, facts.reasons, stretch.moments.cpus)
    heads = {
        place: _DiskCursor(frames, facts, known, f"{stretch.where}, place {place}")
        for place, frames in stretch.frames.items()
    }
    assembly, waiting = _EntryBuilder(facts), sorted(stretch.bodies, reverse=True)
    skipping = stretch.skipping
    needed = stretch.find_unskippable() if skipping else set()
    while heads or waiting:
        number = min([head.number for head in heads.values()] + waiting[-1:])
        if not stretch.first <= number <= stretch.last:
            raise BadInput(f"{stretch.where}: entry {number} is out of range")
        now = {place: head for place, head in heads.items() if head.number == number}
        if (
            skipping
            and now
            and number not in needed
            and not skipping.steps.ends_interval(_find_earliest(now))
        ):
            if waiting[-1:] == [number]:
                assembly.skip_entry(stretch.bodies[waiting.pop()], number)
            if skipping.is_over and not needed.intersection(waiting):
                return
        else:
            assembly.samples = {place: head.read_sample() for place, head in now.items()}
            if waiting[-1:] == [number]:
                waiting.pop()
                kind, values = stretch.bodies[number].read_entry(number)
                where = f"{stretch.where}, entry {number}"
                if stretch.places is None or kind != "IntervalEnded":
                    yield number, _build_entry(assembly, kind, values, where)
                elif now:
                    yield number, assembly.build_interval(values, stretch.places, where)
            else:
                yield number, IntervalEnded(assembly.samples)
        heads = {place: head for place, head in heads.items() if place not in now or head.advance()}


def _select_pairs(pairs: Any, places: frozenset[int]) -> Any:  # noqa: ANN401
    """Return the pairs of a table that belong to these places. Invalid pairs are kept, to be refused."""
    if not isinstance(pairs, list):
        return pairs
    return [
        pair
        for pair in pairs
        if not (isinstance(pair, list) and pair and type(pair[0]) is int and pair[0] not in places)
    ]


def _find_earliest(heads: Mapping[int, _DiskCursor]) -> int:
    return min(head.at_ns for head in heads.values())


def _build_entry(assembly: _EntryBuilder, kind: str, values: Any, where: str) -> RunEntry:  # noqa: ANN401
    if kind not in KINDS or not isinstance(values, list):
        raise BadInput(f"{where}: unknown kind of entry {kind!r}")
    assembly.is_frequent = kind in _FREQUENT
    entry: RunEntry = assembly.decode_instance(KINDS[kind], values, where)
    return entry
