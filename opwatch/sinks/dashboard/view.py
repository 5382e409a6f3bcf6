"""The user's view: disk, operation, time and zoom."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from opwatch.sinks.dashboard.compact_interval import CompactInterval
from opwatch.sinks.dashboard.history import DiskHistory, WatchHistory
from opwatch.trace.abi import OPS

# Intervals per column.
ZOOMS = (1, 2, 5, 10, 30, 60)
# Without a choice by the user, the view switches to another disk or operation only if busier than the shown
# one by this factor.
_SWITCH_FACTOR = 2
# Number of columns in which the busiest operation is determined.
_RECENT_COLUMNS = 30

Columns = Sequence[Sequence[CompactInterval]]


@dataclass(slots=True)
class View:
    """The displayed part of the past.

    `cursor_ns` is the end of the interval with the displayed numbers, None for the newest interval. `edge_ns`
    is the end of the paused map. `chosen_op` is None for the busiest operation in the map. Until
    `has_chosen_disk` is set, the busiest disk is shown.
    """

    disk_name: str | None = None
    has_chosen_disk: bool = False
    chosen_op: str | None = None
    cursor_ns: int | None = None
    edge_ns: int | None = None
    zoom_place: int = 0
    is_help: bool = False
    busy_op: str | None = field(default=None, compare=False)

    @property
    def zoom_factor(self) -> int:
        return ZOOMS[self.zoom_place]

    @property
    def is_paused(self) -> bool:
        return self.cursor_ns is not None

    def find_disk(self, past: WatchHistory) -> DiskHistory | None:
        """Return the shown disk, or None before there is one."""
        shown = past.disks.get(self.disk_name or "")
        return shown or max(past.disks.values(), key=lambda disk: disk.requests, default=None)

    def follow_busiest(self, past: WatchHistory) -> None:
        """Show the busiest disk, unless the user chose one. Two about equally busy disks do not alternate."""
        shown = self.find_disk(past)
        if shown is None or self.has_chosen_disk or self.is_paused:
            return
        busiest = max(past.disks.values(), key=lambda disk: disk.requests)
        is_busier = busiest.requests > _SWITCH_FACTOR * shown.requests
        self.disk_name = busiest.name if is_busier else shown.name

    def find_moment(self, past: WatchHistory) -> CompactInterval | None:
        """Return the interval with the displayed numbers: at the cursor, or the newest."""
        disk = self.find_disk(past)
        place = self.find_index(disk) if disk else -1
        return disk.moments[place] if disk and place >= 0 else None

    def find_index(self, disk: DiskHistory) -> int:
        """Return the index of the shown moment of a disk, or -1."""
        if self.cursor_ns is None:
            return len(disk.moments) - 1
        return disk.find_index_before(self.cursor_ns)

    def build_columns(self, disk: DiskHistory, width: int) -> Columns:
        """Return the moments of each column, newest at the right.

        Zoomed columns start at fixed moments, so that scrolling does not change their contents.
        """
        newest = self._find_newest_in_map(disk)
        if newest < 0:
            return []
        oldest, last = disk.dropped, disk.dropped + newest
        end_column = last // self.zoom_factor
        if self.is_paused:
            # Half of the map is after the cursor, unless the history ends before.
            cursor_column = (disk.dropped + max(self.find_index(disk), 0)) // self.zoom_factor
            wanted = max(cursor_column + width // 2, oldest // self.zoom_factor + width - 1)
            end_column = min(end_column, wanted)
        first = max((end_column - width + 1) * self.zoom_factor, oldest) - oldest
        end = min((end_column + 1) * self.zoom_factor - 1, last) + 1 - oldest
        if self.zoom_factor == 1:
            return [(moment,) for moment in disk.moments[first:end]]
        groups: dict[int, list[CompactInterval]] = {}
        for place, moment in enumerate(disk.moments[first:end], oldest + first):
            groups.setdefault(place // self.zoom_factor, []).append(moment)
        return list(groups.values())

    def _find_newest_in_map(self, disk: DiskHistory) -> int:
        """Return the index of the newest interval in the map, or -1. A paused map does not move."""
        if self.is_paused and self.edge_ns is not None:
            return disk.find_index_before(self.edge_ns)
        return len(disk.moments) - 1

    def find_cursor_column(self, disk: DiskHistory, columns: Columns) -> int | None:
        """Return the index of the cursor's column, or None without a cursor."""
        place = self.find_index(disk)
        if self.cursor_ns is None or not columns or place < 0:
            return None
        return bisect_left([moments[-1].end_ns for moments in columns], disk.moments[place].end_ns)

    def choose_op(self, columns: Columns) -> str:
        """Return the operation in the map: the chosen operation, or the busiest in the newest columns.

        As with disks, two about equally busy operations do not alternate.
        """
        if self.chosen_op:
            return self.chosen_op
        counts = _count_requests(columns[-_RECENT_COLUMNS:])
        if not any(counts.values()):
            counts = _count_requests(columns)
        busiest = max(counts, key=lambda name: counts[name])
        if counts[busiest] > _SWITCH_FACTOR * counts.get(self.busy_op or "", 0):
            self.busy_op = busiest
        return self.busy_op or busiest

    def select_next_disk(self, past: WatchHistory, by: int) -> None:
        """Show the next disk in the list, or the previous one."""
        names, shown = [disk.name for disk in past.list_disks()], self.find_disk(past)
        if shown is None:
            return
        self.disk_name = names[(names.index(shown.name) + by) % len(names)]
        self.has_chosen_disk = True

    def pin_disk(self, past: WatchHistory) -> None:
        """Stay with the shown disk, whichever becomes the busiest."""
        self.select_next_disk(past, 0)

    def toggle_pause(self, past: WatchHistory) -> None:
        """Pause, or resume."""
        moment = self.find_moment(past)
        if self.is_paused or moment is None:
            self.show_newest()
        else:
            self._pause_at(moment.end_ns, moment.end_ns)

    def scroll(self, past: WatchHistory, columns: int) -> None:
        """Move the cursor, backwards if `columns` is negative. After the newest interval the view is live."""
        disk = self.find_disk(past)
        if not disk or not disk.moments:
            return
        place = self.find_index(disk) + columns * self.zoom_factor
        if place >= len(disk.moments) - 1 and columns > 0:
            self.show_newest()
            return
        newest_ns = disk.moments[-1].end_ns
        edge_ns = self.edge_ns if self.is_paused and self.edge_ns is not None else newest_ns
        cursor_ns = disk.moments[min(max(place, 0), len(disk.moments) - 1)].end_ns
        self._pause_at(cursor_ns, max(edge_ns, cursor_ns))

    def scroll_to_oldest(self, past: WatchHistory) -> None:
        disk = self.find_disk(past)
        if disk and disk.moments:
            self.scroll(past, -len(disk.moments))

    def show_newest(self) -> None:
        self.cursor_ns = self.edge_ns = None

    def _pause_at(self, cursor_ns: int, edge_ns: int) -> None:
        self.cursor_ns, self.edge_ns = cursor_ns, edge_ns

    def zoom_by(self, steps: int) -> None:
        self.zoom_place = min(max(self.zoom_place + steps, 0), len(ZOOMS) - 1)

    def zoom_to_fit(self, intervals: int, columns: int) -> None:
        """Choose the closest zoom that shows all intervals."""
        self.zoom_place = min(bisect_left(ZOOMS, -(-intervals // max(columns, 1))), len(ZOOMS) - 1)


def _count_requests(columns: Columns) -> dict[str, int]:
    """Return the requests of each operation."""
    counts = dict.fromkeys(OPS, 0)
    for moments in columns:
        for moment in moments:
            for name, count in moment.count_requests():
                counts[name] += count
    return counts
