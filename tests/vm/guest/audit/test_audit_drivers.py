"""`opwatch trim audit` on every driver: the drive receives all bytes that left the filesystem."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opwatch.collectors.audit.discards import DiscardTracer
from opwatch.collectors.space.raw_disk import RawDisk
from opwatch.host.device import Devices
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.audit import Asked
from opwatch.trim.audit.flow import Stage, sum_flows
from tests.kernel.support.load import discards
from tests.kernel.support.trims import find_mount_at, lower_limit
from tests.vm.guest.support import stacked, sysfs
from tests.vm.guest.support.audits import (
    MIB,
    Audit,
    Verdict,
    audit_point,
    check_lossless,
    find_row,
    mount_filesystem,
    sum_reasons,
)

DEVICES = (
    "nvme",
    "virtio-blk",
    "virtio-blk-ignored",
    "virtio-blk-nodiscard",
    "virtio-scsi",
    "virtio-scsi-ignored",
    "ahci",
    "usb",
)
VIRTUAL = {
    "opw-virtio-blk": "virtio-blk that frees",
    "opw-virtio-ignored": "virtio-blk that ignores",
    "opw-virtio-scsi": "virtio-scsi that frees",
    "opw-scsi-ignored": "virtio-scsi that ignores",
}


def count_commands(result: Audit, disk: str) -> int:
    """Return the number of commands that the driver built, from the driver's own tracepoints."""
    return sum_flows(result.evidence.trace.select(Stage.COMMAND, disk=disk)).count


@pytest.mark.parametrize(
    "kind", ["xfs", *(pytest.param(kind, marks=pytest.mark.manual) for kind in ("ext4", "btrfs"))]
)
def test_nvme_commands_carry_every_range(kind: str) -> None:
    """Several ranges per command: xfs sends extents in batches, so the request's own sector is no guide."""
    disk = sysfs.disk("opw-nvme")
    before = sysfs.read_stat(disk)
    with mount_filesystem(disk, kind) as point:
        during = sysfs.read_stat(disk)
        result = audit_point(point)
        delta = sysfs.read_stat(disk) - during
    sent = check_lossless(result)
    assert during.discard_bytes == before.discard_bytes
    assert delta.discard_bytes == sent
    device = find_row(result, "disk")
    trace = result.evidence.trace
    assert delta.discards == device.requests == count_commands(result, disk)
    ranges = sum_flows(trace.select(Stage.DONE, disk=disk)).ranges
    assert sum_flows(trace.select(Stage.COMMAND, disk=disk)).ranges == ranges
    assert (
        ranges
        == sum_flows(trace.select(Stage.BIO, disk=disk)).count
        + sum_flows(trace.select(Stage.SPLIT, disk=disk)).count
    )
    # fexit works on this kernel, so submitted bios are counted too.
    assert "discard_submitted" not in trace.absent
    submitted = sum_flows(trace.select(Stage.SUBMITTED, disk=disk))
    assert submitted.bytes == sum_flows(trace.select(Stage.BIO, disk=disk)).bytes
    if kind == "xfs" and "discard_extents" not in trace.absent:
        assert ranges >= (device.requests or 0)


def fill_disk(disk: str) -> None:
    """Fill the disk so that no block reads as zeros."""
    with Path(f"/dev/{disk}").open("wb", buffering=0) as file:
        for _ in range(stacked.count_sectors(disk) * 512 // MIB):
            file.write(b"U" * MIB)
        os.fsync(file.fileno())


def count_zero_bytes(disk: str) -> int:
    """Return the bytes of 4 KiB blocks that read as zeros on the disk."""
    zeros_bytes = 0
    with RawDisk(disk, MIB) as raw:
        for at in range(0, stacked.count_sectors(disk) * 512, MIB):
            data = raw.read(at, MIB) or b""
            if data == bytes(MIB):
                zeros_bytes += MIB
            elif b"\0" * 4096 in data:
                zeros_bytes += sum(
                    4096 for index in range(0, MIB, 4096) if data[index : index + 4096] == bytes(4096)
                )
    return zeros_bytes


# Serial number -> whether the image behind the disk frees discarded blocks.
READ_BACK = {
    "opw-nvme": True,
    "opw-virtio-blk": True,
    "opw-virtio-ignored": False,
    "opw-virtio-scsi": True,
    "opw-scsi-ignored": False,
    "opw-ahci": True,
}


# Filling a disk and reading it twice takes long.
READ_IN_CI = ("opw-virtio-ignored", "opw-virtio-scsi")


@pytest.mark.parametrize(
    "serial",
    [
        *READ_IN_CI,
        *(pytest.param(serial, marks=pytest.mark.manual) for serial in READ_BACK if serial not in READ_IN_CI),
    ],
)
def test_reached_bytes_read_back_as_zeros_unless_the_host_drops_discards(serial: str) -> None:
    """The disk itself is the oracle: only reading back shows that a host drops every discard."""
    disk = sysfs.disk(serial)
    fill_disk(disk)
    with mount_filesystem(disk, "ext4") as point:
        os.sync()
        before = count_zero_bytes(disk)
        result = audit_point(point)
        freed = count_zero_bytes(disk) - before
        sent = check_lossless(result)
    assert result.verdict is Verdict.ACCEPTED
    assert set(sum_reasons(result)) == {"host-may-drop"}
    assert sent == result.reached_bytes == result.claimed_bytes
    assert sent > 200 * MIB
    # mke2fs zeroed the last 64 KiB, where RAIDs have their superblocks.
    assert freed == (sent - (64 << 10) if READ_BACK[serial] else 0)


@pytest.mark.parametrize(
    "serial", [pytest.param("opw-virtio-blk", marks=pytest.mark.manual), "opw-virtio-ignored"]
)
def test_sentinels_detect_a_host_that_drops_discards(serial: str) -> None:
    with mount_filesystem(sysfs.disk(serial), "ext4") as point:
        result = audit_mount(find_mount_at(point), Asked(), prove=True)
    # The guest cannot see whether the image on the host is freed, whatever the disk reads back.
    assert result.verdict is (Verdict.PROVEN_PARTWAY if READ_BACK[serial] else Verdict.UNKNOWN)
    assert list(sum_reasons(result)) == ["host-may-drop"]


def test_nvme_merges_pieces_that_a_lowered_limit_split() -> None:
    """Pieces of 1 MiB become ranges, several per command: no byte is lost or counted twice."""
    disk = sysfs.disk("opw-nvme")
    with lower_limit(disk, MIB):
        before = sysfs.read_stat(disk)
        with mount_filesystem(disk, "ext4") as point:
            result = audit_point(point)
        counted = sysfs.read_stat(disk) - before
    sent = check_lossless(result)
    assert sent == result.reached_bytes == result.claimed_bytes == counted.discard_bytes
    trace = result.evidence.trace
    pieces = (
        sum_flows(trace.select(Stage.SPLIT, disk=disk)).count
        + sum_flows(trace.select(Stage.BIO, disk=disk)).count
    )
    assert find_row(result, "granules").requests == pieces >= sent // MIB
    assert find_row(result, "disk").requests == counted.discards


@pytest.mark.manual
@pytest.mark.parametrize("serial", list(VIRTUAL))
@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.manual)])
def test_audit_in_a_guest_warns_that_the_host_may_drop_discards(serial: str, kind: str) -> None:
    """The trace is perfect whether the host frees or ignores: ACCEPTED, with the reason host-may-drop."""
    disk = sysfs.disk(serial)
    with mount_filesystem(disk, kind) as point:
        result = audit_point(point)
    check_lossless(result)
    assert sum_reasons(result) == {"host-may-drop": None}
    if "scsi" in serial:
        assert count_commands(result, disk) == find_row(result, "disk").requests


def test_discards_are_not_sent_to_a_virtual_disk_without_support() -> None:
    disk = sysfs.disk("opw-virtio-nodisc")
    with mount_filesystem(disk, "ext4") as point:
        result = audit_point(point)
    assert result.verdict is Verdict.NOT_SENT
    assert list(sum_reasons(result)) == ["virtual-no-discards"]
    assert result.claimed_bytes is None


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.manual)])
def test_sata_discards_become_ata_commands(kind: str) -> None:
    disk = sysfs.disk("opw-ahci")
    with mount_filesystem(disk, kind) as point:
        result = audit_point(point)
    sent = check_lossless(result)
    device = find_row(result, "disk")
    assert count_commands(result, disk) == device.requests
    # libata translates each command and reports its completion.
    scsi, ata = device.commands
    assert (scsi.name, scsi.bytes) == ("SCSI WRITE SAME(16)", sent)
    assert (ata.name, ata.bytes) == ("ATA DATA SET MANAGEMENT", sent)
    assert scsi.count == ata.count == ata.ended == device.requests
    assert ata.failed == 0


def test_libata_counts_each_command_once() -> None:
    """A prime number of discards of a prime number of sectors: each is issued and completed once."""
    name = sysfs.disk("opw-ahci")
    device = Devices().by_name(name)
    assert device
    with DiscardTracer([device]) as tracer:
        discards(f"/dev/{name}", 13, 1009 * 512)
        assert tracer.wait_quiet(0.3, 30.0)
        trace = tracer.read_trace()
    for stage in (Stage.COMMAND, Stage.ATA_COMMAND, Stage.ATA_DONE):
        amount = sum_flows(trace.select(stage, disk=name))
        assert (amount.count, amount.bytes) == (13, 13 * 1009 * 512), stage
    assert {flow.status for flow in trace.select(Stage.ATA_DONE, disk=name)} == {0}
    assert trace.misses == 0


@pytest.mark.manual
def test_discards_are_not_sent_to_a_usb_disk() -> None:
    disk = sysfs.disk("opw-usb")
    with mount_filesystem(disk, "ext4") as point:
        result = audit_point(point)
    assert result.verdict is Verdict.NOT_SENT
    assert list(sum_reasons(result)) == ["virtual-no-discards"]
