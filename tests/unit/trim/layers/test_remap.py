"""Mapping of a device's bytes to lower devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.trim.layers.arrays import MdFacts, map_to_slots
from opwatch.trim.layers.remap import can_read_cache, map_down, split_contiguous
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.dmtable import parse_mirror, parse_stripes, parse_table
from opwatch.trim.stack.layers import Kind, Stack
from tests.unit.support.trim_evidence import make_layer

DISKS = (make_layer("sda", "8:0"), make_layer("sdb", "8:16"))
STRIPED = "0 4096 striped 2 8 8:0 16 8:16 0"
MIRROR = "0 4096 mirror core 2 1024 nosync 2 8:0 16 8:16 0 1 handle_errors"


def _make_stack(text: str) -> Stack:
    table = tuple(parse_table(text))
    top = make_layer("dm-0", "253:0", Kind.DM, "sda", "sdb", target=table[0].kind)
    return Stack(None, (replace(top, table=table), *DISKS))


def _locate_range(
    stack: Stack, start: int, end: int, *, copies: bool = False
) -> dict[str, list[tuple[int, int]]]:
    name = stack.layers[0].device
    landings = map_down(stack, name, Extents.from_pairs([(start, end)]), copies=copies)
    return {one.device: list(one.extents) for one in landings}


def test_chunks_of_a_striped_target_alternate_between_devices() -> None:
    striped = _make_stack(STRIPED)
    assert _locate_range(striped, 4096, 8192) == {"sdb": [(0, 4096)]}
    assert _locate_range(striped, 0, 16384) == {"sda": [(8192, 16384)], "sdb": [(0, 8192)]}
    assert _locate_range(striped, 2048, 9216) == {"sda": [(10240, 13312)], "sdb": [(0, 4096)]}


def test_mirror_maps_to_every_leg_if_copies_are_requested() -> None:
    mirror = _make_stack(MIRROR)
    assert _locate_range(mirror, 4096, 8192, copies=True) == {"sda": [(12288, 16384)], "sdb": [(4096, 8192)]}
    assert _locate_range(mirror, 4096, 8192) == {"dm-0": [(4096, 8192)]}


def _make_near_array(disks: int, copies: int) -> Stack:
    names = [f"sd{letter}" for letter in "abcd"[:disks]]
    facts = MdFacts(
        level="raid10",
        raid_disks=disks,
        chunk_bytes=8192,
        layout=copies | 1 << 8,
        members=tuple(names),
        data_offsets=(4096,) * disks,
    )
    drives = [make_layer(name, f"8:{16 * at}") for at, name in enumerate(names)]
    return Stack(None, (replace(make_layer("md0", "9:0", Kind.MD, *names), facts=facts), *drives))


_TABLES = (
    STRIPED,
    MIRROR,
    "0 4096 linear 8:0 3",
    "0 16 linear 8:0 16\n16 16 linear 8:0 0\n32 2048 linear 8:16 0",  # segments in reverse order
    "0 13 linear 8:0 0\n13 4096 linear 8:16 7",  # a split block
    "0 64 linear 8:0 0\n64 64 error\n128 512 linear 8:0 64",
)


@given(
    st.sampled_from(
        [
            *map(_make_stack, _TABLES),
            _make_near_array(2, 2),
            _make_near_array(3, 2),
            _make_near_array(4, 2),
            _make_near_array(4, 3),
        ]
    ),
    st.integers(0, 512).map(lambda sectors: 512 * sectors),
    st.integers(0, 64).map(lambda blocks: 4096 * blocks),
    st.booleans(),
)
def test_extents_map_like_their_single_blocks(stack: Stack, start: int, length: int, copies: bool) -> None:
    name, end = stack.layers[0].device, start + length
    by_block = {
        (at, one.device, first)
        for at in range(start, end, 4096)
        for one in map_down(stack, name, Extents.from_pairs([(at, at + 4096)]), copies=copies)
        for first, last in one.extents
        if last - first == 4096
    }
    in_rows = {
        (at + behind, one.device, first + behind)
        for at, one in split_contiguous(stack, name, start, end + 2048, 4096, copies=copies)
        for [(first, last)] in [list(one.extents)]
        for behind in range(0, last - first, 4096)
    }
    assert in_rows == by_block


@pytest.mark.parametrize(
    "text",
    [
        "0 8 striped 2 8 8:0 0",
        "0 8 striped 0 8",
        "0 8 striped 2 x 8:0 0 8:16 0",
        "0 8 striped 1 8 8:0 z",
        "0 8 mirror core 9 1024",
        "0 8 mirror core 1 1024 2 8:0 0",
        "0 8 mirror",
        "0 8 linear 8:0 0",
    ],
)
def test_tables_without_offsets_are_not_mapped(text: str) -> None:
    [target] = parse_table(text)
    assert parse_stripes(target) is None
    assert parse_mirror(target) is None


def test_bcache_data_starts_after_its_superblock() -> None:
    """With a cache, dirty data is not on the backing device."""
    backing = make_layer("sda", "8:0")
    top = replace(make_layer("bcache0", "252:0", Kind.DISK, "sda"), size_bytes=backing.size_bytes - 8192)
    assert _locate_range(Stack(None, (top, backing)), 0, 4096) == {"sda": [(8192, 12288)]}
    cache = make_layer("sdb", "8:16", bcache_discard=False)
    cached = Stack(None, (replace(top, below=("sda", "sdb")), backing, cache))
    assert _locate_range(cached, 0, 4096) == {"bcache0": [(0, 4096)]}
    assert _locate_range(cached, 0, 4096, copies=True) == {"sda": [(8192, 12288)]}


def _locate_bytes(array: MdFacts, copies: int, start: int, end: int) -> dict[int, set[int]]:
    """Return the slot and place of each byte, one byte at a time."""
    chunk, disks = array.chunk_bytes or 1, array.raid_disks or 1
    bytes_of: dict[int, set[int]] = {}
    for at in range(start, end):
        for copy in range(copies):
            row, slot = divmod(at // chunk * copies + copy, disks)
            bytes_of.setdefault(slot, set()).add(row * chunk + at % chunk)
    return bytes_of


@given(st.integers(2, 5), st.integers(1, 2), st.integers(1, 7), st.integers(0, 80), st.integers(1, 80))
def test_bytes_of_each_slot_are_contiguous(
    disks: int, copies: int, chunk: int, start: int, size: int
) -> None:
    level = "raid10" if copies == 2 else "raid0"
    array = MdFacts(level=level, raid_disks=disks, chunk_bytes=chunk, layout=0x100 | copies)
    pieces = list(map_to_slots(array, start, start + size))
    assert len({slot for slot, _, _ in pieces}) == len(pieces)
    expected = _locate_bytes(array, copies, start, start + size)
    assert {slot: set(range(first, last)) for slot, first, last in pieces} == expected


def test_devices_above_a_cache_may_read_cached_data() -> None:
    """A device above a cache may read trimmed data that the cache kept; a cache itself is mapped to its
    origin."""
    cached = make_layer("dm-0", "253:0", Kind.DM, "sda", "sdb", target="cache")
    integrity = make_layer("dm-1", "253:1", Kind.DM, "dm-0", target="integrity")
    linear = make_layer("dm-2", "253:2", Kind.DM, "dm-1", target="linear")
    stack = Stack(None, (linear, integrity, cached, *DISKS))
    assert [can_read_cache(stack, name) for name in ("dm-2", "dm-1", "dm-0", "sda", "none")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    thin = make_layer("dm-1", "253:1", Kind.THIN, "dm-0", target="thin")
    assert not can_read_cache(Stack(None, (linear, thin, cached, *DISKS)), "dm-2")
    alone = make_layer("bcache0", "252:0", Kind.DISK, "sda")
    assert not can_read_cache(Stack(None, (replace(integrity, below=("bcache0",)), alone, *DISKS)), "dm-1")
    with_cache = replace(alone, below=("sda", "sdb"))
    assert can_read_cache(Stack(None, (replace(integrity, below=("bcache0",)), with_cache, *DISKS)), "dm-1")
