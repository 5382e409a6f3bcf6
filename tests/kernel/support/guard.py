"""Clean up after a killed test run: drives and folders.

Kernel tests run in a private mount namespace. Their mounts disappear with the last process in it, and the
loop devices below disappear with the mounts.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from opwatch.drive import life
from opwatch.drive.place import DriveFolder
from opwatch.errors import OpwatchError
from opwatch.host.usage import read_usage

_PRIVATE = "own-namespace"
_PATIENCE_S = 20.0
_arguments: list[str] = []
# linux/sched.h, linux/mount.h
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 0x40000


def enter_own_namespace() -> None:
    """Make later mounts of this process and its children private; the last process to end removes them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "no mount namespace of our own")
    _arguments.append(_PRIVATE)


@functools.cache
def _get_process() -> subprocess.Popen[str]:
    """Return the guard process. It reads what exists and what is gone; the end of its input means our end."""
    command = [sys.executable, "-m", "tests.kernel.support.guard", *_arguments]
    home = Path(__file__).parents[3]
    return subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True, cwd=home)


def _send_message(sign: str, kind: str, what: str) -> None:
    pipe = _get_process().stdin
    assert pipe
    pipe.write(f"{sign}\t{kind}\t{what}\n")
    pipe.flush()


@contextlib.contextmanager
def guard_resource(kind: str, what: str) -> Iterator[None]:
    """Register a `drive` by name or a `folder` by path for removal if this process is killed."""
    _send_message("+", kind, what)
    try:
        yield
    finally:
        _send_message("-", kind, what)


def _remove_resource(kind: str, what: str) -> None:
    if kind == "drive":
        # A file system mounted from the drive may still be writing; until then the drive is in use.
        end = time.monotonic() + _PATIENCE_S
        while DriveFolder(what).exists() and time.monotonic() < end:
            with contextlib.suppress(OpwatchError):
                life.destroy_drive(what)
            time.sleep(0.1)
        return
    shutil.rmtree(what, ignore_errors=True)


def _unmount_private() -> None:
    """A mounted drive cannot be destroyed. In a private namespace, tests only mount below these folders."""
    for mount in reversed(read_usage().mounts):
        if mount.point.startswith(("/tmp/", "/var/tmp/", "/dev/shm/")):
            subprocess.run(["umount", "--lazy", mount.point], check=False, capture_output=True)


def main() -> None:
    left: list[list[str]] = []
    for line in sys.stdin:
        sign, *thing = line.removesuffix("\n").split("\t")
        if sign == "+":
            left.append(thing)
        else:
            left.remove(thing)
    if left and sys.argv[1:] == [_PRIVATE]:
        _unmount_private()
    for kind, what in reversed(left):
        _remove_resource(kind, what)


if __name__ == "__main__":
    main()
