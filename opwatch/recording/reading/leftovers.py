"""What a recorder that was killed has left: two files that belong together.

To read them where they lie, SQLite would write beside them, through whatever others have planted there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from opwatch.errors import BadInput, OpwatchError
from opwatch.frozen import frozen

# Where SQLite keeps its locks in a file: a recorder has all of these bytes.
_LOCKS_BEGIN, _LOCKS = 0x40000002, 510
# struct flock: type, whence, begin, length, process.
_FLOCK = struct.Struct("@hhqqi4x")
_PART = 1 << 30
# Magic, version, page size, checkpoints, two salts, two sums; then of each page its number, the size of the
# file at a commit, the salts, two sums.
_HEAD, _FRAME = struct.Struct(">8I"), struct.Struct(">6I")
_MAGIC = 0x377F0682
_LEAST_PAGE, _MOST_PAGE = 512, 1 << 16
# More frames are not looked at: a recorder moves its log into the file every 256 pages.
_MOST_FRAMES = 1 << 20
# Of st_blocks.
_BLOCK = 512


def log_beside(path: Path) -> Path | None:
    """The log of what its recorder had not brought into the file yet; None where there is nothing in one."""
    real = path.resolve()
    log = real.with_name(real.name + "-wal")
    with contextlib.suppress(OSError):
        status = log.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size:
            return log
    return None


def is_being_written(descriptor: int) -> bool:
    """Whether its recorder lives. It is asked for, and no lock is taken: we write nothing."""
    question = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, _LOCKS_BEGIN, _LOCKS, 0)
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, question)
    except OSError:
        # Some file systems have no locks: nobody can hold one.
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


@contextlib.contextmanager
def copied(path: Path, log: Path) -> Iterator[Path]:
    """Copy both files as they are now, under names of our own. These are gone when the context ends: open the
    copy in it."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(regular_file(name)) for name in (path, log)]
        size = sum(min(status.st_size, status.st_blocks * _BLOCK) for status in map(os.fstat, files))
        try:
            folder = Path(tempfile.mkdtemp(prefix="opwatch-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            room = shutil.disk_usage(folder).free
            if size > room:
                raise OpwatchError(_no_room(path, f"{size} bytes, of which {folder.parent} has {room}"))
            copy = folder / "recording"
            for file, name in zip(files, (copy, folder / "recording-wal"), strict=True):
                _copy(file, name)
        except OSError as error:
            raise OpwatchError(_no_room(path, error.strerror or str(error))) from error
        yield copy


def _no_room(path: Path, why: str) -> str:
    return (
        f"{path}: its recorder was killed, and what it left is read from a copy, which cannot be "
        f"made: {why}. TMPDIR names a folder for it"
    )


@contextlib.contextmanager
def regular_file(path: Path) -> Iterator[int]:
    """A descriptor to read from, of a file and nothing else: a pipe would keep us waiting."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput(f"{path} is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _copy(source: int, name: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    target = os.open(name, flags, 0o600)
    try:
        os.truncate(target, os.fstat(source).st_size)
        for begin, end in data_ranges(source):
            os.lseek(target, begin, os.SEEK_SET)
            while begin < end and (done := os.sendfile(target, source, begin, min(end - begin, _PART))):
                begin += done
    finally:
        os.close(target)


def data_ranges(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield where the data of a file are: what a hole stands for takes no time and no room."""
    end = 0
    with contextlib.suppress(OSError):
        while True:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            yield begin, end


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
