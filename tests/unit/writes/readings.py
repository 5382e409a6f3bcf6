"""Readings of writes for tests, from bytes per class."""

from __future__ import annotations

from collections.abc import Mapping

from opwatch.writes.application import ApplicationWrites
from opwatch.writes.classes import TargetWrites, WriteClass, WriteCount
from opwatch.writes.reading import DeviceWrites, WritesReading
from opwatch.writes.witnesses import FilesystemCounters


def make_target(written: Mapping[WriteClass, int], blocks: int = 0, commits: int = 0) -> TargetWrites:
    counts = {kind: WriteCount(written.get(kind, 0), int(kind in written)) for kind in WriteClass}
    return TargetWrites(counts, blocks, commits)


def make_reading(
    written: Mapping[WriteClass, int],
    devices: Mapping[str, int],
    *,
    counters: FilesystemCounters | None = None,
    blocks: int = 0,
    commits: int = 0,
    in_flight: int = 0,
    dirty: int | None = None,
    application: ApplicationWrites | None = None,
    second: int = 0,
) -> WritesReading:
    return WritesReading(
        mono_ns=second * 10**9,
        targets=(make_target(written, blocks, commits),),
        devices={name: DeviceWrites(size, in_flight) for name, size in devices.items()},
        counters=counters or FilesystemCounters(),
        dirty_bytes=dirty,
        application=application,
        application_reason=None if application else "fexit is refused",
    )
