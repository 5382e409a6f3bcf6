"""A loop device with a number that no other process uses, for tests that give the number to another disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opwatch.host.loop import CONTROL
from tests.kernel.support.trims import create_folder, run

# linux/loop.h
_ADD, _REMOVE = 0x4C80, 0x4C81
# Higher than the numbers that the kernel gives out as free.
_FIRST, _NUMBERS = 1000, 50_000
_PATIENCE_S = 10.0


def _control_loop(request: int, number: int) -> None:
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(control, request, number)
    finally:
        os.close(control)


@dataclass(frozen=True)
class PrivateLoop:
    """A loop device, and two files for it."""

    number: int
    first: Path
    second: Path

    @property
    def name(self) -> str:
        return f"loop{self.number}"

    @property
    def node(self) -> str:
        return f"/dev/{self.name}"

    def attach(self, file: Path) -> None:
        run("losetup", self.node, str(file))

    def detach(self) -> None:
        run("losetup", "--detach", self.node)

    def add(self) -> None:
        """Add the device to the kernel, without a file."""
        _control_loop(_ADD, self.number)

    def remove(self) -> None:
        """Remove the detached device. Waits while udev or another process has it open."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return _control_loop(_REMOVE, self.number)
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > end:
                    raise
            time.sleep(0.01)


@contextlib.contextmanager
def create_private_loop(size_bytes: int) -> Iterator[PrivateLoop]:
    """Yield a loop device that is attached to the first of two files of this size. It is removed at the
    end."""
    with create_folder() as home:
        loop = PrivateLoop(_FIRST + os.getpid() % _NUMBERS, home / "first", home / "second")
        for file in (loop.first, loop.second):
            file.touch()
            os.truncate(file, size_bytes)
        loop.add()
        try:
            loop.attach(loop.first)
            yield loop
        finally:
            subprocess.run(["losetup", "--detach", loop.node], check=False, capture_output=True)
            loop.remove()
