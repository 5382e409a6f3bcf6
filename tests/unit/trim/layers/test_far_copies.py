"""RAID 10 with far copies: which members contain the ends of a range."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.trim.check.dry_run import predict_devices
from opwatch.trim.layers.arrays import MdFacts, count_far_copies, select_far_copy
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.layers import Kind
from tests.unit.support.trim_evidence import make_layer, make_stack

MIB = 1 << 20
KIB = 1 << 10


@pytest.mark.parametrize("layout", [0x201, 0x10201], ids=["far", "offset"])
@pytest.mark.parametrize(("end", "rounded"), [(6 * 64 * KIB, 0), (5 * 64 * KIB + 4 * KIB, 2 * KIB)])
def test_far_copies_end_on_other_members(layout: int, end: int, rounded: int) -> None:
    """The range starts and ends on files with blocks of 4 KiB, and its second copy ends on a disk with
    granules of 32 KiB: one of two copies loses 4 KiB."""
    disk = make_layer("sda", "8:0", granularity=32 * KIB)
    files = [make_layer(f"loop{n}", f"7:{n}", Kind.LOOP, backing_file=f"/srv/{n}") for n in range(2)]
    names = ("sda", "loop0", "loop1")
    facts = MdFacts(level="raid10", chunk_bytes=64 * KIB, layout=layout, raid_disks=3)
    facts = replace(facts, members=names, data_offsets=(MIB, MIB, MIB))
    top = replace(make_layer("md0", "9:0", Kind.MD, *names), facts=facts)
    free = {"9:0": Extents.from_pairs([(64 * KIB + 4 * KIB, end)])}
    [run] = predict_devices(make_stack(top, disk, *files), free)
    assert run.rounded_bytes == rounded


@pytest.mark.parametrize(
    ("layout", "disks", "order"),
    [
        (0x201, 4, "bcda"),
        (0x10202, 4, "cdab"),
        (0x20201, 4, "badc"),
        (0x20201, 5, "badec"),
        (0x40202, 8, "cdabghef"),
    ],
)
def test_the_second_copy_is_on_members_of_the_same_set(layout: int, disks: int, order: str) -> None:
    names = tuple("abcdefgh"[:disks])
    array = MdFacts(level="raid10", layout=layout, raid_disks=disks, members=names)
    array = replace(array, data_offsets=tuple(range(disks)))
    assert count_far_copies(array) == 2
    assert select_far_copy(array, 0).members == names
    assert select_far_copy(array, 1).members == tuple(order)
