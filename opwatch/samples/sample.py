"""What was read of one watched disk at one moment. Everything in it is absolute, and a value of its own."""

from __future__ import annotations

from opwatch.clock import Anchor
from opwatch.cpu import CpuTimes
from opwatch.frozen import frozen
from opwatch.trace.trust import Reading


@frozen
class WatchedDisk:
    """What is known of a disk since it was attached to. `origin` is the device that the user named, `device`
    does its I/O; `level` says at which layer it is counted; `lacks`, what the backend cannot give and why;
    `in_flight`, how many requests were under way at the attachment."""

    device: str
    origin: str
    level: str
    backend: str = "libbpf"
    lacks: tuple[str, ...] = ()
    in_flight: int = 0
    flush_queues: int = 0


@frozen
class DiskSample:
    """A reading, with the clocks as they were then. `misses` are runs of programs that the kernel skipped, of
    all disks together; None where nobody tells. `cpu` is the machine's CPU time, read with the anchor."""

    disk: WatchedDisk
    reading: Reading
    misses: int | None
    anchor: Anchor
    cpu: CpuTimes | None = None
