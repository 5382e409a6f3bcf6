"""Blame of a drive: bands that agree with its counter, or proportional shares with the reason."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from itertools import pairwise

import pytest

from opwatch.blame.answer import Blame, ByteBand, blame_owners
from opwatch.blame.coalitions import Absence
from opwatch.blame.history import MAX_NAMED, REST, OwnedHistory, build_owned_history
from opwatch.errors import NotEnoughData
from opwatch.ftl.drive import Drive, Policy
from opwatch.ftl.host_load import HostLoad
from opwatch.sweep.history.model import UNIT_BYTES
from opwatch.sweep.ranges import ValueRange
from opwatch.trim.history.changes import ChangeKind
from opwatch.trim.history.requests import RecordedRequests
from opwatch.trim.history.saved import HistoryDrive

UNITS, SECTORS = 1 << 13, 8
DRIVE = HistoryDrive("sda", "S1", None, UNITS * SECTORS, 8, 0)
NAMES = {3: "/db.service", 5: "/log.service"}


def make_requests(writes: int, owners: tuple[int, ...] = (3, 5)) -> RecordedRequests:
    """Return writes of a unit each: the first owner's evenly, those of the others in order."""
    draw, part = random.Random(4), UNITS // len(owners)
    sectors, found, position = array("Q"), array("H"), 0
    for _ in range(writes):
        place = draw.randrange(len(owners))
        unit = draw.randrange(part)
        if place:
            unit, position = position, (position + 1) % part
        sectors.append((place * part + unit) * SECTORS)
        found.append(owners[place])
    lengths = array("I", [SECTORS]) * writes
    return RecordedRequests(DRIVE, sectors, lengths, bytes([ChangeKind.WRITE]) * writes, 60.0, 0, found)


def measure_nand(history: OwnedHistory) -> ValueRange:
    """Return what a drive of 15 % spare area and greedy collection counts for one repetition."""
    drive = Drive(
        {
            "user_bytes": UNITS * UNIT_BYTES,
            "physical_bytes": round(1.15 * UNITS) * UNIT_BYTES,
            "superblock_bytes": 128 * UNIT_BYTES,
            "policy": Policy.GREEDY,
        }
    )
    drive.fill_drive()
    model = history.system.model
    host = HostLoad(drive, UNITS * UNIT_BYTES, records=model.records)
    host.run(3 * model.written_units * UNIT_BYTES)
    nand = host.run(model.written_units * UNIT_BYTES).nand_bytes
    return ValueRange(nand, 0.01 * nand)


def contains(band: ByteBand | None, value: float) -> bool:
    return band is not None and band.low <= value <= band.high


def sum_bands(blame: Blame, field: str) -> ByteBand:
    bands = [getattr(owner, field) for owner in blame.owners]
    return ByteBand(sum(one.low for one in bands), sum(one.high for one in bands))


@pytest.fixture(scope="module")
def history() -> OwnedHistory:
    return build_owned_history("sda", make_requests(4 * UNITS), None, NAMES)


def test_bands_agree_with_the_counter_of_the_drive(history: OwnedHistory) -> None:
    nand = measure_nand(history)
    blame = blame_owners(history, nand)
    assert blame.refusal is None and blame.collectors and blame.absence is Absence.STAYS
    assert sum(owner.proportional_bytes for owner in blame.owners) == pytest.approx(nand.value)
    assert contains(sum_bands(blame, "caused"), nand.value)
    assert contains(sum_bands(blame, "moved_for"), nand.value - (blame.moved_for_older or ByteBand(0, 0)).low)
    by_name = {owner.name: owner for owner in blame.owners}
    random_writer, log_writer = (by_name[NAMES[place]] for place in (3, 5))
    assert random_writer.caused and log_writer.caused
    assert random_writer.caused.middle > log_writer.caused.middle
    assert all(blame.interference[at][at] is None for at in range(2))


def test_counter_that_no_model_explains_leaves_proportional_shares(history: OwnedHistory) -> None:
    written = history.system.written_bytes
    for waf in (60.0, 0.5):
        blame = blame_owners(history, ValueRange(waf * written, 0.01 * written))
        assert blame.refusal and not blame.collectors
        assert sum(owner.proportional_bytes for owner in blame.owners) == pytest.approx(waf * written)
        assert all(owner.caused is owner.moved_for is owner.saved_without is None for owner in blame.owners)


def test_short_history_leaves_proportional_shares() -> None:
    history = build_owned_history("sda", make_requests(200), None, NAMES)
    blame = blame_owners(history, ValueRange(2.0 * history.system.written_bytes, 0.0))
    assert blame.refusal and "short" in blame.refusal


def test_owners_beyond_the_largest_are_joined_in_the_rest() -> None:
    owners = tuple(range(1, 12))
    requests = make_requests(4000, owners)
    history = build_owned_history("sda", requests, None, {one: f"/{one}" for one in owners})
    assert len(history.names) == MAX_NAMED + 1 and history.names[-1] == REST
    assert sum(history.host_bytes) == requests.written_sectors * 512
    named = history.host_bytes[:-1]
    assert all(more >= less for more, less in pairwise(named))
    assert set(history.system.model.owners) == set(range(1, MAX_NAMED + 2))


def test_requests_without_a_known_owner_belong_to_the_rest() -> None:
    requests = make_requests(4000, (3, 0))
    history = build_owned_history("sda", requests, None, NAMES)
    assert history.names == (NAMES[3], REST)


def test_history_without_owners_is_refused() -> None:
    requests = replace(make_requests(4000), owners=array("H"))
    with pytest.raises(NotEnoughData, match="no owners"):
        build_owned_history("sda", requests, None, NAMES)
