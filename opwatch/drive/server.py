"""The server of a drive: start it, send commands, wait for its end."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from opwatch.drive.place import DriveFolder
from opwatch.drive.process import run_with_timeout
from opwatch.errors import OpwatchError, RefusedError, Unsupported, UsageError

PROGRAM = Path(__file__).parent / "opwatch-drive-server"
# The server's exit statuses are opwatch's. Its messages go to the drive's log.
_ERRORS: dict[int, type[OpwatchError]] = {2: UsageError, 3: RefusedError, 5: Unsupported}
# The server adds this to the status if the state file is at fault.
_STATE_AT_FAULT = 64


def require_program() -> None:
    """Raise Unsupported for a missing prerequisite, before anything is created."""
    if not PROGRAM.exists():
        raise Unsupported(
            "the drive's server was not built, because libfuse3 was missing: install libfuse3-dev "
            "(Debian, Ubuntu) or fuse3-devel (Fedora), then install opwatch again"
        )
    if not Path("/dev/fuse").exists():
        raise Unsupported("this kernel has no FUSE (/dev/fuse is missing); try modprobe fuse")
    if not Path("/dev/loop-control").exists():
        raise Unsupported("this kernel has no loop devices (/dev/loop-control is missing); try modprobe loop")


def start_server(
    place: DriveFolder, words: Sequence[str], timeout_s: float = 120, *, state: Path | None = None
) -> int:
    """Start the server of a drive, wait until it is mounted, and return its PID.

    `state` is the state file in `words`, for error messages.
    """
    ready, tell = os.pipe()
    lock = place.take_lock()
    argv = [str(PROGRAM), f"mount={place.mount}", f"ready-fd={tell}", *words]
    try:
        with open(place.log, "wb", opener=_open_private) as log:
            server = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock, tell),
                start_new_session=True,
                cwd="/",
            )
    finally:
        os.close(lock)
        os.close(tell)
    try:
        _wait_ready(place, server, ready, timeout_s, state)
    except BaseException:
        server.kill()
        server.wait()
        raise
    finally:
        os.close(ready)
    return server.pid


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _wait_ready(
    place: DriveFolder, server: subprocess.Popen[bytes], ready: int, timeout_s: float, state: Path | None
) -> None:
    readable, _, _ = select.select([ready], [], [], timeout_s)
    if not readable:
        raise OpwatchError(f"the drive's server did not start within {timeout_s:.0f} s")
    if not os.read(ready, 1):
        status = server.wait()
        said = place.log.read_text(errors="replace").strip().splitlines()
        # The status is negative after a signal.
        is_state_at_fault = status > 0 and bool(status & _STATE_AT_FAULT)
        error = _ERRORS.get(status & ~_STATE_AT_FAULT, OpwatchError)
        words = said[-1] if said else f"the drive's server ended with status {status}"
        raise error(f"--state {state}: {words}" if is_state_at_fault else words)


def send_command(place: DriveFolder, words: str, timeout_s: float = 10) -> None:
    """Send one command to a running server. An OSError is the command's own error."""

    def write_command() -> None:
        # Unbuffered, so that each write is a command and returns the command's error.
        with (place.mount / "control").open("wb", buffering=0) as control:
            control.write(words.encode())

    run_with_timeout(place, write_command, timeout_s)


def wait_for_end(place: DriveFolder, timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while place.is_alive():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
