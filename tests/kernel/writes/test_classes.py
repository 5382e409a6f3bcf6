"""Classes of writes on loop devices against the kernel's statistics and the file systems' own counters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from opwatch.collectors.writes.reader import WritesReader
from opwatch.collectors.writes.stacks import read_device_stack, read_mount_stack
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.tools.acting.trim.fitrim import require_mount
from opwatch.writes.waterfall import Waterfall, WriteStep, compute_waterfall
from tests.kernel.support.filesystems import make_filesystem, mount_device
from tests.kernel.support.load import writes

MIB = 1 << 20
# The smallest of XFS is 300 MiB.
SIZE = 320 * MIB


@contextmanager
def measure_mount(point: Path) -> Iterator[list[Waterfall]]:
    """Yield a list that has the waterfall of the block when it ends; both ends are synced."""
    devices, mount, results = Devices(), require_mount(str(point)), list[Waterfall]()
    with closing(WritesReader(devices, read_mount_stack(devices, mount), mount)) as reader:
        reader.sync()
        begin = reader.read()
        yield results
        reader.sync()
        results.append(compute_waterfall(reader.stack, begin, reader.read(), is_closed=True))


def find_bytes(waterfall: Waterfall, kind: WriteStep) -> int:
    return sum(row.added or 0 for row in waterfall.rows if row.kind is kind)


def write_and_sync(path: Path, *, blocks: int, block: int) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(blocks):
            file.write(os.urandom(block))
            os.fsync(file.fileno())


@pytest.mark.parametrize(
    ("kind", "options", "mounting"),
    [
        ("ext4", (), "nodiscard"),
        ("ext4", (), "nodiscard,data=journal"),
        ("xfs", (), "nodiscard"),
        ("btrfs", (), "nodiscard"),
    ],
)
def test_classes_add_up_to_the_kernels_count(
    tmp_path: Path, kind: str, options: tuple[str, ...], mounting: str
) -> None:
    with ScratchDisk(SIZE) as disk:
        make_filesystem(kind, disk.node, *options)
        with mount_device(disk.node, tmp_path, mounting) as point:
            with measure_mount(point) as results:
                write_and_sync(point / "file", blocks=64, block=64 << 10)
            (waterfall,) = results
            assert find_bytes(waterfall, WriteStep.OTHER) == 0, waterfall.rows
            assert find_bytes(waterfall, WriteStep.DATA) >= 4 * MIB
            assert not waterfall.findings
            if kind != "btrfs":
                (journal,) = [row for row in waterfall.rows if row.kind is WriteStep.JOURNAL]
                assert journal.witness
                assert journal.witness.agrees, journal.witness


def test_direct_writes_to_a_device_are_those_of_other_programs(disk: ScratchDisk) -> None:
    devices = Devices()
    stack = read_device_stack(devices, devices.resolve(disk.node))
    with closing(WritesReader(devices, stack)) as reader:
        begin = reader.read()
        writes(disk.node, 16, size=8192, step=8192)
        waterfall = compute_waterfall(stack, begin, reader.read())
    assert find_bytes(waterfall, WriteStep.RAW) == 16 * 8192
    assert find_bytes(waterfall, WriteStep.OTHER) == 0


def test_counters_are_refused_after_close(disk: ScratchDisk) -> None:
    devices = Devices()
    stack = read_device_stack(devices, devices.resolve(disk.node))
    reader = WritesReader(devices, stack)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.tracer.read_counts()
