"""The load of an untrimmed drive's rounds: random writes into the files, in virtual time.

By default as sysbench 1.0 writes: one thread through the page cache, and fsync of all files after each 100
requests. With `fsync_every` 0 the writes go to the drive directly, with a queue.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Protocol

from opwatch.ftl.drive import Drive, ServiceOp, Workload, Zone


class FileLoadSettings(Protocol):
    """What a load takes from the experiment's setup."""

    @property
    def io_bytes(self) -> int: ...
    @property
    def queue_depth(self) -> int: ...
    @property
    def files(self) -> int: ...
    @property
    def fsync_every(self) -> int: ...
    @property
    def seed(self) -> int: ...


class FileWriter(Protocol):
    """Writes at random into files, and goes on where it stopped."""

    def write_for(self, seconds: float) -> None:
        """Write for this long, in seconds of the model."""

    def copy_to(self, drive: Drive) -> FileWriter:
        """Return a writer in the same state, for a drive in the same state."""


def make_writer(drive: Drive, files: tuple[Zone, ...], settings: FileLoadSettings) -> FileWriter:
    """Return the writer that the settings ask for."""
    return (BufferedWriter if settings.fsync_every else DirectWriter)(drive, files, settings)


class DirectWriter:
    """Direct I/O with a queue that is always full."""

    def __init__(
        self, drive: Drive, files: tuple[Zone, ...], settings: FileLoadSettings, rng: int | None = None
    ) -> None:
        self._drive, self._settings = drive, settings
        self._load = Workload(files, rng=settings.seed if rng is None else rng)

    def write_for(self, seconds: float) -> None:
        self._drive.run_timed(
            self._load,
            seconds,
            io_bytes=self._settings.io_bytes,
            queue_depth=self._settings.queue_depth,
            interval_ns=max(round(seconds * 1e9), 1),
        )

    def copy_to(self, drive: Drive) -> DirectWriter:
        return DirectWriter(drive, self._load.zones, self._settings, self._load.rng)


class BufferedWriter:
    """Writes through the page cache, which reach the drive when a file is synced.

    An fsync writes the file's pages and then flushes the drive's cache. Files without new pages are not
    flushed, and the page cache itself takes no time.
    """

    def __init__(self, drive: Drive, files: tuple[Zone, ...], settings: FileLoadSettings) -> None:
        self._drive, self._settings, self._zones = drive, settings, files
        self._random = random.Random(settings.seed)
        self._ends = list(accumulate(zone.len_bytes // settings.io_bytes for zone in files))
        # The synced files to go, each with the addresses of its new pages.
        self._dirty: list[list[int]] = []

    def write_for(self, seconds: float) -> None:
        begin_ns = self._drive.now_ns()
        while self._drive.now_ns() - begin_ns < seconds * 1e9:
            self._sync_next_file()

    def copy_to(self, drive: Drive) -> BufferedWriter:
        other = BufferedWriter(drive, self._zones, self._settings)
        other._random.setstate(self._random.getstate())
        other._dirty = [list(pages) for pages in self._dirty]
        return other

    def _sync_next_file(self) -> None:
        if not self._dirty:
            self._dirty = list(self._draw_dirty_files())
        io_bytes, begin_ns = self._settings.io_bytes, self._drive.now_ns()
        pages = self._dirty.pop()
        done_ns = [self._drive.submit(ServiceOp.WRITE, page, io_bytes, begin_ns) for page in pages]
        self._drive.submit(ServiceOp.FLUSH, 0, 0, max(done_ns))

    def _draw_dirty_files(self) -> Iterator[list[int]]:
        """Yield the new pages of each file that the next requests write to."""
        whole = self._ends[-1]
        picked: dict[int, set[int]] = {}
        for _ in range(self._settings.fsync_every):
            at = self._random.randrange(whole)
            picked.setdefault(at * self._settings.files // whole, set()).add(at)
        for _, pages in sorted(picked.items(), reverse=True):
            yield [
                _find_address(at, self._zones, self._ends, self._settings.io_bytes) for at in sorted(pages)
            ]


def _find_address(at: int, zones: Sequence[Zone], ends: Sequence[int], io_bytes: int) -> int:
    """Return the address of the I/O with this number, counted through all files."""
    place = bisect_right(ends, at)
    before = ends[place - 1] if place else 0
    return zones[place].start_bytes + (at - before) * io_bytes
