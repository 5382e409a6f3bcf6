"""A fleet in virtual time: many days of samples, written as OpenMetrics text with timestamps.

`promtool tsdb create-blocks-from openmetrics` makes a database of the text, in which rules are evaluated much
faster than they would be by waiting. The samples come from the function that builds the answers to scrapes,
so that both have the same series.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TextIO

from opwatch.metrics import table
from opwatch.metrics.family import DurationCounts, MetricFamily, MetricSamples

from .answers import build_samples
from .drives import SimulatedDrive
from .plan import DAY_S, DrivePlan, FleetPlan, HostPlan

# Differences with a week before reach this far back, and are read in windows of 30 minutes.
WARM_UP_DAYS = 8
WARM_UP_STEP_S = 1200
STEP_S = 600
# Families that rules read more than a day back.
WARM_UP_FAMILIES = (table.HOST_WRITTEN, table.MEDIA_WRITTEN, table.SPARE, table.QUANTUM)
# Families that rules read.
RULE_FAMILIES = (
    *WARM_UP_FAMILIES,
    table.IO_DURATION,
    table.UNEXPLAINED,
    table.WATCHED,
    table.REFUSED,
    table.READ_TIMESTAMP,
    table.READ_FAILURES,
    table.ASLEEP,
    table.SPARE_THRESHOLD,
    table.ENDURANCE_USED,
    table.ENDURANCE_END,
    table.CRITICAL_WARNING,
    table.DRIVE_INFO,
    table.TRIM_LOST,
    table.TRIM_VERDICT,
)
# Series that no rule reads, although it reads others of their family.
_UNREAD = {
    (table.ENDURANCE_END.name, "late"),
    *((table.CRITICAL_WARNING.name, kind) for kind in table.WARNING_KINDS if kind != "spare"),
    *((table.READ_FAILURES.name, reason) for reason in ("permission", "refused")),
    (table.IO_DURATION.name, "discard"),
}


@dataclass(slots=True)
class DriveTruth:
    """What really happened to a drive: its bytes and its name at each step."""

    drive: SimulatedDrive
    times_s: list[float] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    host_bytes: list[float] = field(default_factory=list)
    media_bytes: list[float] = field(default_factory=list)

    def find_step(self, moment_s: float) -> int:
        """Return the number of the step at this moment, or of the nearest one."""
        return min(bisect_left(self.times_s, moment_s), len(self.times_s) - 1)


class HostReplay:
    """A host that is stepped through virtual time, with its reboots and replaced drives."""

    def __init__(
        self,
        plan: HostPlan,
        begin_s: float,
        *,
        has_histograms: bool = False,
    ) -> None:
        self.plan = plan
        self._has_histograms = has_histograms
        self.drives = [self._make_drive(number, begin_s) for number in range(len(plan.drives))]
        self._reboots = list(plan.reboots)
        self._swaps = list(plan.swaps)
        self._down_until_s = begin_s

    def _make_drive(self, number: int, begin_s: float) -> SimulatedDrive:
        return self._start_drive(self.plan.drives[number], begin_s)

    def _start_drive(self, plan: DrivePlan, begin_s: float) -> SimulatedDrive:
        return SimulatedDrive(
            self.plan,
            plan,
            begin_s,
            has_histograms=self._has_histograms,
        )

    def advance(self, to_s: float) -> bool:
        """Move the host to a moment. Return false if it is down then."""
        while self._swaps and self._swaps[0][0] <= to_s:
            self._replace_drive(*self._swaps.pop(0))
        while self._reboots and self._reboots[0][0] <= to_s:
            moment, downtime_s = self._reboots.pop(0)
            self._advance_drives(moment)
            self._down_until_s = moment + downtime_s
            for drive in self.drives:
                drive.reboot()
            self._rename_devices()
        self._advance_drives(to_s)
        return to_s >= self._down_until_s

    def _advance_drives(self, to_s: float) -> None:
        for drive in self.drives:
            drive.advance(to_s)

    def _rename_devices(self) -> None:
        """Let the names move by one, as they do if a reboot finds the drives in another order."""
        devices = [drive.device for drive in self.drives]
        for drive, device in zip(self.drives, (*devices[1:], devices[0]), strict=True):
            drive.device = device

    def _replace_drive(self, moment: float, number: int) -> None:
        old = self.drives[number]
        old.advance(moment)
        # A drive with a fault stays, so that each injected fault can be found.
        if old.plan.faults:
            return
        plan = dataclasses.replace(old.plan, serial=f"{old.plan.serial}R", used_ratio=0.0, age_s=0.0)
        new = self._start_drive(plan, moment)
        new.device = old.device
        self.drives[number] = new


SeriesKey = tuple[str, tuple[str, ...]]


class SeriesText:
    """The samples of one host as text: collected by series, written series by series."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._series: dict[SeriesKey, list[str]] = {}

    def add(self, samples: MetricSamples, families: Iterable[MetricFamily], now_s: float) -> None:
        """Add the samples of a moment."""
        for family in families:
            for labels, value in samples.rows.get(family.name, ()):
                if labels and (family.name, labels[-1]) in _UNREAD:
                    continue
                if isinstance(value, DurationCounts):
                    self._append(f"{family.name}_count", family, labels, value.total, now_s)
                    self._append(f"{family.name}_sum", family, labels, value.sum_s, now_s)
                else:
                    self._append(family.name, family, labels, value, now_s)

    def _append(
        self, name: str, family: MetricFamily, labels: tuple[str, ...], value: float, now_s: float
    ) -> None:
        series = self._series.get((name, labels))
        if series is None:
            pairs = zip(("job", "instance", *family.labels), ("opwatch", self._host, *labels), strict=True)
            text = ",".join(f'{label}="{escape_label(each)}"' for label, each in pairs)
            series = self._series[name, labels] = [f"{name}{{{text}}}"]
        series.append(f" {value!r} {now_s:.0f}\n")

    def write(self, file: TextIO) -> None:
        """Write the samples, each series in the order of time."""
        for prefix, *samples in self._series.values():
            file.write(prefix + prefix.join(samples))


def escape_label(value: str) -> str:
    """Return a label value as OpenMetrics escapes it."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def list_steps(begin_s: float, days: float) -> Iterator[tuple[float, bool]]:
    """Yield (moment, whether it is warm-up). Sampling is dense from a day before `begin_s` on."""
    now_s = begin_s - WARM_UP_DAYS * DAY_S
    while now_s <= begin_s + days * DAY_S:
        is_warm_up = now_s < begin_s - DAY_S
        yield now_s, is_warm_up
        now_s += WARM_UP_STEP_S if is_warm_up else STEP_S


def write_replay(fleet: FleetPlan, days: float, file: TextIO) -> list[DriveTruth]:
    """Write `days` of the fleet after a warm-up that ends at `fleet.begin_s`, and return the truth."""
    truths: list[DriveTruth] = []
    for plan in fleet.hosts:
        host = HostReplay(plan, fleet.begin_s - WARM_UP_DAYS * DAY_S)
        text = SeriesText(plan.name)
        by_serial: dict[str, DriveTruth] = {}
        for now_s, is_warm_up in list_steps(fleet.begin_s, days):
            is_up = host.advance(now_s)
            for drive in host.drives:
                truth = by_serial.setdefault(drive.plan.serial, DriveTruth(drive))
                truth.times_s.append(now_s)
                truth.devices.append(drive.device)
                truth.host_bytes.append(drive.true_host_bytes)
                truth.media_bytes.append(drive.media_bytes)
            if is_up:
                text.add(build_samples(host.drives), WARM_UP_FAMILIES if is_warm_up else RULE_FAMILIES, now_s)
        text.write(file)
        truths += by_serial.values()
    file.write("# EOF\n")
    return truths
