"""Trace the writes of a level: coverage of the fill, uniformity of random writes, and latency."""

from __future__ import annotations

import time
from collections.abc import Sequence

from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.history.changes import ChangeTracer, find_request_disk
from opwatch.errors import OpwatchError
from opwatch.host.device import SECTOR, BlockDevice, Devices, Leaf
from opwatch.steady.coverage import WriteMap, WriteSpread
from opwatch.steady.placing import FileMap, FileRun
from opwatch.steady.skew import WritePart, is_uniform
from opwatch.trace.derive import Interval, derive_interval
from opwatch.trace.trust import Reading
from opwatch.trim.history.changes import RECORD, ChangeKind

# Number of random writes sampled per second for uniformity. More would take CPU time from fio.
_SAMPLED = 2000
_UNIT = 4096
# Maximum size of the coverage map. Large drives use larger units.
_MAX_UNITS = 1 << 20
_FILL_UNIT = 128 << 10


class LevelTrace:
    """Traces a level from construction until close().

    `runs` is the location of the level's file. If tracing is impossible, `why_untraced` or `why_blind` has
    the reason.
    """

    def __init__(
        self, devices: Devices, disk: BlockDevice, active_bytes: int, runs: Sequence[FileRun] = ()
    ) -> None:
        unit = _UNIT
        while active_bytes // unit > _MAX_UNITS and unit < _FILL_UNIT:
            unit *= 2
        self._covered, self._even = WriteMap(active_bytes, unit), WriteMap(active_bytes, _UNIT)
        self._map = FileMap(runs)
        self._sampled_at = time.monotonic()
        self._tracer: BlockTracer | None = None
        self._changes: ChangeTracer | None = None
        self.why_untraced = self.why_blind = ""
        try:
            # An NVMe multipath head passes requests on and has none of its own.
            self._tracer = BlockTracer([Leaf(find_request_disk(devices, disk), disk)])
        except OpwatchError as error:
            self.why_untraced = str(error)
        try:
            self._changes = ChangeTracer(find_request_disk(devices, disk))
        except OpwatchError as error:
            self.why_blind = str(error)

    def process_changes(self, *, is_fill: bool) -> None:
        """Process completed changes. All writes of the fill count, random writes are sampled."""
        if not self._changes:
            return
        more = True
        while more:
            raw, more = self._changes.drain_changes()
            count = len(raw) // RECORD.size
            if is_fill:
                self._record_writes(raw, range(count))
            elif count:
                now = time.monotonic()
                most = max(1, int(_SAMPLED * (now - self._sampled_at)))
                self._sampled_at = now
                self._record_writes(raw, range(0, count, max(1, count // most)), counted=True)

    def _record_writes(self, raw: bytes, places: range, *, counted: bool = False) -> None:
        for place in places:
            sector, _, _, sectors, kind, status, _ = RECORD.unpack_from(raw, place * RECORD.size)
            if kind == ChangeKind.WRITE and not status:
                for begin, length in self._map.map_write(sector * SECTOR, sectors * SECTOR):
                    if counted:
                        self._even.record_write(begin, length)
                    else:
                        self._covered.record_write(begin, length, counted=False)

    def measure_spread(
        self, filled_ratio: float | None, *, parts: tuple[WritePart, ...], by: str = "fio's fill"
    ) -> WriteSpread:
        """Return the distribution of the writes.

        `parts` are those of the workload; if they are empty, the trace measures them. `filled_ratio` is the
        share written at least once by fio's count. It is used if the trace saw less, as on kernels that skip
        program runs. None for a random fill, where only the trace knows the coverage.
        """
        seen_ratio = self._covered.coverage_ratio
        even = self._even.measure_spread()
        sigmas = even.uneven_sigmas if is_uniform(parts) else None
        parts = parts or even.parts
        if filled_ratio is None and not self._changes:
            return WriteSpread(None, sigmas, "nothing was traced", parts)
        if filled_ratio is None or (self._changes and seen_ratio >= filled_ratio):
            return WriteSpread(seen_ratio, sigmas, "block trace", parts)
        traced = "" if not self._changes else f"; the block trace has {100 * seen_ratio:.4g} %"
        return WriteSpread(filled_ratio, sigmas, f"{by}{traced}", parts)

    def read_settled(self) -> Reading | None:
        return self._tracer.read_settled()[0] if self._tracer else None

    def read_now(self) -> Reading | None:
        """Return a reading immediately, even with requests in flight."""
        return self._tracer.read()[0] if self._tracer else None

    def close(self) -> None:
        for tracer in (self._tracer, self._changes):
            if tracer:
                tracer.close()


def derive_level_interval(then: Reading | None, now: Reading | None) -> Interval | None:
    return derive_interval(then.sample, now.sample) if then and now else None
