"""`opwatch trim audit` of a disk that disappears during the trim."""

from __future__ import annotations

import threading

from tests.vm.guest.support import removal, sysfs
from tests.vm.guest.support.audits import (
    Verdict,
    audit_point,
    find_leaf_row,
    fragment_free_space,
    mount_filesystem,
    sum_reasons,
)
from tests.vm.guest.support.scsidebug import load_scsi_debug
from tests.vm.guest.support.shell import run_command

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
SECTOR = 512


def _delete_after_discards(disk: str, discards: int) -> threading.Thread:
    """Delete the disk as soon as that many discards have completed; return the running thread."""
    before = sysfs.read_stat(disk).discards

    def delete_disk() -> None:
        sysfs.wait_for("discards", lambda: sysfs.read_stat(disk).discards >= before + discards)
        removal.delete_scsi(disk)

    thread = threading.Thread(target=delete_disk)
    thread.start()
    return thread


def test_a_disk_deleted_during_a_trim_is_named_as_the_cause() -> None:
    """Discards that completed are exact by the device's own map; the rest failed after the removal."""
    with load_scsi_debug(lbpws=0) as device:
        device.write_start()
        with mount_filesystem(device.name, "ext4") as point:
            fragment_free_space(point, [64 << 10] * 100)
            run_command("sync")
            before = device.count_mapped_blocks()
            with device.delay_commands(25):
                deleting = _delete_after_discards(device.name, 5)
                result = audit_point(point)
                deleting.join()
            freed = (before - device.count_mapped_blocks()) * SECTOR
    assert result.verdict is Verdict.PARTIAL, result.rows
    assert result.unexplained_bytes == 0, result.rows
    assert result.reached_bytes == freed > 0
    sent = find_leaf_row(result, device.name).bytes_in
    assert sent
    assert sum_reasons(result)["device-gone"] == sent - freed > 0
