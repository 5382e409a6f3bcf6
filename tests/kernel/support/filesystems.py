"""File systems on disks that a test created: mounted, used and always unmounted."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.collectors.space.free_space import read_free_space
from opwatch.tools.acting.trim.fitrim import require_mount
from opwatch.trim.space.extents import Extents
from tests.kernel.support.drives import MIB, Drive, run
from tests.requirements import skip_or_fail

KINDS = ("ext4", "xfs", "btrfs")
_MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0", "-b", "4096"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}


def make_filesystem(kind: str, device: str, *options: str) -> None:
    """Create a file system without trimming the device."""
    if f"\t{kind}\n" not in Path("/proc/filesystems").read_text():
        pytest.skip(f"this kernel has no {kind}")
    if not shutil.which(_MAKE[kind][0], path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
        skip_or_fail("kernel", f"{_MAKE[kind][0]} is not installed")
    run(*_MAKE[kind], *options, device)


@contextlib.contextmanager
def mount_device(device: str, point: Path, options: str = "nodiscard") -> Iterator[Path]:
    run("mount", "-o", options, device, str(point))
    try:
        yield point
    finally:
        _unmount_patiently(point)


def _unmount_patiently(point: Path) -> None:
    """Unmount, retrying because killed processes close their files a moment after the kill."""
    deadline = time.monotonic() + 20
    while subprocess.run(["umount", str(point)], capture_output=True, check=False).returncode:
        if time.monotonic() > deadline:
            run("umount", str(point))
            return
        time.sleep(0.05)


def write_and_delete(point: Path, seed: int, written: int = 24, kept: int = 8) -> None:
    """Write files of 64 KiB to 8 MiB and delete all but some of them."""
    rng = random.Random(seed)
    files = [point / f"file{index}" for index in range(written)]
    for path in files:
        path.write_bytes(rng.randbytes(rng.choice((64 << 10, 300_000, MIB, 8 * MIB))))
    os.sync()
    for path in rng.sample(files, written - kept):
        path.unlink()
    wait_until_settled(point)


def wait_until_settled(point: Path) -> None:
    """Wait until nothing has been freed for half a second, because XFS frees with a delay."""
    last, same = -1, 0
    while same < 5:
        os.sync()
        time.sleep(0.1)
        free = os.statvfs(point).f_bfree
        last, same = free, same + 1 if free == last else 0


def fill_space(path: Path, left: int) -> None:
    """Allocate all blocks except for `left` bytes."""
    with path.open("wb") as file, contextlib.suppress(OSError):
        for step in (8 * MIB, 64 << 10, 4096):
            while (room := os.statvfs(path.parent).f_bavail * 4096) > left and room >= step:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
        os.fsync(file.fileno())


def find_free_extents(point: Path) -> Extents:
    """Return the free extents of a file system on one device."""
    [extents] = read_free_space(require_mount(str(point))).extents.values()
    return extents


def count_held_bytes(drive: Drive, extents: Extents) -> int:
    """Return the number of bytes in `extents` that the simulated drive holds as data, by its own map."""
    bits = int.from_bytes((drive.place.mount / "valid-map").read_bytes(), "little")
    units = 0
    for start, end in extents:
        first, last = start // 4096, end // 4096
        units += ((bits >> first) & ((1 << (last - first)) - 1)).bit_count()
    return units * 4096


def find_data_extents(path: Path) -> Extents:
    """Return the extents in which a sparse file holds data."""
    pairs: list[tuple[int, int]] = []
    at = 0
    with path.open("rb") as file:
        while True:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                return Extents.from_pairs(pairs)
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            pairs.append((start, at))
