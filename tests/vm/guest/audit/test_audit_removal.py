"""`opwatch trim audit` of a disk that disappears during the trim."""

from __future__ import annotations

import threading

from tests.vm.guest.support import removal, sysfs
from tests.vm.guest.support.audits import Verdict, audit, codes, filesystem, fragment, leaf
from tests.vm.guest.support.scsidebug import scsi_debug
from tests.vm.guest.support.shell import call

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
SECTOR = 512


def _delete_behind(disk: str, discards: int) -> threading.Thread:
    """Delete the disk as soon as that many discards have completed; return the running thread."""
    before = sysfs.stat(disk).discards

    def delete() -> None:
        sysfs.wait_for("discards", lambda: sysfs.stat(disk).discards >= before + discards)
        removal.delete_scsi(disk)

    thread = threading.Thread(target=delete)
    thread.start()
    return thread


def test_a_disk_deleted_during_a_trim_is_named_as_the_cause() -> None:
    """Discards that completed are exact by the device's own map; the rest failed after the removal."""
    with scsi_debug(lbpws=0) as device:
        device.fill()
        with filesystem(device.name, "ext4") as point:
            fragment(point, [64 << 10] * 100)
            call("sync")
            before = device.mapped_blocks()
            with device.delayed(25):
                deleting = _delete_behind(device.name, 5)
                result = audit(point)
                deleting.join()
            freed = (before - device.mapped_blocks()) * SECTOR
    assert result.verdict is Verdict.PARTIAL, result.rows
    assert result.unexplained_bytes == 0, result.rows
    assert result.reached_bytes == freed > 0
    sent = leaf(result, device.name).bytes_in
    assert sent
    assert codes(result)["device-gone"] == sent - freed > 0
