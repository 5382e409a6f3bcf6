"""Build log pages D0h and C3h field by field from the specifications. No drive produced these pages.

python -m tests.unit.counters.latency.pages rewrites tests/fixtures/good/latency
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "fixtures" / "good" / "latency"
EBS, INSTANCE_STORAGE = 0x3C23B510, 0xEC2C0D7E
NO_EDGE = (1 << 64) - 1
MONITOR_GUID = bytes.fromhex("927ac08cd0846c9c7043e6d4585ed485")

Slots = Sequence[tuple[int, int, int]]


def encode_histogram(slots: Slots) -> bytes:
    body = b"".join(struct.pack("<QQII", low, high, count, 0) for low, high, count in slots)
    return (struct.pack("<Q", len(slots)) + body).ljust(8 + 64 * 24, b"\0")


def encode_amazon_page(
    magic: int = EBS,
    *,
    version: int = 0,
    reads: tuple[int, int, int] = (0, 0, 0),
    writes: tuple[int, int, int] = (0, 0, 0),
    limits: tuple[int, int, int, int] = (0, 0, 0, 0),
    queue: int = 0,
    read_slots: Slots = (),
    write_slots: Slots = (),
) -> bytes:
    """Return the first 4096 bytes. Reads and writes are (commands, bytes, microseconds)."""
    pairs = [number for pair in zip(reads, writes, strict=True) for number in pair]
    head = struct.pack("<II11Q", magic, version, *pairs, *limits, queue).ljust(512, b"\0")
    return (head + encode_histogram(read_slots) + encode_histogram(write_slots)).ljust(4096, b"\0")


def append_size_histograms(
    page: bytes, sizes: Sequence[int], counts: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> bytes:
    """Append histograms by size to the page: read and write counts for each size."""
    at = 512 + 2 * (8 + 64 * 24)
    page = page[:at] + struct.pack(f"<I{len(sizes)}I", len(sizes), *sizes) + page[at + 4 + 4 * len(sizes) :]
    body = b""
    for read, write in counts:
        for side in (read, write):
            body += struct.pack(f"<{len(side)}Q", *side).ljust(32 * 8, b"\0")
    return page + body.ljust(4096, b"\0")


# (bucket, direction) -> (commands, measured ms, stamp ms); directions are read, write, trim.
Cells = dict[tuple[int, int], tuple[int, int, int]]


def _put_monitor_cells(page: bytearray, at: int, cells: Cells) -> None:
    for bucket in range(4):
        for direction in range(3):
            count, measured, stamp = cells.get((bucket, direction), (0, 0, NO_EDGE))
            struct.pack_into("<I", page, at + 16 * bucket + 12 - 4 * direction, count)
            index = 3 * (3 - bucket) + 2 - direction
            struct.pack_into("<Q", page, at + 64 + 8 * index, stamp)
            struct.pack_into("<H", page, at + 160 + 2 * index, measured)


def encode_monitor_page(
    active: Cells,
    static: Cells | None = None,
    *,
    status: int = 7,
    timer: int = 8,
    thresholds: Sequence[int] = (0x05, 0x13, 0x1E, 0x2E),
    by_clock: int = 0,
) -> bytes:
    """Return a latency monitor page; arguments left out have the specification's defaults."""
    page = bytearray(512)
    page[0] = status
    struct.pack_into("<HH4BHB", page, 2, timer, 0x07E0, *thresholds, 0x0FFF, 10)
    _put_monitor_cells(page, 32, active)
    _put_monitor_cells(page, 240, static or {})
    struct.pack_into("<H", page, 216, by_clock)
    struct.pack_into("<Q", page, 452, NO_EDGE)
    struct.pack_into("<H", page, 494, 5)
    page[496:512] = MONITOR_GUID
    return bytes(page)


READ_SLOTS = ((0, 64, 10), (64, 128, 80), (128, 256, 9), (256, NO_EDGE, 1))
WRITE_SLOTS = ((0, 64, 0), (64, 128, 0), (128, 256, 5), (256, NO_EDGE, 0))


def encode_ebs_page() -> bytes:
    """An EBS volume: 100 reads in 11,000 us, 5 writes in 1,000 us, and two exceeded limits."""
    return encode_amazon_page(
        reads=(100, 409_600, 11_000),
        writes=(5, 81_920, 1_000),
        limits=(1_500_000, 0, 0, 20),
        queue=3,
        read_slots=READ_SLOTS,
        write_slots=WRITE_SLOTS,
    )


def encode_storage_page() -> bytes:
    """Instance storage: the same commands by size, up to 4 KiB and above."""
    page = encode_amazon_page(
        INSTANCE_STORAGE,
        version=1,
        reads=(100, 409_600, 11_000),
        writes=(5, 81_920, 1_000),
        read_slots=READ_SLOTS,
        write_slots=WRITE_SLOTS,
    )
    counts = [((10, 80, 9, 0), (0, 0, 0, 0)), ((0, 0, 0, 1), (0, 0, 5, 0))]
    return append_size_histograms(page, (4096, 0xFFFFFFFF), counts)


def encode_slow_page() -> bytes:
    """A monitor over 40 minutes: 7 slow reads, 2 very slow writes, and a slow trim in the previous seven
    days."""
    active: Cells = {(0, 0): (7, 42, 1_000), (3, 1): (2, 312, 5_000 | 1 << 49)}
    return encode_monitor_page(active, {(1, 2): (1, 120, 9_000)}, by_clock=1 << 10)


if __name__ == "__main__":
    for name, made in (("ebs", encode_ebs_page()), ("instance-storage", encode_storage_page())):
        (FOLDER / f"{name}-log-d0.bin").write_bytes(made)
    (FOLDER / "ocp-log-c3.bin").write_bytes(encode_slow_page())
