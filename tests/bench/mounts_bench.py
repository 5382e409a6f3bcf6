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

from .figure import Figure, choose_exit_status, choose_size, format_table
from .figures import OPWATCH, describe_machine

BOUND_S = 3
MOUNTS, ROUNDS = choose_size((10_000, 5), (100, 1))
_BIND = 0x1000  # linux/mount.h


def _call_mount(source: bytes, point: Path, kind: bytes | None, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, os.fsencode(point), kind, flags, None):
        raise OSError(ctypes.get_errno(), f"cannot mount on {point}")


def _make_mounts(top: Path) -> None:
    _call_mount(b"none", top, b"tmpfs", 0)
    for number in range(MOUNTS):
        point = top / str(number)
        point.mkdir()
        _call_mount(os.fsencode(point), point, None, _BIND)


def _time_command(*arguments: str) -> float:
    begin = time.monotonic()
    subprocess.run([*OPWATCH, *arguments], stdout=subprocess.DEVNULL, check=True, timeout=600)
    return time.monotonic() - begin


def _measure_command(*arguments: str) -> Figure:
    times = [_time_command(*arguments) for _ in range(ROUNDS)]
    text = f"s, median of {ROUNDS}, at most {max(times):.2f}"
    name = f"opwatch {' '.join(arguments)} among {MOUNTS} mounts"
    return Figure(name, statistics.median(times), BOUND_S, text)


def main() -> int:
    enter_own_namespace()
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        _make_mounts(top)
        try:
            figures = [_measure_command("trim", "check", "--all"), _measure_command("devices")]
        finally:
            ctypes.CDLL(None).umount2(os.fsencode(top), 2)  # MNT_DETACH, including all submounts
    print(f"on {describe_machine()}")
    print("\n".join(format_table(figures)))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
