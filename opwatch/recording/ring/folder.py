"""The folder of a ring: its segments, and the locks of its recorder and readers."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import NotEnoughData, OpwatchError, RefusedError
from opwatch.recording.writing.newfile import SIDE_SUFFIXES
from opwatch.safefile import is_locked

_SUFFIX = ".opw"
_DIGITS = 10
# The recorder holds an exclusive lock on the first file, readers share a lock on the second. A reader that
# needs the newest segment creates the third.
_OWNER, _READERS, _REQUEST = "owner", "readers", "request"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
# A recorder checks for requests four times per second, but its disk may be slow.
_TIMEOUT_S = 15.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Segment:
    """A recording in the ring. `size` is in bytes, including SQLite's side files."""

    number: int
    path: Path
    size: int
    modified_ns: int


class RingFolder:
    """The folder, held by a descriptor from construction to close(), because its name may lead elsewhere
    later."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        self.path = path
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise NotEnoughData(
                f"{path} does not exist: no flight recorder has used it; name another folder with --ring"
            ) from None
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise RefusedError(
                    f"{path} is a symbolic link or not a folder: name another folder"
                ) from None
            raise
        self._owner = -1
        try:
            self._refuse_foreign()
        except BaseException:
            self.close()
            raise

    def _refuse_foreign(self) -> None:
        status = os.fstat(self._folder)
        if status.st_uid != os.geteuid():
            raise RefusedError(
                f"{self.path} belongs to user {status.st_uid}, but opwatch runs as user {os.geteuid()}: name "
                "another folder"
            )
        if status.st_mode & 0o022:
            raise RefusedError(
                f"{self.path} is writable by other users: name another folder, or run chmod 700 {self.path}"
            )

    def close(self) -> None:
        if self._owner >= 0:
            os.close(self._owner)
        os.close(self._folder)

    def lock_as_recorder(self) -> None:
        """Become the ring's only recorder until close()."""
        owner = os.open(_OWNER, _FLAGS, 0o600, dir_fd=self._folder)
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(owner)
            raise OpwatchError(
                f"a flight recorder already uses {self.path}: end it, or name another folder with --ring"
            ) from None
        self._owner = owner

    def is_owned(self) -> bool:
        """Return true if a recorder is writing to the ring."""
        return self._is_locked(_OWNER, fcntl.LOCK_SH)

    @property
    def descriptor(self) -> int:
        return self._folder

    def read_device_number(self) -> int:
        """Return the folder's device number."""
        return os.fstat(self._folder).st_dev

    def read_inode(self) -> int:
        return os.fstat(self._folder).st_ino

    def list_segments(self) -> list[Segment]:
        """Return all segments, the oldest first."""
        segments = []
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            number = _parse_number(name)
            if number is None:
                continue
            with contextlib.suppress(FileNotFoundError):
                status = self._read_status(name)
                size = status.st_size + sum(self._read_size(name + side) for side in SIDE_SUFFIXES)
                segments.append(Segment(number, self.path / name, size, status.st_mtime_ns))
        return sorted(segments, key=lambda segment: segment.number)

    def new_path(self) -> Path:
        """Return the path of a new last segment."""
        segments = self.list_segments()
        number = segments[-1].number + 1 if segments else 1
        return self.path / f"{number:0{_DIGITS}}{_SUFFIX}"

    def measure_segment(self, path: Path) -> int:
        """Return the size of a segment in bytes, including its side files."""
        return sum(self._read_size(path.name + side) for side in ("", *SIDE_SUFFIXES))

    def remove_segment(self, segment: Segment) -> None:
        name = segment.path.name
        # Remove the database first: without the log it would be read in an older state.
        for one in (name, *(name + side for side in SIDE_SUFFIXES)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(one, dir_fd=self._folder)

    @contextlib.contextmanager
    def keep_segments(self) -> Iterator[None]:
        """Keep all segments during the context, unless the ring grows far beyond its limit."""
        readers = os.open(_READERS, _FLAGS, 0o600, dir_fd=self._folder)
        try:
            fcntl.flock(readers, fcntl.LOCK_SH)
            yield
        finally:
            os.close(readers)

    def has_readers(self) -> bool:
        """Return true if a reader keeps the segments."""
        return self._is_locked(_READERS, fcntl.LOCK_EX)

    def request_segment(self) -> None:
        """Ask the recorder to start a new segment, so that the newest entries can be read."""
        os.close(os.open(_REQUEST, _FLAGS, 0o600, dir_fd=self._folder))
        deadline = time.monotonic() + _TIMEOUT_S
        while self.is_requested() and self.is_owned():
            if time.monotonic() > deadline:
                raise OpwatchError(
                    f"the flight recorder of {self.path} does not answer within {_TIMEOUT_S:g} s: it or its "
                    "disk hangs; its data can be read when it has ended"
                )
            time.sleep(_POLL_S)

    def is_requested(self) -> bool:
        return self._read_size(_REQUEST, missing=-1) >= 0

    def answer_request(self) -> None:
        """Signal that the new segment has been started."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_REQUEST, dir_fd=self._folder)

    def _is_locked(self, name: str, probe: int) -> bool:
        """Return true if another process holds a lock that conflicts with `probe`."""
        try:
            lock = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self._folder)
        except FileNotFoundError:
            return False
        return is_locked(lock, probe)

    def _read_status(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._folder, follow_symlinks=False)

    def _read_size(self, name: str, missing: int = 0) -> int:
        try:
            status = self._read_status(name)
        except FileNotFoundError:
            return missing
        return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _parse_number(name: str) -> int | None:
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if name.endswith(_SUFFIX) and len(digits) == _DIGITS and digits.isdecimal() else None
