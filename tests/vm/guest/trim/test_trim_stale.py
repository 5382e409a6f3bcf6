"""`opwatch trim stale` on real drivers and layers, compared with a read of every free block."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from opwatch.collectors.space.free_space import read_free_space
from opwatch.collectors.space.lba_status import read_mapped_extents
from opwatch.collectors.space.lowest import find_landings
from opwatch.collectors.space.raw_disk import RawDisk
from opwatch.collectors.stack.layers import LayerReader
from opwatch.host.device import Devices
from opwatch.tools import cli
from opwatch.tools.acting.trim.fitrim import require_mount
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.scsidebug import load_scsi_debug
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.trims import MIB, mount_with_files

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = (
    "virtio-blk",
    "virtio-blk-ignored",
    "virtio-blk-nodiscard",
    "virtio-scsi",
    "ahci",
    "usb",
    "nvme",
)
# Fast under emulation, and wrong in at most one of a thousand runs.
_OPTIONS = ("--precision", "3%", "--confidence", "99.9%")
TIMEOUT_S = 1800
DISK = NullBlk(size=128, memory_backed=1, discard=1)


def run_stale(*arguments: str | Path, status: int = 0) -> dict[str, Any]:
    """Run the command on a mount, check its exit status and return the JSON document."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        ended = cli.main(["trim", "stale", *_OPTIONS, *map(str, arguments), "--json"])
    assert ended == status, out.getvalue()
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def leave_stale_data(point: Path, megabytes: int = 20) -> None:
    """Leave data in free space that no trim has removed."""
    path = point / "left"
    path.write_bytes(os.urandom(megabytes * MIB))
    os.sync()
    path.unlink()
    os.sync()


def count_stale_bytes(point: Path) -> int:
    """Return the bytes of free blocks with data, by reading every free block."""
    devices, mount = Devices(), require_mount(str(point))
    free = read_free_space(mount)
    total = 0
    for landing in find_landings(devices, LayerReader().read_mount(mount), free.extents):
        with RawDisk(landing.device, MIB) as disk:
            for start, end in landing.extents:
                for at in range(start, end, MIB):
                    data = disk.read(at, min(MIB, end - at)) or b""
                    blocks = (data[block : block + 4096] for block in range(0, len(data), 4096))
                    total += 4096 * sum(block != bytes(len(block)) for block in blocks)
    return total


# Serial number -> (content of a trimmed sentinel, source of the calibration); None if unknown.
DISKS: dict[str, tuple[str | None, str | None]] = {
    "opw-virtio-blk": ("zeros", "sentinel"),
    "opw-virtio-ignored": ("unchanged", None),
    "opw-virtio-nodisc": (None, None),
    "opw-virtio-scsi": ("zeros", "sentinel"),
    "opw-ahci": ("zeros", "sentinel"),
    "opw-usb": (None, None),
    "opw-nvme": ("zeros", "sentinel"),
}


@pytest.mark.parametrize("serial", DISKS)
def test_stale_bytes_are_known_only_for_drivers_that_can_be_calibrated(serial: str) -> None:
    sentinel, by = DISKS[serial]
    with mount_with_files("ext4", sysfs.disk(serial)) as point:
        leave_stale_data(point)
        truth = count_stale_bytes(point)
        assert truth >= 20 * MIB
        measured = run_stale(point, status=0 if by else 5)
        [drive] = measured["drives"]
        assert (drive["calibration"]["sentinel"], drive["calibration"]["by"]) == (sentinel, by)
        if by:
            assert measured["stale_bytes"]["low"] <= truth <= measured["stale_bytes"]["high"]
        else:
            assert measured["stale_bytes"] is None


def test_nvme_is_calibrated_by_its_reported_read_behaviour() -> None:
    with mount_with_files("ext4", sysfs.disk("opw-nvme")) as point:
        leave_stale_data(point)
        truth = count_stale_bytes(point)
        measured = run_stale(point, "--no-sentinel")
        assert measured["drives"][0]["calibration"]["by"] == "promise"
        assert measured["stale_bytes"]["low"] <= truth <= measured["stale_bytes"]["high"]


@pytest.mark.parametrize("discards", [True, False])
def test_stale_data_below_encryption_is_measured_only_with_discards(discards: bool) -> None:
    with (
        create_null_blk(DISK) as disk,
        stacked.create_crypt(disk, discards) as top,
        mount_with_files("ext4", top.name) as point,
    ):
        leave_stale_data(point)
        truth = count_stale_bytes(point)
        measured = run_stale(point, status=0 if discards else 5)
        [drive] = measured["drives"]
        assert (drive["device"], drive["below_encryption"]) == (disk, True)
        if discards:
            assert measured["lower_bound"] is None
            assert drive["calibration"]["by"] == "sentinel"
            assert measured["stale_bytes"]["low"] <= truth <= measured["stale_bytes"]["high"]
        else:
            assert "not supported" in drive["calibration"]["words"][0]


def test_only_the_disk_with_the_sentinel_is_judged() -> None:
    with create_null_blk(DISK) as one, create_null_blk(DISK) as two:
        half = stacked.count_sectors(one)
        table = f"0 {half} linear /dev/{one} 0\n{half} {half} linear /dev/{two} 0"
        with (
            stacked.create_mapped("linear", table, "dm_mod") as top,
            mount_with_files("ext4", top.name) as point,
        ):
            # Large enough to leave data on both disks.
            leave_stale_data(point, 150)
            truth = count_stale_bytes(point)
            measured = run_stale(point, "--physical", "1G")
            assert {drive["device"] for drive in measured["drives"]} == {one, two}
            assert measured["waf"] is None and "one known drive" in measured["spare_reason"]
            # The sentinel is on one disk; the other has no calibration.
            judged = [drive for drive in measured["drives"] if drive["calibration"]["by"]]
            assert len(judged) == 1
            assert measured["judged_bytes"] == judged[0]["free_bytes"]
            assert measured["stale_bytes"]["low"] <= truth


def test_btrfs_on_two_disks_needs_the_sentinel_option() -> None:
    with (
        create_null_blk(DISK) as one,
        create_null_blk(DISK) as two,
        mount_with_files("btrfs", one, two, options="nodiscard") as point,
    ):
        leave_stale_data(point)
        truth = count_stale_bytes(point)
        assert truth >= 20 * MIB
        measured = run_stale(point, status=5)
        assert "--sentinel" in measured["stale_reason"]
        measured = run_stale(point, "--sentinel", status=0)
        assert {drive["device"] for drive in measured["drives"]} == {one, two}
        assert measured["notes"]


def test_thin_volume_is_measured_instead_of_its_disks() -> None:
    small = NullBlk(size=16, memory_backed=1, discard=1)
    with (
        create_null_blk(DISK) as data,
        create_null_blk(small) as metadata,
        stacked.create_thin(data, metadata, 96 << 11) as volume,
        mount_with_files("ext4", volume.name) as point,
    ):
        leave_stale_data(point)
        truth = count_stale_bytes(point)
        measured = run_stale(point)
        [drive] = measured["drives"]
        assert drive["device"] == volume.name
        assert "pool" in drive["stopped"]
        assert measured["stale_bytes"]["low"] <= truth <= measured["stale_bytes"]["high"]


@pytest.mark.parametrize("granule", [1, 64])
def test_stale_bytes_agree_with_the_map_of_scsi_debug(granule: int) -> None:
    parameters = {"dev_size_mb": 128, "unmap_granularity": granule}
    with load_scsi_debug(**parameters) as scsi, mount_with_files("ext4", scsi.name) as point:
        leave_stale_data(point)
        device = Devices().by_name(scsi.name)
        assert device
        mapped = read_mapped_extents(device)
        assert mapped is not None
        assert mapped.total_bytes == scsi.count_mapped_blocks() * 512 * granule
        [free] = read_free_space(require_mount(str(point))).extents.values()
        truth = (free & mapped).total_bytes
        measured = run_stale(point)
        assert measured["lba_status"] == {"held_bytes": truth, "follows": True}
        assert measured["drives"][0]["calibration"]["by"] == "sentinel"
        # A partly written granule is mapped as a whole, and its remainder reads as zeros.
        assert measured["stale_bytes"]["low"] <= truth
        assert granule > 1 or measured["stale_bytes"]["high"] >= truth


def test_f2fs_with_nodiscard_is_calibrated_by_a_sentinel() -> None:
    with create_null_blk(DISK) as disk, mount_with_files("f2fs", disk, options="nodiscard") as point:
        leave_stale_data(point)
        truth = count_stale_bytes(point)
        assert truth >= 20 * MIB
        measured = run_stale(point)
        assert measured["drives"][0]["calibration"]["by"] == "sentinel"
        assert measured["stale_bytes"]["low"] <= truth <= measured["stale_bytes"]["high"]


def test_f2fs_with_discard_needs_a_remount() -> None:
    with create_null_blk(DISK) as disk, mount_with_files("f2fs", disk, options="discard") as point:
        leave_stale_data(point)
        measured = run_stale(point, status=5)
        assert "remount,nodiscard" in measured["drives"][0]["calibration"]["words"][0]


def test_files_of_f2fs_survive_overwriting_its_free_extents() -> None:
    kept = os.urandom(3 * MIB)
    with create_null_blk(DISK) as disk:
        with mount_with_files("f2fs", disk) as point:
            leave_stale_data(point)
            (point / "kept").write_bytes(kept)
            os.sync()
            [free] = read_free_space(require_mount(str(point))).extents.values()
            with Path(f"/dev/{disk}").open("r+b", buffering=0) as raw:
                for start, end in free:
                    os.pwrite(raw.fileno(), b"\xa5" * (end - start), start)
                os.fsync(raw.fileno())
        run_command("fsck.f2fs", "--dry-run", f"/dev/{disk}")
        run_command("mount", f"/dev/{disk}", str(point))
        content = (point / "kept").read_bytes()
        run_command("umount", str(point))
    assert content == kept
