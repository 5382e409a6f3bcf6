"""`opwatch trim audit` through md, with the files behind loop devices as the oracle."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kernel.support import trims
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Verdict,
    audit_new_filesystem,
    audit_point,
    count_freed_bytes,
    find_image,
    find_leaf_row,
    fragment_free_space,
    full_loop,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.scsidebug import load_scsi_debug
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.trims import run_check
from tests.vm.requirements import need_module

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("virtio-blk-nodiscard",)


def test_md_mirror_frees_the_claimed_bytes_on_both_legs() -> None:
    with full_loop() as one, full_loop() as two, stacked.create_md(1, [one, two]) as top:
        result = audit_new_filesystem(top, "ext4", one, two)
        assert count_freed_bytes(one) == count_freed_bytes(two) == result.claimed_bytes
    assert result.verdict is Verdict.ACCEPTED
    assert result.unexplained_bytes == 0
    assert find_leaf_row(result, top).bytes_ok == result.claimed_bytes
    assert result.reached_bytes == 2 * (result.claimed_bytes or 0)


def test_md_mirror_is_partial_when_a_leg_accepts_no_discards() -> None:
    other = sysfs.disk("opw-virtio-nodisc")
    with full_loop() as one, stacked.create_md(1, [one, other]) as top:
        result = audit_new_filesystem(top, "ext4", one)
        assert count_freed_bytes(one) == result.claimed_bytes == result.reached_bytes
    assert result.verdict is Verdict.PARTIAL
    assert sum_reasons(result) == {"member-no-discards": result.claimed_bytes}
    assert result.unexplained_bytes == 0


@pytest.mark.parametrize("level", [0, 10])
def test_striped_array_frees_the_claimed_bytes(level: int) -> None:
    with contextlib.ExitStack() as opened:
        loops = [opened.enter_context(full_loop(128 * MIB)) for _ in range(4)]
        top = opened.enter_context(stacked.create_md(level, loops))
        result = audit_new_filesystem(top, "ext4", *loops)
        assert sum(count_freed_bytes(loop) for loop in loops) == result.reached_bytes
    assert result.verdict is Verdict.ACCEPTED
    assert result.unexplained_bytes == 0
    assert find_leaf_row(result, top).bytes_ok == result.claimed_bytes
    assert result.reached_bytes == (2 if level == 10 else 1) * (result.claimed_bytes or 0)


@contextlib.contextmanager
def create_parity_array(
    level: int, members: int, safely: bool = True, first: Sequence[str] = ()
) -> Iterator[tuple[str, list[str]]]:
    """Yield an array and its loop devices. `safely` sets whether stripes with parity may be discarded; the
    `first` devices come first in the array."""
    need_module("raid456")
    write_attribute(
        Path("/sys/module/raid456/parameters/devices_handle_discard_safely"), "Y" if safely else "N"
    )
    with contextlib.ExitStack() as opened:
        loops = [opened.enter_context(full_loop(128 * MIB)) for _ in range(members - len(first))]
        yield opened.enter_context(stacked.create_md(level, [*first, *loops])), loops


@pytest.mark.parametrize(("level", "members"), [(5, 3), (5, 4), (6, 4)])
def test_parity_array_frees_whole_stripes_only(level: int, members: int) -> None:
    """Whole stripes including parity: thousands of 4 KiB discards that the kernel merges again."""
    with create_parity_array(level, members) as (top, loops):
        result = audit_new_filesystem(top, "ext4", *loops)
        gone = [count_freed_bytes(loop) for loop in loops]
    assert set(gone) == {find_leaf_row(result, loop).bytes_ok for loop in loops} == {gone[0]}
    assert result.reached_bytes == sum(gone)
    data = gone[0] * (members - (1 if level == 5 else 2))
    assert data > 128 * MIB
    claimed = result.claimed_bytes
    assert claimed
    assert sum_reasons(result) == {"raid456-partial-stripe": claimed - data}
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)
    assert (find_leaf_row(result, top).bytes_out, find_leaf_row(result, top).bytes_ok) == (sum(gone), claimed)
    # Flows are aggregated; single events are not stored.
    assert result.evidence.trace.loss == (0, 0, 0, 0, 0)
    assert len(result.evidence.trace.flows) < 100


@pytest.mark.parametrize(("level", "longest"), [(4, 2048), (4, 8192), (5, 16384)])
def test_stripes_are_split_at_the_disks_granules(level: int, longest: int) -> None:
    """The disk's 1 MiB granules start 128 KiB after the 1 MiB stripes, so the kernel splits long discards
    inside stripes."""
    with (
        load_scsi_debug(
            dev_size_mb=128, unmap_granularity=2048, unmap_alignment=256, unmap_max_blocks=longest, lbpws=0
        ) as disk,
        create_parity_array(level, 3, first=[disk.name]) as (top, loops),
        mount_filesystem(top, "ext4") as point,
    ):
        run_command("sync")
        for loop in loops:
            trims.fill_holes(find_image(loop))
        foretold = run_check(point)
        result = audit_point(point)
        gone = [count_freed_bytes(loop) for loop in loops]
    assert set(gone) == {find_leaf_row(result, loop).bytes_ok for loop in loops} == {gone[0]}
    assert 2 * gone[0] == foretold.expected_bytes
    assert (
        sum_reasons(result)["raid456-partial-stripe"] == (result.claimed_bytes or 0) - 2 * gone[0] > 16 * MIB
    )
    assert result.unexplained_bytes == 0
    if longest == 2048:
        assert (gone[0], foretold.outlook, result.verdict) == (0, "unknown", Verdict.NOT_SENT)
    else:
        assert (foretold.outlook, result.verdict) == ("part", Verdict.PARTIAL)


@pytest.mark.parametrize("turn", range(4))
def test_md_mirror_between_dm_devices_is_explained(turn: int) -> None:
    """Device mapper stores data in front of its bios in memory, where data may precede md's bios too."""
    with contextlib.ExitStack() as opened:
        one, two = (opened.enter_context(full_loop(128 * MIB)) for _ in range(2))
        member = opened.enter_context(stacked.create_linear(one))
        mirror = opened.enter_context(stacked.create_md(1, [member.name, two]))
        top = opened.enter_context(stacked.create_delay(mirror, 0)).name
        point = opened.enter_context(mount_filesystem(top, "ext4"))
        opened.callback(
            stacked.reload_table, member.label, f"0 {stacked.count_sectors(one)} linear /dev/{one} 0"
        )
        fragment_free_space(point, [32 << 10] * 1200)
        stacked.fail_last_eighth(member.label, one)
        result = audit_point(point)
    assert result.unexplained_bytes == 0, result.rows
    assert find_leaf_row(result, two).bytes_ok == find_leaf_row(result, top).bytes_ok == result.claimed_bytes
    # On 6.1 a table with an error target accepts no discards at all.
    assert find_leaf_row(result, one).bytes_ok == (find_leaf_row(result, member.name).bytes_ok or 0)


def test_raid_5_sends_no_discards_when_unsafe() -> None:
    with create_parity_array(5, 3, safely=False) as (top, loops):
        result = audit_new_filesystem(top, "ext4", *loops)
        assert sum(count_freed_bytes(loop) for loop in loops) == 0
    assert (result.verdict, result.claimed_bytes) == (Verdict.NOT_SENT, None)
    assert list(sum_reasons(result)) == ["raid456-not-safe"]


@pytest.mark.parametrize(
    ("level", "members", "failed"), [(1, 2, 1), (10, 4, 1), (5, 3, 1), (6, 4, 1), (6, 4, 2)]
)
def test_degraded_arrays_report_missing_members(level: int, members: int, failed: int) -> None:
    with create_parity_array(level, members) as (top, loops):
        for loop in loops[:failed]:
            run_command("mdadm", "--fail", f"/dev/{top}", f"/dev/{loop}")
            run_command("mdadm", "--remove", f"/dev/{top}", f"/dev/{loop}")
        result = audit_new_filesystem(top, "ext4", *loops[failed:])
        gone = [count_freed_bytes(loop) for loop in loops[failed:]]
    assert [find_leaf_row(result, loop).bytes_ok for loop in loops[failed:]] == gone
    assert result.reached_bytes == sum(gone)
    claimed = result.claimed_bytes
    assert claimed
    if level in (1, 10):
        assert sum_reasons(result) == {"member-missing": 2 * claimed - sum(gone)}
        assert 0 < 2 * claimed - sum(gone) <= max(gone)
        assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
    else:
        data = gone[0] * (members - (1 if level == 5 else 2))
        assert sum_reasons(result) == {"raid456-partial-stripe": claimed - data}
        assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)


def test_md_mirror_with_a_bitmap_frees_the_claimed_bytes() -> None:
    """mdadm adds a bitmap to large arrays. With a bitmap, discards wait until a plug is flushed."""
    with full_loop() as one, full_loop() as two, stacked.create_md(1, [one, two], bitmap="internal") as top:
        result = audit_new_filesystem(top, "ext4", one, two)
        assert count_freed_bytes(one) == count_freed_bytes(two) == result.claimed_bytes
    assert (result.verdict, result.unexplained_bytes) == (Verdict.ACCEPTED, 0)
    assert find_leaf_row(result, top).bytes_ok == result.claimed_bytes
