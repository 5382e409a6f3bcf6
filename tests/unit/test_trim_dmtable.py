from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.errors import OpwatchError
from opwatch.trim.dmtable import PoolStatus, Target, chunk_bytes, mapped_sectors, parse, pool_status
from tests.fuzz import trim_tables

FIXTURES = Path(__file__).parents[1] / "fixtures"
GOOD = FIXTURES / "good" / "trim"


def test_tables_are_read() -> None:
    plain, discards, pool, one, two, era = parse((GOOD / "tables.txt").read_text())
    assert (plain.kind, plain.flags, discards.flags) == ("crypt", (), ("allow_discards",))
    assert chunk_bytes(pool) == 2048 * 512
    assert (one.first, one.sectors, one.device) == (0, 1048576, ("259:1", 2048))
    assert (two.first, two.device) == (1048576, ("259:1", 1116160))
    assert discards.device == ("259:1", 0)
    assert (era.kind, era.device, chunk_bytes(era)) == ("era", None, None)


def test_a_pool_says_what_it_does_with_discards() -> None:
    found = [pool_status(target) for target in parse((GOOD / "statuses.txt").read_text())]
    assert found == [
        PoolStatus("rw", 0, 781, "discard_passdown"),
        PoolStatus("rw", 122, 781, "discard_passdown"),
        PoolStatus("rw", 32, 781, "no_discard_passdown"),
        PoolStatus("rw", 32, 781, "ignore_discard"),
        PoolStatus("ro", 32, 781, "discard_passdown"),
    ]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("0 8 thin-pool Fail", PoolStatus("Fail")),
        (
            "0 8 thin-pool 1 2/3 4/5 - out_of_data_space discard_passdown error_if_no_space needs_check 8",
            PoolStatus("out_of_data_space", 4, 5, "discard_passdown", True),
        ),
        ("0 8 thin-pool 1", None),
        ("0 8 thin-pool", None),
        ("0 8 linear 8:0 0", None),
    ],
)
def test_other_states_of_a_pool(line: str, status: PoolStatus | None) -> None:
    [target] = parse(line)
    assert pool_status(target) == status


def test_a_thin_device_tells_what_is_mapped() -> None:
    assert [mapped_sectors(target) for target in parse("0 8 thin 204800 9\n0 8 thin Fail\n0 8 linear")] == [
        *(204800, None, None)
    ]


def test_a_target_cut_short_goes_nowhere() -> None:
    assert Target(0, 8, "linear", ("8:0",)).device is None
    assert Target(0, 8, "linear", ("8:0", "x")).device is None


@pytest.mark.parametrize("name", ["tables-none.txt", "tables-cut.txt", "tables-words.txt"])
def test_what_is_no_table_is_refused(name: str) -> None:
    with pytest.raises(OpwatchError, match="device-mapper table"):
        parse((FIXTURES / "bad" / "trim" / name).read_text())


@pytest.mark.parametrize("seed", range(5))
def test_fuzz(seed: int) -> None:
    trim_tables.run(400, seed)
