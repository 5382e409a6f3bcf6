"""What the kernel counted of disks while nobody watched them: read at every look, needed when one comes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from opwatch.clock import Anchor
from opwatch.collectors.block.diskstats import decode_stat
from opwatch.frozen import field, frozen, replace
from opwatch.host.device import BlockDevice
from opwatch.samples.observation import Arrival
from opwatch.trace.surplus import Key, bounds
from opwatch.trace.trust import Reading

_NAME = 2


@frozen
class _Look:
    """The kernel's counts, and what was in sysfs right after: under the same number lies the same device. Of
    disks that were watched until then, their own last counts are closer."""

    at_ns: int
    text: str
    registered: dict[str, int]
    left: Mapping[str, tuple[dict[str, int], dict[str, int]]] = field(default_factory=dict)

    def counts_of(self, name: str) -> tuple[dict[str, int], dict[str, int]]:
        """(requests, bytes) of a device; nothing where it had none."""
        if name in self.left:
            return self.left[name]
        for line in self.text.splitlines():
            fields = line.split()
            if len(fields) > _NAME and fields[_NAME].replace("!", "/") == name:
                return decode_stat(" ".join(fields[_NAME + 1 :]))
        return {}, {}


class Unwatched:
    """The kernel's counts of all disks and partitions, as they were before the last look at sysfs: whatever
    belongs to a watch now and did not then was counted by then as something else."""

    def __init__(self, file: Path = Path("/proc/diskstats")) -> None:
        self._file = file
        self._last = _Look(time.monotonic_ns(), self._read(), {})
        self._next = self._last
        self._left: dict[str, tuple[dict[str, int], dict[str, int]]] = {}

    def begin_look(self) -> None:
        """Read the counts before sysfs is looked at."""
        self._next = _Look(time.monotonic_ns(), self._read(), {})

    def end_look(self, registered: dict[str, int]) -> None:
        """Keep that reading, once all that came was attached."""
        self._last = replace(self._next, registered=registered, left=self._left)
        self._left = {}

    def left(self, device: BlockDevice, first: Reading, last: Reading) -> None:
        """What was counted by the last reading of a disk is in rows: should it come again, that is no more
        unseen. Until the look ends at which it left."""
        begun, said = bounds(first), bounds(last)
        if last.before and begun and said:
            least = begun.narrowed(said).least
            self._left[device.name] = (
                _counted(last, least, "requests", last.before.requests),
                _counted(last, least, "bytes", last.before.bytes),
            )

    def arrival(
        self, device: BlockDevice, registered: dict[str, int], first: Reading, anchor: Anchor
    ) -> Arrival:
        """How a disk came, by its first reading."""
        since_ns, at_ns = self._last.at_ns, first.sample.end_ns
        at = anchor.wall(at_ns)
        if first.before is None:
            reason = first.no_witness or "the kernel's statistics could not be read"
            return Arrival(at, at_ns, since_ns, None, None, reason)
        # One that is new, or came anew, has counted from 0.
        is_same = self._last.registered.get(device.name) == registered.get(device.name)
        requests, bytes_ = self._last.counts_of(device.name) if is_same else ({}, {})
        arrival = Arrival(
            at, at_ns, since_ns, _grown(requests, first.before.requests), _grown(bytes_, first.before.bytes)
        )
        said = bounds(first)
        return arrival.known_by(said, said) if said else arrival

    def _read(self) -> str:
        try:
            return self._file.read_text(errors="replace")
        except OSError:
            return ""


def _counted(last: Reading, beside: Mapping[Key, int], unit: str, kernel: dict[str, int]) -> dict[str, int]:
    """The kernel's counts as they are once it has counted all that was traced; `kernel` is what it had before
    that reading."""
    place = 0 if unit == "requests" else 1
    return {
        group: max(count, last.counted()[group][place] + beside.get((group, unit), 0))
        for group, count in kernel.items()
    }


def _grown(then: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """How much each group grew. A count that is less than it was began anew."""
    return {
        group: count - then.get(group, 0) if count >= then.get(group, 0) else count
        for group, count in now.items()
    }
