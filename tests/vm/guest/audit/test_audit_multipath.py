"""`opwatch trim audit` of an NVMe multipath head: its requests are those of hidden paths."""

from __future__ import annotations

import pytest

from opwatch.trim.audit.flow import Stage, total
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.audits import audit, codes, filesystem

# By hand: they would take CI beyond its time.
TIERS = ()
DEVICES = ("nvme-multipath",)


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_a_trim_is_followed_to_the_hidden_paths(kind: str) -> None:
    head = sysfs.disk("opw-nvme-multipath")
    paths = sysfs.paths(head)
    assert len(paths) == 2
    before = [sysfs.stat(path) for path in paths]
    with filesystem(head, kind) as point:
        found = audit(point)
    counted = sum((sysfs.stat(path) - was).discard_bytes for path, was in zip(paths, before, strict=True))
    top, *below = [each for each in found.rows if each.layer in ("multipath", "disk")]
    assert (top.layer, top.device, [each.device for each in below]) == ("multipath", head, paths)
    assert top.bytes_in == top.bytes_out == sum(each.bytes_ok or 0 for each in below) == counted
    assert found.reached_bytes == counted == found.claimed_bytes
    assert counted > 64 << 20
    assert found.unexplained_bytes == 0
    assert set(codes(found)) == {"host-may-drop"}
    commands = sum(total(found.evidence.trace.select(Stage.COMMAND, disk=path)).count for path in paths)
    assert commands == sum(each.requests or 0 for each in below)
