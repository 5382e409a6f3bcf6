"""Ends of ranges in arrays that pass discards on to members at offsets different from the granules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.trim.check.dry_run import DevicePrediction, predict_devices
from opwatch.trim.check.prediction import FreeExtents, Outlook, predict_trim
from opwatch.trim.layers.arrays import MdFacts
from opwatch.trim.layers.kinds import find_granule
from opwatch.trim.layers.partition import PartitionFacts
from opwatch.trim.layers.thin import ThinPoolFacts
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.dmtable import DmTarget, PoolMode
from opwatch.trim.stack.layers import Kind, Layer, Stack
from tests.unit.support.trim_evidence import make_layer, make_stack

MIB = 1 << 20
KIB = 1 << 10
_BEGIN = 2047 * 512


def _make_members(offset_bytes: int, begin: int = _BEGIN) -> list[Layer]:
    """Two partitions of loop devices that start one sector before a block of the device."""
    disks = [
        make_layer(
            f"loop{number}",
            f"7:{number}",
            Kind.LOOP,
            backing_file=f"/srv/{number}",
            offset_bytes=offset_bytes,
        )
        for number in range(2)
    ]
    parts = [
        replace(
            make_layer(f"loop{number}p1", f"259:{number}", Kind.PARTITION, f"loop{number}"),
            facts=PartitionFacts(start_bytes=begin),
        )
        for number in range(2)
    ]
    return [*parts, *disks]


def _make_array(level: str, members: list[Layer], layout: int | None = None) -> Stack:
    facts = MdFacts(
        level=level,
        raid_disks=2,
        chunk_bytes=64 * KIB,
        layout=layout,
        members=("loop0p1", "loop1p1"),
        data_offsets=(MIB, MIB),
    )
    return make_stack(replace(make_layer("md0", "9:0", Kind.MD, "loop0p1", "loop1p1"), facts=facts), *members)


def _predict_run(on: Stack, start: int, end: int) -> DevicePrediction:
    [run] = predict_devices(on, {on.layers[0].dev: Extents.from_pairs([(start, end)])}, 0, None)
    return run


def test_raid0_splits_whole_blocks_of_the_backing_files() -> None:
    """The ranges start at blocks of the files, but a sector before a granule as the disks count."""
    run = _predict_run(_make_array("raid0", _make_members(512)), 0, 4 * MIB)
    assert (run.rounded_bytes, run.expected_bytes) == (2 * 4096, 4 * MIB - 2 * 4096)


@pytest.mark.parametrize("members", [_make_members(0, MIB), _make_members(4096, MIB)])
def test_members_at_granule_boundaries_are_not_split(members: list[Layer]) -> None:
    assert _predict_run(_make_array("raid0", members), 0, 4 * MIB).rounded_bytes == 0


def test_mirror_passes_the_whole_range_on() -> None:
    assert _predict_run(_make_array("raid1", _make_members(512)), 0, 4 * MIB).rounded_bytes == 0


@pytest.mark.parametrize(
    ("members", "start", "size", "rounded"),
    [
        # across the border of a unit, inside a block of the files
        (_make_members(0), 60 * MIB, 8 * MIB, 2 * 4096),
        (_make_members(0), 60 * MIB, 4 * MIB, 4096),
        (_make_members(0), 0, 200 * MIB, 4 * 4096),
        (_make_members(0, MIB), 60 * MIB, 8 * MIB, 0),
    ],
)
def test_mirror_splits_at_64_mib_boundaries(
    members: list[Layer], start: int, size: int, rounded: int
) -> None:
    assert _predict_run(_make_array("raid1", members), start, start + size).rounded_bytes == rounded


def test_mirror_below_another_layer_splits_at_its_own_units() -> None:
    [mirror, *members] = _make_array("raid1", _make_members(0)).layers
    begin = 2 * MIB
    target = DmTarget(0, 1 << 20, "linear", ("9:0", str(begin // 512)))
    top = replace(
        make_layer("dm-0", "252:0", Kind.DM, "md0"), table=(target,), size_bytes=512 << 20, target="linear"
    )
    on = make_stack(top, mirror, *members)
    assert _predict_run(on, 0, 64 * MIB).rounded_bytes == 2 * 4096
    assert _predict_run(on, 0, 62 * MIB).rounded_bytes == 4096


def test_some_splits_of_a_long_mirror_range_are_predicted() -> None:
    on = _make_array("raid1", _make_members(0))
    assert _predict_run(on, 0, 1 << 40).rounded_bytes == 256 * 4096


def test_dm_mirror_splits_like_md() -> None:
    words = ("raid1", "1", "0", "2", "-", "259:0", "-", "259:1")
    table = (DmTarget(0, 1 << 18, "raid", words),)
    top = replace(
        make_layer("dm-0", "252:0", Kind.DM, "loop0p1", "loop1p1"),
        table=table,
        size_bytes=512 << 18,
        target="raid",
    )
    assert _predict_run(make_stack(top, *_make_members(0)), 60 * MIB, 68 * MIB).rounded_bytes == 2 * 4096


@pytest.mark.parametrize(
    ("layout", "size", "rounded"),
    # With two near copies a stripe is a single chunk; in other layouts each member has its own chunk.
    [
        (2 | 1 << 8, 128 * KIB, 4096),
        (2 | 1 << 8, 124 * KIB, 0),
        (1 | 2 << 8, 256 * KIB, 2 * 4096),
        (1 | 2 << 8, 252 * KIB, 0),
    ],
)
def test_raid_10_splits_ranges_of_two_stripes_or_more(layout: int, size: int, rounded: int) -> None:
    run = _predict_run(_make_array("raid10", _make_members(512), layout), 0, size)
    assert run.rounded_bytes == rounded


def test_dm_raid_splits_for_its_members_like_md() -> None:
    words = ("raid0_meta", "1", "128", "2", "-", "259:0", "-", "259:1")
    table = (DmTarget(0, 4 * MIB // 512, "raid", words),)
    top = replace(
        make_layer("dm-0", "252:0", Kind.DM, "loop0p1", "loop1p1"),
        table=table,
        size_bytes=4 * MIB,
        target="raid",
    )
    run = _predict_run(make_stack(top, *_make_members(512)), 0, 4 * MIB)
    assert run.rounded_bytes == 2 * 4096


def _make_stack_on_loops(offset_bytes: int, *tops: Layer) -> Stack:
    disks = [
        make_layer(
            f"loop{number}", f"7:{number}", Kind.LOOP, backing_file="/srv/0", offset_bytes=offset_bytes
        )
        for number in range(2)
    ]
    return make_stack(*tops, *disks)


def _make_integrity(*options: str) -> Layer:
    words = ("7:0", "0", "4", "D", "5", "journal_sectors:7568", "interleave_sectors:32768", *options)
    table = (DmTarget(0, 1 << 16, "integrity", words),)
    top = make_layer("dm-0", "252:0", Kind.DM, "loop0")
    return replace(top, table=table, size_bytes=512 << 16, target="integrity")


@pytest.mark.parametrize(
    ("offset", "options", "start", "end", "rounded"),
    [
        (0, (), 0, MIB, 0),
        (2048, (), 0, MIB, 4096),
        (2048, (), 16 * MIB - 8192, 16 * MIB + 8192, 2 * 4096),  # across the checksums between two areas
        (2048, ("meta_device:7:1",), 16 * MIB - 8192, 16 * MIB + 8192, 4096),
        (2048, ("interleave_sectors:0",), 0, MIB, 0),  # the layout is unknown
    ],
)
def test_dm_integrity_has_its_data_in_areas(
    offset: int, options: tuple[str, ...], start: int, end: int, rounded: int
) -> None:
    assert (
        _predict_run(_make_stack_on_loops(offset, _make_integrity(*options)), start, end).rounded_bytes
        == rounded
    )


def _make_shifted_stack(most: int, begin: int) -> Stack:
    """A linear target on a disk with granules of 1 MiB."""
    target = DmTarget(0, 1 << 20, "linear", ("8:0", str(begin // 512)))
    top = make_layer("dm-0", "252:0", Kind.DM, "sda", max_bytes=most, granularity=MIB)
    disk = make_layer("sda", "8:0", Kind.DISK, max_bytes=most, granularity=MIB)
    return make_stack(replace(top, table=(target,), size_bytes=512 << 20, target="linear"), disk)


@pytest.mark.parametrize(
    ("most", "begin", "start", "size", "rounded"),
    [
        (2 * MIB, 0, 4096, 8 * MIB, MIB),
        (2 * MIB, 4096, 4096, 8 * MIB, 2 * MIB),  # a granule crosses the first cut
        (2 * MIB + 4096, 4096, 4096, 8 * MIB, 2 * MIB),
        (2 * MIB, 4096, 0, 8 * MIB, MIB),  # starts at a granule
        (64 * MIB, 4096, 4096, 8 * MIB, MIB),  # not cut
        (MIB - 4096, 4096, 4096, 8 * MIB, MIB),  # the device's limit is below a granule
    ],
)
def test_overlong_discard_is_split_at_a_device_granule(
    most: int, begin: int, start: int, size: int, rounded: int
) -> None:
    assert _predict_run(_make_shifted_stack(most, begin), start, start + size).rounded_bytes == rounded


def _make_integrity_stack(most: int) -> Stack:
    top, disk = _make_integrity(), make_layer("sda", "8:0", Kind.DISK, max_bytes=most, granularity=MIB)
    words = ("8:0", *top.table[0].arguments[1:])
    table = (replace(top.table[0], sectors=1 << 21, arguments=words),)
    limits = replace(top.limits, granularity=MIB, max_bytes=most)
    return make_stack(replace(top, limits=limits, below=("sda",), table=table, size_bytes=1 << 30), disk)


@pytest.mark.parametrize(
    ("most", "size", "rounded"),
    # The last case has twice as many pieces as the prediction examines.
    [
        (MIB, 8 * MIB, 8 * MIB),
        (2 * MIB, 8 * MIB, 4 * MIB),
        (64 * MIB, 8 * MIB, MIB),
        (2 * MIB, 1 << 30, 1 << 29),
    ],
)
def test_dm_integrity_splits_each_piece_at_its_own_offset(most: int, size: int, rounded: int) -> None:
    assert _predict_run(_make_integrity_stack(most), 0, size).rounded_bytes == pytest.approx(rounded, rel=0.1)


def test_range_without_a_whole_granule_may_free_no_bytes() -> None:
    on = _make_integrity_stack(MIB)
    foretold = predict_trim(on, FreeExtents({on.layers[0].dev: Extents.from_pairs([(0, 8 * MIB)])}))
    assert foretold.outlook is Outlook.UNKNOWN


def test_boundaries_belong_to_their_own_layer() -> None:
    """Seven sectors further on, each range starts at a block of the files again, and each chunk inside a
    block."""
    words = ("2", "128", "7:0", "0", "7:1", "0")
    striped = replace(
        make_layer("dm-1", "252:1", Kind.DM, "loop0", "loop1"),
        table=(DmTarget(0, 1 << 16, "striped", words),),
        size_bytes=512 << 16,
        target="striped",
    )
    shifted = replace(
        make_layer("dm-0", "252:0", Kind.DM, "dm-1"),
        table=(DmTarget(0, 1 << 15, "linear", ("252:1", "7")),),
        size_bytes=512 << 15,
        target="linear",
    )
    assert _predict_run(_make_stack_on_loops(512, shifted, striped), 0, 256 * KIB).rounded_bytes == 4096


def test_array_of_arrays_is_predicted() -> None:
    """The lower arrays split the ranges that the upper array sends."""
    lower = _make_members(512)
    tops = [
        replace(
            make_layer(f"md{number}", f"9:{number}", Kind.MD, f"loop{number}p1"),
            facts=MdFacts(
                level="raid0",
                raid_disks=1,
                chunk_bytes=64 * KIB,
                members=(f"loop{number}p1",),
                data_offsets=(MIB,),
            ),
        )
        for number in range(2)
    ]
    facts = MdFacts(
        level="raid0", raid_disks=2, chunk_bytes=64 * KIB, members=("md0", "md1"), data_offsets=(MIB, MIB)
    )
    top = replace(make_layer("md2", "9:2", Kind.MD, "md0", "md1"), facts=facts)
    assert _predict_run(make_stack(top, *tops, *lower), 0, 4 * MIB).rounded_bytes == 2 * 4096


@pytest.mark.parametrize(
    ("chunk_kib", "outlook"),
    [(64, Outlook.UNKNOWN), (128, Outlook.REACHES), (192, Outlook.UNKNOWN), (320, Outlook.REACHES)],
)
def test_pool_chunks_smaller_than_a_stripe(chunk_kib: int, outlook: Outlook) -> None:
    """Only the pool knows the chunks' places: a single chunk contains no stripe, but adjacent chunks do."""
    disks = [make_layer(f"sd{letter}", f"8:{number}") for number, letter in enumerate("abcd")]
    facts = MdFacts(level="raid5", raid_disks=3, chunk_bytes=64 * KIB, handles_discard_safely=True)
    array = replace(make_layer("md0", "9:0", Kind.MD, "sda", "sdb", "sdc"), facts=facts)
    pool = replace(
        make_layer("dm-0", "252:0", Kind.THIN_POOL, "sdd", "md0"),
        facts=ThinPoolFacts(chunk_bytes=chunk_kib * KIB, mode=PoolMode.READ_WRITE),
        table=(DmTarget(0, 1 << 20, "thin-pool", ("8:3", "9:0", str(2 * chunk_kib), "0", "0")),),
        target="thin-pool",
    )
    thin = replace(make_layer("dm-1", "252:1", Kind.THIN, "dm-0"), target="thin")
    foretold = predict_trim(
        make_stack(thin, pool, *disks, array), FreeExtents({"252:1": Extents.from_pairs([(0, MIB)])})
    )
    assert foretold.outlook is outlook
    doubtful = any(" 128k " in doubt and doubt.endswith(" md0") for doubt in foretold.unknowable)
    assert doubtful == (outlook is Outlook.UNKNOWN)


@pytest.mark.parametrize(
    ("first", "most", "expected"),
    [
        (0, MIB, 32 * MIB),
        (128 * KIB, MIB, 0),
        (128 * KIB, 8 * MIB, 28 * MIB),
        (128 * KIB, 64 * MIB, 32 * MIB),
    ],
)
def test_parity_array_splits_at_disk_granules(first: int, most: int, expected: int) -> None:
    """The kernel counts from a disk's first granule, which may differ from the stripe's start. Pieces of a
    long discard then contain one stripe less."""
    disks = [make_layer(f"sd{letter}", f"8:{number}") for number, letter in enumerate("abc")]
    disks[1] = replace(disks[1], limits=replace(disks[1].limits, granularity=MIB, alignment=first))
    facts = MdFacts(
        level="raid4",
        raid_disks=3,
        chunk_bytes=512 * KIB,
        handles_discard_safely=True,
        members=("sda", "sdb", "sdc"),
        data_offsets=(2 * MIB,) * 3,
    )
    array = replace(make_layer("md0", "9:0", Kind.MD, "sda", "sdb", "sdc"), facts=facts)
    array = replace(array, limits=replace(array.limits, granularity=MIB, max_bytes=most))
    shifted = replace(
        make_layer("dm-0", "252:0", Kind.DM, "md0"),
        table=(DmTarget(0, 1 << 20, "linear", ("9:0", "2048")),),
        size_bytes=512 << 20,
        target="linear",
        limits=array.limits,
    )
    for on in (make_stack(array, *disks), make_stack(shifted, array, *disks)):
        free = Extents.from_pairs([(4 * MIB, 36 * MIB)])
        foretold = predict_trim(on, FreeExtents({on.layers[0].dev: free}))
        assert foretold.expected_bytes == expected
        outlook = Outlook.REACHES if expected == 32 * MIB else Outlook.PART if expected else Outlook.UNKNOWN
        assert foretold.outlook is outlook


def _make_thin_on(data: Layer) -> tuple[Layer, Layer, Layer]:
    """A thin volume on a pool with chunks of 64 KiB on this device, and the pool's metadata."""
    pool = replace(
        make_layer("dm-0", "252:0", Kind.THIN_POOL, "sda", data.device),
        facts=ThinPoolFacts(chunk_bytes=64 * KIB, mode=PoolMode.READ_WRITE),
        table=(DmTarget(0, 1 << 20, "thin-pool", ("8:0", data.dev, "128", "0", "0")),),
        target="thin-pool",
    )
    return (
        replace(make_layer("dm-1", "252:1", Kind.THIN, "dm-0"), target="thin"),
        pool,
        make_layer("sda", "8:0"),
    )


def test_pool_chunks_may_all_be_where_no_bytes_are_freed() -> None:
    """A thin volume gets the first free chunks, wherever they are in the pool."""
    disks = make_layer("sdb", "8:16"), make_layer("sdc", "8:32")
    dropping = replace(disks[0], limits=replace(disks[0].limits, granularity=0, max_bytes=0))
    half = 1 << 20
    table = (DmTarget(0, half, "linear", ("8:16", "0")), DmTarget(half, half, "linear", ("8:32", "0")))
    data = replace(make_layer("dm-2", "252:2", Kind.DM, "sdb", "sdc"), table=table, target="linear")
    free = FreeExtents({"252:1": Extents.from_pairs([(0, 8 * MIB)])})
    foretold = predict_trim(make_stack(*_make_thin_on(data), data, dropping, disks[1]), free)
    assert (foretold.outlook, foretold.accepted) == (Outlook.UNKNOWN, True)
    doubt = "which chunks of dm-0 are on devices that accept discards: some devices below accept none"
    assert doubt in foretold.unknowable
    assert "member-no-discards" in [why.code for why in foretold.reasons]
    assert predict_trim(make_stack(*_make_thin_on(data), data, *disks), free).outlook is Outlook.REACHES


def test_pool_chunks_smaller_than_a_granule() -> None:
    disk = make_layer("sdb", "8:16")
    disk = replace(disk, limits=replace(disk.limits, granularity=MIB))
    thin, pool, meta = _make_thin_on(disk)
    foretold = predict_trim(
        make_stack(thin, pool, meta, disk), FreeExtents({"252:1": Extents.from_pairs([(0, 8 * MIB)])})
    )
    assert foretold.outlook is Outlook.UNKNOWN
    assert any(" 1M " in doubt and doubt.endswith(" sdb") for doubt in foretold.unknowable)


def test_part_of_a_table_on_a_disk_without_discards_is_not_expected() -> None:
    disks = make_layer("sdb", "8:16"), make_layer("sdc", "8:32", max_bytes=0, granularity=0)
    half = (256 * MIB) // 512
    table = (DmTarget(0, half, "linear", ("8:16", "0")), DmTarget(half, half, "linear", ("8:32", "0")))
    top = replace(make_layer("dm-0", "252:0", Kind.DM, "sdb", "sdc"), table=table, target="linear")
    free = FreeExtents({"252:0": Extents.from_pairs([(200 * MIB, 300 * MIB)])})
    expected = predict_trim(make_stack(replace(top, size_bytes=512 * MIB), *disks), free)
    assert expected.outlook is Outlook.PART
    assert expected.expected_bytes == 56 * MIB


def test_ext2_leaves_out_extents_below_the_granularity() -> None:
    disk = make_layer("sdb", "8:16", granularity=MIB)
    free = FreeExtents({"8:16": Extents.from_pairs([(0, MIB // 2), (4 * MIB, 8 * MIB)])})
    [run] = predict_trim(make_stack(disk, kind="ext2"), free).runs
    assert (run.below_minimum_bytes, run.expected_bytes) == (MIB // 2, 4 * MIB)


def test_expected_bytes_are_an_upper_bound_where_something_is_unknown() -> None:
    free = FreeExtents({"8:16": Extents.from_pairs([(0, 8 * MIB)])})
    assert predict_trim(make_stack(make_layer("sdb", "8:16"), kind="btrfs"), free).is_upper_bound
    assert not predict_trim(make_stack(make_layer("sdb", "8:16"), kind="f2fs"), free).is_upper_bound


def test_loop_over_nfs_has_no_granule() -> None:
    over_nfs = make_layer(
        "loop0", "7:0", Kind.LOOP, granularity=MIB, backing_filesystem="nfs4", backing_file="/n/f"
    )
    over_xfs = make_layer(
        "loop0", "7:0", Kind.LOOP, granularity=MIB, backing_filesystem="xfs", backing_file="/x/f"
    )
    assert (find_granule(over_nfs), find_granule(over_xfs)) == (None, (MIB, 0))


def test_target_that_may_refuse_discards_is_named() -> None:
    lun = make_layer("sdb", "8:16", provisioning_mode="unmap", vendor="LIO-ORG")
    assert any("LIO" in doubt for doubt in predict_trim(make_stack(lun)).unknowable)
    assert not any(
        "LIO" in doubt
        for doubt in predict_trim(make_stack(make_layer("sdb", "8:16", vendor="ATA"))).unknowable
    )
