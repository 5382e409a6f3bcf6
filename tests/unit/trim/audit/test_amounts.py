"""Byte counts that differ from the filesystem's: parity of arrays, and ranges sent twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.trim.audit.audit import Audit, Verdict
from opwatch.trim.audit.flow import Flow, Origin, SenderKind, Stage
from opwatch.trim.audit.ledger import build_audit
from opwatch.trim.layers.arrays import MdFacts
from opwatch.trim.stack.layers import Kind
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_evidence,
    make_extent_flow,
    make_flow,
    make_layer,
    make_stack,
    with_limit,
)

MIB = 1 << 20
MEMBERS = {"sda": "8:0", "sdb": "8:16", "sdc": "8:32"}
ARRAY = make_layer("md0", "9:0", Kind.MD, *MEMBERS, level="raid5", raid_disks=3)
WHOLE = make_stack(ARRAY, *(make_layer(name, dev) for name, dev in MEMBERS.items()))


def _make_flows(bytes_to_each: int, *names: str) -> list[Flow]:
    """Send 10 MiB to the array and the given number of bytes to each member."""
    below = [
        one_flow
        for name in names
        for one_flow in make_disk_flows(name, MEMBERS[name], bytes_to_each, who=SenderKind.KERNEL)
    ]
    return [make_extent_flow("9:0", 10 * MIB), make_flow(Stage.BIO, "9:0", 10 * MIB, disk="md0"), *below]


def _map_losses(result: Audit) -> dict[str, int | None]:
    return {reason.code: reason.lost_bytes for row in result.rows for reason in row.reasons}


def test_parity_is_not_counted_as_data() -> None:
    """Of 10 MiB, RAID 5 on three disks passes on 8: 4 MiB to each member, a third of them parity."""
    flows = _make_flows(4 * MIB, *MEMBERS)
    result = build_audit(make_evidence(WHOLE, flows, 10 * MIB), "/m")
    assert _map_losses(result) == {"raid456-partial-stripe": 2 * MIB}
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.PARTIAL, 12 * MIB, 0)
    # Members with different amounts fit no stripe; the difference stays unexplained.
    uneven = build_audit(make_evidence(WHOLE, flows[:-3], 10 * MIB), "/m")
    assert _map_losses(uneven) == {}
    assert uneven.unexplained_bytes == 10 * MIB


def test_bytes_sent_by_the_filesystem_do_not_offset_a_loss() -> None:
    """8 of our 10 MiB are whole stripes. Another 2 MiB, out of 3 that the filesystem sent, also reach the
    members."""
    own = make_flow(Stage.BIO, "9:0", 3 * MIB, disk="md0", who=SenderKind.KERNEL, whole=2 * MIB)
    flows = [*_make_flows(5 * MIB, *MEMBERS), own]
    flows[1] = make_flow(Stage.BIO, "9:0", 10 * MIB, disk="md0", whole=8 * MIB)
    sender = Origin(
        "md0", "9:0", "kworker/1:1H", 1, "discard", SenderKind.KERNEL, 1, 3 * MIB, MIB, 2 * MIB, 0
    )
    followed = make_evidence(WHOLE, flows, 10 * MIB)
    result = build_audit(replace(followed, trace=replace(followed.trace, origins=(sender,))), "/m")
    assert _map_losses(result) == {"raid456-partial-stripe": 2 * MIB}
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)
    [said] = [reason for reason in result.reasons if reason.code == "others-write"]
    assert said.observed.startswith(f"{3 * MIB} B ") and said.observed.endswith(" md0")


def test_other_bytes_do_not_hide_a_member_without_discards() -> None:
    """A mirror gets 10 MiB from us and 16 from the filesystem: the first member's 26 MiB do not stand for 20
    of ours."""
    legs = ("sda", "sdb")
    mirror = make_layer("md0", "9:0", Kind.MD, *legs, level="raid1", raid_disks=2)
    whole = make_stack(mirror, *(make_layer(name, MEMBERS[name]) for name in legs))
    own = make_flow(Stage.BIO, "9:0", 16 * MIB, disk="md0", who=SenderKind.KERNEL)
    for reached, expected in ((legs, {}), (legs[:1], {"member-no-discards": 10 * MIB})):
        below = [
            part
            for name in reached
            for part in make_disk_flows(name, MEMBERS[name], 26 * MIB, who=SenderKind.KERNEL)
        ]
        ours = make_flow(Stage.BIO, "9:0", 10 * MIB, disk="md0")
        flows = [make_extent_flow("9:0", 10 * MIB), ours, own, *below]
        before = whole if reached == legs else with_limit(whole, "sdb", 0)
        result = build_audit(make_evidence(before, flows, 10 * MIB), "/m")
        assert (_map_losses(result), result.unexplained_bytes) == (expected, 0)
        assert result.verdict is (Verdict.PARTIAL if expected else Verdict.ACCEPTED)


def test_a_member_without_discards_keeps_its_share() -> None:
    """A third of the 8 MiB of whole stripes is on the member, because parity rotates over all members."""
    without = with_limit(WHOLE, "sdb", 0)
    result = build_audit(make_evidence(without, _make_flows(4 * MIB, "sda", "sdc"), 10 * MIB), "/m")
    share = 8 * MIB // 3
    assert _map_losses(result) == {"member-no-discards": share, "raid456-partial-stripe": 2 * MIB}
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.PARTIAL, 8 * MIB, 0)


def test_member_that_fails_during_the_trim_keeps_the_rest() -> None:
    """md continues without the member: 3 of its 4 MiB were sent before, and 1 of 12 MiB of data and parity is
    missing."""
    degraded = replace(ARRAY, facts=replace(ARRAY.facts_as(MdFacts), degraded=1))
    later = replace(WHOLE, layers=tuple(degraded if one == ARRAY else one for one in WHOLE.layers))
    flows = [
        *_make_flows(4 * MIB, "sdb", "sdc"),
        *make_disk_flows("sda", "8:0", 3 * MIB, who=SenderKind.KERNEL),
    ]
    result = build_audit(replace(make_evidence(WHOLE, flows, 10 * MIB), after=later), "/m")
    assert _map_losses(result) == {"member-missing": 8 * MIB // 12, "raid456-partial-stripe": 2 * MIB}
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.PARTIAL, 11 * MIB, 0)
    # Only one member can be missing; two short members fit no cause.
    uneven = [
        *_make_flows(4 * MIB, "sdc"),
        *(one for name in ("sda", "sdb") for one in _make_smaller_flows(name)),
    ]
    result = build_audit(replace(make_evidence(WHOLE, uneven, 10 * MIB), after=later), "/m")
    assert (_map_losses(result), result.unexplained_bytes) == ({}, 10 * MIB)


def _make_smaller_flows(name: str) -> list[Flow]:
    return make_disk_flows(name, MEMBERS[name], 3 * MIB, who=SenderKind.KERNEL)


def test_f2fs_repeats_ranges_sent_in_part() -> None:
    """Linux 6.1, discards of 64 KiB: the events report 1,798,430,720 B, and 654,303,232 B were sent in
    total."""
    flows = [make_extent_flow("8:0", 1_798_430_720, count=1562), *make_disk_flows("sda", "8:0", 654_303_232)]
    one = make_stack(make_layer("sda", "8:0"), kind="f2fs")
    result = build_audit(make_evidence(one, flows, 654_303_232), "/m")
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
    # For a device without discards the bios may stop before the first event.
    without = with_limit(one, "sda", 0)
    short = build_audit(make_evidence(without, [flows[0], *make_disk_flows("sda", "8:0", MIB)], MIB), "/m")
    assert _map_losses(short)["device-no-discards"] == 1_798_430_720 - MIB


def test_ranges_that_btrfs_sends_again_count_twice_as_reached() -> None:
    """Linux 6.1 discards extents of a block group, then its bitmaps, with some of the same ranges."""
    flows = [
        make_flow(Stage.REQUESTED, "8:0", 9 * MIB),
        make_flow(Stage.BIO_REPEATED, "8:0", MIB, disk="sda"),
        *make_disk_flows("sda", "8:0", 9 * MIB),
    ]
    result = build_audit(
        make_evidence(make_stack(make_layer("sda", "8:0"), kind="btrfs"), flows, 9 * MIB), "/m"
    )
    [again] = [why for why in result.rows[0].reasons if why.code == "btrfs-discards-again"]
    assert again.observed.startswith(f"up to {MIB} B")
    assert (result.verdict, result.reached_bytes, again.lost_bytes) == (Verdict.ACCEPTED, 9 * MIB, None)
    # Other filesystems go through their free space in a different order.
    assert not _map_losses(
        build_audit(make_evidence(make_stack(make_layer("sda", "8:0"), kind="xfs"), flows, 9 * MIB), "/m")
    )


@pytest.mark.parametrize(
    ("layout", "left", "is_explained"),
    # Two copies: near on three members, near on two, far, and offset.
    [(0x102, 2, True), (0x102, 1, False), (0x201, 2, True), (0x10201, 2, True)],
)
def test_raid10_member_may_hold_as_much_as_two_other_members(
    layout: int, left: int, *, is_explained: bool
) -> None:
    """Linux 6.1, one of three members is missing: it had 16 KiB more than the largest of the others."""
    got = {"sda": 310_378_496, "sdb": 310_362_112}
    below = dict(list(got.items())[:left])
    claimed = (sum(below.values()) + 310_394_880) // 2
    array = make_layer(
        "md0", "9:0", Kind.MD, *below, level="raid10", layout=layout, raid_disks=left + 1, degraded=1
    )
    sent = [make_extent_flow("9:0", claimed), make_flow(Stage.BIO, "9:0", claimed, disk="md0")]
    handed_on = [one_flow for name in below for one_flow in make_disk_flows(name, MEMBERS[name], below[name])]
    disks = [make_layer(name, MEMBERS[name]) for name in below]
    result = build_audit(make_evidence(make_stack(array, *disks), [*sent, *handed_on], claimed), "/m")
    assert (result.unexplained_bytes == 0) == is_explained
