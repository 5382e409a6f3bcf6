"""Polls of the drives' own counters: each in a thread with a deadline, on a schedule, never at a scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from opwatch.errors import OpwatchError, PermissionMissing
from opwatch.host.device import BlockDevice
from opwatch.metrics.drive_reading import DriveReading, FailureReason
from opwatch.metrics.drives import add_drive_metrics
from opwatch.metrics.family import MetricSamples
from opwatch.tools.exporter.threads import start_thread

# Polls at a time, without those that missed their deadline.
MAX_POLLS = 4
# Drives that left and are remembered, so that their counters go on if they come back.
_MAX_MEMORIES = 4096
# Start the first polls apart, so that the drives of a host are not all asked at once.
_FIRST_SPREAD_S = 0.2


class DrivePoller(Protocol):
    """One drive, with calls that block for as long as the drive does. All are made in threads, one at a
    time."""

    def poll_drive(self) -> DriveReading:
        """Return a new reading; `is_asleep` if the drive was in standby. Raise OpwatchError on failure."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PolledDisk:
    """A disk with a drive behind it. A disk that comes back, or another under its name, has another `key`.

    `registration` is the inode of the disk's entry in sysfs, None if unknown: a new entry has new kernel
    statistics. `every_s` is the time between polls; `labelled` the reading before the first poll, with the
    identity in sysfs.
    """

    disk: BlockDevice
    key: str
    registration: int | None
    every_s: float
    labelled: DriveReading
    open_poller: Callable[[], DrivePoller]


class _PolledDrive:
    """The state of a drive in the schedule. Used by the loop's thread alone, except the poller."""

    def __init__(self, polled: PolledDisk, due_s: float, earlier: _PolledDrive | None) -> None:
        """`earlier` is the state of the same drive when it left."""
        self.polled, self.due_s, self.reading = polled, due_s, polled.labelled
        # The kernel's counts restart with each registration of the disk; these are the sums before.
        self.kernel_before = 0, 0
        if earlier:
            labels = replace(earlier.reading.labels, device=polled.labelled.labels.device)
            self.reading = replace(earlier.reading, labels=labels)
            is_same_entry = polled.registration is not None
            is_same_entry = is_same_entry and polled.registration == earlier.polled.registration
            self.kernel_before = earlier.kernel_before if is_same_entry else _get_kernel_bytes(self.reading)
        self.poller: DrivePoller | None = None
        # Time at which the running poll began, None without one.
        self.since_s: float | None = None
        # The running poll missed its deadline, and was counted.
        self.is_late = self.is_gone = False

    def close_poller(self) -> None:
        if self.poller:
            self.poller.close()
            self.poller = None


class DriveSchedule:
    """Polls drives until stop(). Methods are called in the loop's thread, and never wait for a drive."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], None],
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call_soon, self._deadline_s, self._clock = call_soon, deadline_s, clock
        self._drives: dict[str, _PolledDrive] = {}
        # Drives that left, by identity.
        self._memories: dict[tuple[str, str], _PolledDrive] = {}
        self._is_stopped = False

    def set_disks(self, disks: Sequence[PolledDisk]) -> None:
        """Poll these disks from now on. Those already polled keep their readings."""
        wanted = {polled.key: polled for polled in disks}
        for key in self._drives.keys() - wanted.keys():
            self._remove(self._drives.pop(key))
        now = self._clock()
        for place, (key, polled) in enumerate(wanted.items()):
            if key not in self._drives:
                due_s = now + place * _FIRST_SPREAD_S
                self._drives[key] = _PolledDrive(polled, due_s, self._recall(polled))

    def _recall(self, polled: PolledDisk) -> _PolledDrive | None:
        """Return the state of a drive that was here before, under any name, or None."""
        identity = _identify(polled)
        return self._memories.pop(identity, None) if identity else None

    def _remove(self, drive: _PolledDrive) -> None:
        drive.is_gone = True
        if identity := _identify(drive.polled):
            self._memories[identity] = drive
            if len(self._memories) > _MAX_MEMORIES:
                del self._memories[next(iter(self._memories))]
        if drive.since_s is None:
            drive.close_poller()

    def run_due(self) -> float:
        """Start the polls that are due, and count those that are late. Return the seconds until the next
        call."""
        now = self._clock()
        for drive in self._drives.values():
            if drive.since_s is not None and not drive.is_late and now - drive.since_s >= self._deadline_s:
                drive.is_late = True
                drive.reading = drive.reading.with_failure(FailureReason.TIMEOUT)
        running = sum(drive.since_s is not None and not drive.is_late for drive in self._drives.values())
        waiting = sorted(
            (drive for drive in self._drives.values() if drive.since_s is None), key=lambda drive: drive.due_s
        )
        for drive in waiting[: MAX_POLLS - running]:
            if drive.due_s > now or self._is_stopped:
                break
            drive.since_s, drive.is_late = now, False
            # The next time does not depend on how long the drive takes.
            drive.due_s = now + drive.polled.every_s
            self._start_poll(drive)
        return self._find_wait(now)

    def _start_poll(self, drive: _PolledDrive) -> None:
        try:
            start_thread(f"drive {drive.polled.disk.name}", lambda: self._poll_drive(drive))
        except OpwatchError:
            # The next poll may succeed.
            drive.since_s = None
            drive.reading = drive.reading.with_failure(FailureReason.REFUSED)

    def _find_wait(self, now: float) -> float:
        times = [now + 60.0]
        for drive in self._drives.values():
            if drive.since_s is None or drive.due_s > now:
                times.append(drive.due_s)
            if drive.since_s is not None and not drive.is_late:
                times.append(drive.since_s + self._deadline_s)
        return max(0.05, min(times) - now)

    def _poll_drive(self, drive: _PolledDrive) -> None:
        """Poll a drive in its own thread, and hand the result to the loop."""
        outcome: DriveReading | Exception
        try:
            if drive.poller is None:
                drive.poller = drive.polled.open_poller()
            outcome = drive.poller.poll_drive()
        # A failure of any kind is the drive's, not the exporter's.
        except Exception as error:
            outcome = error
        self._call_soon(lambda: self._end_poll(drive, outcome))

    def _end_poll(self, drive: _PolledDrive, outcome: DriveReading | Exception) -> None:
        was_late, drive.since_s, drive.is_late = drive.is_late, None, False
        if drive.is_gone:
            # The device is gone or belongs to another drive: the answer may be that one's.
            drive.close_poller()
            return
        if isinstance(outcome, DriveReading):
            if not outcome.is_asleep and not _is_same_drive(drive.reading, outcome):
                drive.reading, drive.kernel_before = DriveReading(outcome.labels), (0, 0)
            drive.reading = _accept(drive.reading, _add_kernel_bytes(outcome, *drive.kernel_before))
        elif not was_late:
            drive.reading = drive.reading.with_failure(_classify(outcome))

    def add_metrics(self, samples: MetricSamples) -> None:
        """Add the last readings of all drives."""
        for drive in self._drives.values():
            add_drive_metrics(samples, drive.reading)

    def stop(self) -> None:
        """Start no more polls. Threads in the middle of a command end with the process."""
        self._is_stopped = True

    @property
    def readings(self) -> Mapping[str, DriveReading]:
        """Return the last reading of each drive by its device's name."""
        return {drive.polled.disk.name: drive.reading for drive in self._drives.values()}


def _identify(polled: PolledDisk) -> tuple[str, str] | None:
    """Return the identity of a drive under any name, or None if it has no worldwide name.

    Serial numbers alone are not unique: namespaces of a drive share one, and some bridges give all drives the
    same.
    """
    labels = polled.labelled.labels
    return (labels.serial, labels.wwid) if labels.wwid else None


def _is_same_drive(before: DriveReading, now: DriveReading) -> bool:
    """Return False if another drive answered under the name."""
    return before.labels.serial in ("", now.labels.serial)


def _get_kernel_bytes(reading: DriveReading) -> tuple[int, int]:
    return reading.kernel_written_bytes or 0, reading.kernel_read_bytes or 0


def _accept(before: DriveReading, now: DriveReading) -> DriveReading:
    """Return the reading after a successful poll."""
    if now.is_asleep:
        return before.as_asleep()
    return before.update_values(now)


def _add_kernel_bytes(reading: DriveReading, written: int, read: int) -> DriveReading:
    """Return a reading with the kernel's counts of earlier registrations of the disk added."""

    def add(now: int | None, earlier: int) -> int | None:
        return None if now is None else now + earlier

    return replace(
        reading,
        kernel_written_bytes=add(reading.kernel_written_bytes, written),
        kernel_read_bytes=add(reading.kernel_read_bytes, read),
    )


def _classify(error: Exception) -> FailureReason:
    if isinstance(error, PermissionMissing):
        return FailureReason.PERMISSION
    if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
        return FailureReason.TIMEOUT
    return FailureReason.REFUSED
