"""The folder of each drive, with a lock held by the server for its whole life."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from opwatch.drive.spec import NAME
from opwatch.errors import BadInput, OpwatchError, PermissionMissing
from opwatch.foreign import parse_json, read_bytes
from opwatch.safefile import find_temporaries, is_locked, safe_write

ROOT = Path("/run/opwatch/drives")
# Longer than any create or save takes.
_LOCK_TIMEOUT_S = 900
_RECORD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Record:
    """The data about a drive that `create` stores."""

    name: str
    device: str  # /dev/loopN; empty until attached
    pid: int
    state: str | None
    no_data: bool
    diskseq: int | None = None  # of the device, because loop numbers are reused

    @classmethod
    def from_document(cls, document: object) -> Record:
        """Build a record from a document. Raises BadInput for a document that `create` never writes."""
        try:
            record = cls(**document)  # type: ignore[arg-type]  # the fields are checked below
        except TypeError as error:
            raise BadInput(f"not a record of a drive: {error}") from error
        for value, kinds in (
            (record.name, (str,)),
            (record.device, (str,)),
            (record.pid, (int,)),
            (record.state, (str, type(None))),
            (record.no_data, (bool,)),
            (record.diskseq, (int, type(None))),
        ):
            if type(value) not in kinds:
                raise BadInput(f"a record of a drive with {value!r}")
        return record


class DriveFolder:
    """The folder of one drive, which may be alive, dead or absent."""

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self.name = name
        self.folder = root / name
        self.mount = self.folder / "mnt"
        self.disk = self.mount / "disk"
        self.log = self.folder / "server.log"
        self.lock_path = self.folder / "lock"
        self._record = self.folder / "drive.json"

    def exists(self) -> bool:
        return self.folder.is_dir() and not self.folder.is_symlink()

    def is_alive(self) -> bool:
        """Return True if the server runs. It holds the lock, which ends with the process."""
        try:
            lock = os.open(self.lock_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except PermissionError as error:
            raise PermissionMissing(
                f"reading the status of drive {self.name} needs root, because only root can enter its folder"
            ) from error
        except OSError:
            return False
        return is_locked(lock, fcntl.LOCK_SH)

    def take_lock(self) -> int:
        """Return a descriptor with the lock, for the server to inherit."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self.lock_path, flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise OpwatchError(f"{self.lock_path} is locked; is the drive being created twice?") from None
        return lock

    def create_folders(self) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700)
        self.mount.mkdir(mode=0o700)

    def write_record(self, record: Record) -> None:
        safe_write(self._record, json.dumps(asdict(record)).encode())

    def read_record(self) -> Record | None:
        """Return the record that `create` stored, or None if `create` died before or the file is invalid."""
        try:
            return Record.from_document(
                parse_json(read_bytes(self._record, _RECORD_BYTES), str(self._record))
            )
        except (OSError, BadInput):
            return None

    def remove_files(self) -> None:
        """Remove only files made by opwatch, each by name, so that nothing below a mount is removed."""
        try:
            for path in (self._record, self.lock_path, self.log, *find_temporaries(self.folder)):
                path.unlink(missing_ok=True)
            for folder in (self.mount, self.folder):
                with contextlib.suppress(FileNotFoundError):
                    folder.rmdir()
        except OSError as error:
            raise OpwatchError(
                f"drive {self.name} is destroyed, but {error.filename} cannot be removed "
                f"({error.strerror}): its contents are not from opwatch; move them away, then destroy "
                "the drive again"
            ) from error


def list_drives(root: Path = ROOT) -> list[DriveFolder]:
    """Return every drive, including dead ones, sorted by name."""
    try:
        names = sorted(path.name for path in root.iterdir() if NAME.fullmatch(path.name))
        return [place for name in names if (place := DriveFolder(name, root)).exists()]
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextlib.contextmanager
def lock_drives(root: Path = ROOT) -> Iterator[None]:
    """Serialise creating and destroying drives."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(root.parent / "drives.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OpwatchError(f"cannot keep drives in {root}: {error.strerror}") from error
    try:
        _wait_for_lock(lock, root)
        yield
    finally:
        os.close(lock)


def _wait_for_lock(lock: int, root: Path) -> None:
    end = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise OpwatchError(
                    f"another command has locked the drives for {_LOCK_TIMEOUT_S} s; fuser -v "
                    f"{root.parent}/drives.lock shows it"
                ) from None
            time.sleep(0.05)
        else:
            return
