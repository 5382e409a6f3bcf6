"""Loop devices with a number that no other process uses."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator

from opwatch.host.loop import CONTROL

# linux/loop.h
_ADD, _REMOVE = 0x4C80, 0x4C81
# Higher than numbers that the kernel gives out as free.
_FIRST, _NUMBERS = 1000, 100_000
_PATIENCE_S = 10.0


def _control_loop(request: int, number: int) -> None:
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(control, request, number)
    finally:
        os.close(control)


def add_loop(number: int) -> None:
    """Add an unbound loop device with this number."""
    _control_loop(_ADD, number)


def remove_loop(number: int) -> None:
    """Remove an unbound loop device. Waits for udev and others that have it open for a moment."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return _control_loop(_REMOVE, number)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)


@contextlib.contextmanager
def create_private_loop() -> Iterator[int]:
    """Yield the number of an unbound loop device. At the end, the device is detached and removed."""
    number = _FIRST + os.getpid() % _NUMBERS
    add_loop(number)
    try:
        yield number
    finally:
        subprocess.run(["losetup", "--detach", f"/dev/loop{number}"], check=False, capture_output=True)
        remove_loop(number)
