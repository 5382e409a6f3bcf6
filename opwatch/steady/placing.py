"""Where on a drive a file lies, so that writes to the one are known as writes to the other. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from opwatch.named import NamedTuple


class FileRun(NamedTuple):
    """A piece of a file, from `file_bytes` on, that lies in one piece on the drive from `disk_bytes` on."""

    disk_bytes: int
    file_bytes: int
    length: int


def joined_runs(runs: Iterable[FileRun]) -> list[FileRun]:
    """The runs in the order of the file, with those as one that follow each other in both."""
    joined: list[FileRun] = []
    for run in sorted(runs, key=lambda run: run.file_bytes):
        last = joined[-1] if joined else None
        if last and (last.disk_bytes + last.length, last.file_bytes + last.length) == run[:2]:
            joined[-1] = last._replace(length=last.length + run.length)
        else:
            joined.append(run)
    return joined


class FileMap:
    """Writes to the drive as writes to the file. Without runs the drive itself is what is written."""

    def __init__(self, runs: Sequence[FileRun] = ()) -> None:
        self._runs = sorted(runs)
        self._begins = [run.disk_bytes for run in self._runs]

    def parts(self, offset_bytes: int, length: int) -> Iterator[tuple[int, int]]:
        """(begin, length) in the file of a write to the drive, in pieces; none where it is not to the
        file."""
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
