"""History tracer: records changes on one disk, with the kernel's counts as a check."""

from __future__ import annotations

from opwatch.collectors.block.blk import explain_probe_error
from opwatch.collectors.block.diskstats import SECTOR, StatReader, explain_unverified
from opwatch.errors import TracerMissing, Unsupported, UsageError
from opwatch.host.device import BlockDevice, Devices
from opwatch.trim.history.changes import HistoryLoss, select_history_programs

# 400,000 changes: ten times the changes of a fast drive while the reader sleeps 0.1 s.
_RING_BYTES = 16 << 20


def find_request_disk(devices: Devices, device: BlockDevice) -> BlockDevice:
    """Return the disk that receives a device's requests: itself, or the only path of an NVMe multipath
    device.

    Raises an error with the reason for devices without requests, or whose changes cannot be proven complete.
    """
    if device.is_partition:
        raise UsageError(
            f"{device.name} is a partition; a history covers a whole disk: use --dev {device.disk.name}"
        )
    if below := device.list_lower_devices():
        raise Unsupported(f"{device.name} is on other devices; record the disks below it: {', '.join(below)}")
    for name in device.list_holders():
        holder = devices.by_name(name)
        if holder and holder.read_kind() == "dm-mpath" and len(holder.list_lower_devices()) > 1:
            raise Unsupported(
                f"{device.name} is one of several paths to a drive ({name}), so the order of changes is "
                "unknown"
            )
    paths = devices.list_paths(device)
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise Unsupported(f"{device.name} has several paths ({names}), so the order of changes is unknown")
    disk = paths[0] if paths else device
    if not disk.is_request_based:
        raise Unsupported(
            f"{device.name}: its driver handles bios without requests, so their completion is not "
            "visible; a history needs a disk with requests"
        )
    if (disk.read_attribute("queue/zoned") or "none") != "none":
        raise Unsupported(f"{device.name} is zoned: opwatch does not trace zone resets, which free space")
    if reason := explain_unverified(disk):
        raise Unsupported(
            f"{device.name}: completeness cannot be verified without the kernel's counts: {reason}"
        )
    return disk


class DiskCounts:
    """Kernel counts of written and discarded sectors.

    Failed requests count; write zeroes and secure erase count as writes.
    """

    def __init__(self, disk: BlockDevice) -> None:
        self._stat = StatReader(disk)

    def read_counts(self) -> tuple[int, int] | None:
        """Return (sectors written, sectors discarded), or None if unusable or if the disk is gone."""
        statistics = self._stat.read_stats()
        if statistics is None:
            return None
        return statistics.bytes["write"] // SECTOR, statistics.bytes.get("discard", 0) // SECTOR

    def close(self) -> None:
        self._stat.close()


class ChangeTracer:
    """Programs for one disk, attached from construction until close(). `disk` comes from
    find_request_disk()."""

    def __init__(self, disk: BlockDevice) -> None:
        try:
            from opwatch._native import Changes, ProbeError
        except ImportError as error:
            raise TracerMissing from error
        scsi = (disk.sysfs / "device" / "scsi_device").is_dir()
        try:
            self._native = Changes(disk.name, _RING_BYTES, select_history_programs(disk.name), scsi=scsi)
        except ProbeError as error:
            raise explain_probe_error(error) from error

    def drain_changes(self) -> tuple[bytes, bool]:
        """Return the changes since the last drain, and whether changes from before this call may remain."""
        return self._native.drain()

    def read_loss(self) -> HistoryLoss:
        return HistoryLoss(*self._native.loss())

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        """Return (name, id, runs, run_ns, recursion misses) of each program."""
        return self._native.programs()

    def close(self) -> None:
        self._native.close()
