"""Map writes to a drive to writes to a file, given the file's extents. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class FileRun(NamedTuple):
    """`length` bytes of a file at `file_bytes`, stored contiguously on the drive at `disk_bytes`."""

    disk_bytes: int
    file_bytes: int
    length: int


def merge_runs(runs: Iterable[FileRun]) -> list[FileRun]:
    """Return the runs in file order, with runs merged that are adjacent in the file and on the drive."""
    joined: list[FileRun] = []
    for run in sorted(runs, key=lambda run: run.file_bytes):
        last = joined[-1] if joined else None
        if last and (last.disk_bytes + last.length, last.file_bytes + last.length) == run[:2]:
            joined[-1] = last._replace(length=last.length + run.length)
        else:
            joined.append(run)
    return joined


class FileMap:
    """Translate drive writes to file writes. Without runs, drive offsets are returned unchanged."""

    def __init__(self, runs: Sequence[FileRun] = ()) -> None:
        self._runs = sorted(runs)
        self._begins = [run.disk_bytes for run in self._runs]

    def map_write(self, offset_bytes: int, length: int) -> Iterator[tuple[int, int]]:
        """Yield (file offset, length) of each part of a drive write within the file."""
        if not self._runs:
            yield offset_bytes, length
            return
        end = offset_bytes + length
        for run in self._runs[max(bisect_right(self._begins, offset_bytes) - 1, 0) :]:
            if run.disk_bytes >= end:
                break
            begin = max(offset_bytes, run.disk_bytes)
            last = min(end, run.disk_bytes + run.length)
            if begin < last:
                yield run.file_bytes + begin - run.disk_bytes, last - begin
