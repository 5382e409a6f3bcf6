"""Read the two files of a recorder that was killed or is still writing: the database and its log.

The files are copied first: if opened in place, SQLite would write beside them, possibly through links planted
by other users.
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
from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import BadInput, OpwatchError

# Location of SQLite's locks in a file. A recorder locks all of these bytes.
_LOCKS_BEGIN, _LOCKS = 0x40000002, 510
# struct flock: type, whence, start, length, process.
_FLOCK = struct.Struct("@hhqqi4x")
_COPY_BYTES = 1 << 30
# Attempts to copy both files before their recorder starts the log again.
_ATTEMPTS = 20
# Log header: magic, version, page size, checkpoints, two salts, two checksums. Frame header: page number,
# file size at a commit, two salts, two checksums.
_HEAD, _FRAME = struct.Struct(">8I"), struct.Struct(">6I")
_MAGIC = 0x377F0682
_MIN_PAGE, _MAX_PAGE = 512, 1 << 16
# Limit of the frames read; a recorder checkpoints its log every 256 pages.
_MAX_FRAMES = 1 << 20
# Unit of st_blocks.
_BLOCK = 512


def find_log(path: Path) -> Path | None:
    """Return the log with data not yet in the file, or None without a log or if empty."""
    log = _name_log(path)
    with contextlib.suppress(OSError):
        status = log.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size:
            return log
    return None


def is_being_written(descriptor: int) -> bool:
    """Return true if a recorder has the file open. Only queries the lock, because readers write nothing."""
    question = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, _LOCKS_BEGIN, _LOCKS, 0)
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, question)
    except OSError:
        # Some file systems have no locks, so nothing can be locked.
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


@contextlib.contextmanager
def copy_with_log(path: Path) -> Iterator[Path]:
    """Copy both files to a temporary folder, which is removed at the end of the context. Open the copy within
    it.

    The recorder may be writing. Pages that it moves from the log to the file stay in the log until it starts
    the log again, with other salts. The log is copied last and therefore has all pages that were moved.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_regular(path))
        try:
            folder = Path(tempfile.mkdtemp(prefix="opwatch-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            copy = folder / "recording"
            for _ in range(_ATTEMPTS):
                if _copy_both(path, file, copy):
                    break
            else:
                raise OpwatchError(f"{path}: its recorder writes faster than the file can be copied")
        except OSError as error:
            raise OpwatchError(_format_copy_error(path, error.strerror or str(error))) from error
        yield copy


def _copy_both(path: Path, file: int, copy: Path) -> bool:
    """Copy the file and its log; return whether the log was not started again meanwhile."""
    with _open_log(path) as log:
        files = [file] if log is None else [file, log]
        size = sum(min(status.st_size, status.st_blocks * _BLOCK) for status in map(os.fstat, files))
        room = shutil.disk_usage(copy.parent).free
        if size > room:
            raise OpwatchError(
                _format_copy_error(path, f"it needs {size} bytes, and {copy.parent} has {room} bytes free")
            )
        head = _read_log_head(log)
        for source, name in zip(files, (copy, copy.with_name("recording-wal")), strict=False):
            _copy_sparse(source, name)
    with _open_log(path) as log:
        return _read_log_head(log) == head


@contextlib.contextmanager
def _open_log(path: Path) -> Iterator[int | None]:
    """Return a descriptor of the log, or None without a log."""
    log = _name_log(path)
    with contextlib.ExitStack() as stack:
        descriptor = None
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISREG(log.lstat().st_mode):
                descriptor = stack.enter_context(open_regular(log))
        yield descriptor


def _read_log_head(log: int | None) -> bytes:
    """Return the log's header; nothing if it has none, so that no page was moved from it to the file."""
    return os.pread(log, _HEAD.size, 0) if log is not None else b""


def _name_log(path: Path) -> Path:
    real = path.resolve()
    return real.with_name(real.name + "-wal")


def _format_copy_error(path: Path, why: str) -> str:
    return (
        f"{path}: its recorder was killed or is still writing, so it must be read from a copy, which cannot "
        f"be created: {why}. "
        "Set TMPDIR to a folder with enough space"
    )


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[int]:
    """Return a descriptor for reading a regular file; a pipe would block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput(f"{path} is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _copy_sparse(source: int, name: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    target = os.open(name, flags, 0o600)
    try:
        os.truncate(target, os.fstat(source).st_size)
        for begin, end in iterate_data_ranges(source):
            os.lseek(target, begin, os.SEEK_SET)
            while begin < end and (done := os.sendfile(target, source, begin, min(end - begin, _COPY_BYTES))):
                begin += done
    finally:
        os.close(target)


def iterate_data_ranges(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that contain data, without holes, which take no time and no space."""
    end = 0
    with contextlib.suppress(OSError):
        while True:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            yield begin, end


@dataclass(frozen=True, slots=True)
class CommittedPages:
    """The pages in the log, and the file's number of pages after the last commit; 0 without a commit."""

    numbers: frozenset[int] = frozenset()
    total: int = 0


def read_committed_pages(log: int) -> CommittedPages:
    """Return the pages of the log's committed frames."""
    head = os.pread(log, _HEAD.size, 0)
    if len(head) < _HEAD.size:
        return CommittedPages()
    magic, _, page, _, *salts, _, _ = _HEAD.unpack(head)
    if magic & ~1 != _MAGIC or not _MIN_PAGE <= page <= _MAX_PAGE:
        return CommittedPages()
    numbers: set[int] = set()
    waiting: set[int] = set()
    total, at = 0, _HEAD.size
    for _ in range(_MAX_FRAMES):
        frame = os.pread(log, _FRAME.size, at)
        if len(frame) < _FRAME.size:
            break
        number, size, *now, _, _ = _FRAME.unpack(frame)
        # After the newest frames there are leftovers of an earlier log, with other salts.
        if now != salts or not number:
            break
        waiting.add(number)
        if size:
            total = size
            numbers |= waiting
            waiting.clear()
        at += _FRAME.size + page
    return CommittedPages(frozenset(numbers), total)
