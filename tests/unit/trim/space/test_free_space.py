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
from tests.fuzz.trim import TrimFuzzer

FIXTURES = Path(__file__).parents[3] / "fixtures"
GOOD, BAD = FIXTURES / "good" / "trim", FIXTURES / "bad" / "trim"
KIB64 = 65536


def read_answer(name: str) -> fsmap.FsmapAnswer:
    return fsmap.decode_answer((GOOD / f"{name}.fsmap").read_bytes())


def test_map_of_ext4_is_decoded() -> None:
    assert list(read_answer("ext4").free) == [(7, 0)]
    free = read_answer("ext4").free[7, 0]
    assert free.total_bytes == 458420224  # equal to statvfs
    assert len(free) == 6
    assert read_answer("ext4").resume is None


def test_map_of_xfs_is_decoded() -> None:
    assert read_answer("xfs").free[7, 1].total_bytes == 417136640


def test_map_reading_continues_after_its_last_record() -> None:
    whole = (GOOD / "ext4.fsmap").read_bytes()
    part = bytearray(whole[: fsmap.HEAD_BYTES + 5 * fsmap.RECORD_BYTES])
    struct.pack_into("=I", part, 12, 5)
    decoded = fsmap.decode_answer(part)
    assert decoded.resume == bytes(part[-fsmap.RECORD_BYTES :])
    assert fsmap.encode_request(7, decoded.resume)[64:128] == decoded.resume
    assert fsmap.decode_answer(fsmap.encode_request(7)) == fsmap.FsmapAnswer({}, None)


def test_large_device_numbers_are_decoded() -> None:
    major, minor = 259, 70_000
    number = struct.unpack_from("=I", fsmap.encode_key((major, minor), 0))[0]
    assert number == minor & 0xFF | major << 8 | (minor & ~0xFF) << 12  # as new_encode_dev() in the kernel
    record = struct.pack("=2I4Q24x", number, 0x30, 4096, 1, 0, 8192)
    head = struct.pack("=4I48x", 0, 1, 1, 1) + bytes(128)
    assert fsmap.decode_answer(head + record).free == {(major, minor): Extents.from_pairs([(4096, 12288)])}


@pytest.mark.parametrize("path", sorted(BAD.glob("*.fsmap")), ids=lambda path: path.stem)
def test_damaged_maps_are_refused(path: Path) -> None:
    with pytest.raises(BadInput):
        fsmap.decode_answer(path.read_bytes())


def read_trees() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GOOD / "btrfs.json").read_text())
    return document


def parse_items(rows: list[list[Any]], kind: int | None = None) -> list[btrfs.TreeItem]:
    every = [btrfs.TreeItem(row[0], row[1], row[2], bytes.fromhex(row[3])) for row in rows]
    return [item for item in every if kind in (None, item.type)]


def test_btrfs_free_space_is_read_from_either_tree() -> None:
    known = read_trees()
    chunks = [btrfs.parse_chunk(item) for item in parse_items(known["chunk"], btrfs.CHUNK_ITEM)]
    dev = parse_items(known["dev"], btrfs.DEV_EXTENT)
    by_space = btrfs.find_free_addresses(parse_items(known["free_space"]), known["sector_bytes"])
    used = btrfs.find_used_addresses(parse_items(known["extent"]), known["node_bytes"])
    logical = Extents.from_pairs((part.start, part.end) for part in chunks)
    # mkfs leaves entries of removed block groups behind.
    assert by_space & logical == logical - used
    free = btrfs.find_free_by_device(chunks, by_space, dev, {1: known["size_bytes"]})
    assert free == {1: Extents.from_pairs(tuple(pair) for pair in known["free"])}
    assert not free[1] & Extents.from_pairs([(0, 1 << 20), (64 << 20, (64 << 20) + KIB64)])


def pack_items(tree_items: list[btrfs.TreeItem]) -> bytes:
    header = struct.Struct("=3Q2I")
    return b"".join(
        header.pack(9, item.objectid, item.offset, item.type, len(item.data)) + item.data
        for item in tree_items
    )


def test_items_are_read_and_cut_ones_refused() -> None:
    rows = parse_items(read_trees()["chunk"])
    assert list(btrfs.parse_items(pack_items(rows) + b"rest", len(rows))) == rows
    with pytest.raises(BadInput, match=r"header$"):
        list(btrfs.parse_items(pack_items(rows), len(rows) + 1))
    with pytest.raises(BadInput, match=r"\d+ bytes$"):
        list(btrfs.parse_items(pack_items(rows)[:-1], len(rows)))


def test_a_raid10_of_no_mirrors_is_refused() -> None:
    # length, owner, stripe length, profile, three alignments, number of stripes and of mirrors
    head = struct.pack("<4Q3I2H", 1 << 30, 2, KIB64, 1 | 1 << 6, 4096, 4096, 4096, 2, 0)
    with pytest.raises(BadInput, match=rf"^2 .* {KIB64} bytes .* {1 << 30} bytes$"):
        btrfs.parse_chunk(btrfs.TreeItem(256, btrfs.CHUNK_ITEM, 1 << 20, head + bytes(64)))


@pytest.mark.parametrize("damage", [b"", b"\xff" * 48, b"\xff" * 400])
def test_damaged_chunks_are_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match="chunk"):
        btrfs.parse_chunk(btrfs.TreeItem(256, btrfs.CHUNK_ITEM, 1 << 20, damage))
    with pytest.raises(BadInput):
        btrfs.parse_dev_extent_bytes(btrfs.TreeItem(1, btrfs.DEV_EXTENT, 1 << 20, damage))


@given(st.binary(max_size=64), st.integers(1, 100))
def test_bitmap_is_decoded_bit_by_bit(bits: bytes, start: int) -> None:
    item = btrfs.TreeItem(start * 4096, btrfs.FREE_SPACE_BITMAP, len(bits) * 8 * 4096, bits)
    free = btrfs.find_free_addresses([item], 4096)
    ones = {at for at in range(len(bits) * 8) if bits[at // 8] >> at % 8 & 1}
    assert {at for low, high in free for at in range(low // 4096 - start, high // 4096 - start)} == ones


SINGLE, RAID0, RAID1, DUP, RAID10, RAID5, RAID6 = 0, 8, 16, 32, 64, 128, 256


def compute_kernel_copies(part: btrfs.Chunk, logical: int) -> set[tuple[int, int]]:
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
def test_btrfs_profiles_match_the_kernel(shape: tuple[int, int, int], low: int, high: int) -> None:
    profile, count, sub = shape
    unit = KIB64 // 4  # small enough to test each piece, large enough to be fast
    columns = count // sub if profile == RAID10 else count if profile == RAID0 else 1
    stripes = tuple((n + 1, (100 + 7 * n) << 20) for n in range(count))
    part = btrfs.Chunk(1 << 30, 12 * columns * KIB64, profile, sub, stripes)
    start, end = (part.start + edge * unit for edge in sorted((low, high)))
    expected = {copy for at in range(start, end, unit) for copy in compute_kernel_copies(part, at)}
    places = {
        (device, at)
        for device, low, high in btrfs.map_to_devices(part, start, end)
        for at in range(low, high, unit)
    }
    assert places == expected


def test_with_parity_only_whole_rows_count() -> None:
    part = btrfs.Chunk(0, 4 * 2 * KIB64, RAID5, 1, ((1, 0), (2, 1 << 20), (3, 2 << 20)))
    assert list(btrfs.map_to_devices(part, 1, 4 * KIB64 - 1)) == []
    assert list(btrfs.map_to_devices(part, KIB64, 6 * KIB64)) == [
        (device, offset + KIB64, offset + 3 * KIB64) for device, offset in part.stripes
    ]


@pytest.mark.parametrize("seed", range(3))
def test_fuzzed_maps_are_decoded_or_refused(seed: int) -> None:
    TrimFuzzer(seed).run_inputs(2000)


def read_f2fs_image() -> tuple[f2fs.F2fsGeometry, str]:
    geometry = f2fs.parse_superblock((GOOD / "f2fs.superblock").read_bytes())
    return geometry, (GOOD / "f2fs.segment_bits").read_text()


def test_f2fs_claims_no_segments_that_take_all_memory() -> None:
    """A damaged superblock may have any 32-bit logarithm of the segment size."""
    damaged = bytearray((GOOD / "f2fs.superblock").read_bytes())
    assert int.from_bytes(damaged[20:24], "little") == 9
    damaged[20:24] = b"\xff\xff\xff\xff"
    begin = time.thread_time()
    with pytest.raises(BadInput):
        f2fs.parse_superblock(bytes(damaged))
    assert time.thread_time() - begin < 0.15


def test_f2fs_blocks_are_read_from_proc() -> None:
    geometry, text = read_f2fs_image()
    assert geometry == f2fs.F2fsGeometry(4096, 16 << 20, 56, ())
    free, changed = f2fs.find_free_blocks(text, geometry)
    assert changed == 0
    assert free.end == 128 << 20
    valid = sum(int(line.split("|")[1]) for line in text.splitlines()[2:])
    assert free.total_bytes == (56 * 512 - valid) * 4096
    assert next(iter(free)) == (16 << 20, (16 << 20) + 6 * 4096)


def test_f2fs_segment_that_changes_during_a_read_does_not_count() -> None:
    geometry, text = read_f2fs_image()
    torn, changed = f2fs.find_free_blocks(text.replace("4|25 |", "4|24 |"), geometry)
    assert changed == 1
    assert not torn.has_range(18 << 20, (18 << 20) + 4096)
    # Linux 6.15 adds the segment's time
    later, _ = f2fs.find_free_blocks(text.replace("\n", "| 12ab\n"), geometry)
    assert later == f2fs.find_free_blocks(text, geometry)[0]


@pytest.mark.parametrize("path", sorted(BAD.glob("*.segment_bits")), ids=lambda path: path.stem)
def test_maps_of_f2fs_with_segments_missing_are_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="of 56 segments"):
        f2fs.find_free_blocks(path.read_text(), read_f2fs_image()[0])


@pytest.mark.parametrize("path", sorted(BAD.glob("*.superblock")), ids=lambda path: path.stem)
def test_invalid_superblock_of_f2fs_is_refused(path: Path) -> None:
    with pytest.raises(BadInput):
        f2fs.parse_superblock(path.read_bytes())


def test_f2fs_on_several_devices_is_reported() -> None:
    raw = bytearray((GOOD / "f2fs.superblock").read_bytes())
    for number, path in enumerate((b"/dev/sda", b"/dev/sdb")):
        at = 2201 + number * 68
        raw[at : at + len(path)] = path
    assert f2fs.parse_superblock(bytes(raw)).devices == ("/dev/sda", "/dev/sdb")


def test_groups_of_ext4_come_from_the_superblock() -> None:
    """With bigalloc, a group has as many clusters as a block has bits."""
    raw = bytearray(1024)
    struct.pack_into("<2I4xI20xH", raw, 20, 0, 0, 131072, 0xEF53)
    assert ext4.parse_groups(bytes(raw)) == (128 << 20, 0)
    struct.pack_into("<2I4xI", raw, 20, 1, 0, 8192)
    assert ext4.parse_groups(bytes(raw)) == (8 << 20, 1024)


@pytest.mark.parametrize("raw", [b"", bytes(1024)])
def test_invalid_superblock_of_ext4_is_refused(raw: bytes) -> None:
    with pytest.raises(BadInput):
        ext4.parse_groups(raw)
