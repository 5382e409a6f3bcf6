"""Predictions of `opwatch trim check` for dm, md and multi-disk filesystems, and the trims."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.guest.support import stacked
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.trims import MIB, mount_with_files, run_check, run_fstrim
from tests.vm.requirements import need_module

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DISK = NullBlk(size=128, memory_backed=1, discard=1)
SMALL = NullBlk(size=16, memory_backed=1, discard=1)
NO_DISCARD = NullBlk(size=128, memory_backed=1)


@contextlib.contextmanager
def create_disks(*configs: NullBlk) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(create_null_blk(config)) for config in configs]


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_prediction_for_a_plain_disk_equals_the_arrived_bytes(kind: str) -> None:
    size = NullBlk(size=320, memory_backed=1, discard=1) if kind == "xfs" else DISK
    with create_null_blk(size) as disk, mount_with_files(kind, disk) as point:
        forecast = run_check(point)
        assert (forecast.status, forecast.outlook) == (0, "reaches")
        assert run_fstrim(point, disk).arrived == (forecast.sent_bytes,)


@pytest.mark.parametrize("discards", [False, True])
def test_crypt_prediction_follows_allow_discards(discards: bool) -> None:
    with (
        create_null_blk(DISK) as disk,
        stacked.create_crypt(disk, discards) as top,
        mount_with_files("ext4", top.name) as point,
    ):
        forecast = run_check(point)
        assert forecast.find_facts(top.name) == {"allow_discards": discards}
        done = run_fstrim(point, disk)
        if discards:
            assert (forecast.status, done.arrived) == (0, (forecast.sent_bytes,))
        else:
            assert (forecast.status, forecast.document["stopped_at"]) == (32, top.name)
            assert "crypt-no-discards" in forecast.reason_codes
            assert (done.refused, done.arrived) == (True, (0,))


def test_linear_prediction_equals_the_bytes_arriving_on_two_disks() -> None:
    with create_disks(DISK, DISK) as (one, two):
        half = stacked.count_sectors(one)
        table = f"0 {half} linear /dev/{one} 0\n{half} {half} linear /dev/{two} 0"
        with (
            stacked.create_mapped("linear", table, "dm_mod") as top,
            mount_with_files("ext4", top.name) as point,
        ):
            forecast = run_check(point)
            assert {layer["device"] for layer in forecast.document["layers"]} == {top.name, one, two}
            assert forecast.outlook == "reaches"
            assert sum(run_fstrim(point, one, two).arrived) == forecast.sent_bytes


def test_linear_passes_no_discards_when_a_disk_accepts_none() -> None:
    with create_disks(DISK, NO_DISCARD) as (one, two):
        half = stacked.count_sectors(one)
        table = f"0 {half} linear /dev/{one} 0\n{half} {half} linear /dev/{two} 0"
        with (
            stacked.create_mapped("linear", table, "dm_mod") as top,
            mount_with_files("ext4", top.name) as point,
        ):
            forecast = run_check(point)
            assert (forecast.outlook, forecast.document["stopped_at"]) == ("nothing", two)
            assert run_fstrim(point, one, two).arrived == (0, 0)


@contextlib.contextmanager
def create_thin_volume(options: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (volume, pool, data disk)."""
    with (
        create_disks(DISK, SMALL) as (data, metadata),
        stacked.create_thin(data, metadata, 96 << 11, options) as volume,
    ):
        [pool] = [path.name for path in Path(f"/sys/block/{volume.name}/slaves").iterdir()]
        yield volume.name, pool, data


def test_thin_passes_on_mapped_chunks_only() -> None:
    with create_thin_volume() as (volume, pool, data), mount_with_files("ext4", volume) as point:
        forecast = run_check(point)
        facts = forecast.find_facts(pool)
        assert (facts["mode"], facts["discards"]) == ("rw", "discard_passdown")
        assert forecast.status == (64 if forecast.rounded_bytes else 0)
        assert {"thin-not-mapped"} <= forecast.reason_codes
        assert facts["chunk_bytes"] == 128 * 512
        done = run_fstrim(point, data)
        chunks = facts["used_chunks"] - run_check(point).find_facts(pool)["used_chunks"]
        assert done.arrived == (chunks * facts["chunk_bytes"],)
        assert done.arrived[0] <= forecast.expected_bytes < done.claimed_bytes


def test_fully_mapped_thin_volume_loses_partial_chunks() -> None:
    with create_thin_volume() as (volume, _, data):
        run_command("dd", "if=/dev/zero", f"of=/dev/{volume}", "bs=1M", "oflag=direct", "count=96")
        with mount_with_files("ext4", volume) as point:
            forecast = run_check(point)
            assert (
                "thin-partial-chunk" in forecast.reason_codes
                and "thin-not-mapped" not in forecast.reason_codes
            )
            assert (forecast.status, forecast.outlook) == (64, "part")
            assert run_fstrim(point, data).arrived == (forecast.expected_bytes,)


@pytest.mark.parametrize(
    ("option", "code", "refused"),
    [
        ("no_discard_passdown", "thin-no-passdown", False),
        ("ignore_discard", "thin-ignores-discard", True),
    ],
)
def test_thin_pool_without_passdown_passes_no_discards(option: str, code: str, refused: bool) -> None:
    with create_thin_volume(f"1 {option}") as (volume, _, data), mount_with_files("ext4", volume) as point:
        forecast = run_check(point)
        assert (forecast.status, forecast.outlook) == (32, "nothing")
        assert code in forecast.reason_codes
        assert forecast.document["accepted"] is not refused
        done = run_fstrim(point, data)
        assert (done.refused, done.arrived) == (refused, (0,))
        assert (done.claimed_bytes > 0) is not refused


def test_read_only_thin_pool_passes_no_discards() -> None:
    with create_thin_volume() as (volume, pool, data), mount_with_files("ext4", volume) as point:
        run_command("sync")
        label = Path(f"/sys/block/{pool}/dm/name").read_text().strip()
        table = run_command("dmsetup", "table", label).split()
        run_command("dmsetup", "suspend", "--noudevsync", label)
        run_command("dmsetup", "load", label, stdin=" ".join([*table[:7], "1", "read_only"]))
        run_command("dmsetup", "resume", "--noudevsync", label)
        forecast = run_check(point)
        assert (forecast.status, forecast.find_facts(pool)["mode"]) == (32, "ro")
        assert "thin-pool-read-only" in forecast.reason_codes
        done = run_fstrim(point, data)
        assert (done.refused, done.arrived) == (False, (0,))
        assert done.claimed_bytes > 0
        run_command("dmsetup", "suspend", "--noudevsync", label)
        run_command("dmsetup", "load", label, stdin=" ".join(table))
        run_command("dmsetup", "resume", "--noudevsync", label)


def test_dm_snapshot_passes_no_discards() -> None:
    with create_disks(NullBlk(size=48, memory_backed=1, discard=1), DISK) as (origin, cow):
        table = f"0 {stacked.count_sectors(origin)} snapshot /dev/{origin} /dev/{cow} N 8"
        with stacked.create_mapped("snapshot", table) as top, mount_with_files("ext4", top.name) as point:
            forecast = run_check(point)
            assert (forecast.status, forecast.document["stopped_at"]) == (32, top.name)
            assert "snapshot-swallows" in forecast.reason_codes
            assert run_fstrim(point, origin).arrived == (0,)


@pytest.mark.parametrize(("level", "members"), [(0, 2), (1, 2), (10, 4)])
def test_md_prediction_equals_the_arrived_bytes(level: int, members: int) -> None:
    with (
        create_disks(*[DISK] * members) as below,
        stacked.create_md(level, below) as array,
        mount_with_files("ext4", array) as point,
    ):
        forecast = run_check(point)
        assert (forecast.status, forecast.outlook) == (0, "reaches")
        done = run_fstrim(point, *below)
        copies = 1 if level == 0 else 2
        assert sum(done.arrived) == copies * forecast.sent_bytes
        if level == 1:
            assert done.arrived[0] == done.arrived[1]


def test_md_mirror_is_predicted_in_part_when_a_leg_accepts_no_discards() -> None:
    with (
        create_disks(DISK, NO_DISCARD) as (good, bad),
        stacked.create_md(1, [good, bad]) as array,
        mount_with_files("ext4", array) as point,
    ):
        forecast = run_check(point)
        done = run_fstrim(point, good, bad)
        assert (forecast.status, forecast.outlook) == (64, "part")
        assert {"member-no-discards"} <= forecast.reason_codes
        assert done.arrived == (forecast.sent_bytes, 0)


@pytest.mark.parametrize("safely", [False, True])
def test_raid5_prediction_follows_the_safe_discard_parameter(safely: bool) -> None:
    need_module("raid456")
    write_attribute(
        Path("/sys/module/raid456/parameters/devices_handle_discard_safely"), "Y" if safely else "N"
    )
    with (
        create_disks(DISK, DISK, DISK) as below,
        stacked.create_md(5, below) as array,
        mount_with_files("ext4", array) as point,
    ):
        forecast = run_check(point)
        assert forecast.find_facts(array)["handles_discard_safely"] is safely
        done = run_fstrim(point, *below)
        if not safely:
            assert (forecast.status, done.refused, sum(done.arrived)) == (32, True, 0)
            assert "raid456-not-safe" in forecast.reason_codes
            return
        assert "raid456-partial-stripe" in forecast.reason_codes
        # Two of three members hold data.
        assert sum(done.arrived) * 2 == forecast.expected_bytes * 3


def test_btrfs_is_predicted_in_part_when_a_disk_accepts_no_discards() -> None:
    big, none = NullBlk(size=256, memory_backed=1, discard=1), NullBlk(size=256, memory_backed=1)
    with (
        create_disks(big, none) as (good, bad),
        mount_with_files("btrfs", good, bad, options="nodiscard") as point,
    ):
        forecast = run_check(point)
        assert (forecast.status, forecast.outlook) == (64, "part")
        assert "btrfs-device-no-discards" in forecast.reason_codes
        done = run_fstrim(point, good, bad)
        assert (done.refused, done.arrived[1]) == (False, 0)
        assert done.arrived[0] > 0


@pytest.mark.parametrize("option", ["discard", "nodiscard"])
def test_f2fs_prediction_depends_on_the_discard_option(option: str) -> None:
    with create_null_blk(DISK) as disk, mount_with_files("f2fs", disk, options=option) as point:
        forecast = run_check(point)
        assert (forecast.status, forecast.outlook) == (0, "reaches")
        assert ("filesystem-trims-later" in forecast.reason_codes) is (option == "discard")
        [run] = forecast.document["dry_run"]
        if option == "nodiscard":
            arrived = run_fstrim(point, disk).arrived[0]
            assert 64 * MIB < arrived <= run["sent_bytes"]
        else:
            assert run_fstrim(point, disk).claimed_bytes == 0
