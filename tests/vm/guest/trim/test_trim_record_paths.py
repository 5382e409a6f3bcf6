"""Recordings of NVMe multipath devices, whose requests are on hidden disks."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.collectors.history.recorder import HistoryRecorder
from opwatch.host.device import Devices
from opwatch.tools import cli
from opwatch.trim.history.sectormap import SectorState
from tests.kernel.support.load import discards, writes
from tests.vm.guest.support import sysfs

# Manual runs only: these tests would exceed CI's time limit.
TIERS = ()
DEVICES = ("nvme-multipath", "nvme-4k")


def test_record_refuses_a_device_with_several_paths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = sysfs.disk("opw-nvme-multipath")
    assert len(sysfs.list_paths(head)) == 2
    assert cli.main(["trim", "record", "--dev", head, "-o", str(tmp_path / "x")]) == 5
    assert "several paths" in capsys.readouterr().err


def test_single_path_is_recorded_below_its_head(tmp_path: Path) -> None:
    head = sysfs.disk("opw-nvme-4k")
    [path] = sysfs.list_paths(head)
    assert path != head
    device = Devices().by_name(head)
    assert device
    recording = HistoryRecorder(Devices(), device, tmp_path / "x")
    try:
        discards(f"/dev/{head}", 7)
        writes(f"/dev/{head}", 11)
        assert recording.process_changes()
    finally:
        recording.close()
    assert recording.history.forgotten == {}
    assert recording.history.map.collect_extents(SectorState.WRITTEN).total_bytes == 11 * 4096
    assert recording.history.map.collect_extents(SectorState.TRIMMED).total_bytes == 7 * (1 << 19) - 11 * 4096
    assert cli.main(["trim", "stale", "--dev", head, "--history", str(tmp_path / "x")]) == 0
