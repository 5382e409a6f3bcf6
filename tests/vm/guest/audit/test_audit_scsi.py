"""`opwatch trim audit` on scsi_debug, with its provisioning map as the oracle, and on null_blk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.collectors.audit import fitrim_process
from opwatch.host.usage import Mount
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.accounts import Bearing
from opwatch.trim.audit.audit import Asked
from opwatch.trim.audit.flow import Stage, total
from opwatch.trim.audit.question import FitrimAnswer
from tests.kernel.support.trims import mount_at
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import Audit, Verdict, audit, codes, filesystem, row, whole
from tests.vm.guest.support.nullblk import NullBlk, null_blk
from tests.vm.guest.support.scsidebug import ignoring, scsi_debug
from tests.vm.guest.support.shell import call, put
from tests.vm.guest.support.sysfs import SYS_BLOCK
from tests.vm.guest.support.trims import check

TIERS = ("full",)
SECTOR = 512
MIB = 1 << 20


@pytest.mark.parametrize(
    ("granularity", "alignment"), [(1, 0), (8, 0), (2048, 0), (2048, 256)], ids=["1", "8", "2048", "2048+256"]
)
def test_reached_is_what_the_device_gave_back(granularity: int, alignment: int) -> None:
    """Granules of 512 B to 1 MiB, with and without an offset: exact by the device's own map."""
    with scsi_debug(unmap_granularity=granularity, unmap_alignment=alignment) as device:
        device.fill()
        with filesystem(device.name, "ext4") as point:
            call("sync")
            before = device.mapped_blocks()
            result = audit(point)
            freed = (before - device.mapped_blocks()) * granularity * SECTOR
    assert result.reached_bytes == freed > 16 * MIB
    assert result.unexplained_bytes == 0
    completed = row(result, "disk").bytes_ok
    assert completed
    assert completed == result.claimed_bytes
    if freed == completed:
        whole(result, Verdict.PROVEN)
    else:
        assert result.verdict is Verdict.PARTIAL
        assert codes(result)["device-rounds"] == completed - freed


@pytest.mark.parametrize("alignment", [0, 8, 256])
def test_granules_begin_where_the_drive_says(alignment: int) -> None:
    """ext4 splits its ranges at the borders of 8 MiB groups. Each border falls between two granules or costs
    a granule. For a whole disk, sysfs shows a different alignment than the kernel applies."""
    with scsi_debug(unmap_granularity=2048, unmap_alignment=alignment, lbpws=0) as device:
        device.fill()
        call(
            "mkfs.ext4", "-q", "-F", "-b", "1024", "-E", "lazy_itable_init=0,nodiscard", f"/dev/{device.name}"
        )
        with filesystem(device.name, "ext4", make=False) as point:
            call("sync")
            before = device.mapped_blocks()
            foretold = check(point)
            result = audit(point)
            freed = (before - device.mapped_blocks()) * MIB
    assert result.reached_bytes == foretold.expected_bytes == freed > 16 * MIB
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)
    assert set(codes(result)) - {"advisory"} == {"device-rounds"}


@pytest.mark.parametrize("longest", [2048, 4096, 10240])
def test_a_discard_that_is_too_long_is_cut_at_a_granule_of_the_device(longest: int) -> None:
    """The linear target starts at sector 8 of a disk with 1 MiB granules. The granule across the first split
    of each long range stays allocated; later splits fall on the disk's granule boundaries."""
    with scsi_debug(unmap_granularity=2048, unmap_max_blocks=longest, lbpws=0) as device:
        device.fill()
        size = stacked.sectors(device.name) - 2048
        with stacked.mapped("linear", f"0 {size} linear /dev/{device.name} 8", "dm_mod") as top:
            call("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", f"/dev/{top.name}")
            with filesystem(top.name, "ext4", make=False) as point:
                call("sync")
                before = device.mapped_blocks()
                foretold = check(point)
                result = audit(point)
                freed = (before - device.mapped_blocks()) * MIB
    assert result.reached_bytes == foretold.expected_bytes == freed > 16 * MIB
    assert (foretold.outlook, result.verdict) == ("part", Verdict.PARTIAL)
    assert result.unexplained_bytes == 0


def test_a_misaligned_partition_loses_the_ends() -> None:
    """The disk has 1 MiB granules, and the partition starts at sector 63."""
    with scsi_debug(unmap_granularity=2048, lbpws=0) as device:
        call("sfdisk", "-q", f"/dev/{device.name}", stdin="label: dos\nstart=63, size=120000, type=83\n")
        part = f"{device.name}1"
        sysfs.wait_for("the partition", lambda: Path("/sys/class/block", part).exists())
        call("dd", "if=/dev/zero", f"of=/dev/{part}", "bs=512", "oflag=direct", "count=120000", "status=none")
        with filesystem(part, "ext4") as point:
            call("sync")
            before = device.mapped_blocks()
            result = audit(point)
            freed = (before - device.mapped_blocks()) * MIB
    assert result.claimed_bytes
    assert result.reached_bytes == freed > 16 * MIB
    assert codes(result)["device-rounds"] == result.claimed_bytes - freed > 0
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)
    assert row(result, "partition").device == part


@pytest.mark.parametrize(
    "commands", [{"lbpu": 1}, {"lbpu": 0, "lbpws": 1}, {"lbpu": 0, "lbpws": 0, "lbpws10": 1}]
)
def test_each_way_to_say_it(commands: dict[str, int]) -> None:
    """UNMAP, WRITE SAME (16) and WRITE SAME (10)."""
    opcode = 0x42 if commands["lbpu"] else 0x93 if commands["lbpws"] else 0x41
    with scsi_debug(**commands) as device:
        device.fill()
        with filesystem(device.name, "ext4") as point:
            before = device.mapped_blocks()
            result = audit(point)
            freed = (before - device.mapped_blocks()) * SECTOR
    assert whole(result, Verdict.PROVEN) == result.reached_bytes == freed
    opcodes = {flow.status for flow in result.evidence.trace.select(Stage.COMMAND, disk=device.name)}
    assert opcodes == {opcode}


def test_a_small_maximum_splits() -> None:
    with scsi_debug(unmap_max_blocks=2048) as device:
        device.fill()
        with filesystem(device.name, "ext4") as point:
            before = device.mapped_blocks()
            result = audit(point)
            freed = (before - device.mapped_blocks()) * SECTOR
    assert whole(result, Verdict.PROVEN) == result.reached_bytes == freed
    requests = row(result, "disk").requests
    assert requests is not None
    assert requests >= result.reached_bytes // MIB
    splits = total(result.evidence.trace.select(Stage.SPLIT, disk=device.name)).count
    assert splits > 0


def test_a_disk_that_rejects_the_command() -> None:
    """One request fails, the kernel disables discards and drops the rest, which fstrim still claims."""
    with scsi_debug(lbpu=1, lbpws=0, dev_size_mb=384) as device:
        [mode] = (SYS_BLOCK / device.name / "device/scsi_disk").glob("*/provisioning_mode")
        with filesystem(device.name, "ext4") as point:
            put(mode, "writesame_16")
            result = audit(point)
            assert mode.read_text().strip() == "disabled"
    assert result.verdict is Verdict.REJECTED
    assert result.reached_bytes == 0
    sent = row(result, "filesystem").bytes_out
    assert sent
    # ext4 stops in the group with the failed extent, and assumes that all others were trimmed.
    assert 0 < (result.claimed_bytes or 0) < sent
    assert codes(result) == {"scsi-disabled": sent}
    assert list(row(result, "disk").errors) == ["target"]
    assert result.unexplained_bytes == 0
    changed = {change.fact: change.after for change in result.changes}
    assert changed["provisioning_mode"] == "disabled"
    assert changed["max_bytes"] == 0


def test_a_disk_that_is_not_thin() -> None:
    with scsi_debug(lbpu=0, lbpws=0) as device, filesystem(device.name, "ext4") as point:
        result = audit(point)
    assert result.verdict is Verdict.NOT_SENT
    assert list(codes(result)) == ["scsi-full"]


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_null_blk(kind: str) -> None:
    with null_blk(NullBlk(size=384, memory_backed=1, discard=1)) as disk:
        with filesystem(disk, kind) as point:
            before = sysfs.stat(disk)
            result = audit(point)
            delta = sysfs.stat(disk) - before
        assert whole(result) == result.reached_bytes == delta.discard_bytes


def test_null_blk_without_discards() -> None:
    with null_blk(NullBlk(size=384, memory_backed=1)) as disk, filesystem(disk, "ext4") as point:
        result = audit(point)
    assert result.verdict is Verdict.NOT_SENT
    assert list(codes(result)) == ["device-no-discards"]


# --- the device's own map as evidence ---


def proven(point: Path) -> Audit:
    return audit_mount(mount_at(point), Asked(), prove=True)


@pytest.mark.parametrize(("granularity", "lbprz"), [(1, 1), (8, 0), (2048, 0)], ids=["1", "8", "2048"])
def test_sentinels_leave_the_map(granularity: int, lbprz: int) -> None:
    """The sentinels are mapped before the trim and deallocated after it. If a device returns old data for
    deallocated blocks, reading alone would seem to contradict the trim."""
    with scsi_debug(unmap_granularity=granularity, lbprz=lbprz, dev_size_mb=128) as device:
        device.fill()
        with filesystem(device.name, "ext4") as point:
            result = proven(point)
    read_back = result.evidence.read_back
    assert read_back
    [sentinel_map] = read_back.maps.values()
    assert sentinel_map.reason is None
    assert sentinel_map.gone_bytes == sentinel_map.before_bytes == sentinel_map.judged_bytes > 7 * MIB
    assert set(read_back.bytes) - {"reallocated"} == ({"zeros"} if lbprz else {"unchanged"})
    if result.reached_bytes == result.claimed_bytes:
        assert result.verdict is Verdict.PROVEN, result.rows
    else:
        # The ends of free extents are not whole granules.
        assert result.verdict is Verdict.PARTIAL
        assert granularity > 1


def test_a_device_that_ignores_keeps_its_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device completes each UNMAP without an error but does nothing; only its own map reveals it."""
    ours = fitrim_process.trim

    def ignored(mount: Mount, asked: Asked, started: Callable[[int], None]) -> FitrimAnswer:
        with ignoring():
            return ours(mount, asked, started)

    monkeypatch.setattr(fitrim_process, "trim", ignored)
    with scsi_debug(dev_size_mb=128, lbprz=1) as device:
        device.fill()
        with filesystem(device.name, "ext4") as point:
            before = device.mapped_blocks()
            result = proven(point)
            assert device.mapped_blocks() >= before
    assert result.claimed_bytes == result.reached_bytes
    read_back = result.evidence.read_back
    assert read_back
    [sentinel_map] = read_back.maps.values()
    assert (sentinel_map.reason, sentinel_map.gone_bytes) == (None, 0)
    assert result.verdict is Verdict.UNKNOWN
    assert codes(result) == {"unproven": None}
    assert "still in the map" in result.reasons[0].observed


def test_a_map_that_loses_what_completed_is_proof() -> None:
    """Proof without sentinels: all free space was mapped, and the map shrank by the completed bytes."""
    with scsi_debug() as device:
        device.fill()
        with filesystem(device.name, "ext4") as point:
            call("sync")
            before = device.mapped_blocks()
            result = audit(point)
            freed = (before - device.mapped_blocks()) * SECTOR
            again = audit(point)
    [account] = result.counters
    assert account.account.moved == freed == result.reached_bytes
    assert result.verdict is Verdict.PROVEN
    # Nothing was left to trim, so the map proves nothing.
    [account] = again.counters
    assert account.bearing is Bearing.SILENT
    assert again.verdict is Verdict.NOTHING_LEFT
