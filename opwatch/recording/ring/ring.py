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
from opwatch.samples.newest import LatestState

# Number of kept segments, in addition to the one being written.
_SEGMENTS = 8
_SHORTEST_S, _LONGEST_S = 1.0, 600.0
# Above this multiple of the size limit, the oldest segments are removed even during reading.
_MAX_GROWTH = 2
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
        self._newest = LatestState()
        self._count = 0
        # End of our segments by the monotonic clock, which nothing can set.
        self._ended: dict[Path, float] = {}
        folder.answer_request()
        self._file = self._create_next_file()

    @property
    def kept_s(self) -> float | None:
        return self._bounds.keep_s

    def read_device_number(self) -> int:
        return self._folder.read_device_number()

    def read_inode(self) -> int:
        return self._folder.read_inode()

    def begin_transaction(self) -> None:
        self._file.begin_transaction()

    def add_entry(self, entry: RunEntry) -> None:
        self._newest.add_entry(entry)
        self._file.add_entry(entry)

    def add_event(self, kind: str, words: str, mono_ns: int, status: int | None = None) -> None:
        self._file.add_event(kind, words, mono_ns, status)

    def add_file(self, name: str, raw: bytes, mono_ns: int) -> None:
        self._file.add_file(name, raw, mono_ns)

    def commit(self) -> None:
        self._file.commit()

    def roll_back(self) -> None:
        self._file.roll_back()

    def run_maintenance(self) -> None:
        """Start a new segment if due."""
        is_requested = self._folder.is_requested()
        is_long = time.monotonic() - self._begun >= self._bounds.segment_s
        if is_requested or is_long or self._is_segment_full() or self._file.is_removed:
            self._start_next_segment()
        if is_requested:
            self._folder.answer_request()

    def end_recording(self, reason: str, mono_ns: int, left_out: int) -> None:
        self.run_maintenance()
        self._file.end_recording(reason, mono_ns, left_out)

    def abandon(self) -> None:
        self._file.abandon()

    def _is_segment_full(self) -> bool:
        return self._folder.measure_segment(self._file.path) > self._bounds.most_bytes // (_SEGMENTS + 1)

    def _start_next_segment(self) -> None:
        carried = self._newest.make_start_entries()
        if self._file.is_removed:
            self._file.abandon()
        else:
            self._file.end_recording("continued in the next segment", time.monotonic_ns(), 0)
            self._ended[self._file.path] = time.monotonic()
        self._file = self._create_next_file(len(carried))
        self._file.begin_transaction()
        for entry in carried:
            self._file.add_entry(entry)
        self._file.commit()
        self._remove_oldest()

    def _create_next_file(self, carried: int = 0) -> RecordingFile:
        self._count += 1
        self._begun = time.monotonic()
        header = self._header | {SEGMENT: self._count, CARRIED: carried}
        return RecordingFile(self._folder.new_path(), header, quickly=True)

    def _remove_oldest(self) -> None:
        """Remove the oldest segments, beyond the kept time or beyond the size limit."""
        *segments, _ = self._folder.list_segments()
        size = sum(segment.size for segment in segments)
        may_go = not self._folder.has_readers()
        for segment in segments:
            is_old = self._segment_age_s(segment) > self._bounds.keep_s
            # Leave room for the growth of the newest segment.
            is_too_much = size > self._bounds.most_bytes * _SEGMENTS // (_SEGMENTS + 1)
            if not may_go and size <= _MAX_GROWTH * self._bounds.most_bytes:
                break
            if not (is_old or is_too_much):
                break
            self._folder.remove_segment(segment)
            self._ended.pop(segment.path, None)
            size -= segment.size

    def _segment_age_s(self, segment: Segment) -> float:
        """Return the seconds since a segment ended."""
        if segment.path in self._ended:
            return time.monotonic() - self._ended[segment.path]
        return time.time() - segment.modified_ns / 1e9
