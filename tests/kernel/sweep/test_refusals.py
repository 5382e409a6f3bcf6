"""Refusals in a plan: a drive that would be refused, and a drive that would not."""

from __future__ import annotations

from pathlib import Path

from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.sweep.refusals import find_refusals
from tests.kernel.support.drives import create_drive
from tests.kernel.support.filesystems import make_filesystem, mount_device


def test_free_drive_is_not_refused_and_receives_no_writes() -> None:
    with create_drive() as target:
        before = target.read_truth()
        assert find_refusals(Devices(), target.device, allow_virtual=True) == []
        [virtual] = [
            refusal.what for refusal in find_refusals(Devices(), target.device, allow_virtual=False)
        ][:1]
        assert "it is not a drive" in virtual
        after = target.read_truth()
    assert {key: after[key] for key in ("host_write_bytes", "trim_bytes")} == {
        key: before[key] for key in ("host_write_bytes", "trim_bytes")
    }


def test_every_refusal_has_a_remedy(disk: ScratchDisk, tmp_path: Path) -> None:
    make_filesystem("ext4", disk.node)
    with mount_device(disk.node, tmp_path):
        listed = find_refusals(Devices(), disk.node, allow_virtual=True)
    assert len(listed) >= 3
    assert all(refusal.rule == "guard" and refusal.remedy for refusal in listed)
    assert any(str(tmp_path) in refusal.what for refusal in listed)
