"""Loads with exactly known requests: direct I/O, one request at a time, in prime numbers."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

BLOCK = 4096
# linux/fs.h
BLKDISCARD = 0x1277
BLKZEROOUT = 0x127F


@contextmanager
def open_direct(node: str, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(node, os.O_RDWR | os.O_DIRECT | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def allocate_aligned(size: int) -> mmap.mmap:
    """Return memory that is aligned for direct I/O."""
    return mmap.mmap(-1, size)


def reads(node: str, count: int, size: int = BLOCK, start: int = 0, step: int = BLOCK) -> None:
    buffer = allocate_aligned(size)
    with open_direct(node) as descriptor:
        for index in range(count):
            assert os.preadv(descriptor, [buffer], start + index * step) == size


def writes(
    node: str, count: int, size: int = BLOCK, start: int = 0, step: int = BLOCK, flags: int = 0
) -> None:
    buffer = allocate_aligned(size)
    with open_direct(node, flags) as descriptor:
        for index in range(count):
            assert os.pwritev(descriptor, [buffer], start + index * step) == size


def flushes(node: str, count: int) -> None:
    with open_direct(node) as descriptor:
        for _ in range(count):
            os.fsync(descriptor)


def discards(node: str, count: int, length: int = 1 << 19, *, request: int = BLKDISCARD) -> None:
    """Discard by ioctl, because blkdiscard(8) first reads the disk to look for signatures."""
    with open_direct(node) as descriptor:
        for index in range(count):
            fcntl.ioctl(descriptor, request, struct.pack("=QQ", index << 20, length))


def run_mixture(node: str) -> None:
    """Issue 23 reads, 29 writes of 8 KiB, 7 synchronous writes, 7 discards and 11 flushes."""
    reads(node, 23)
    writes(node, 29, size=2 * BLOCK, step=2 * BLOCK)
    writes(node, 7, flags=os.O_DSYNC)
    discards(node, 7)
    flushes(node, 11)


if __name__ == "__main__":
    run_mixture(sys.argv[1])
