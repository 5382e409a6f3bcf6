"""What the kernel counted of disks while nobody watched them: read at every look, needed when one comes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from opwatch.clock import Anchor
from opwatch.collectors.block.diskstats import decode_stat
from opwatch.frozen import frozen, replace
from opwatch.host.device import BlockDevice
from opwatch.samples.observation import Arrival
from opwatch.trace.abi import OpSample, TargetSample
from opwatch.trace.surplus import Key, SurplusBounds, bounds
from opwatch.trace.trust import GROUPS, Reading

_NAME = 2


# Requests and bytes, by group of the kernel's statistics.
_Counts = tuple[Mapping[str, int], Mapping[str, int]]
_NOTHING: _Counts = ({}, {})


@frozen
class _Look:
    """The kernel's counts, and what was in sysfs right after: under the same number lies the same device."""

    at_ns: int
    text: str
    registered: dict[str, int]

    def counts_of(self, name: str, number: int | None) -> _Counts:
        """The counts of a device; nothing where it had none, or another number: one that is new, or came
        anew, has counted from 0."""
        if self.registered.get(name) != number:
            return _NOTHING
        for line in self.text.splitlines():
            fields = line.split()
            if len(fields) > _NAME and fields[_NAME].replace("!", "/") == name:
                return decode_stat(" ".join(fields[_NAME + 1 :]))
        return _NOTHING


@frozen
class _Departed:
    """A disk that left, by its number in sysfs: so much of it is in rows."""

    number: int | None
    counts: _Counts


class Unwatched:
    """The kernel's counts of all disks and partitions, as they were before the last look at sysfs: whatever
    belongs to a watch now and did not then was counted by then as something else."""

    def __init__(self, file: Path = Path("/proc/diskstats")) -> None:
        self._file = file
        self._last = _Look(time.monotonic_ns(), self._read(), {})
        self._next = self._last
        self._departed: dict[str, _Departed] = {}

    def begin_look(self) -> None:
        """Read the counts before sysfs is looked at."""
        self._next = _Look(time.monotonic_ns(), self._read(), {})

    def end_look(self, registered: dict[str, int]) -> None:
        """Keep that reading, once all that came was attached."""
        self._last = replace(self._next, registered=registered)

    def left(self, device: BlockDevice, beside: SurplusBounds | None, last: Reading) -> None:
        """What was counted by the last reading of a disk is in rows: should it come again, that is no more
        unseen. The kernel may count an end later than the next look, and its own counts lack that until
        then. `beside` is what all readings of the disk say, as its rows do."""
        if last.before and beside:
            counts = (
                _counted(last, beside.least, "requests", last.before.requests),
                _counted(last, beside.least, "bytes", last.before.bytes),
            )
            self._departed[device.name] = _Departed(self._last.registered.get(device.name), counts)

    def arrival(
        self, device: BlockDevice, registered: dict[str, int], first: Reading, anchor: Anchor
    ) -> Arrival:
        """How a disk came, by its first reading."""
        since_ns, at_ns = self._last.at_ns, first.sample.end_ns
        at = anchor.wall(at_ns)
        if first.before is None:
            reason = first.no_witness or "the kernel's statistics could not be read"
            return Arrival(at, at_ns, since_ns, None, None, reason)
        number = registered.get(device.name)
        then = self._last.counts_of(device.name, number)
        departed = self._departed.pop(device.name, None)
        in_rows = departed.counts if departed and departed.number == number else _NOTHING
        unseen, unseen_bytes = (
            _grown(*counts)
            for counts in zip(then, in_rows, (first.before.requests, first.before.bytes), strict=True)
        )
        halfway = _halfway(first.sample)
        unseen = {group: max(0, count - halfway.get(group, 0)) for group, count in unseen.items()}
        arrival = Arrival(at, at_ns, since_ns, unseen, unseen_bytes)
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


def _halfway(sample: TargetSample) -> dict[str, int]:
    """How many of each group had ended at the first reading and are in rows all the same: latencies are read
    before the counters, and a request may end between the two. Less than none: those of which device mapper
    had ended the data and not the request, which no row has. Flushes end in more ways than these."""
    return {
        group: sum(_ends_without_latency(sample.ops[name]) for name in names)
        for group, names in GROUPS.items()
        if group != "flush"
    }


def _ends_without_latency(op: OpSample) -> int:
    return op.ends - op.completed - op.unmatched - op.never_issued - op.taken_back


def _grown(then: Mapping[str, int], in_rows: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """How much each group grew beyond what is in rows. A count that is less than it was began anew."""

    def grown(group: str, count: int) -> int:
        if count < then.get(group, 0):
            return count
        return max(0, count - max(then.get(group, 0), in_rows.get(group, 0)))

    return {group: grown(group, count) for group, count in now.items()}
