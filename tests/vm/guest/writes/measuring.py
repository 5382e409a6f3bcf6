"""Measure what a block of a test writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from opwatch.collectors.writes.reader import WritesReader
from opwatch.collectors.writes.stacks import read_device_stack, read_mount_stack
from opwatch.host.device import Devices
from opwatch.tools.acting.trim.fitrim import require_mount
from opwatch.writes.waterfall import Waterfall, WriteStep, compute_waterfall


@contextmanager
def measure_mount(point: Path, *, syncs_end: bool = True) -> Iterator[list[Waterfall]]:
    """Yield a list that has the waterfall of the block when it ends. Without `syncs_end` what is dirty at the
    end stays dirty."""
    devices, mount = Devices(), require_mount(str(point))
    with closing(WritesReader(devices, read_mount_stack(devices, mount), mount)) as reader:
        yield from _measure(reader, syncs_end=syncs_end)


@contextmanager
def measure_device(name: str) -> Iterator[list[Waterfall]]:
    """Yield a list that has the waterfall of a device's writes when the block ends."""
    devices = Devices()
    device = devices.by_name(name)
    assert device
    with closing(WritesReader(devices, read_device_stack(devices, device))) as reader:
        yield from _measure(reader)


def _measure(reader: WritesReader, *, syncs_end: bool = True) -> Iterator[list[Waterfall]]:
    results = list[Waterfall]()
    reader.sync()
    begin = reader.read()
    yield results
    if syncs_end:
        reader.sync()
    results.append(compute_waterfall(reader.stack, begin, reader.read(), is_closed=syncs_end))


def find_bytes(waterfall: Waterfall, kind: WriteStep) -> int:
    """Return what the rows of a step add."""
    return sum(row.added or 0 for row in waterfall.rows if row.kind is kind)
