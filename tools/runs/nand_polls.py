"""Polls of the drives below a measurement of writes, for what they write to NAND."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from opwatch.collectors.firmware.counting import POLL_S, CounterPoller
from opwatch.counters.catalogue.families import Catalogue
from opwatch.host.device import Devices
from opwatch.samples.end import End
from opwatch.samples.measurement_run import LEAD_POLLS, ProgressSink
from opwatch.tools.runs.waiting import Waiter
from opwatch.waf.measure import Measurement
from opwatch.waf.trail import Trail
from opwatch.writes.reading import DriveAmplification

# Intervals may be shorter than the time between polls by this share.
_FULL = 0.95


class _NandDrive:
    """A drive and all polls of it. `reason` says why it has no counter of NAND writes; None if it has one."""

    def __init__(self, counting: CounterPoller) -> None:
        self._counting = counting
        self._trail = Trail()
        self._begin = self._end = self._mark = 0
        self.every_s = max(POLL_S, counting.busy_poll_s)
        self.poll()
        self.reason = None if self._trail.nand else self._explain_missing()

    def poll(self) -> None:
        self._trail.add_poll(self._counting.poll_counters())

    def begin_work(self) -> None:
        self.poll()
        self._begin = self._mark = len(self._trail.moments) - 1

    def end_work(self) -> None:
        self.poll()
        self._end = len(self._trail.moments) - 1

    def is_settled(self) -> bool:
        return Measurement(self._trail, self._begin, self._end).is_settled()

    def measure(self) -> DriveAmplification:
        return self._measure_polls(self._begin, self._end)

    def end_interval(self) -> DriveAmplification:
        """Return the write amplification from the end of the interval before to the newest poll."""
        begin, self._mark = self._mark, len(self._trail.moments) - 1
        return self._measure_polls(begin, self._mark)

    def _measure_polls(self, begin: int, end: int) -> DriveAmplification:
        if self.reason:
            return DriveAmplification(None, reason=self.reason)
        result = Measurement(self._trail, begin, end).make_result()
        return DriveAmplification(result.waf, result.error, result.reason)

    def close(self) -> None:
        self._counting.close()

    def _explain_missing(self) -> str:
        if self._counting.denied:
            return str(self._counting.denied)
        latest = self._counting.latest
        reading = latest.readings["nand_written"] if latest else None
        return f"{self._counting.disk.name}: {(reading and reading.reason) or 'no counter of NAND writes'}"


class NandPolls:
    """Polls all drives of a measurement, from construction until close(). Drives without a counter of NAND
    writes are polled once."""

    def __init__(self, devices: Devices, names: Sequence[str], catalogue: Catalogue) -> None:
        """`names` are the devices at the bottom, which can be partitions of one drive."""
        self._drives: dict[str, _NandDrive] = {}
        self._disks: dict[str, str] = {}
        for name in names:
            device = devices.by_name(name)
            if device is None:
                continue
            self._disks[name] = device.disk.name
            if device.disk.name not in self._drives:
                self._drives[device.disk.name] = _NandDrive(CounterPoller(devices, device.disk, catalogue))
        self._polled = [drive for drive in self._drives.values() if drive.reason is None]
        self._every_s = max((drive.every_s for drive in self._polled), default=math.inf)
        self.next_due = math.inf

    def begin_work(self, waiter: Waiter) -> bool:
        """Poll the idle drives, and once more right before the work. Return False if a signal arrived."""
        for _ in range(LEAD_POLLS if self._polled else 0):
            if waiter.wait_until(waiter.now() + POLL_S) is End.SIGNAL:
                return False
            self._poll_all()
        for drive in self._polled:
            drive.begin_work()
        self.next_due = waiter.now() + self._every_s
        return True

    def poll_if_due(self, now: float) -> None:
        if now >= self.next_due:
            self._poll_all()
            self.next_due = now + self._every_s

    def end_interval(self, seconds: float) -> Mapping[str, DriveAmplification]:
        """Poll, and return the write amplification of an interval of this length, by name of the devices at
        the bottom."""
        if seconds >= _FULL * self._every_s:
            self._poll_all()
            return self._name_devices({disk: drive.end_interval() for disk, drive in self._drives.items()})
        short = f"its pages are read every {self._every_s:g} s, and the interval has {seconds:.1f} s"
        return self._name_devices(
            {
                disk: DriveAmplification(None, reason=drive.reason or f"{disk}: {short}")
                for disk, drive in self._drives.items()
            }
        )

    def end_work(self) -> None:
        for drive in self._polled:
            drive.end_work()

    def wait_for_pages(self, waiter: Waiter, talk: ProgressSink, settle_s: float) -> None:
        """Poll until the drives' pages show all of the work, a signal arrives, or the time is over."""
        until = waiter.now() + settle_s
        while not all(drive.is_settled() for drive in self._polled) and waiter.now() < until:
            if waiter.wait_until(waiter.now() + self._every_s) is End.SIGNAL:
                return
            self._poll_all()
            talk.show_progress("waiting until the drives' pages include all writes")

    def measure(self) -> Mapping[str, DriveAmplification]:
        """Return the write amplification by name of the devices at the bottom."""
        return self._name_devices({disk: drive.measure() for disk, drive in self._drives.items()})

    def close(self) -> None:
        for drive in self._drives.values():
            drive.close()

    def _name_devices(self, measured: Mapping[str, DriveAmplification]) -> Mapping[str, DriveAmplification]:
        return {name: measured[disk] for name, disk in self._disks.items()}

    def _poll_all(self) -> None:
        for drive in self._polled:
            drive.poll()
