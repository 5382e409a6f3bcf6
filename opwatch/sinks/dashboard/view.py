"""What the user looks at: which disk, which operation, until when, how much to a column."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.sinks.dashboard.moment import DiskMoment
from opwatch.sinks.dashboard.past import DiskPast, Past
from opwatch.trace.abi import OPS

# Intervals that a column may stand for.
ZOOMS = (1, 2, 5, 10, 30, 60)
# The busiest operation is looked for among so many intervals.
_RECENT = 30


@dataclass(slots=True)
class View:
    """Which part of the past is shown. `until_ns` is where it ends, None for the newest there is;
    `chosen_op`, None for the busiest."""

    disk_place: int = 0
    chosen_op: str | None = None
    until_ns: int | None = None
    zoom_place: int = 0
    is_help: bool = False

    @property
    def zoom(self) -> int:
        return ZOOMS[self.zoom_place]

    @property
    def is_paused(self) -> bool:
        return self.until_ns is not None

    def disk(self, past: Past) -> DiskPast | None:
        disks = list(past.disks.values())
        return disks[self.disk_place % len(disks)] if disks else None

    def moment(self, past: Past) -> DiskMoment | None:
        """The interval whose numbers are shown: the last one in view."""
        disk = self.disk(past)
        place = self.place(disk) if disk else -1
        return disk.moments[place] if disk and place >= 0 else None

    def place(self, disk: DiskPast) -> int:
        """Its place among those of its disk, -1 where there is none yet."""
        if self.until_ns is None:
            return len(disk.moments) - 1
        return disk.place_before(self.until_ns)

    def columns(self, disk: DiskPast, width: int) -> Sequence[Sequence[DiskMoment]]:
        """The moments of each column, the newest at the right. Columns of several begin at the same moments
        however far one scrolls, so that what stands in them does not change."""
        end = self.place(disk) + 1
        first = max(end - width * self.zoom, 0)
        if self.zoom == 1:
            return [(moment,) for moment in disk.moments[first:end]]
        groups: dict[int, list[DiskMoment]] = {}
        for place, moment in enumerate(disk.moments[first:end], disk.dropped + first):
            groups.setdefault(place // self.zoom, []).append(moment)
        return list(groups.values())[-width:]

    def op(self, disk: DiskPast) -> str:
        """The operation that is shown."""
        if self.chosen_op:
            return self.chosen_op
        end = self.place(disk) + 1
        counts = dict.fromkeys(OPS, 0)
        for moment in disk.moments[max(end - _RECENT, 0) : end]:
            for name, op in moment.ops().items():
                counts[name] += op.count
        return max(counts, key=lambda name: counts[name])

    def next_disk(self, past: Past, by: int) -> None:
        if past.disks:
            self.disk_place = (self.disk_place + by) % len(past.disks)

    def pause(self, past: Past) -> None:
        """Stop here, or go on."""
        moment = self.moment(past)
        self.until_ns = moment.end_ns if moment and not self.is_paused else None

    def scroll(self, past: Past, columns: int) -> None:
        """Back where `columns` is negative. Behind the newest it is live again."""
        disk = self.disk(past)
        if not disk or not disk.moments:
            return
        place = self.place(disk) + columns * self.zoom
        if place >= len(disk.moments) - 1 and columns > 0:
            self.until_ns = None
            return
        self.until_ns = disk.moments[min(max(place, 0), len(disk.moments) - 1)].end_ns

    def oldest(self, past: Past) -> None:
        disk = self.disk(past)
        if disk and disk.moments:
            self.until_ns = disk.moments[0].end_ns

    def newest(self) -> None:
        self.until_ns = None

    def zoom_by(self, steps: int) -> None:
        self.zoom_place = min(max(self.zoom_place + steps, 0), len(ZOOMS) - 1)

    def zoom_to_fit(self, intervals: int, columns: int) -> None:
        """Go as near as shows all of them."""
        self.zoom_place = min(bisect_left(ZOOMS, -(-intervals // max(columns, 1))), len(ZOOMS) - 1)
