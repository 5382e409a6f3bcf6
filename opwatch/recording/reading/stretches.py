"""A stretch of a recording: a minute that was compressed, or what a recorder that was killed had not yet
compressed. Its entries are put together again from samples, anchors and bodies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opwatch.clock import Anchor
from opwatch.errors import BadInput
from opwatch.recording.coding import contents
from opwatch.recording.coding.anchors import read_anchors
from opwatch.recording.coding.blocks import MOST_STREAM, expanded, readers, split
from opwatch.recording.coding.frames import FrameReader, Known, Layout, Streams
from opwatch.recording.coding.plain import FromPlain
from opwatch.recording.reading.opening import CheckedFile, small_document
from opwatch.recording.schema import ANCHOR, OTHERS
from opwatch.samples.entries import RunEntry, Ticked
from opwatch.samples.entry_parts import KINDS
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trim.audit.live import DiscardSample

MOST_SAMPLES = 1 << 16
MOST_PLACES = 512
_MOST_OTHERS = 16 << 20
_NUMBER = re.compile(rb"\[([0-9]{1,18}),")
_MOST_TAIL = 64 << 20


@dataclass(frozen=True, slots=True)
class DiskFrames:
    """One disk of a stretch."""

    fact: int
    samples: int
    parts: tuple[Streams, ...]


@dataclass(frozen=True, slots=True)
class Body:
    """Kind and values, as text until somebody asks: a document takes many times the room of its text. `kind`
    is None where it stands in the document."""

    kind: str | None
    text: bytes | str
    where: str

    def read(self, number: int) -> tuple[str, Any]:
        document = small_document(self.text, self.where)
        if self.kind is not None:
            return self.kind, document
        if not isinstance(document, list) or len(document) != 3 or not isinstance(document[1], str):
            raise BadInput(f"{self.where}: a body is none")
        if document[0] != number:
            raise BadInput(f"{self.where}: a body is of entry {document[0]}, not of {number}")
        return document[1], document[2]


@dataclass(frozen=True, slots=True)
class RunStretch:
    """What lies between two entries, both included. `bodies` are what entries have besides samples."""

    where: str
    first: int
    last: int
    anchors: Mapping[int, Anchor] = field(default_factory=dict)
    bodies: Mapping[int, Body] = field(default_factory=dict)
    frames: Mapping[int, DiskFrames] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What entries refer to by number: disks, drives, sentences, bytes."""

    layout: Layout
    shapes: Mapping[str, tuple[str, ...]]
    values: Mapping[int, Any]
    content: Callable[[int], bytes]

    @property
    def reasons(self) -> dict[int, str]:
        return {number: value for number, value in self.values.items() if isinstance(value, str)}


def compressed_stretch(file: CheckedFile, row: tuple[Any, ...]) -> RunStretch:
    """A minute, from its row of `blocks`."""
    block, first, last, _, _, anchors, others = row
    where = f"{file.name}: block {block}"
    frames: dict[int, DiskFrames] = {}
    for _, place, fact, samples, key, rest in file.rows("frames", "WHERE block = ? ORDER BY rowid", (block,)):
        if place in frames or len(frames) >= MOST_PLACES or not 1 <= samples <= MOST_SAMPLES:
            raise BadInput(f"{where}: place {place} is there twice, or too many, or has {samples} samples")
        parts = [expanded(key, f"{where}, place {place}")]
        parts += [expanded(rest, f"{where}, place {place}")] if rest else []
        frames[place] = DiskFrames(fact, samples, tuple(parts))
    texts = contents.expanded(others, _MOST_OTHERS, where).split(b"\n") if others else []
    bodies = _bodies(texts, where) | rare_bodies(file, first, last)
    return RunStretch(
        where,
        first,
        last,
        read_anchors(contents.expanded(anchors, MOST_STREAM, where), where),
        bodies,
        frames,
    )


def tail_stretch(file: CheckedFile, first: int) -> RunStretch:
    """What follows the last block."""
    where = f"{file.name}: table tail"
    parts: dict[int, list[Streams]] = {}
    facts: dict[int, int] = {}
    anchors, texts, size, last = [], [], 0, first - 1
    for number, place, fact, body in file.rows("tail", "ORDER BY rowid"):
        size += len(body)
        if number < first or size > _MOST_TAIL:
            raise BadInput(f"{where}: entry {number} comes again, or there is more than {_MOST_TAIL} bytes")
        last = max(last, number)
        if place == OTHERS:
            texts.append(body)
        elif place == ANCHOR:
            anchors.append(body)
        else:
            if facts.setdefault(place, fact) != fact or len(facts) > MOST_PLACES:
                raise BadInput(f"{where}: place {place} is two disks, or there are too many")
            parts.setdefault(place, []).append(split(body, f"{where}, place {place}"))
    frames = {place: DiskFrames(facts[place], len(some), tuple(some)) for place, some in parts.items()}
    rare = rare_bodies(file, first, None)
    known = read_anchors(b"".join(anchors), where)
    return RunStretch(where, first, max([last, *rare]), known, _bodies(texts, where) | rare, frames)


def rare_bodies(file: CheckedFile, first: int, last: int | None) -> dict[int, Body]:
    """Bodies that have a row of their own."""
    condition = "WHERE number >= ? " + ("" if last is None else "AND number <= ? ") + "ORDER BY number"
    bounds = (first,) if last is None else (first, last)
    return {
        number: Body(kind, text, f"{file.name}: table entries, row {number}")
        for number, kind, _, text in file.rows("entries", condition, bounds)
    }


def _bodies(texts: Iterable[bytes], where: str) -> dict[int, Body]:
    bodies: dict[int, Body] = {}
    for text in texts:
        begin = _NUMBER.match(text)
        if not begin or int(begin[1]) in bodies:
            raise BadInput(f"{where}: a body is of no entry, or the second of one")
        bodies[int(begin[1])] = Body(None, text, where)
    return bodies


class _Assembly(FromPlain):
    """Values that refer to samples of the entry, to facts, and to discards written before."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts.shapes, facts.content, self._referred)
        self._values = facts.values
        self._discards: list[DiscardSample] = []
        self.samples: dict[int, DiskSample] = {}
        self.is_frequent = False

    def instance(self, kind: Any, plain: Any, where: str) -> Any:  # noqa: ANN401
        value = super().instance(kind, plain, where)
        if self.is_frequent and kind is DiscardSample and isinstance(plain, list):
            self._discards.append(value)
        return value

    def _referred(self, kind: type, number: int, where: str) -> object:
        if kind is DiskSample:
            value: object = self.samples.get(number)
        elif kind is DiscardSample:
            value = self._discards[number] if 0 <= number < len(self._discards) else None
        else:
            value = self._values.get(number)
        if not isinstance(value, kind):
            raise BadInput(f"{where}: {number} is no {kind.__name__}")
        return value


class _Head:
    """The next sample of one disk."""

    def __init__(self, frames: DiskFrames, facts: Facts, known: Known, where: str) -> None:
        disk = facts.values.get(frames.fact)
        if not isinstance(disk, WatchedDisk):
            raise BadInput(f"{where}: fact {frames.fact} is no disk")
        self._disk, self._known, self._where = disk, known, where
        self._left, self._reader = frames.samples, FrameReader(facts.layout)
        self._streams = readers(frames.parts, where)
        self.number, self.sample = self._reader.sample(self._streams, disk, known, where)

    def advance(self) -> bool:
        """False at the end."""
        self._left -= 1
        if not self._left:
            if not all(stream.is_at_end for stream in self._streams):
                raise BadInput(f"{self._where}: there is more than its samples")
            return False
        before = self.number
        self.number, self.sample = self._reader.sample(self._streams, self._disk, self._known, self._where)
        if self.number <= before:
            raise BadInput(f"{self._where}: entry {self.number} after entry {before}")
        return True


def entries_of(stretch: RunStretch, facts: Facts) -> Iterator[tuple[int, RunEntry]]:
    """The entries of a stretch, with their numbers, in order."""
    known = Known(stretch.anchors, facts.reasons)
    heads = {
        place: _Head(frames, facts, known, f"{stretch.where}, place {place}")
        for place, frames in stretch.frames.items()
    }
    assembly, waiting = _Assembly(facts), sorted(stretch.bodies, reverse=True)
    while heads or waiting:
        number = min([head.number for head in heads.values()] + waiting[-1:])
        if not stretch.first <= number <= stretch.last:
            raise BadInput(f"{stretch.where}: has entry {number}")
        assembly.samples = {place: head.sample for place, head in heads.items() if head.number == number}
        if waiting[-1:] == [number]:
            waiting.pop()
            kind, values = stretch.bodies[number].read(number)
            yield number, _entry(assembly, kind, values, f"{stretch.where}, entry {number}")
        else:
            yield number, Ticked(assembly.samples)
        heads = {
            place: head for place, head in heads.items() if place not in assembly.samples or head.advance()
        }


def _entry(assembly: _Assembly, kind: str, values: Any, where: str) -> RunEntry:  # noqa: ANN401
    if kind not in KINDS or not isinstance(values, list):
        raise BadInput(f"{where}: {kind!r} is no kind of entry")
    assembly.is_frequent = kind in ("Ticked", "Looked")
    entry: RunEntry = assembly.instance(KINDS[kind], values, where)
    return entry
