"""Where drives live: one folder each, with a lock that its server holds for as long as it lives."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from opwatch.errors import OpwatchError

ROOT = Path("/run/opwatch/drives")


@dataclass(frozen=True, slots=True)
class Record:
    """What `create` wrote down about a drive."""

    name: str
    device: str  # /dev/loopN; empty until it is made
    pid: int
    state: str | None
    no_data: bool


class Place:
    """The folder of one drive, which may hold a live one, a dead one or nothing."""

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self.name = name
        self.folder = root / name
        self.mount = self.folder / "mnt"
        self.disk = self.mount / "disk"
        self.log = self.folder / "server.log"
        self._lock = self.folder / "lock"
        self._record = self.folder / "drive.json"

    def exists(self) -> bool:
        return self.folder.is_dir()

    def is_alive(self) -> bool:
        """Whether its server runs: the lock is the server's, and a dead process holds none."""
        try:
            lock = os.open(self._lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def take_lock(self) -> int:
        """A descriptor with the lock on it, for the server to inherit."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def make(self) -> None:
        self.mount.mkdir(parents=True)

    def write_record(self, record: Record) -> None:
        new = self._record.with_suffix(".new")
        new.write_text(json.dumps(asdict(record)))
        new.replace(self._record)

    def record(self) -> Record | None:
        """None for the leftover of a run that died while it made the drive."""
        try:
            return Record(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def remove(self) -> None:
        """Only the files we made, one by one: nothing below a mount can be hit."""
        for path in (self._record, self._record.with_suffix(".new"), self._lock, self.log):
            path.unlink(missing_ok=True)
        for folder in (self.mount, self.folder):
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()


def places(root: Path = ROOT) -> list[Place]:
    """Every drive there is, dead ones included, by name."""
    try:
        return [Place(path.name, root) for path in sorted(root.iterdir()) if path.is_dir()]
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def one_at_a_time(root: Path = ROOT) -> Iterator[None]:
    """Making and unmaking drives takes turns."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(root.parent / "drives.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OpwatchError(f"cannot keep drives in {root}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
