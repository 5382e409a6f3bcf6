"""The drive of a demo, and the removal of drives left behind by killed demos.

A drive belongs to a demo if it has a claim: a file created by the demo before the drive, with an unused name,
and kept locked. An unlocked claim belongs to a dead demo. The name alone proves nothing, because any user may
call a drive demo-1.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from opwatch.drive import life
from opwatch.drive.place import DriveFolder, Record
from opwatch.errors import OpwatchError
from opwatch.host.loop import LoopDevice, open_loop

# Writable by root only.
CLAIMS = Path("/run/opwatch/demos")
PREFIX = "demo-"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identity of a process: PIDs are reused, but not with the same start time."""

    pid: int
    started_ticks: int


def identify_process(pid: int) -> ProcessIdentity | None:
    """Return the identity of a process, or None if it has ended."""
    try:
        behind = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return None if behind[0] in (b"Z", b"X") else ProcessIdentity(pid, int(behind[19]))
    except (OSError, ValueError, IndexError):
        return None


class DriveClaim:
    """A claim to a drive by name, locked while open."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor

    @property
    def path(self) -> Path:
        return CLAIMS / self.name

    def close(self) -> None:
        os.close(self._descriptor)

    def record_server(self, server: ProcessIdentity) -> None:
        """Record the server of the claimed drive."""
        os.pwrite(self._descriptor, json.dumps([server.pid, server.started_ticks]).encode(), 0)

    def is_claim_of(self, record: Record | None) -> bool:
        """Return whether the drive was created for the claim."""
        try:
            text = os.pread(self._descriptor, 200, 0)
            wanted = ProcessIdentity(*json.loads(text)) if text else None
        except (ValueError, TypeError):
            return False
        if wanted is None or record is None:
            # The demo was killed during the drive's creation. Earlier, no drive had the name.
            return True
        now = identify_process(record.pid)
        return record.pid == wanted.pid and now in (wanted, None)

    def remove_claim(self) -> None:
        shutil.rmtree(get_journal_folder(self.name), ignore_errors=True)
        self.path.unlink(missing_ok=True)


def get_journal_folder(name: str) -> Path:
    """Return the folder of the drive's sweep journals, which is removed with its claim."""
    return CLAIMS / f"{name}.sweeps"


def _create_claim() -> DriveClaim:
    CLAIMS.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        if DriveFolder(name).exists():
            continue
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        claim = DriveClaim(name, os.open(CLAIMS / name, flags, 0o600))
        fcntl.flock(claim._descriptor, fcntl.LOCK_EX)
        # A cleaner may have removed the file between creation and lock.
        if claim.path.exists():
            return claim
        claim.close()


def _find_dead_claims() -> Iterator[DriveClaim]:
    """Yield the claims of dead demos, locked for the cleaner."""
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(CLAIMS.iterdir()):
            with contextlib.suppress(OSError):
                claim = DriveClaim(path.name, os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))
                try:
                    fcntl.flock(claim._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if path.exists():
                        yield claim
                except BlockingIOError:
                    pass
                finally:
                    claim.close()


def destroy_drive(name: str, say: Callable[[str], None]) -> bool:
    """Remove a drive and print messages; return whether the drive is gone."""
    try:
        for note in life.destroy_drive(name):
            say(note)
    except OpwatchError as error:
        say(str(error))
        return False
    return True


def remove_leftovers(say: Callable[[str], None]) -> None:
    """Remove drives of killed demos, and no others."""
    for claim in _find_dead_claims():
        place = DriveFolder(claim.name)
        if not place.exists() or not claim.is_claim_of(place.read_record()) or destroy_drive(claim.name, say):
            claim.remove_claim()


def _start_guard() -> tuple[subprocess.Popen[bytes], int]:
    """Return a process that cleans up if we die, and its trigger: a descriptor to be closed."""
    listen, lifeline = os.pipe2(os.O_CLOEXEC)
    try:
        again = [sys.executable, "-P", "-m", "opwatch.tools.demo_drive"]
        # The guard gets a separate session to survive signals from the terminal.
        guard = subprocess.Popen(
            ["sh", "-c", 'read _; exec "$@"', "sh", *again],
            stdin=listen,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(listen)
    return guard, lifeline


@contextlib.contextmanager
def create_temporary_drive(
    config: Mapping[str, int], words: tuple[str, ...], say: Callable[[str], None]
) -> Iterator[tuple[Record, LoopDevice]]:
    """Yield a drive and its block device, held. The drive is removed at the end, even if we are killed."""
    claim = _create_claim()
    guard, lifeline = _start_guard()
    try:
        record = life.create_drive(life.DriveSpec(claim.name, dict(config), words=words))
        server = identify_process(record.pid)
        if server is None:
            raise OpwatchError(f"the server of drive {record.name} died")
        claim.record_server(server)
        with open_loop(record.device) as device:
            status = DriveFolder(record.name).disk.stat()
            if device.identity.backing != (status.st_dev, status.st_ino):
                raise OpwatchError(f"{record.device} is no longer the drive {record.name}")
            yield record, device
    finally:
        if not DriveFolder(claim.name).exists() or destroy_drive(claim.name, say):
            claim.remove_claim()
        claim.close()
        guard.send_signal(signal.SIGKILL)
        guard.wait()
        os.close(lifeline)


if __name__ == "__main__":
    remove_leftovers(lambda _: None)
