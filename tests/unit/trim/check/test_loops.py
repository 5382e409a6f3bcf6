"""Predictions for trims of loop devices, and for filesystems on several devices."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.trim.check.dry_run import predict_devices
from opwatch.trim.check.prediction import FreeExtents, Outlook, Prediction, predict_trim
from opwatch.trim.layers.arrays import DmRaidFacts, MdFacts
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.dmtable import DmTarget
from opwatch.trim.stack.layers import Kind, Layer, Stack
from tests.unit.support.trim_evidence import make_layer, make_stack
from tests.unit.support.trimtree import Machine

MIB = 1 << 20


def _make_stack_on_loop(offset_bytes: int = 0) -> Stack:
    place = {"backing_file": "/srv/image", "backing_filesystem": "xfs", "backing_mount": "/srv"}
    return make_stack(make_layer("loop0", "7:0", Kind.LOOP, offset_bytes=offset_bytes, **place))  # type: ignore[arg-type]


def _predict_trim(shared: Extents, *, below: Stack | None = None) -> Prediction:
    """Predict for a filesystem with a free MiB at 1 MiB, on a loop device with a file that shares the given
    blocks."""
    layers = below or _make_stack_on_loop()
    [top] = layers.find_tops()
    return predict_trim(
        layers, FreeExtents({top.dev: Extents.from_pairs([(MIB, 2 * MIB)])}, shared={"loop0": shared})
    )


@pytest.mark.parametrize(
    ("blocks", "outlook", "lost"),
    [
        ([(0, MIB)], Outlook.REACHES, 0),
        ([(0, MIB + 8192)], Outlook.PART, 8192),
        ([(0, 3 * MIB)], Outlook.NOTHING, MIB),
    ],
)
def test_blocks_shared_with_other_files_are_predicted(
    blocks: list[tuple[int, int]], outlook: Outlook, lost: int
) -> None:
    foretold = _predict_trim(Extents.from_pairs(blocks))
    assert foretold.outlook is outlook
    [run] = foretold.runs
    assert (run.shared_bytes, run.expected_bytes, run.sent_bytes) == (lost, MIB - lost, MIB)
    assert foretold.expected_bytes == MIB - lost
    said = [why for why in foretold.reasons if why.code == "loop-file-shared"]
    assert [(why.lost_bytes, why.blanks) for why in said] == (
        [(lost, {"file": "/srv/image"})] if lost else []
    )


def test_shared_blocks_below_a_target_are_mapped() -> None:
    """The target starts half a MiB into the file: its free MiB is half in the file's second MiB, half in the
    third."""
    table = (DmTarget(0, 8192, "linear", ("7:0", str(MIB // 1024))),)
    top = replace(make_layer("dm-0", "253:0", Kind.DM, "loop0"), table=table, size_bytes=4 * MIB)
    foretold = _predict_trim(
        Extents.from_pairs([(2 * MIB, 9 * MIB)]), below=make_stack(top, *_make_stack_on_loop().layers)
    )
    assert foretold.outlook is Outlook.PART
    assert foretold.expected_bytes == MIB // 2


def test_unknown_mapping_to_the_file_leaves_the_outlook_unknown() -> None:
    top = make_layer("dm-0", "253:0", Kind.DM, "loop0", target="zoned")
    foretold = _predict_trim(
        Extents.from_pairs([(0, MIB)]), below=make_stack(top, *_make_stack_on_loop().layers)
    )
    assert foretold.outlook is Outlook.UNKNOWN
    [shared] = [why for why in foretold.reasons if why.code == "loop-file-shared"]
    assert shared.lost_bytes is None
    assert re.fullmatch(r"1M of /srv/image [^\d]*", shared.observed)


def test_loop_device_that_starts_within_a_block_of_its_file() -> None:
    """The loop device's blocks start 3,584 bytes further on: both ends of the range are inside a block."""
    [run] = predict_devices(_make_stack_on_loop(512), {"7:0": Extents.from_pairs([(0, MIB)])}, 0, None)
    assert (run.rounded_bytes, run.expected_bytes) == (4096, MIB - 4096)
    [aligned] = predict_devices(_make_stack_on_loop(), {"7:0": Extents.from_pairs([(0, MIB)])}, 0, None)
    assert aligned.rounded_bytes == 0


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize(
    ("offset", "length", "outlook"),
    [(512, 1 << 20, Outlook.UNKNOWN), (512, 65536, Outlook.REACHES), (0, 1 << 20, Outlook.REACHES)],
)
def test_long_discards_of_a_loop_device_that_takes_short_ones(
    is_mapped: bool, offset: int, length: int, outlook: Outlook
) -> None:
    """The partition starts at a block of the file. The kernel splits at blocks as the loop device counts and
    ignores the offset; with offset 0 both are equal."""
    disk = make_layer("loop0", "7:0", Kind.LOOP, backing_file="/f", offset_bytes=offset, max_bytes=65536)
    begin = 4096 - offset
    part = make_layer("loop0p1", "259:0", Kind.PARTITION, "loop0", start_bytes=begin, max_bytes=65536)
    part = replace(part, limits=replace(part.limits, granularity=4096, alignment=-begin % 4096))
    disk = replace(disk, limits=replace(disk.limits, granularity=4096))
    table = (DmTarget(0, 8192, "linear", ("259:0", "0")),)
    mapped = make_layer("dm-0", "253:0", Kind.DM, "loop0p1", max_bytes=65536, target="linear")
    mapped = replace(mapped, table=table, limits=replace(mapped.limits, granularity=4096))
    one = make_stack(*[mapped] * is_mapped, part, disk)
    foretold = predict_trim(one, FreeExtents({one.layers[0].dev: Extents.from_pairs([(MIB, MIB + length)])}))
    assert foretold.outlook is outlook
    doubt = f"{one.layers[0].device} splits discards longer than 64k inside its disk's granules"
    assert any(doubt in words for words in foretold.unknowable) is (outlook is Outlook.UNKNOWN)


def test_members_that_start_within_a_block_of_their_files() -> None:
    """Each member gets a part of the range, with both ends inside a block."""
    members = [
        make_layer(f"loop{place}", f"7:{place}", Kind.LOOP, backing_file=f"/srv/{place}", offset_bytes=512)
        for place in range(2)
    ]
    facts = MdFacts(
        level="raid0", raid_disks=2, chunk_bytes=64 << 10, members=("loop0", "loop1"), data_offsets=(MIB, MIB)
    )
    array = replace(make_layer("md0", "9:0", Kind.MD, "loop0", "loop1"), facts=facts)
    [run] = predict_devices(make_stack(array, *members), {"9:0": Extents.from_pairs([(0, MIB)])}, 0, None)
    assert (run.rounded_bytes, run.expected_bytes) == (2 * 4096, MIB - 2 * 4096)
    mirror = replace(array, facts=replace(facts, level="raid1", chunk_bytes=0))
    [run] = predict_devices(make_stack(mirror, *members), {"9:0": Extents.from_pairs([(0, MIB)])}, 0, None)
    assert (run.rounded_bytes, run.expected_bytes) == (4096, MIB - 4096)


def test_target_that_starts_within_a_block_of_a_file() -> None:
    """Linux 6.1 and 6.12 report alignment 0 for a linear target at sector 7."""
    below = make_layer("loop0", "7:0", Kind.LOOP, backing_file="/srv/image", backing_filesystem="xfs")
    table = (DmTarget(0, 8192, "linear", ("7:0", "7")),)
    top = replace(make_layer("dm-0", "253:0", Kind.DM, "loop0"), table=table, size_bytes=4 * MIB)
    [run] = predict_devices(make_stack(top, below), {"253:0": Extents.from_pairs([(0, MIB)])}, 0, None)
    assert (run.rounded_bytes, run.expected_bytes) == (4096, MIB - 4096)


def test_second_target_that_starts_within_a_block() -> None:
    """The second of two targets on the disk is shifted by one sector, so its ends differ from the first's."""
    below = make_layer("loop0", "7:0", Kind.LOOP, backing_file="/srv/image", backing_filesystem="xfs")
    table = (DmTarget(0, 4096, "linear", ("7:0", "0")), DmTarget(4096, 4096, "linear", ("7:0", "4097")))
    top = replace(make_layer("dm-0", "253:0", Kind.DM, "loop0"), table=table, size_bytes=4 * MIB)
    for start, rounded in ((0, 0), (3 * MIB, 4096)):
        [run] = predict_devices(
            make_stack(top, below), {"253:0": Extents.from_pairs([(start, start + MIB)])}, 0, None
        )
        assert run.rounded_bytes == rounded


def test_an_array_with_parity_discards_whole_stripes() -> None:
    """Three data disks with chunks of 64 KiB: md reports granules of 256 KiB, dm-raid reports its chunk
    size."""
    members = [make_layer(f"sd{letter}", f"8:{place}") for place, letter in enumerate("abcd")]
    facts = DmRaidFacts(level="raid5", raid_disks=4, chunk_bytes=64 << 10)
    below = ("sda", "sdb", "sdc", "sdd")
    top = replace(make_layer("dm-0", "253:0", Kind.DM, *below, granularity=64 << 10), facts=facts)
    one = make_stack(top, *members)
    [run] = predict_devices(one, {"253:0": Extents.from_pairs([(64 << 10, MIB)])}, 0, None)
    assert (run.granule_bytes, run.expected_bytes) == (192 << 10, 4 * 192 << 10)
    foretold = predict_trim(one, FreeExtents({"253:0": Extents.from_pairs([(64 << 10, MIB)])}))
    [stripes] = [why for why in foretold.reasons if why.code == "raid456-partial-stripe"]
    assert (foretold.outlook, stripes.where, stripes.lost_bytes) == (Outlook.PART, "dm-0", 192 << 10)


def _make_members(offset_bytes: int) -> list[Layer]:
    return [
        make_layer(
            f"loop{place}", f"7:{place}", Kind.LOOP, backing_file=f"/{place}", offset_bytes=offset_bytes
        )
        for place in range(2)
    ]


@pytest.mark.parametrize(("offset_bytes", "rounded"), [(0, 0), (512, 4096)])
def test_paths_to_a_device_that_starts_within_a_block(offset_bytes: int, rounded: int) -> None:
    words = ("0", "0", "1", "1", "round-robin", "0", "1", "1", "7:0", "1")
    table = (DmTarget(0, 1 << 21, "multipath", words),)
    top = replace(make_layer("dm-0", "253:0", Kind.DM, "loop0", target="multipath"), table=table)
    one = make_stack(top, _make_members(offset_bytes)[0])
    [run] = predict_devices(one, {"253:0": Extents.from_pairs([(0, MIB)])}, 0, None)
    assert (run.rounded_bytes, run.expected_bytes) == (rounded, MIB - rounded)


@pytest.mark.parametrize("layout", [0x201, 0x10201, 0x20201], ids=["far", "offset", "far sets"])
def test_copies_at_other_offsets_have_the_same_ends(layout: int) -> None:
    """RAID 10 of two members: each has a part of the range, with both ends inside a block."""
    facts = MdFacts(
        level="raid10",
        raid_disks=2,
        chunk_bytes=64 << 10,
        layout=layout,
        members=("loop0", "loop1"),
        data_offsets=(MIB, MIB),
    )
    for offset_bytes in (0, 512):
        top = replace(make_layer("md0", "9:0", Kind.MD, "loop0", "loop1"), facts=facts)
        [run] = predict_devices(
            make_stack(top, *_make_members(offset_bytes)), {"9:0": Extents.from_pairs([(0, MIB)])}, 0, None
        )
        assert (run.rounded_bytes > 0) == (offset_bytes > 0)
    # Two offsets that cancel out do not help if a range continues on the next member.
    table = (DmTarget(0, 1 << 20, "linear", ("9:0", "7")),)
    shifted = replace(make_layer("dm-0", "253:0", Kind.DM, "md0"), table=table)
    one = make_stack(shifted, top, *_make_members(512))
    [run] = predict_devices(one, {"253:0": Extents.from_pairs([(0, MIB)])}, 0, None)
    assert run.rounded_bytes > 0


def test_dm_raid_members_have_separate_range_ends() -> None:
    words = ("raid1", "3", "0", "region_size", "1024", "2", "-", "7:0", "-", "7:1")
    facts = DmRaidFacts(level="raid1", raid_disks=2, chunk_bytes=0)
    top = replace(make_layer("dm-0", "253:0", Kind.DM, "loop0", "loop1", target="raid"), facts=facts)
    top = replace(top, table=(DmTarget(0, 1 << 21, "raid", words),))
    for offset_bytes, rounded in ((0, 0), (512, 4096)):
        [run] = predict_devices(
            make_stack(top, *_make_members(offset_bytes)), {"253:0": Extents.from_pairs([(0, MIB)])}, 0, None
        )
        assert run.rounded_bytes == rounded


def test_bcache_hides_the_lower_granule() -> None:
    """Linux 6.1 and 6.12: the granularity is 512 on a loop device with a file of 4,096-byte blocks."""
    below = make_layer("loop0", "7:0", Kind.LOOP, backing_file="/srv/image", backing_filesystem="xfs")
    top = make_layer("bcache0", "252:0", Kind.DISK, "loop0", granularity=512)
    top = replace(top, size_bytes=below.size_bytes - 8192)
    [run] = predict_devices(
        make_stack(top, below), {"252:0": Extents.from_pairs([(1024, MIB + 1024)])}, 0, None
    )
    assert (run.granule_bytes, run.rounded_bytes, run.expected_bytes) == (4096, 4096, MIB - 4096)


def test_loop_device_on_a_block_device_has_no_prediction() -> None:
    loop = make_layer("loop1", "7:1", Kind.LOOP, "sda", backing_file="/dev/sda", backing_is_device=True)
    assert predict_trim(make_stack(loop, make_layer("sda", "8:0"))).outlook is Outlook.UNKNOWN


def test_realtime_device_of_xfs_belongs_to_its_devices(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for letter in "ab":
        machine.add_scsi_disk(f"sd{letter}", where=f"pci0000:00/host{letter}/target/{letter}")
    machine.add_mount("8:0", "xfs", options="rw,rtdev=sdb")
    assert [top.device for top in machine.read_stack().find_tops()] == ["sda", "sdb"]


def test_unknown_realtime_device_is_reported(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add_scsi_disk()
    machine.add_mount("8:0", "xfs", options="rw,rtdev=/nowhere/sdb")
    one = machine.read_stack()
    assert one.filesystem
    assert [top.device for top in one.find_tops()] == ["sda"]
    assert "/nowhere/sdb" in one.filesystem.unknown["devices"]
