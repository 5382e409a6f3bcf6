"""Create one partition at the start of a drive, in the kernel only: never written to the drive, lost at
power-off.

Writes to the partition cannot exceed the level.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from opwatch.collectors.guard.disk_facts import collect_facts
from opwatch.collectors.space.device_handle import open_device
from opwatch.errors import OpwatchError, RefusedError
from opwatch.guard.facts import remove_own_part
from opwatch.guard.obstacles import Consent, find_obstacles, require_no_obstacles
from opwatch.host.device import SECTOR, BlockDevice, Devices
from opwatch.journal.changes import append_change, append_restoration
from opwatch.journal.file import JournalFile
from opwatch.journal.state import SweepState
from opwatch.journal.undo import PartitionUndo, parse_undo
from opwatch.tools.acting.sweep.bench import SweepBench

# linux/blkpg.h
_BLKPG, _ADD, _DELETE = 0x1269, 1, 2
_NUMBER = 1
# udev probes a new partition and keeps it open for a moment.
_PATIENCE_S = 10.0


class _Partition(ctypes.Structure):
    """struct blkpg_partition."""

    _fields_ = (
        ("start", ctypes.c_longlong),
        ("length", ctypes.c_longlong),
        ("pno", ctypes.c_int),
        ("devname", ctypes.c_char * 64),
        ("volname", ctypes.c_char * 64),
    )


class _Request(ctypes.Structure):
    """struct blkpg_ioctl_arg."""

    _fields_ = (
        ("op", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("datalen", ctypes.c_int),
        ("data", ctypes.c_void_p),
    )


def _send_request(descriptor: int, operation: int, length: int = 0) -> None:
    partition = _Partition(0, length, _NUMBER)
    request = _Request(operation, 0, ctypes.sizeof(partition), ctypes.addressof(partition))
    fcntl.ioctl(descriptor, _BLKPG, request)


@contextlib.contextmanager
def create_level_partition(bench: SweepBench, length: int) -> Iterator[str]:
    """Create a partition of this length and yield its path.

    The journal records the partition before it exists and until it is deleted.
    """
    undo, disk, claim = PartitionUndo(length), bench.disk, bench.disk_claim
    append_change(bench.journal, bench.state, undo)
    try:
        _send_request(claim.fileno(), _ADD, length)
    except OSError as error:
        raise OpwatchError(f"{disk.name}: the kernel cannot add a partition: {error.strerror}") from error
    try:
        descriptor, claim.own_part = _open_partition(claim.devices, disk, undo)
        try:
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        finally:
            os.close(descriptor)
            claim.own_part = None
    finally:
        _delete_partition(claim.fileno(), disk)
        append_restoration(bench.journal, bench.state, undo)


def _find_partition(devices: Devices, disk: BlockDevice, undo: PartitionUndo) -> BlockDevice | None:
    """Return the partition created by a sweep, or None if none has this position and size."""
    for part in devices.list_partitions(disk):
        place = part.read_number("partition"), part.read_number("start"), part.read_number("size")
        if place == (_NUMBER, 0, undo.length_bytes // SECTOR):
            return part
    return None


def _open_partition(devices: Devices, disk: BlockDevice, undo: PartitionUndo) -> tuple[int, str]:
    """Return (writable descriptor, name) of the partition, after checking its identity."""
    part = _find_partition(devices, disk, undo)
    if part is None:
        raise RefusedError(f"{disk.name} shows another partition instead of the new one")
    until = time.monotonic() + _PATIENCE_S
    while not (Path("/dev") / part.name).exists() and time.monotonic() < until:
        time.sleep(0.05)
    known = open_device(part)
    try:
        return os.open(f"/proc/self/fd/{known}", os.O_RDWR | os.O_CLOEXEC), part.name
    finally:
        os.close(known)


def _delete_partition(descriptor: int, disk: BlockDevice) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return _send_request(descriptor, _DELETE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise OpwatchError(
                    f"{disk.name}: the level's partition cannot be deleted ({error.strerror}): stop the "
                    f"process that has it open, then delpart /dev/{disk.name} {_NUMBER}"
                ) from error
            time.sleep(0.1)


def undo_partitions(
    devices: Devices, named: str, consent: Consent, journal: JournalFile, state: SweepState
) -> None:
    """Delete the partition of a killed sweep.

    Raises RefusedError for any other obstacle: a partition in use by another process is not ours.
    """
    for undo in [parse_undo(text) for text in state.undo]:
        if not isinstance(undo, PartitionUndo):
            continue
        disk = devices.resolve(named).disk
        part = _find_partition(devices, disk, undo)
        if part:
            facts = collect_facts(devices, named)
            obstacles = find_obstacles(remove_own_part(facts, part.name), consent)
            require_no_obstacles(obstacles, is_begun=True)
            descriptor = open_device(disk)
            try:
                _delete_partition(descriptor, disk)
            finally:
                os.close(descriptor)
        append_restoration(journal, state, undo)
