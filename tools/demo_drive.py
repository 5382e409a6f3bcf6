"""The drive of a demo, and how a later demo knows the drives of those that were killed.

A drive is a demo's own when there is a claim to it: a file that its demo made before the drive, of a name
that no other drive had, and that it keeps locked. A claim that can be locked is one of a demo that has died.
Names prove nothing, for anybody may call a drive demo-1.
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
from pathlib import Path

from opwatch.drive import life
from opwatch.drive.place import Place, Record
from opwatch.errors import OpwatchError
from opwatch.frozen import frozen
from opwatch.host.loop import LoopDevice, open_loop

# Only root may write here.
CLAIMS = Path("/run/opwatch/demos")
PREFIX = "demo-"


@frozen
class ServerLife:
    """A process that is no other: numbers come again, but not with the same start."""

    pid: int
    started_ticks: int


def life_of(pid: int) -> ServerLife | None:
    """Which process this is; None when it has ended."""
    try:
        behind = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return None if behind[0] in (b"Z", b"X") else ServerLife(pid, int(behind[19]))
    except (OSError, ValueError, IndexError):
        return None


class DriveClaim:
    """A claim to the drive of this name, locked as long as it is open."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor

    @property
    def path(self) -> Path:
        return CLAIMS / self.name

    def close(self) -> None:
        os.close(self._descriptor)

    def write(self, server: ServerLife) -> None:
        """Write down that the claim is to the drive of this server only."""
        os.pwrite(self._descriptor, json.dumps([server.pid, server.started_ticks]).encode(), 0)

    def fits(self, record: Record | None) -> bool:
        """Whether the drive that has this name now is the one that was made for the claim."""
        try:
            text = os.pread(self._descriptor, 200, 0)
            wanted = ServerLife(*json.loads(text)) if text else None
        except (ValueError, TypeError):
            return False
        if wanted is None or record is None:
            # It was killed while it was made: before that there was no drive of this name.
            return True
        now = life_of(record.pid)
        return record.pid == wanted.pid and now in (wanted, None)

    def remove(self) -> None:
        shutil.rmtree(journals_of(self.name), ignore_errors=True)
        self.path.unlink(missing_ok=True)


def journals_of(name: str) -> Path:
    """Where the sweeps of this drive are kept; goes with its claim."""
    return CLAIMS / f"{name}.sweeps"


def _new_claim() -> DriveClaim:
    CLAIMS.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        if Place(name).exists():
            continue
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        claim = DriveClaim(name, os.open(CLAIMS / name, flags, 0o600))
        fcntl.flock(claim._descriptor, fcntl.LOCK_EX)
        # Who cleans up may have had it between its making and its locking.
        if claim.path.exists():
            return claim
        claim.close()


def _dead_claims() -> Iterator[DriveClaim]:
    """Claims of demos that have died, locked for whoever cleans up."""
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


def destroy(name: str, say: Callable[[str], None]) -> bool:
    """Remove a drive; returns whether it is gone. What there is to say of it is said."""
    try:
        for note in life.destroy(name):
            say(note)
    except OpwatchError as error:
        say(str(error))
        return False
    return True


def remove_leftovers(say: Callable[[str], None]) -> None:
    """Remove drives of demos that were killed, and no others."""
    for claim in _dead_claims():
        place = Place(claim.name)
        if not place.exists() or not claim.fits(place.record()) or destroy(claim.name, say):
            claim.remove()


def _guard() -> tuple[subprocess.Popen[bytes], int]:
    """A process that cleans up when we die, and the descriptor whose closing tells it."""
    listen, lifeline = os.pipe2(os.O_CLOEXEC)
    try:
        again = [sys.executable, "-P", "-m", "opwatch.tools.demo_drive"]
        # It gets a session of its own: what ends us from the terminal must not end it.
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
def own_drive(
    config: Mapping[str, int], words: tuple[str, ...], say: Callable[[str], None]
) -> Iterator[tuple[Record, LoopDevice]]:
    """A drive that is gone in the end, also when we are killed; and its block device, held."""
    claim = _new_claim()
    guard, lifeline = _guard()
    try:
        record = life.create(life.Wanted(claim.name, dict(config), words=words))
        server = life_of(record.pid)
        if server is None:
            raise OpwatchError(f"the server of drive {record.name} has died")
        claim.write(server)
        with open_loop(record.device) as device:
            status = Place(record.name).disk.stat()
            if device.identity.backing != (status.st_dev, status.st_ino):
                raise OpwatchError(f"{record.device} is no longer the drive {record.name}")
            yield record, device
    finally:
        if not Place(claim.name).exists() or destroy(claim.name, say):
            claim.remove()
        claim.close()
        guard.send_signal(signal.SIGKILL)
        guard.wait()
        os.close(lifeline)


if __name__ == "__main__":
    remove_leftovers(lambda _: None)
