"""A reading of one watched disk. All numbers are absolute; samples are independent values."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.clock import Anchor
from opwatch.cpu import CpuTimes
from opwatch.trace.trust import Reading

# Disks that are watched and recorded at a time: reading a recording takes half a MiB of memory for each.
MAX_DISKS = 400


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """A setting of a control group for one disk: the file, such as `io.max`, and its values."""

    group: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings of a disk's queue; None where the disk has none. `nr_requests` is per hardware queue,
    `wbt_lat_us` is 0 if write-back throttling is off.

    `groups` are the limits and weights of control groups for the disk, None if they are unknown. `io_cost`
    is the disk's line in `io.cost.qos`, None if iocost does not control the disk.
    """

    scheduler: str | None
    nr_requests: int | None
    wbt_lat_us: int | None
    io_cost: str | None = None
    groups: tuple[GroupSetting, ...] | None = None


@dataclass(frozen=True, slots=True)
class WatchedDisk:
    """Facts about a disk since it was attached.

    `origin` is the device named by the user, `device` performs the I/O; `level` is the layer at which
    requests are counted; `lacks`, data missing in the backend, and why; `in_flight`, the number of requests
    in flight at the attachment; `settings` are those at that time, None in older recordings.
    """

    device: str
    origin: str
    level: str
    backend: str = "libbpf"
    lacks: tuple[str, ...] = ()
    in_flight: int = 0
    flush_queues: int = 0
    settings: QueueSettings | None = None


@dataclass(frozen=True, slots=True)
class DiskSample:
    """A reading, with the clocks at that time. `misses` are program runs skipped by the kernel, all disks
    together; None if unknown. `cpu` is the machine's CPU time, read with the anchor."""

    disk: WatchedDisk
    reading: Reading
    misses: int | None
    anchor: Anchor
    cpu: CpuTimes | None = None
