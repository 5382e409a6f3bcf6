"""`opwatch trim audit` of an NVMe multipath head, whose requests are on hidden paths."""

from __future__ import annotations

import pytest

from opwatch.trim.audit.flow import Stage, sum_flows
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.audits import audit_point, mount_filesystem, sum_reasons

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("nvme-multipath",)


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_a_trim_is_followed_to_the_hidden_paths(kind: str) -> None:
    head = sysfs.disk("opw-nvme-multipath")
    paths = sysfs.list_paths(head)
    assert len(paths) == 2
    before = [sysfs.read_stat(path) for path in paths]
    with mount_filesystem(head, kind) as point:
        result = audit_point(point)
    counted = sum(
        (sysfs.read_stat(path) - was).discard_bytes for path, was in zip(paths, before, strict=True)
    )
    top, *below = [row for row in result.rows if row.layer in ("multipath", "disk")]
    assert (top.layer, top.device, [path_row.device for path_row in below]) == ("multipath", head, paths)
    assert top.bytes_in == top.bytes_out == sum(path_row.bytes_ok or 0 for path_row in below) == counted
    assert result.reached_bytes == counted == result.claimed_bytes
    assert counted > 64 << 20
    assert result.unexplained_bytes == 0
    # btrfs may have discarded a range twice; the audit reports that case.
    assert set(sum_reasons(result)) - {"btrfs-discards-again"} == {"host-may-drop"}
    commands = sum(sum_flows(result.evidence.trace.select(Stage.COMMAND, disk=path)).count for path in paths)
    assert commands == sum(path_row.requests or 0 for path_row in below)
