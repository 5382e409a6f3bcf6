"""Decoders of free space: real answers, damaged ones, and RAID profiles compared with the kernel's
formula."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.errors import BadInput
from opwatch.trim.space import btrfs, ext4, f2fs, fsmap
from opwatch.trim.space.extents import Extents
from tests.fuzz.trim import Fuzz

FIXTURES = Path(__file__).parents[3] / "fixtures"
GOOD, BAD = FIXTURES / "good" / "trim", FIXTURES / "bad" / "trim"
KIB64 = 65536


def answer(name: str) -> fsmap.FsmapAnswer:
    return fsmap.decode((GOOD / f"{name}.fsmap").read_bytes())


def test_map_of_ext4_is_decoded() -> None:
    assert list(answer("ext4").free) == [(7, 0)]
    free = answer("ext4").free[7, 0]
    assert free.total == 458420224  # equal to statvfs
    assert len(free) == 6
    assert answer("ext4").resume is None


def test_map_of_xfs_is_decoded() -> None:
    assert answer("xfs").free[7, 1].total == 417136640


def test_a_map_is_read_on_behind_its_last_record() -> None:
    whole = (GOOD / "ext4.fsmap").read_bytes()
    part = bytearray(whole[: fsmap.HEAD_BYTES + 5 * fsmap.RECORD_BYTES])
    struct.pack_into("=I", part, 12, 5)
    decoded = fsmap.decode(part)
    assert decoded.resume == bytes(part[-fsmap.RECORD_BYTES :])
    assert fsmap.question(7, decoded.resume)[64:128] == decoded.resume
    assert fsmap.decode(fsmap.question(7)) == fsmap.FsmapAnswer({}, None)


def test_large_device_numbers() -> None:
    major, minor = 259, 70_000
    number = struct.unpack_from("=I", fsmap.key((major, minor), 0))[0]
    assert number == minor & 0xFF | major << 8 | (minor & ~0xFF) << 12  # as new_encode_dev() in the kernel
    record = struct.pack("=2I4Q24x", number, 0x30, 4096, 1, 0, 8192)
    head = struct.pack("=4I48x", 0, 1, 1, 1) + bytes(128)
    assert fsmap.decode(head + record).free == {(major, minor): Extents.of([(4096, 12288)])}


@pytest.mark.parametrize("path", sorted(BAD.glob("*.fsmap")), ids=lambda path: path.stem)
def test_damaged_maps_are_refused(path: Path) -> None:
    with pytest.raises(ValueError, match=r"file system map|which block devices|no disk"):
        fsmap.decode(path.read_bytes())


def trees() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GOOD / "btrfs.json").read_text())
    return document


def items(rows: list[list[Any]], kind: int | None = None) -> list[btrfs.TreeItem]:
    every = [btrfs.TreeItem(row[0], row[1], row[2], bytes.fromhex(row[3])) for row in rows]
    return [item for item in every if kind in (None, item.type)]


def test_btrfs_by_either_tree() -> None:
    known = trees()
    chunks = [btrfs.chunk(item) for item in items(known["chunk"], btrfs.CHUNK_ITEM)]
    dev = items(known["dev"], btrfs.DEV_EXTENT)
    by_space = btrfs.free_of_free_space_tree(items(known["free_space"]), known["sector_bytes"])
    used = btrfs.used_of_extent_tree(items(known["extent"]), known["node_bytes"])
    logical = Extents.of((part.start, part.end) for part in chunks)
    # mkfs leaves entries of removed block groups behind.
    assert by_space & logical == logical - used
    free = btrfs.free_by_device(chunks, by_space, dev, {1: known["size_bytes"]})
    assert free == {1: Extents.of(tuple(pair) for pair in known["free"])}
    assert not free[1] & Extents.of([(0, 1 << 20), (64 << 20, (64 << 20) + KIB64)])


def packed(tree_items: list[btrfs.TreeItem]) -> bytes:
    header = struct.Struct("=3Q2I")
    return b"".join(
        header.pack(9, item.objectid, item.offset, item.type, len(item.data)) + item.data
        for item in tree_items
    )


def test_items_are_read_and_cut_ones_refused() -> None:
    rows = items(trees()["chunk"])
    assert list(btrfs.items(packed(rows) + b"rest", len(rows))) == rows
    with pytest.raises(ValueError, match="without its header"):
        list(btrfs.items(packed(rows), len(rows) + 1))
    with pytest.raises(ValueError, match="not there"):
        list(btrfs.items(packed(rows)[:-1], len(rows)))


def test_a_raid10_of_no_mirrors_is_refused() -> None:
    # length, owner, stripe length, profile, three alignments, number of stripes and of mirrors
    head = struct.pack("<4Q3I2H", 1 << 30, 2, KIB64, 1 | 1 << 6, 4096, 4096, 4096, 2, 0)
    with pytest.raises(ValueError, match="no striped chunk"):
        btrfs.chunk(btrfs.TreeItem(256, btrfs.CHUNK_ITEM, 1 << 20, head + bytes(64)))


@pytest.mark.parametrize("damage", [b"", b"\xff" * 48, b"\xff" * 400])
def test_damaged_chunks_are_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match="chunk"):
        btrfs.chunk(btrfs.TreeItem(256, btrfs.CHUNK_ITEM, 1 << 20, damage))
    with pytest.raises(ValueError, match=r"no device extent|device extent of"):
        btrfs.dev_extent_bytes(btrfs.TreeItem(1, btrfs.DEV_EXTENT, 1 << 20, damage))


@given(st.binary(max_size=64), st.integers(1, 100))
def test_bitmap_is_decoded_bit_by_bit(bits: bytes, start: int) -> None:
    item = btrfs.TreeItem(start * 4096, btrfs.FREE_SPACE_BITMAP, len(bits) * 8 * 4096, bits)
    free = btrfs.free_of_free_space_tree([item], 4096)
    ones = {at for at in range(len(bits) * 8) if bits[at // 8] >> at % 8 & 1}
    assert {at for low, high in free for at in range(low // 4096 - start, high // 4096 - start)} == ones


SINGLE, RAID0, RAID1, DUP, RAID10, RAID5, RAID6 = 0, 8, 16, 32, 64, 128, 256


def kernel_copies(part: btrfs.Chunk, logical: int) -> set[tuple[int, int]]:
    """Return the copies of one byte, computed stripe by stripe like the kernel."""
    strip, inside = divmod(logical - part.start, KIB64)
    if part.profile & RAID0:
        row, column = divmod(strip, len(part.stripes))
        copies = [column]
    elif part.profile & RAID10:
        row, group = divmod(strip, len(part.stripes) // part.sub_stripes)
        copies = [group * part.sub_stripes + n for n in range(part.sub_stripes)]
    else:
        return {(device, offset + logical - part.start) for device, offset in part.stripes}
    return {(part.stripes[n][0], part.stripes[n][1] + row * KIB64 + inside) for n in copies}


@given(
    st.sampled_from(
        [(SINGLE, 1, 1), (DUP, 2, 1), (RAID1, 2, 1), (RAID0, 3, 1), (RAID10, 4, 2), (RAID10, 6, 3)]
    ),
    st.integers(0, 48),
    st.integers(0, 48),
)
def test_profiles_against_the_kernel(shape: tuple[int, int, int], low: int, high: int) -> None:
    profile, count, sub = shape
    unit = KIB64 // 4  # small enough to test each piece, large enough to be fast
    columns = count // sub if profile == RAID10 else count if profile == RAID0 else 1
    stripes = tuple((n + 1, (100 + 7 * n) << 20) for n in range(count))
    part = btrfs.Chunk(1 << 30, 12 * columns * KIB64, profile, sub, stripes)
    start, end = (part.start + edge * unit for edge in sorted((low, high)))
    expected = {copy for at in range(start, end, unit) for copy in kernel_copies(part, at)}
    places = {
        (device, at)
        for device, low, high in btrfs.physical(part, start, end)
        for at in range(low, high, unit)
    }
    assert places == expected


def test_with_parity_only_whole_rows_count() -> None:
    part = btrfs.Chunk(0, 4 * 2 * KIB64, RAID5, 1, ((1, 0), (2, 1 << 20), (3, 2 << 20)))
    assert list(btrfs.physical(part, 1, 4 * KIB64 - 1)) == []
    assert list(btrfs.physical(part, KIB64, 6 * KIB64)) == [
        (device, offset + KIB64, offset + 3 * KIB64) for device, offset in part.stripes
    ]


@pytest.mark.parametrize("seed", range(3))
def test_fuzzed_maps_are_decoded_or_refused(seed: int) -> None:
    Fuzz(seed).run(2000)


def f2fs_of_128_mib() -> tuple[f2fs.F2fsGeometry, str]:
    geometry = f2fs.superblock((GOOD / "f2fs.superblock").read_bytes())
    return geometry, (GOOD / "f2fs.segment_bits").read_text()


def test_f2fs_claims_no_segments_that_take_all_memory() -> None:
    """A damaged superblock may have any 32-bit logarithm of the segment size."""
    damaged = bytearray((GOOD / "f2fs.superblock").read_bytes())
    assert int.from_bytes(damaged[20:24], "little") == 9
    damaged[20:24] = b"\xff\xff\xff\xff"
    begin = time.thread_time()
    with pytest.raises(BadInput, match="no superblock"):
        f2fs.superblock(bytes(damaged))
    assert time.thread_time() - begin < 0.15


def test_f2fs_blocks_are_read_from_proc() -> None:
    geometry, text = f2fs_of_128_mib()
    assert geometry == f2fs.F2fsGeometry(4096, 16 << 20, 56, ())
    free, changed = f2fs.free_of_segments(text, geometry)
    assert changed == 0
    assert free.end == 128 << 20
    valid = sum(int(line.split("|")[1]) for line in text.splitlines()[2:])
    assert free.total == (56 * 512 - valid) * 4096
    assert next(iter(free)) == (16 << 20, (16 << 20) + 6 * 4096)


def test_f2fs_segment_that_changes_during_a_read_does_not_count() -> None:
    geometry, text = f2fs_of_128_mib()
    torn, changed = f2fs.free_of_segments(text.replace("4|25 |", "4|24 |"), geometry)
    assert changed == 1
    assert not torn.covers(18 << 20, (18 << 20) + 4096)
    # Linux 6.15 adds the segment's time
    later, _ = f2fs.free_of_segments(text.replace("\n", "| 12ab\n"), geometry)
    assert later == f2fs.free_of_segments(text, geometry)[0]


@pytest.mark.parametrize("path", sorted(BAD.glob("*.segment_bits")), ids=lambda path: path.stem)
def test_maps_of_f2fs_with_segments_missing_are_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="of 56 segments"):
        f2fs.free_of_segments(path.read_text(), f2fs_of_128_mib()[0])


@pytest.mark.parametrize("path", sorted(BAD.glob("*.superblock")), ids=lambda path: path.stem)
def test_invalid_superblock_of_f2fs_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="superblock of f2fs"):
        f2fs.superblock(path.read_bytes())


def test_f2fs_on_several_devices_is_reported() -> None:
    raw = bytearray((GOOD / "f2fs.superblock").read_bytes())
    for number, path in enumerate((b"/dev/sda", b"/dev/sdb")):
        at = 2201 + number * 68
        raw[at : at + len(path)] = path
    assert f2fs.superblock(bytes(raw)).devices == ("/dev/sda", "/dev/sdb")


def test_groups_of_ext4_come_from_the_superblock() -> None:
    """With bigalloc, a group has as many clusters as a block has bits."""
    raw = bytearray(1024)
    struct.pack_into("<2I4xI20xH", raw, 20, 0, 0, 131072, 0xEF53)
    assert ext4.groups(bytes(raw)) == (128 << 20, 0)
    struct.pack_into("<2I4xI", raw, 20, 1, 0, 8192)
    assert ext4.groups(bytes(raw)) == (8 << 20, 1024)


@pytest.mark.parametrize("raw", [b"", bytes(1024)])
def test_invalid_superblock_of_ext4_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="superblock of ext4"):
        ext4.groups(raw)
