"""Absolute counters of writes at one moment, and the devices that they describe. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from opwatch.writes.application import ApplicationWrites
from opwatch.writes.classes import TargetWrites, WriteCount, WriteGroup
from opwatch.writes.witnesses import FilesystemCounters


@dataclass(frozen=True, slots=True)
class Parity:
    """The disks of a parity array, and how many of them hold parity in each stripe."""

    disks: int
    parity: int


@dataclass(frozen=True, slots=True)
class WriteLayer:
    """A device below the file system. `below` is empty for a drive, a partition and a loop device.

    `shared`: members that other devices write to as well, with these devices. `parity` is None for other
    layers, and while an array is degraded or synchronizes, which changes what it writes.
    """

    device: str
    label: str
    below: tuple[str, ...] = ()
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parity: Parity | None = None


@dataclass(frozen=True, slots=True)
class WriteStack:
    """What is measured: a mounted file system, or a device if `filesystem` is None.

    `tops` are the devices that it writes to, in the order of the traced targets; `layers` are listed from the
    top down. `block_size` is the file system's. `is_mounted`: some file system is mounted from the tops.
    """

    subject: str
    filesystem: str | None
    tops: tuple[str, ...]
    layers: tuple[WriteLayer, ...]
    block_size: int | None = None
    is_mounted: bool = True

    @property
    def bottoms(self) -> list[str]:
        """Return the devices without a layer below: drives, partitions of drives and loop devices."""
        return [layer.device for layer in self.layers if not layer.below]


@dataclass(frozen=True, slots=True)
class DeviceWrites:
    """The kernel's count of a device's completed writes, and the requests that are not completed yet."""

    bytes: int
    in_flight: int


class AccountedWrites(NamedTuple):
    """The bytes that a control group and those below it wrote by the kernel's count (io.stat), read before
    and after our own counters."""

    before: int
    after: int


class WriteProcess(NamedTuple):
    """A process. `start` is its time since boot in ns."""

    start: int
    pid: int


class ProcessBytes(NamedTuple):
    """A process's written bytes, and its name when it wrote first."""

    bytes: int
    name: str


@dataclass(frozen=True, slots=True)
class DriveAmplification:
    """A drive's NAND bytes per host byte during the interval, ± `error`. None with a `reason` if unknown."""

    waf: float | None
    error: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class WritesReading:
    """All counters at one moment. A device without usable statistics is missing in `devices`.

    `journal_reason` explains why jbd2's commits are not counted; None if they are. `application_reason`
    explains a missing `application`. `accounted` are the kernel's counts of control groups by path.
    """

    mono_ns: int
    targets: tuple[TargetWrites, ...]
    devices: Mapping[str, DeviceWrites]
    counters: FilesystemCounters = field(default_factory=FilesystemCounters)
    groups: Mapping[WriteGroup, WriteCount] = field(default_factory=dict)
    dirty_bytes: int | None = None
    journal_reason: str | None = None
    application: ApplicationWrites | None = None
    application_reason: str | None = None
    accounted: Mapping[str, AccountedWrites] = field(default_factory=dict)
    buffered_processes: Mapping[WriteProcess, ProcessBytes] = field(default_factory=dict)
    direct_processes: Mapping[WriteProcess, ProcessBytes] = field(default_factory=dict)
