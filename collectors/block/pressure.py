"""Read the kernel's pressure totals, and what separates waits for disks from waits before them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from opwatch.errors import BadInput
from opwatch.foreign import parse_unsigned, read_text, split_lines
from opwatch.samples.pressure import PressureTotals

# Reading all files takes some 100 us, and 30 us for each disk.
EVERY_S = 5.0
# Fields of a line in /proc/diskstats: the name, requests in flight, and their time.
_NAME, _IN_FLIGHT, _REQUESTS_MS = 2, 11, 13


class PressureClock:
    """Reads the totals at most once per 5 s."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc, self._disks = proc, sys / "block"
        self._due = 0.0

    def read_due(self) -> PressureTotals | None:
        """Return the totals, or None if the last ones are younger, or if the kernel reports none."""
        if time.monotonic() < self._due:
            return None
        self._due = time.monotonic() + EVERY_S
        return self.read_totals()

    def read_totals(self) -> PressureTotals | None:
        """Return the totals now, or None if the kernel has no PSI: all else is of use beside it only."""
        io, memory = (_parse_pressure(self._read_file(f"pressure/{name}")) for name in ("io", "memory"))
        if not io:
            return None
        requests_ms, in_flight = self._read_disks()
        pages = dict(line.split(" ", 1) for line in split_lines(self._read_file("vmstat")) if " " in line)
        dirty, written = (parse_unsigned(pages.get(name, "")) for name in ("nr_dirty", "nr_writeback"))
        return PressureTotals(
            io_some_us=io.get("some"),
            io_full_us=io.get("full"),
            memory_some_us=memory.get("some"),
            memory_full_us=memory.get("full"),
            requests_ms=requests_ms,
            requests_in_flight=in_flight,
            dirty_pages=None if dirty is None or written is None else dirty + written,
            dirty_background_pages=parse_unsigned(pages.get("nr_dirty_background_threshold", "")),
            dirty_limit_pages=parse_unsigned(pages.get("nr_dirty_threshold", "")),
        )

    def _read_file(self, name: str) -> str:
        try:
            return read_text(self._proc / name)
        except (OSError, BadInput):
            return ""

    def _read_disks(self) -> tuple[int | None, int | None]:
        """Return the summed time of completed requests of all disks, and their number in flight; None if a
        disk keeps no statistics."""
        total_ms = in_flight = 0
        try:
            disks = {*os.listdir(self._disks)}  # noqa: PTH208
        except OSError:
            return None, None
        for line in split_lines(self._read_file("diskstats")):
            fields = line.split()
            # Partitions have no entry there.
            if len(fields) <= _REQUESTS_MS or fields[_NAME] not in disks:
                continue
            time_ms, number = parse_unsigned(fields[_REQUESTS_MS]), parse_unsigned(fields[_IN_FLIGHT])
            if time_ms is None or number is None or self._has_no_statistics(fields[_NAME]):
                return None, None
            total_ms += time_ms
            in_flight += number
        return total_ms, in_flight

    def _has_no_statistics(self, name: str) -> bool:
        """Return whether requests of a disk are not counted. Drivers that take bios (dm, md, zram) count them
        themselves, or pass them on."""
        disk = f"{self._disks}/{name}"
        try:
            with open(f"{disk}/queue/iostats", "rb", buffering=0) as file:  # noqa: PTH123
                return file.read(2) == b"0\n" and os.path.exists(f"{disk}/mq")  # noqa: PTH110
        except OSError:
            return False


def _parse_pressure(text: str) -> dict[str, int]:
    """Return the totals in us by the first word of each line. Pure."""
    totals = {}
    for line in split_lines(text):
        kind, _, rest = line.partition(" ")
        total = parse_unsigned(rest.rpartition("total=")[2])
        if total is not None:
            totals[kind] = total
    return totals
