"""Rows of written bytes: they close, and what is unknown has a reason."""

from __future__ import annotations

from opwatch.writes.application import ApplicationWrites
from opwatch.writes.classes import WriteClass
from opwatch.writes.reading import DriveAmplification, WriteLayer, WriteStack
from opwatch.writes.waterfall import Waterfall, WaterfallRow, WriteStep, compute_waterfall
from opwatch.writes.witnesses import FilesystemCounters

from .readings import make_reading

DISK = WriteStack("/srv", "ext4", ("sda",), (WriteLayer("sda", ""),), 4096)
MIRROR = WriteStack(
    "/srv",
    "xfs",
    ("md0",),
    (WriteLayer("md0", "RAID 1", ("sda", "sdb")), WriteLayer("sda", ""), WriteLayer("sdb", "")),
)
WRITTEN = {
    WriteClass.DATA: 600_000,
    WriteClass.DIRECT: 400_000,
    WriteClass.JOURNAL: 81_920,
    WriteClass.METADATA: 8192,
}
SUM = sum(WRITTEN.values())
ZERO = make_reading({}, {"sda": 0, "sdb": 0, "md0": 0})


def find_row(waterfall: Waterfall, kind: WriteStep) -> WaterfallRow:
    (row,) = [row for row in waterfall.rows if row.kind is kind]
    return row


def test_classes_add_up_to_the_kernels_count_without_another_row() -> None:
    waterfall = compute_waterfall(DISK, ZERO, make_reading(WRITTEN, {"sda": SUM}, second=2))
    assert find_row(waterfall, WriteStep.DATA).added == 1_000_000
    assert find_row(waterfall, WriteStep.METADATA).total == SUM
    assert find_row(waterfall, WriteStep.DEVICE).total == SUM
    assert WriteStep.OTHER not in {row.kind for row in waterfall.rows}
    assert waterfall.seconds == 2
    assert not waterfall.findings


def test_bytes_without_a_class_are_a_row_and_above_one_percent_a_finding() -> None:
    few = compute_waterfall(DISK, ZERO, make_reading(WRITTEN, {"sda": SUM + 4096}))
    assert find_row(few, WriteStep.OTHER).added == 4096
    assert not few.findings
    many = compute_waterfall(DISK, ZERO, make_reading(WRITTEN, {"sda": SUM + 40_960}))
    assert find_row(many, WriteStep.OTHER).total == SUM + 40_960
    assert len(many.findings) == 1


def test_classified_bytes_of_class_other_belong_to_the_same_row() -> None:
    written = {**WRITTEN, WriteClass.OTHER: 512}
    waterfall = compute_waterfall(DISK, ZERO, make_reading(written, {"sda": SUM + 512}))
    assert find_row(waterfall, WriteStep.OTHER).added == 512


def test_requests_in_flight_explain_a_negative_remainder() -> None:
    end = make_reading(WRITTEN, {"sda": SUM - 4096}, in_flight=1)
    other = find_row(compute_waterfall(DISK, ZERO, end), WriteStep.OTHER)
    assert other.added == -4096
    assert other.reason is not None
    assert "in flight" in other.reason


def test_a_device_without_statistics_has_a_reason_and_no_number() -> None:
    waterfall = compute_waterfall(DISK, ZERO, make_reading(WRITTEN, {}))
    for kind in (WriteStep.OTHER, WriteStep.DEVICE):
        row = find_row(waterfall, kind)
        assert (row.added, row.total) == (None, None)
        assert row.reason is not None
    assert waterfall.base is None


def test_ratios_refer_to_the_application_if_the_file_system_counts_it() -> None:
    begin = make_reading({}, {"md0": 0, "sda": 0, "sdb": 0}, counters=FilesystemCounters("XFS", 0, journal=0))
    end = make_reading(
        WRITTEN,
        {"md0": SUM, "sda": SUM + 4096, "sdb": SUM},
        counters=FilesystemCounters("XFS", 1_100_000, journal=81_920),
        dirty=5000,
    )
    waterfall = compute_waterfall(MIRROR, begin, end)
    cache = find_row(waterfall, WriteStep.PAGE_CACHE)
    assert (cache.added, cache.total, cache.error) == (-100_000, 1_000_000, None)
    layer = find_row(waterfall, WriteStep.LAYER)
    assert (layer.added, layer.total) == (SUM + 4096, 2 * SUM + 4096)
    drives = find_row(waterfall, WriteStep.DRIVES)
    assert drives.total == 2 * SUM + 4096
    assert waterfall.compute_ratio(drives) == (2 * SUM + 4096) / 1_100_000


def test_dirty_memory_at_either_end_is_the_error_of_the_page_cache() -> None:
    counters = FilesystemCounters("XFS", 0), FilesystemCounters("XFS", 10)
    begin = make_reading({}, {"sda": 0}, counters=counters[0], dirty=9000)
    end = make_reading({}, {"sda": 0}, counters=counters[1], dirty=4000)
    assert find_row(compute_waterfall(DISK, begin, end), WriteStep.PAGE_CACHE).error == 9000


def test_without_an_application_count_ratios_refer_to_the_device() -> None:
    waterfall = compute_waterfall(DISK, ZERO, make_reading(WRITTEN, {"sda": SUM}))
    application = find_row(waterfall, WriteStep.APPLICATION)
    assert application.total is None
    assert application.reason is not None
    assert waterfall.base is find_row(waterfall, WriteStep.DEVICE)
    assert waterfall.compute_ratio(application) is None


def test_counters_of_a_file_system_that_was_mounted_again_are_no_negative_growth() -> None:
    begin = make_reading({}, {"sda": 0}, counters=FilesystemCounters("XFS", 500))
    end = make_reading({}, {"sda": 0}, counters=FilesystemCounters("XFS", 10))
    assert find_row(compute_waterfall(DISK, begin, end), WriteStep.APPLICATION).total is None


def test_jbd2_is_the_witness_of_the_journal() -> None:
    agreed = compute_waterfall(DISK, ZERO, make_reading(WRITTEN, {"sda": SUM}, blocks=20, commits=1))
    witness = find_row(agreed, WriteStep.JOURNAL).witness
    assert witness is not None
    assert witness.agrees
    assert not agreed.findings


def test_a_witness_that_disagrees_is_a_finding_in_a_closed_interval_only() -> None:
    end = make_reading(WRITTEN, {"sda": SUM}, blocks=21, commits=1)
    assert len(compute_waterfall(DISK, ZERO, end, is_closed=True).findings) == 1
    assert not compute_waterfall(DISK, ZERO, end).findings


def test_without_a_commit_the_journal_has_no_witness() -> None:
    waterfall = compute_waterfall(DISK, ZERO, make_reading(WRITTEN, {"sda": SUM}))
    assert find_row(waterfall, WriteStep.JOURNAL).witness is None


def test_a_shared_member_makes_the_layer_and_the_drives_unknown() -> None:
    shared = WriteLayer("md0", "RAID 1", ("sda", "sdb"), {"sda": ("dm-3",)})
    stack = WriteStack("/srv", "xfs", ("md0",), (shared, *MIRROR.layers[1:]))
    end = make_reading(WRITTEN, {"md0": SUM, "sda": SUM, "sdb": SUM})
    waterfall = compute_waterfall(stack, ZERO, end)
    for kind in (WriteStep.LAYER, WriteStep.DRIVES):
        row = find_row(waterfall, kind)
        assert row.total is None
        assert row.reason == "sda also carries dm-3"
    assert find_row(waterfall, WriteStep.DEVICE).total == SUM


def test_a_raw_device_has_no_rows_of_a_file_system() -> None:
    stack = WriteStack("sda", None, ("sda",), (WriteLayer("sda", ""),))
    waterfall = compute_waterfall(stack, ZERO, make_reading({WriteClass.RAW: 4096}, {"sda": 4096}))
    assert [row.kind for row in waterfall.rows] == [WriteStep.RAW, WriteStep.DEVICE]


def test_our_count_of_programs_writes_comes_before_the_file_systems_own() -> None:
    counters = FilesystemCounters("XFS", application=0), FilesystemCounters("XFS", application=1_000_001)
    begin = make_reading({}, {"sda": 0}, counters=counters[0], application=ApplicationWrites(5, 7, 1))
    end = make_reading(
        WRITTEN, {"sda": SUM}, counters=counters[1], application=ApplicationWrites(600_005, 400_007, 4)
    )
    waterfall = compute_waterfall(DISK, begin, end, is_closed=True)
    row = find_row(waterfall, WriteStep.APPLICATION)
    assert row.added == 1_000_000
    assert row.application == ApplicationWrites(600_000, 400_000, 3)
    assert waterfall.base == row
    assert any("1000001" in finding for finding in waterfall.findings)


def test_the_application_row_has_the_reason_if_nobody_counts() -> None:
    row = find_row(compute_waterfall(DISK, ZERO, make_reading(WRITTEN, {"sda": SUM})), WriteStep.APPLICATION)
    assert (row.added, row.reason) == (None, "fexit is refused")


def test_direct_writes_of_unknown_size_are_a_finding() -> None:
    begin = make_reading({}, {"sda": 0}, application=ApplicationWrites(0, 0, None))
    end = make_reading(WRITTEN, {"sda": SUM}, application=ApplicationWrites(0, 0, None, lost=2))
    assert len(compute_waterfall(DISK, begin, end).findings) == 1


def test_nand_bytes_are_those_of_each_drive_times_its_amplification() -> None:
    end = make_reading(WRITTEN, {"md0": SUM, "sda": 2_000_000, "sdb": 1_000_000})
    drives = {"sda": DriveAmplification(1.5, 0.1), "sdb": DriveAmplification(3.0, 0.2)}
    row = find_row(compute_waterfall(MIRROR, ZERO, end, drives=drives), WriteStep.NAND)
    assert (row.total, row.error) == (6_000_000, 400_000)


def test_nand_is_unknown_if_one_drive_does_not_count_it() -> None:
    end = make_reading(WRITTEN, {"md0": SUM, "sda": SUM, "sdb": SUM})
    drives = {"sda": DriveAmplification(1.5, 0.1), "sdb": DriveAmplification(None, reason="no counter")}
    row = find_row(compute_waterfall(MIRROR, ZERO, end, drives=drives), WriteStep.NAND)
    assert (row.total, row.reason) == (None, "no counter")
    without = compute_waterfall(MIRROR, ZERO, end)
    assert WriteStep.NAND not in {row.kind for row in without.rows}
