"""A recording target of limited size: a sequence of segments, of which the oldest are removed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opwatch.recording.ring.folder import RingFolder, Segment
from opwatch.recording.writing.file import RecordingFile
from opwatch.samples.entries import RunEntry
from opwatch.samples.newest import Newest

# Number of kept segments, in addition to the one being written.
_SEGMENTS = 8
_SHORTEST_S, _LONGEST_S = 1.0, 600.0
# Above this multiple of the size limit, the oldest segments are removed even during reading.
_MOST_WHILE_READ = 2
# Names in a segment's header: the recorder's run, the segment's number in the run, and the number of entries
# repeated from the end of the previous segment.
RUN, SEGMENT, CARRIED = "run", "segment", "carried"


@dataclass(frozen=True, slots=True)
class RingBounds:
    """Limits of the time and of the bytes that a ring keeps."""

    keep_s: float
    most_bytes: int

    @property
    def segment_s(self) -> float:
        return min(max(self.keep_s / _SEGMENTS, _SHORTEST_S), _LONGEST_S)


class Ring:
    """A ring that is written from construction to end() or abandon()."""

    pause_s: float | None = 0.25

    def __init__(self, folder: RingFolder, header: Mapping[str, str | int], bounds: RingBounds) -> None:
        self.path: Path = folder.path
        self._folder, self._bounds = folder, bounds
        self._header = dict(header) | {RUN: secrets.token_hex(16)}
        self._newest = Newest()
        self._count = 0
        # End of our segments by the monotonic clock, which nothing can set.
        self._ended: dict[Path, float] = {}
        folder.answer()
        self._file = self._next_file()

    @property
    def kept_s(self) -> float | None:
        return self._bounds.keep_s

    def device(self) -> int:
        return self._folder.device()

    def inode(self) -> int:
        return self._folder.inode()

    def begin(self) -> None:
        self._file.begin()

    def put(self, entry: RunEntry) -> None:
        self._newest.take(entry)
        self._file.put(entry)

    def event(self, kind: str, words: str, mono_ns: int, status: int | None = None) -> None:
        self._file.event(kind, words, mono_ns, status)

    def keep_file(self, name: str, raw: bytes, mono_ns: int) -> None:
        self._file.keep_file(name, raw, mono_ns)

    def commit(self) -> None:
        self._file.commit()

    def roll_back(self) -> None:
        self._file.roll_back()

    def pause(self) -> None:
        """Start a new segment if due."""
        is_requested = self._folder.is_requested()
        is_long = time.monotonic() - self._begun >= self._bounds.segment_s
        if is_requested or is_long or self._is_large() or self._file.is_removed:
            self._turn()
        if is_requested:
            self._folder.answer()

    def end(self, reason: str, mono_ns: int, left_out: int) -> None:
        self.pause()
        self._file.end(reason, mono_ns, left_out)

    def abandon(self) -> None:
        self._file.abandon()

    def _is_large(self) -> bool:
        return self._folder.size(self._file.path) > self._bounds.most_bytes // (_SEGMENTS + 1)

    def _turn(self) -> None:
        carried = self._newest.as_begun()
        if self._file.is_removed:
            self._file.abandon()
        else:
            self._file.end("the next segment goes on", time.monotonic_ns(), 0)
            self._ended[self._file.path] = time.monotonic()
        self._file = self._next_file(len(carried))
        self._file.begin()
        for entry in carried:
            self._file.put(entry)
        self._file.commit()
        self._forget()

    def _next_file(self, carried: int = 0) -> RecordingFile:
        self._count += 1
        self._begun = time.monotonic()
        header = self._header | {SEGMENT: self._count, CARRIED: carried}
        return RecordingFile(self._folder.new_path(), header, quickly=True)

    def _forget(self) -> None:
        """Remove the oldest segments, beyond the kept time or beyond the size limit."""
        *segments, _ = self._folder.segments()
        size = sum(segment.size for segment in segments)
        may_go = not self._folder.is_read()
        for segment in segments:
            is_old = self._age(segment) > self._bounds.keep_s
            # Leave room for the growth of the newest segment.
            is_too_much = size > self._bounds.most_bytes * _SEGMENTS // (_SEGMENTS + 1)
            if not may_go and size <= _MOST_WHILE_READ * self._bounds.most_bytes:
                break
            if not (is_old or is_too_much):
                break
            self._folder.remove(segment)
            self._ended.pop(segment.path, None)
            size -= segment.size

    def _age(self, segment: Segment) -> float:
        """Return the seconds since a segment ended."""
        if segment.path in self._ended:
            return time.monotonic() - self._ended[segment.path]
        return time.time() - segment.modified_ns / 1e9
