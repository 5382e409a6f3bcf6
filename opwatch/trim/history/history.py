"""Track a drive's contents from the changes that it completed. Pure: implements the rules of
docs/method-trim.md."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from opwatch.trim.history.changes import ChangeKind, decode_changes, is_harmless_command
from opwatch.trim.history.sectormap import SectorMap, SectorState

NO_ROOM = "too many pieces for the map"
# Number of recent changes to keep, to find changes that were in flight at the same time.
_RECENT = 65_536


class _RecentChanges:
    """Recently changed ranges, ordered by end time. Changes that ended before `horizon_ns` are unknown."""

    def __init__(self, horizon_ns: int) -> None:
        self.horizon_ns = horizon_ns
        self.newest_ns = 0
        self._ranges: deque[tuple[int, int, int]] = deque()

    def add_range(self, end_ns: int, first: int, last: int) -> None:
        """Add a range. `end_ns` must never decrease; it may be later than the true end."""
        if len(self._ranges) == _RECENT:
            self.horizon_ns = max(self.horizon_ns, self._ranges.popleft()[0])
        self.newest_ns = end_ns
        self._ranges.append((end_ns, first, last))

    def find_since(self, begin_ns: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of changes that ended after `begin_ns`."""
        for end_ns, first, last in reversed(self._ranges):
            if end_ns <= begin_ns:
                return
            yield first, last


class History:
    """The map of a disk, kept up to date from its changes. `granule` and `offset` are the disk's discard
    granule, in sectors. Changes that began before `since_ns` may overlap changes that were not recorded.
    `forgotten` counts, by reason, how often known sectors became unknown."""

    def __init__(self, sectors: int, granule: int = 1, offset: int = 0, since_ns: int = 0) -> None:
        self.map = SectorMap(sectors)
        self.granule = max(granule, 1)
        self.offset = offset
        self.forgotten: Counter[str] = Counter()
        # Changes that may free, and changes that may write. Zeroing may do both.
        self._frees, self._writes = _RecentChanges(since_ns), _RecentChanges(since_ns)
        self._clock = since_ns
        # The last discard's begin and the concurrent writes: all ranges of a command share the begin.
        self._beside: tuple[int, list[tuple[int, int]]] = (-1, [])

    def apply_changes(self, raw: bytes) -> tuple[int, int]:
        """Apply changes in order of completion. Return the sectors that the kernel counts as written and as
        discarded."""
        written = discarded = 0
        for sector, begin_ns, end_ns, sectors, kind, status, _ in decode_changes(raw):
            if end_ns > self._clock:
                self._clock = end_ns
            if kind == ChangeKind.WRITE:
                written += sectors
                self._apply_write(
                    sector, sector + sectors, begin_ns, SectorState.UNKNOWN if status else SectorState.WRITTEN
                )
            elif kind == ChangeKind.DISCARD:
                discarded += sectors
                self._apply_free(sector, sector + sectors, begin_ns, done=not status)
            elif kind == ChangeKind.ERASE:
                written += sectors
                self._apply_free(sector, sector + sectors, begin_ns, done=not status)
            elif kind == ChangeKind.ZEROES:
                written += sectors
                self._apply_write(sector, sector + sectors, begin_ns, SectorState.UNKNOWN)
                self._frees.add_range(self._clock, sector, sector + sectors)
            elif not is_harmless_command(kind, sector, begin_ns):
                self.discard_map("a command that bypassed the block layer", end_ns)
        if self.map.given_up:
            # Only the map lost detail, the disk did not change: commands in flight need no distrust.
            self.forgotten[NO_ROOM] += self.map.given_up
            self.map.given_up = 0
        return written, discarded

    def forget_unrecorded(self, writes: bool, discards: bool, why: str, now_ns: int) -> None:
        """Forget sectors that unrecorded changes may have altered: unrecorded writes make trimmed sectors
        unknown, and unrecorded discards make written sectors unknown."""
        if writes and discards:
            self.discard_map(why, now_ns)
        elif writes or discards:
            self._record_reason(why, now_ns)
            lost = SectorState.TRIMMED if writes else SectorState.WRITTEN
            self.map.replace_state(0, self.map.sectors, lost, SectorState.UNKNOWN)

    def discard_map(self, why: str, now_ns: int) -> None:
        self._record_reason(why, now_ns)
        self.map.clear_states()

    def _record_reason(self, why: str, now_ns: int) -> None:
        """Count a reason and distrust all earlier changes: commands now in flight may overlap unrecorded
        changes."""
        self.forgotten[why] += 1
        self._clock = max(self._clock, now_ns)
        self._beside = (-1, [])
        for recent in (self._writes, self._frees):
            recent.add_range(self._clock, 0, self.map.sectors)

    def _apply_write(self, first: int, last: int, begin_ns: int, state: SectorState) -> None:
        self.map.set_state(first, last, state)
        if self.granule > 1:
            low, high = self._align_outward(first, last)
            # The drive may allocate a whole granule when only a part is written.
            self.map.replace_state(low, first, SectorState.TRIMMED, SectorState.UNKNOWN)
            self.map.replace_state(last, high, SectorState.TRIMMED, SectorState.UNKNOWN)
        if begin_ns < self._frees.horizon_ns:
            self.map.set_state(first, last, SectorState.UNKNOWN)
        elif self._frees.newest_ns > begin_ns:
            for low, high in self._frees.find_since(begin_ns):
                if low < last and first < high:
                    self.map.set_state(max(first, low), min(last, high), SectorState.UNKNOWN)
        self._writes.add_range(self._clock, first, last)
        self._beside = (-1, [])

    def _apply_free(self, first: int, last: int, begin_ns: int, *, done: bool) -> None:
        low = first + (self.offset - first) % self.granule
        high = last - (last - self.offset) % self.granule
        if done and low < high and begin_ns >= self._writes.horizon_ns:
            self.map.replace_state(first, low, SectorState.WRITTEN, SectorState.UNKNOWN)
            self.map.replace_state(high, last, SectorState.WRITTEN, SectorState.UNKNOWN)
            self.map.set_state(low, high, SectorState.TRIMMED)
            for start, end in self._find_writes_since(begin_ns):
                start, end = self._align_outward(start, end)
                if start < high and low < end:
                    self.map.set_state(max(start, low), min(end, high), SectorState.UNKNOWN)
        else:
            # The discard may have freed a part, or nothing.
            self.map.replace_state(first, last, SectorState.WRITTEN, SectorState.UNKNOWN)
        self._frees.add_range(self._clock, first, last)

    def _find_writes_since(self, begin_ns: int) -> list[tuple[int, int]]:
        if self._writes.newest_ns <= begin_ns:
            return []
        if self._beside[0] != begin_ns:
            self._beside = (begin_ns, list(self._writes.find_since(begin_ns)))
        return self._beside[1]

    def _align_outward(self, first: int, last: int) -> tuple[int, int]:
        """Return the range extended to whole granules."""
        low = max(first - (first - self.offset) % self.granule, 0)
        return low, last + (self.offset - last) % self.granule
