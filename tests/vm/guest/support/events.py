"""Counts of the kernel's own block events, from ftrace: an independent witness."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.vm.guest.support.shell import write_attribute
from tests.vm.guest.support.sysfs import read_attribute

_TRACING = Path("/sys/kernel/tracing")


class BlockEvents:
    """A trace instance with some block events enabled; read it after the workload."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_lines(self) -> list[str]:
        """Return the traced events so far, one per line."""
        text = (self._folder / "trace").read_text(errors="replace")
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    def count_events(self) -> Counter[str]:
        """Return the number of occurrences of each event."""
        names = (re.search(r"\b(block_\w+):", line) for line in self.read_lines())
        return Counter(match.group(1) for match in names if match)

    def list_discards(self, name: str) -> list[tuple[int, int]]:
        """Return (first byte, end) of each discard sent to a device, from block_bio_queue."""
        assert self.count_lost_events() == 0
        dev = read_attribute(name, "dev").replace(":", ",")
        wanted = re.compile(rf"block_bio_queue: {dev} D\w* (\d+) \+ (\d+) ")
        matches = (match for line in self.read_lines() if (match := wanted.search(line)))
        return [
            (int(at) * 512, (int(at) + int(length)) * 512) for at, length in (m.groups() for m in matches)
        ]

    def list_issued_sectors(self, name: str, sectors: int) -> list[int]:
        """Return the first sector of each issued request of this size, from block_rq_issue."""
        assert self.count_lost_events() == 0
        dev = read_attribute(name, "dev").replace(":", ",")
        wanted = re.compile(rf"block_rq_issue: {dev} \w+ \d+ \(.*\) (\d+) \+ {sectors} ")
        return [int(match.group(1)) for line in self.read_lines() if (match := wanted.search(line))]

    def count_lost_events(self) -> int:
        """Return the number of lost events; the counts are only valid if it is 0."""
        total = 0
        for path in self._folder.glob("per_cpu/cpu*/stats"):
            counts = re.findall(r"^(?:overrun|dropped events): (\d+)$", path.read_text(), re.M)
            total += sum(map(int, counts))
        return total


@contextlib.contextmanager
def trace_block_events(*names: str, buffer_kib: int = 16384) -> Iterator[BlockEvents]:
    """Trace these events (such as "block_rq_requeue") and yield the trace instance."""
    folder = _TRACING / "instances" / "opw"
    folder.mkdir()
    try:
        write_attribute(folder / "buffer_size_kb", buffer_kib)
        for name in names:
            write_attribute(folder / "events/block" / name / "enable", 1)
        yield BlockEvents(folder)
    finally:
        write_attribute(folder / "tracing_on", 0)
        for name in names:
            write_attribute(folder / "events/block" / name / "enable", 0)
        folder.rmdir()
