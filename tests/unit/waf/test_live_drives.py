"""Drives polled for live write amplification, while disks come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from opwatch.collectors.firmware.counting import find_counting_devices
from opwatch.collectors.firmware.live import LiveWaf, find_drives
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.counters.reading import DriveFacts
from opwatch.host.device import BlockDevice, Devices, Leaf
from tests.unit.support.sysfs import Tree, make_machine


class FakeCounting:
    """Records the disks it was created for."""

    made: ClassVar[list[str]] = []

    def __init__(self, devices: Devices, disk: BlockDevice, catalogue: object) -> None:
        self.disk, self.counted_on = disk, find_counting_devices(devices, disk)
        self.made.append(disk.name)

    def read_sample(self) -> FirmwareSample:
        return FirmwareSample(self.disk.name, DriveFacts(), 1, 2, None, None, counted_on=self.counted_on)

    def close(self) -> None: ...


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr("opwatch.collectors.firmware.counting.CounterPoller", FakeCounting)
    FakeCounting.made.clear()
    return make_machine(tmp_path)


def find_all_drives(leaves: Sequence[Leaf]) -> dict[str, BlockDevice]:
    return find_drives(leaves, all_kinds=True)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_so(), FakeCounting.made


def test_added_drives_are_polled(tree: Tree) -> None:
    waf = LiveWaf(tree.devices, find_all_drives, 0.01)
    waf.start()
    waf.add_leaves([Leaf(tree["sda"], tree["sda"])])
    wait_until(lambda: FakeCounting.made == ["sda"])
    waf.add_leaves([Leaf(tree["sdb"], tree["sdb"])])
    wait_until(lambda: FakeCounting.made == ["sda", "sdb"])
    waf.stop()


def test_new_path_restarts_the_count(tree: Tree) -> None:
    """Host writes are counted on the paths, so an additional path changes the count."""
    head = tree["nvme1n1"]
    waf = LiveWaf(tree.devices, find_all_drives, 0.01)
    waf.add_leaves(tree.devices.find_leaves(head))
    waf.start()
    wait_until(lambda: FakeCounting.made == ["nvme1n1"])
    where = "pci0000:00/0000:00:09.0/nvme/nvme7"
    tree.add_disk("nvme1c7n1", None, where=where, sectors=3750748848, tags=[127])
    wait_until(lambda: FakeCounting.made == ["nvme1n1", "nvme1n1"])
    waf.poll_now()
    waf.stop()
    shapes = {sample.counted_on for sample in waf.take_samples()}
    assert len(shapes) == 2
    assert waf.take_samples() == []


def test_drive_is_polled_while_any_disk_belongs_to_the_drive(tree: Tree) -> None:
    first, second = tree.devices.find_leaves(tree["nvme1n1"])
    waf = LiveWaf(tree.devices, find_all_drives, 5)
    waf.add_leaves([first, second])
    waf.remove_leaf(first)
    assert list(waf._drives.values()) == [tree["nvme1n1"]]
    waf.remove_leaf(second)
    assert not waf._drives
