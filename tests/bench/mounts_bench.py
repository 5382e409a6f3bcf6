"""`python -m tests.bench.mounts_bench`: the duration of commands with 10,000 mounts. Needs root.

The mounts are folders of one tmpfs, each bind-mounted on itself, in a private mount namespace that ends with
this process.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.kernel.support.guard import enter_own_namespace

from .figure import Figure, exit_status, sized, table
from .figures import OPWATCH, machine

BOUND_S = 3
MOUNTS, ROUNDS = sized((10_000, 5), (100, 1))
_BIND = 0x1000  # linux/mount.h


def _mount(source: bytes, point: Path, kind: bytes | None, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, os.fsencode(point), kind, flags, None):
        raise OSError(ctypes.get_errno(), f"cannot mount on {point}")


def _many(top: Path) -> None:
    _mount(b"none", top, b"tmpfs", 0)
    for number in range(MOUNTS):
        point = top / str(number)
        point.mkdir()
        _mount(os.fsencode(point), point, None, _BIND)


def _seconds(*arguments: str) -> float:
    begin = time.monotonic()
    subprocess.run([*OPWATCH, *arguments], stdout=subprocess.DEVNULL, check=True, timeout=600)
    return time.monotonic() - begin


def _figure(*arguments: str) -> Figure:
    times = [_seconds(*arguments) for _ in range(ROUNDS)]
    text = f"s, median of {ROUNDS}, at most {max(times):.2f}"
    name = f"opwatch {' '.join(arguments)} among {MOUNTS} mounts"
    return Figure(name, statistics.median(times), BOUND_S, text)


def main() -> int:
    enter_own_namespace()
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        _many(top)
        try:
            figures = [_figure("trim", "check", "--all"), _figure("devices")]
        finally:
            ctypes.CDLL(None).umount2(os.fsencode(top), 2)  # MNT_DETACH, including all submounts
    print(f"on {machine()}")
    print("\n".join(table(figures)))
    return exit_status(holds=all(figure.holds for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
