from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.errors import OpwatchError
from opwatch.trim.stack.dmtable import (
    DmTarget,
    PoolMode,
    PoolStatus,
    Raid,
    count_missing_members,
    parse_areas,
    parse_chunk_bytes,
    parse_mapped_sectors,
    parse_pool_status,
    parse_raid,
    parse_sync_action,
    parse_table,
)
from tests.fuzz import trim_tables

FIXTURES = Path(__file__).parents[3] / "fixtures"
GOOD = FIXTURES / "good" / "trim"


def test_tables_are_read() -> None:
    plain, discards, pool, one, two, era = parse_table((GOOD / "tables.txt").read_text())
    assert (plain.kind, plain.flags, discards.flags) == ("crypt", (), ("allow_discards",))
    assert parse_chunk_bytes(pool) == 2048 * 512
    assert (one.first, one.sectors, one.mapped_device) == (0, 1048576, ("259:1", 2048))
    assert (two.first, two.mapped_device) == (1048576, ("259:1", 1116160))
    assert discards.mapped_device == ("259:1", 0)
    assert (era.kind, era.mapped_device, parse_chunk_bytes(era)) == ("era", None, None)


def test_pool_reports_its_discard_mode() -> None:
    statuses = [parse_pool_status(target) for target in parse_table((GOOD / "statuses.txt").read_text())]
    assert statuses == [
        PoolStatus(PoolMode.READ_WRITE, 0, 781, "discard_passdown"),
        PoolStatus(PoolMode.READ_WRITE, 122, 781, "discard_passdown"),
        PoolStatus(PoolMode.READ_WRITE, 32, 781, "no_discard_passdown"),
        PoolStatus(PoolMode.READ_WRITE, 32, 781, "ignore_discard"),
        PoolStatus(PoolMode.READ_ONLY, 32, 781, "discard_passdown"),
    ]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("0 8 thin-pool Fail", PoolStatus(PoolMode.FAIL)),
        (
            "0 8 thin-pool 1 2/3 4/5 - out_of_data_space discard_passdown error_if_no_space needs_check 8",
            PoolStatus(PoolMode.OUT_OF_DATA_SPACE, 4, 5, "discard_passdown", True),
        ),
        ("0 8 thin-pool 1", None),
        ("0 8 thin-pool", None),
        ("0 8 linear 8:0 0", None),
    ],
)
def test_unusual_pool_states_are_parsed(line: str, status: PoolStatus | None) -> None:
    [target] = parse_table(line)
    assert parse_pool_status(target) == status


def test_thin_device_reports_its_mapped_sectors() -> None:
    assert [
        parse_mapped_sectors(target) for target in parse_table("0 8 thin 204800 9\n0 8 thin Fail\n0 8 linear")
    ] == [*(204800, None, None)]


def test_dm_raid_tables_are_parsed() -> None:
    """Tables and statuses in Linux 6.12 for arrays of loop devices, each with a metadata device."""
    targets = parse_table((GOOD / "raids.txt").read_text())
    mirror, status, five, its_status, six, ten, zero = targets
    arrays = [array for target in (mirror, five, six, ten, zero) if (array := parse_raid(target))]
    assert [len(array.data) for array in arrays] == [array.disks for array in arrays]
    assert all(re.fullmatch("[0-9]+:[0-9]+", dev) for array in arrays for dev in array.data)
    arrays = [replace(array, data=()) for array in arrays]
    assert arrays == [
        Raid("raid1", 2, chunk_bytes=0),
        Raid("raid5", 3, chunk_bytes=64 << 10),
        Raid("raid6", 5, chunk_bytes=64 << 10),
        Raid("raid10", 4, chunk_bytes=64 << 10),
        Raid("raid0", 2, chunk_bytes=64 << 10),
    ]
    assert [count_missing_members(target) for target in (status, its_status, mirror)] == [0, 0, None]


@pytest.mark.parametrize(
    ("line", "expected", "missing"),
    [
        (
            "0 8 raid raid10_far 5 128 raid10_copies 3 raid10_format far 3 - 8:0",
            Raid("raid10", 3, 3, 64 << 10, is_near=False),
            None,
        ),
        ("0 8 raid raid6_nc 5 AD-aA 8/8 idle 0 0 -", None, 2),
        ("0 8 raid raid1 9 0 2 - 8:0", None, None),
        ("0 8 raid raid1 3 0 raid10_copies 0 2 - 8:0 - 8:1", None, None),
        ("0 8 raid raid1 1 0 0", None, None),
        ("0 8 raid raid15 1 0 2 - 8:0 - 8:1", None, None),
        ("0 8 raid", None, None),
        ("0 8 linear 8:0 0", None, None),
    ],
)
def test_raid_lines_are_parsed(line: str, expected: Raid | None, missing: int | None) -> None:
    [target] = parse_table(line)
    assert (parse_raid(target), count_missing_members(target)) == (expected, missing)


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("0 8 raid raid1 2 Aa 128/819200 resync 0 0 -", "resync"),
        ("0 8 raid raid1 2 AA 819200/819200 idle 0 0 -", "idle"),
        ("0 8 raid raid1 2 AA 819200/819200", None),
        ("0 8 raid raid1 2 AA 819200/819200 7 0", None),
        ("0 8 raid raid1 3 0 region_size 1024 2 - 8:0 - 8:1", None),
    ],
)
def test_background_action_of_a_raid_is_parsed(line: str, action: str | None) -> None:
    [target] = parse_table(line)
    assert parse_sync_action(target) == action


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("8:0 0 4 D 2 journal_sectors:7568 interleave_sectors:32768", ("8:0", 7832, 32768, 256)),
        ("8:0 8 32 J 3 journal_sectors:8 interleave_sectors:8 fix_padding", ("8:0", 32, 8, 8)),
        ("8:0 0 4 J 3 journal_sectors:8 interleave_sectors:32768 block_size:4096", ("8:0", 272, 32768, 256)),
        ("8:0 9 4 B 1 meta_device:8:1", ("8:0", 0, 64, 0)),
        ("8:0 0 4 I 2 journal_sectors:0 interleave_sectors:32768", None),
        ("8:0 0 4 D 1 journal_sectors:7568", None),
        ("8:0 0 4 D 2 journal_sectors:x interleave_sectors:32768", None),
        ("8:0 0 4 D 3 journal_sectors:8 interleave_sectors:8 block_size:0", None),
        ("8:0 0 4", None),
    ],
)
def test_dm_integrity_data_offset_is_parsed(words: str, expected: tuple[str, int, int, int] | None) -> None:
    [target] = parse_table(f"0 64 integrity {words}")
    assert parse_areas(target) == expected


def test_truncated_target_is_refused() -> None:
    assert DmTarget(0, 8, "linear", ("8:0",)).mapped_device is None
    assert DmTarget(0, 8, "linear", ("8:0", "x")).mapped_device is None


@pytest.mark.parametrize("name", ["tables-none.txt", "tables-cut.txt", "tables-words.txt"])
def test_invalid_table_is_refused(name: str) -> None:
    with pytest.raises(OpwatchError, match="device-mapper"):
        parse_table((FIXTURES / "bad" / "trim" / name).read_text())


@pytest.mark.parametrize("seed", range(5))
def test_fuzzed_tables_are_parsed_or_refused(seed: int) -> None:
    trim_tables.run(400, seed)
