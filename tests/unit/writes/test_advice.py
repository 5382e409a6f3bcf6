"""Advice about writes: given only if the rows prove it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.blame.advice import advise_tenants
from opwatch.blame.answer import Blame, ByteBand, OwnerBlame
from opwatch.blame.coalitions import Absence
from opwatch.collectors.writes.stacks import find_parity
from opwatch.sinks.writes import build_writes_document, format_writes
from opwatch.sweep.ranges import ValueRange
from opwatch.trim.layers.arrays import MdFacts
from opwatch.trim.stack.layers import Kind, Layer
from opwatch.trim.stack.limits import QueueLimits
from opwatch.writes.advice import WriteAdviceKind, advise_writes
from opwatch.writes.classes import WriteClass
from opwatch.writes.reading import Parity, WriteLayer, WriteStack
from opwatch.writes.series import WritesOutcome
from opwatch.writes.waterfall import Waterfall, compute_waterfall

from .readings import make_reading

MB = 1_000_000


def measure_journal(journal: int, commits: int, seconds: int = 10) -> Waterfall:
    """Return the rows of an ext4 file system with 100 MB of data."""
    stack = WriteStack("/srv", "ext4", ("sda",), (WriteLayer("sda", ""),), 4096)
    written = {WriteClass.DATA: 100 * MB, WriteClass.JOURNAL: journal}
    begin = make_reading({}, {"sda": 0})
    end = make_reading(
        written,
        {"sda": sum(written.values())},
        blocks=journal // 4096,
        commits=commits,
        second=seconds,
    )
    return compute_waterfall(stack, begin, end)


def measure_array(written: float, parity: Parity | None, received: int = 100 * MB) -> Waterfall:
    """Return the rows of an array that wrote this many bytes per received byte."""
    members = ("sda", "sdb", "sdc", "sdd")
    layers = (
        WriteLayer("md0", "md raid5", members, parity=parity),
        *(WriteLayer(one, "") for one in members),
    )
    begin = make_reading({}, dict.fromkeys(("md0", *members), 0))
    each = round(written * received / len(members))
    end = make_reading(
        {WriteClass.RAW: received}, {"md0": received} | dict.fromkeys(members, each), second=10
    )
    return compute_waterfall(WriteStack("md0", None, ("md0",), layers), begin, end)


def list_kinds(waterfall: Waterfall) -> list[WriteAdviceKind]:
    return [one.kind for one in advise_writes(waterfall)]


@pytest.mark.parametrize(
    ("journal", "commits", "is_storm"),
    [
        (80 * MB, 800, True),
        # A small share, commits as without syncs, and transactions that are full.
        (10 * MB, 800, False),
        (80 * MB, 5, False),
        (80 * MB, 40, False),
        (0, 800, False),
    ],
)
def test_syncs_are_named_if_frequent_small_commits_fill_the_journal(
    journal: int, commits: int, is_storm: bool
) -> None:
    assert (list_kinds(measure_journal(journal, commits)) == [WriteAdviceKind.SYNCS]) == is_storm


def test_syncs_are_not_named_if_commits_are_not_counted() -> None:
    waterfall = measure_journal(80 * MB, 800)
    assert waterfall.commits == 800
    assert list_kinds(replace(waterfall, commits=None)) == []


@pytest.mark.parametrize(
    ("written", "is_small"),
    # Full stripes, half of the bytes in single blocks, all of them, and more than parity explains.
    [(4 / 3, False), (1.67, True), (2.0, True), (4.0, False)],
)
def test_writes_below_a_stripe_are_named_by_their_parity(written: float, is_small: bool) -> None:
    kinds = list_kinds(measure_array(written, Parity(4, 1)))
    assert kinds == ([WriteAdviceKind.PARITY] if is_small else [])


def test_parity_is_not_judged_without_enough_bytes_or_for_other_arrays() -> None:
    assert list_kinds(measure_array(2.0, Parity(4, 1), received=MB)) == []
    assert list_kinds(measure_array(2.0, None)) == []


@pytest.mark.parametrize(
    ("facts", "parity"),
    [
        (MdFacts(level="raid5", raid_disks=4, degraded=0, sync_action="idle"), Parity(4, 1)),
        (MdFacts(level="raid6", raid_disks=6, degraded=0, sync_action="idle"), Parity(6, 2)),
        (MdFacts(level="raid5", raid_disks=4, degraded=1, sync_action="idle"), None),
        (MdFacts(level="raid5", raid_disks=4, degraded=0, sync_action="resync"), None),
        (MdFacts(level="raid1", raid_disks=2, degraded=0, sync_action="idle"), None),
    ],
)
def test_parity_is_known_for_a_healthy_idle_array(facts: MdFacts, parity: Parity | None) -> None:
    assert find_parity(Layer("md0", "9:0", Kind.MD, 1 << 30, QueueLimits(), facts=facts)) == parity


def test_advice_is_printed_and_in_the_document() -> None:
    outcome = WritesOutcome(measure_array(2.0, Parity(4, 1)))
    text = " ".join(" ".join(format_writes(outcome)).split())
    assert "1.00 bytes of parity per byte" in text and "need 0.33" in text
    [advice] = build_writes_document(outcome)["advice"]
    assert advice["kind"] == "parity" and set(advice) == {"kind", "statement", "action"}


def make_blame(low: float, high: float) -> Blame:
    owners = tuple(OwnerBlame(name, 500, 1000.0) for name in ("/log", "/db"))
    interference = ((None, ByteBand(low, high)), (ByteBand(-10.0, 10.0), None))
    return Blame(ValueRange(2000.0, 10.0), Absence.STAYS, owners, interference=interference)


def test_tenants_are_named_if_their_interference_is_certainly_large() -> None:
    [advice] = advise_tenants(make_blame(200.0, 600.0))
    assert advice.kind is WriteAdviceKind.TENANTS
    assert "/log add 200 B to 600 B" in advice.statement and "data of /db" in advice.statement
    assert list(advise_tenants(make_blame(50.0, 600.0))) == []
    refused = replace(make_blame(200.0, 600.0), interference=(), refusal="no model")
    assert list(advise_tenants(refused)) == []
