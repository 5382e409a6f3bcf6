"""Decode records of slow requests from the kernel side."""

from __future__ import annotations

import random
import struct

import pytest

from opwatch.trace.ops import OPS
from opwatch.trace.slow import SLOW_BYTES, SlowRecord, Submitter, decode_dropped_counts, decode_slow

LAYOUT = struct.Struct("=QQQQQIIBBB5x24s")
NOBODY, PROCESS, THREAD, WORK = range(4)
NONE = 2**64 - 1


def decode_record(
    kind: int = PROCESS, name: bytes = b"fio", *, sector: int = 8, size: int = 4096
) -> SlowRecord:
    [one] = decode_slow(LAYOUT.pack(9, 20, 5, sector, 77, size, 4321, 2, 0, kind, name))
    return one


@pytest.mark.parametrize(
    ("kind", "name", "submitter", "pid"),
    [
        (PROCESS, b"fio", Submitter.PROCESS, 4321),
        (PROCESS, b"flush-8:0", Submitter.PROCESS, 4321),
        (THREAD, b"jbd2/sda1-8", Submitter.KERNEL, 4321),
        (THREAD, b"flush-8:0", Submitter.KERNEL, 4321),
        (WORK, b"flush-8:0", Submitter.WRITE_BACK, None),
        (WORK, b"kcryptd/253:0", Submitter.KERNEL, None),
        (NOBODY, b"", None, None),
    ],
)
def test_submitter_is_decoded(kind: int, name: bytes, submitter: Submitter | None, pid: int | None) -> None:
    """A process may take any name, so only kernel workers count as kernel submitters."""
    one = decode_record(kind, name)
    assert (one.submitter, one.pid, one.name) == (submitter, pid, name.decode() or None)


def test_unknown_fields_are_none() -> None:
    assert decode_record(sector=NONE).sector is None
    assert decode_record(size=0).sector is None
    [one] = decode_slow(LAYOUT.pack(9, 20, NONE, 0, 0, 4096, 1, 0, 1, PROCESS, b"x"))
    assert (one.queue_ns, one.sector, one.cgroup, one.op) == (None, 0, None, "write")
    [one] = decode_slow(LAYOUT.pack(9, 20, 0, 0, NONE, 4096, 1, 0, 1, PROCESS, b"x"))
    assert (one.queue_ns, one.cgroup) == (0, None)


def test_name_may_contain_any_bytes() -> None:
    assert decode_record(name=b"\xff\x1b[2J\0junk").name == "\ufffd\x1b[2J"
    assert decode_record(name=b"n" * 24).name == "n" * 24


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_are_decoded_as_records(seed: int) -> None:
    chance = random.Random(seed)
    raw = bytearray(chance.randbytes(200 * SLOW_BYTES))
    # The kernel side writes no other operations and kinds.
    for begin in range(0, len(raw), SLOW_BYTES):
        raw[begin + 49], raw[begin + 50] = chance.randrange(len(OPS)), chance.randrange(4)
    records = decode_slow(bytes(raw))
    assert len(records) == 200
    for one in records:
        (one.name or "").encode()


def test_records_left_out_are_counted_by_leaf() -> None:
    assert decode_dropped_counts(struct.pack("=64Q", *range(64))) == list(range(64))


def test_values_above_63_bits_are_unknown() -> None:
    """A recording stores signed 64-bit integers."""
    assert decode_record(sector=2**63 - 1).sector == 2**63 - 1
    assert decode_record(sector=2**63).sector is None
    [one] = decode_slow(LAYOUT.pack(9, 20, 5, 8, 2**63 - 1, 4096, 1, 0, 0, PROCESS, b"x"))
    assert one.cgroup == 2**63 - 1
    [one] = decode_slow(LAYOUT.pack(9, 20, 5, 8, 2**63, 4096, 1, 0, 0, PROCESS, b"x"))
    assert one.cgroup is None
