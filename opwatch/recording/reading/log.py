"""What SQLite's write-ahead log holds: the pages of the file that a recorder had not yet moved into it."""

from __future__ import annotations

import os
import struct

from opwatch.frozen import frozen

# Magic, version, page size, checkpoints, two salts, two sums; then of each page its number, the size of the
# file at a commit, the salts, two sums.
_HEAD, _FRAME = struct.Struct(">8I"), struct.Struct(">6I")
_MAGIC = 0x377F0682
_LEAST_PAGE, _MOST_PAGE = 512, 1 << 16
# More frames are not looked at: a recorder moves its log into the file every 256 pages.
_MOST_FRAMES = 1 << 20


@frozen
class CommittedPages:
    """The pages that the log holds, and how many pages the file has with them; 0 where nothing is
    committed."""

    numbers: frozenset[int] = frozenset()
    total: int = 0


def committed_pages(log: int) -> CommittedPages:
    """Read the frames of a log that belong to its last commit or an earlier one."""
    head = os.pread(log, _HEAD.size, 0)
    if len(head) < _HEAD.size:
        return CommittedPages()
    magic, _, page, _, *salts, _, _ = _HEAD.unpack(head)
    if magic & ~1 != _MAGIC or not _LEAST_PAGE <= page <= _MOST_PAGE:
        return CommittedPages()
    numbers: set[int] = set()
    waiting: set[int] = set()
    total, at = 0, _HEAD.size
    for _ in range(_MOST_FRAMES):
        frame = os.pread(log, _FRAME.size, at)
        if len(frame) < _FRAME.size:
            break
        number, size, *now, _, _ = _FRAME.unpack(frame)
        # Behind the newest frames there are those of an earlier log, with other salts.
        if now != salts or not number:
            break
        waiting.add(number)
        if size:
            total = size
            numbers |= waiting
            waiting.clear()
        at += _FRAME.size + page
    return CommittedPages(frozenset(numbers), total)
