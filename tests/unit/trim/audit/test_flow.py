"""Raw entries of the maps: decoded completely, or refused."""

from __future__ import annotations

import struct

import pytest

from opwatch.collectors.audit.discard_programs import pack_granule
from opwatch.trim.audit.flow import Amount, SenderKind, Stage, Trace, decode_flows, decode_origins, sum_flows


def encode_flow(
    disk: bytes, dev: int, stage: int, *numbers: int, who: int = 0, status: int = 0, diskseq: int = 0
) -> bytes:
    return struct.pack("=16sQI4B6Q", disk, diskseq, dev, stage, 3, who, status, *numbers)


def test_flow_is_decoded() -> None:
    raw = encode_flow(b"nvme0c0n1", 259 << 20 | 3, 14, 5, 4096, 7, 2048, 99, 50, who=1, status=10)
    [flow] = decode_flows(raw)
    assert (flow.disk, flow.dev, flow.stage) == ("nvme0c0n1", "259:3", Stage.DONE)
    assert (flow.op, flow.who, flow.status) == ("discard", SenderKind.KERNEL, 10)
    assert flow.amount == Amount(5, 4096, 7, 2048, 99, 50)


def test_name_that_fills_its_field_is_decoded() -> None:
    [flow] = decode_flows(encode_flow(b"a" * 16, 0, 0, *[0] * 6))
    assert flow.disk == "a" * 16


@pytest.mark.parametrize("decode", [decode_flows, decode_origins])
def test_truncated_entries_are_refused(decode: object) -> None:
    assert callable(decode)
    assert decode(b"") == []
    with pytest.raises(ValueError, match="not a multiple"):
        decode(b"\0" * 71)


def test_origin_is_decoded() -> None:
    raw = struct.pack("=16s16s2QIBB2x5Q", b"sda", b"fstrim", 42, 7, 8 << 20, 3, 2, 9, 900, 50, 200, 1)
    [origin] = decode_origins(raw)
    assert (origin.disk, origin.comm, origin.cgroup, origin.dev) == ("sda", "fstrim", 42, "8:0")
    assert (origin.who, origin.count, origin.bytes) == (SenderKind.OTHER, 9, 900)
    assert (origin.min_bytes, origin.max_bytes, origin.below_granule) == (50, 200, 1)


def test_selection_uses_every_given_key() -> None:
    raw = b"".join(
        encode_flow(disk, dev, stage, 1, 512, 1, 512, 0, 0, who=who)
        for disk, dev, stage, who in ((b"a", 1, 7, 0), (b"a", 2, 7, 1), (b"b", 1, 7, 0), (b"a", 1, 14, 0))
    )
    trace = Trace(tuple(decode_flows(raw)))
    assert sum_flows(trace.select(Stage.BIO)).count == 3
    assert sum_flows(trace.select(Stage.BIO, disk="a")).count == 2
    assert sum_flows(trace.select(Stage.BIO, disk="a", devs=["0:1"])).count == 1
    assert sum_flows(trace.select(Stage.BIO, who=[SenderKind.KERNEL])).bytes == 512
    assert sum_flows(trace.select(Stage.BIO, op="write_zeroes")) == Amount()


def test_granule_is_passed_in_sectors() -> None:
    assert struct.unpack("=16sII", pack_granule("sda", 1 << 20, 512)) == (b"sda" + b"\0" * 13, 2048, 1)


def test_disks_with_other_sequence_numbers_are_left_out() -> None:
    """A new disk has the name and the number of a removed one; a FITRIM of btrfs has no disk."""
    raw = b"".join(encode_flow(b"sda", 1, 7, *[1] * 6, diskseq=diskseq) for diskseq in (5, 6, 0))
    assert len(decode_flows(raw)) == 3
    assert len(decode_flows(raw, {5})) == 2
    assert len(decode_flows(raw, frozenset())) == 1
    origin = struct.pack("=16s16s2QIBB2x5Q", b"sda", b"fstrim", 42, 6, 8 << 20, 3, 2, 9, 900, 50, 200, 1)
    assert [len(decode_origins(origin, diskseqs)) for diskseqs in (None, {6}, {5})] == [1, 1, 0]
