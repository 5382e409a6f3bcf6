"""`opwatch trim audit` on scsi_debug, with its provisioning map as the oracle, and on null_blk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.host.usage import Mount
from opwatch.tools.acting.trim import fitrim_process
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.accounts import CounterEvidence
from opwatch.trim.audit.audit import Asked
from opwatch.trim.audit.fitrim import FitrimAnswer
from opwatch.trim.audit.flow import Stage, sum_flows
from tests.kernel.support.trims import find_mount_at
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    Audit,
    Verdict,
    audit_point,
    check_lossless,
    find_row,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.nullblk import NullBlk, create_null_blk
from tests.vm.guest.support.scsidebug import ignore_media_commands, load_scsi_debug
from tests.vm.guest.support.shell import run_command, write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK
from tests.vm.guest.support.trims import run_check

TIERS = ()
SECTOR = 512
MIB = 1 << 20


@pytest.mark.parametrize(
    ("granularity", "alignment"),
    [(1, 0), *(pytest.param(*one, marks=pytest.mark.manual) for one in ((8, 0), (2048, 0), (2048, 256)))],
    ids=["1", "8", "2048", "2048+256"],
)
def test_reached_bytes_equal_the_unmapped_blocks(granularity: int, alignment: int) -> None:
    """Granules of 512 B to 1 MiB, with and without an offset: exact by the device's own map."""
    with load_scsi_debug(unmap_granularity=granularity, unmap_alignment=alignment) as device:
        device.write_start()
        with mount_filesystem(device.name, "ext4") as point:
            run_command("sync")
            before = device.count_mapped_blocks()
            result = audit_point(point)
            freed = (before - device.count_mapped_blocks()) * granularity * SECTOR
    assert result.reached_bytes == freed > 16 * MIB
    assert result.unexplained_bytes == 0
    completed = find_row(result, "disk").bytes_ok
    assert completed
    assert completed == result.claimed_bytes
    if freed == completed:
        check_lossless(result, Verdict.PROVEN)
    else:
        assert result.verdict is Verdict.PARTIAL
        assert sum_reasons(result)["device-rounds"] == completed - freed


@pytest.mark.parametrize("alignment", [*(pytest.param(one, marks=pytest.mark.manual) for one in (0, 8)), 256])
def test_granules_start_at_the_reported_alignment(alignment: int) -> None:
    """ext4 splits its ranges at the borders of 8 MiB groups. Each border falls between two granules or costs
    a granule. For a whole disk, sysfs shows a different alignment than the kernel applies."""
    with load_scsi_debug(unmap_granularity=2048, unmap_alignment=alignment, lbpws=0) as device:
        device.write_start()
        run_command(
            "mkfs.ext4", "-q", "-F", "-b", "1024", "-E", "lazy_itable_init=0,nodiscard", f"/dev/{device.name}"
        )
        with mount_filesystem(device.name, "ext4", make=False) as point:
            run_command("sync")
            before = device.count_mapped_blocks()
            foretold = run_check(point)
            result = audit_point(point)
            freed = (before - device.count_mapped_blocks()) * MIB
    assert result.reached_bytes == foretold.expected_bytes == freed > 16 * MIB
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)
    assert set(sum_reasons(result)) - {"advisory"} == {"device-rounds"}


@pytest.mark.parametrize(
    "longest", [*(pytest.param(one, marks=pytest.mark.manual) for one in (2048, 4096)), 10240]
)
def test_long_discards_are_split_at_the_disks_granules(longest: int) -> None:
    """The linear target starts at sector 8 of a disk with 1 MiB granules. The granule across the first split
    of each long range stays allocated; later splits fall on the disk's granule boundaries."""
    with load_scsi_debug(unmap_granularity=2048, unmap_max_blocks=longest, lbpws=0) as device:
        device.write_start()
        size = stacked.count_sectors(device.name) - 2048
        with stacked.create_mapped("linear", f"0 {size} linear /dev/{device.name} 8", "dm_mod") as top:
            run_command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", f"/dev/{top.name}")
            with mount_filesystem(top.name, "ext4", make=False) as point:
                run_command("sync")
                before = device.count_mapped_blocks()
                foretold = run_check(point)
                result = audit_point(point)
                freed = (before - device.count_mapped_blocks()) * MIB
    assert result.reached_bytes == foretold.expected_bytes == freed > 16 * MIB
    assert (foretold.outlook, result.verdict) == ("part", Verdict.PARTIAL)
    assert result.unexplained_bytes == 0


@pytest.mark.manual
def test_misaligned_partition_loses_partial_granules() -> None:
    """The disk has 1 MiB granules, and the partition starts at sector 63."""
    with load_scsi_debug(unmap_granularity=2048, lbpws=0) as device:
        run_command(
            "sfdisk", "-q", f"/dev/{device.name}", stdin="label: dos\nstart=63, size=120000, type=83\n"
        )
        part = f"{device.name}1"
        sysfs.wait_for("the partition", lambda: Path("/sys/class/block", part).exists())
        run_command(
            "dd", "if=/dev/zero", f"of=/dev/{part}", "bs=512", "oflag=direct", "count=120000", "status=none"
        )
        with mount_filesystem(part, "ext4") as point:
            run_command("sync")
            before = device.count_mapped_blocks()
            result = audit_point(point)
            freed = (before - device.count_mapped_blocks()) * MIB
    assert result.claimed_bytes
    assert result.reached_bytes == freed > 16 * MIB
    assert sum_reasons(result)["device-rounds"] == result.claimed_bytes - freed > 0
    assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)
    assert find_row(result, "partition").device == part


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param({"lbpu": 1}, marks=pytest.mark.manual),
        {"lbpu": 0, "lbpws": 1},
        pytest.param({"lbpu": 0, "lbpws": 0, "lbpws10": 1}, marks=pytest.mark.manual),
    ],
)
def test_each_unmap_command_frees_the_reached_bytes(commands: dict[str, int]) -> None:
    """UNMAP, WRITE SAME (16) and WRITE SAME (10)."""
    opcode = 0x42 if commands["lbpu"] else 0x93 if commands["lbpws"] else 0x41
    with load_scsi_debug(**commands) as device:
        device.write_start()
        with mount_filesystem(device.name, "ext4") as point:
            before = device.count_mapped_blocks()
            result = audit_point(point)
            freed = (before - device.count_mapped_blocks()) * SECTOR
    assert check_lossless(result, Verdict.PROVEN) == result.reached_bytes == freed
    opcodes = {flow.status for flow in result.evidence.trace.select(Stage.COMMAND, disk=device.name)}
    assert opcodes == {opcode}


@pytest.mark.manual
def test_small_maximum_splits_discards_without_loss() -> None:
    with load_scsi_debug(unmap_max_blocks=2048) as device:
        device.write_start()
        with mount_filesystem(device.name, "ext4") as point:
            before = device.count_mapped_blocks()
            result = audit_point(point)
            freed = (before - device.count_mapped_blocks()) * SECTOR
    assert check_lossless(result, Verdict.PROVEN) == result.reached_bytes == freed
    requests = find_row(result, "disk").requests
    assert requests is not None
    assert requests >= result.reached_bytes // MIB
    splits = sum_flows(result.evidence.trace.select(Stage.SPLIT, disk=device.name)).count
    assert splits > 0


def test_disk_that_rejects_the_command_disables_discards() -> None:
    """One request fails, the kernel disables discards and drops the rest, which fstrim still claims."""
    with load_scsi_debug(lbpu=1, lbpws=0, dev_size_mb=384) as device:
        [mode] = (SYS_BLOCK / device.name / "device/scsi_disk").glob("*/provisioning_mode")
        with mount_filesystem(device.name, "ext4") as point:
            write_attribute(mode, "writesame_16")
            result = audit_point(point)
            assert mode.read_text().strip() == "disabled"
    assert result.verdict is Verdict.REJECTED
    assert result.reached_bytes == 0
    sent = find_row(result, "filesystem").bytes_out
    assert sent
    # ext4 stops in the group with the failed extent, and assumes that all others were trimmed.
    assert 0 < (result.claimed_bytes or 0) < sent
    assert sum_reasons(result) == {"scsi-disabled": sent}
    assert list(find_row(result, "disk").errors) == ["target"]
    assert result.unexplained_bytes == 0
    changed = {change.fact: change.after for change in result.changes}
    assert changed["provisioning_mode"] == "disabled"
    assert changed["max_bytes"] == 0


@pytest.mark.manual
def test_discards_are_not_sent_to_a_fully_provisioned_disk() -> None:
    with load_scsi_debug(lbpu=0, lbpws=0) as device, mount_filesystem(device.name, "ext4") as point:
        result = audit_point(point)
    assert result.verdict is Verdict.NOT_SENT
    assert list(sum_reasons(result)) == ["scsi-full"]


@pytest.mark.manual
@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.manual)])
def test_null_blk_receives_the_reached_bytes(kind: str) -> None:
    with create_null_blk(NullBlk(size=384, memory_backed=1, discard=1)) as disk:
        with mount_filesystem(disk, kind) as point:
            before = sysfs.read_stat(disk)
            result = audit_point(point)
            delta = sysfs.read_stat(disk) - before
        assert check_lossless(result) == result.reached_bytes == delta.discard_bytes


@pytest.mark.manual
def test_discards_are_not_sent_to_null_blk_without_support() -> None:
    with create_null_blk(NullBlk(size=384, memory_backed=1)) as disk, mount_filesystem(disk, "ext4") as point:
        result = audit_point(point)
    assert result.verdict is Verdict.NOT_SENT
    assert list(sum_reasons(result)) == ["device-no-discards"]


# --- the device's own map as evidence ---


def audit_with_proof(point: Path) -> Audit:
    return audit_mount(find_mount_at(point), Asked(), prove=True)


@pytest.mark.parametrize(
    ("granularity", "lbprz"),
    [*(pytest.param(*one, marks=pytest.mark.manual) for one in ((1, 1), (8, 0))), (2048, 0)],
    ids=["1", "8", "2048"],
)
def test_sentinels_are_unmapped_by_the_trim(granularity: int, lbprz: int) -> None:
    """The sentinels are mapped before the trim and deallocated after it. If a device returns old data for
    deallocated blocks, reading alone would seem to contradict the trim."""
    with load_scsi_debug(unmap_granularity=granularity, lbprz=lbprz, dev_size_mb=128) as device:
        device.write_start()
        with mount_filesystem(device.name, "ext4") as point:
            result = audit_with_proof(point)
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


def test_device_that_ignores_unmap_is_detected_by_its_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device completes each UNMAP without an error but does nothing; only its own map reveals it."""
    ours = fitrim_process.trim_in_child

    def trim_ignored(mount: Mount, asked: Asked, started: Callable[[int], None]) -> FitrimAnswer:
        with ignore_media_commands():
            return ours(mount, asked, started)

    monkeypatch.setattr(fitrim_process, "trim_in_child", trim_ignored)
    with load_scsi_debug(dev_size_mb=128, lbprz=1) as device:
        device.write_start()
        with mount_filesystem(device.name, "ext4") as point:
            before = device.count_mapped_blocks()
            result = audit_with_proof(point)
            assert device.count_mapped_blocks() >= before
    assert result.claimed_bytes == result.reached_bytes
    read_back = result.evidence.read_back
    assert read_back
    [sentinel_map] = read_back.maps.values()
    assert (sentinel_map.reason, sentinel_map.gone_bytes) == (None, 0)
    assert result.verdict is Verdict.UNKNOWN
    assert sum_reasons(result) == {"unproven": None}
    assert "still in its map" in result.reasons[0].observed


@pytest.mark.manual
def test_trim_is_proven_when_the_map_loses_the_completed_bytes() -> None:
    """Proof without sentinels: all free space was mapped, and the map shrank by the completed bytes."""
    with load_scsi_debug() as device:
        device.write_start()
        with mount_filesystem(device.name, "ext4") as point:
            run_command("sync")
            before = device.count_mapped_blocks()
            result = audit_point(point)
            freed = (before - device.count_mapped_blocks()) * SECTOR
            again = audit_point(point)
    [account] = result.counters
    assert account.account.amount_moved == freed == result.reached_bytes
    assert result.verdict is Verdict.PROVEN
    # Nothing was left to trim, so the map proves nothing.
    [account] = again.counters
    assert account.bearing is CounterEvidence.SILENT
    assert again.verdict is Verdict.NOTHING_LEFT
