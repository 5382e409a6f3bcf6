"""Valid minutes of very many samples that differ only in time, and so take almost no space."""

from __future__ import annotations

import struct
from dataclasses import replace

from opwatch.clock import Anchor
from opwatch.recording.coding.anchors import ANCHOR_WIDTH, AnchorWriter
from opwatch.recording.coding.blocks import compress_columns
from opwatch.recording.coding.columns import _encode_rice, _fold_sign
from opwatch.recording.coding.frames import FrameWriter
from opwatch.recording.coding.times import CLOCKS
from opwatch.recording.coding.varints import decode_changes, put_change, put_number
from opwatch.samples.sample import DiskSample
from opwatch.trace.abi import LATENCY, OPS, SCALARS, SIZE, decode_sample
from tests.unit.support.runs import WIDTH

# After this many samples all differences are equal.
_HEAD = 4
_MASK = (1 << 64) - 1


def shift_sample(sample: DiskSample, by_ns: int) -> DiskSample:
    counters = sample.reading.sample
    moved = replace(counters, begin_ns=counters.begin_ns + by_ns, end_ns=counters.end_ns + by_ns)
    anchor = Anchor(sample.anchor.mono_ns + by_ns, sample.anchor.wall_ns + by_ns, sample.anchor.slack_ns)
    reading = replace(sample.reading, sample=moved, before=None, after=None, no_witness=None)
    return replace(sample, reading=reading, anchor=anchor, cpu=None)


def _pack_columns(rows: list[list[int]], count: int, width: int) -> bytes:
    """Pack columns that repeat the last of the given rows."""
    out, bits = bytearray(), []
    put_number(out, count)
    for at in range(width):
        put_number(out, 0)
        put_change(out, usual := rows[-1][at])
        bits += [_encode_rice(_fold_sign(row[at] - usual), 0) for row in rows] + ["0" * (count - len(rows))]
    text = "".join(bits)
    length = (len(text) + 7) // 8
    return bytes(out) + int(text.ljust(8 * length, "0") or "0", 2).to_bytes(length)


def _split_rows(raw: bytes, width: int) -> list[list[int]]:
    values = decode_changes(raw)
    return [values[at : at + width] for at in range(0, len(values), width)]


def _grow_sample(sample: DiskSample, requests: int) -> DiskSample:
    """Return the sample of a disk with this many requests of each operation."""
    words = [sample.reading.sample.begin_ns, sample.reading.sample.end_ns, *[0] * (len(OPS) * WIDTH)]
    for op in range(len(OPS)):
        begin = 2 + op * WIDTH
        grown = {"completed": 1, "issued": 1, "ends": 1, "bytes": 4096, "sum_ns": 9000, "in_flight_ns": 9000}
        for name, by in grown.items():
            words[begin + SCALARS.index(name)] = by * requests
        words[begin + len(SCALARS) + LATENCY.find_slot(9000)] = requests
        words[begin + len(SCALARS) + 2 * LATENCY.slots + SIZE.find_slot(8)] = requests
    counters = decode_sample(struct.pack(f"={len(words)}Q", *(word & _MASK for word in words)))
    return replace(sample, reading=replace(sample.reading, sample=counters))


def make_long_minute(
    sample: DiskSample, first: int, count: int, step_ns: int, *, then: int = 0, grows: int = 0
) -> tuple[bytes, bytes, int]:
    """Return the frame of one disk, the anchors and the end time, for `count` entries.

    The entries after the first follow it directly or start at `then`. Each entry adds `grows` requests to
    each operation.
    """
    frame, anchors = FrameWriter(), AnchorWriter()
    streams, moments = [], []
    for at in range(_HEAD):
        number = (then or first + 1) + at - 1 if at else first
        moved = shift_sample(_grow_sample(sample, grows * number) if grows else sample, at * step_ns)
        moments.append(anchors.encode_changes(first + at, moved.anchor))
        streams.append(frame.encode_sample(number, moved, 0, moved.anchor, None))
    clocks = [row for parts in streams for row in _split_rows(parts[0], CLOCKS)]
    others = [
        b"".join(parts[at] for parts in streams) + streams[-1][at] * (count - _HEAD) for at in range(1, 5)
    ]
    body = compress_columns((_pack_columns(clocks, count, CLOCKS), *others))
    shared = [row for raw in moments[1:] for row in _split_rows(raw, ANCHOR_WIDTH)]
    packed = moments[0] + _pack_columns(shared, count - 1, ANCHOR_WIDTH)
    return body, packed, sample.reading.sample.end_ns + (count - 1) * step_ns
