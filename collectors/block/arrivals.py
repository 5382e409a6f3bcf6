"""Kernel counts of disks before they were watched. Read at each scan, used when a disk arrives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from opwatch.clock import Anchor
from opwatch.collectors.block.diskstats import decode_stat
from opwatch.host.device import BlockDevice
from opwatch.samples.observation import Arrival
from opwatch.trace.abi import OpSample, TargetSample
from opwatch.trace.surplus import Key, SurplusBounds, compute_bounds
from opwatch.trace.trust import GROUPS, Reading

_NAME = 2


# Requests and bytes, by group of the kernel statistics.
_Counts = tuple[Mapping[str, int], Mapping[str, int]]
_NOTHING: _Counts = ({}, {})


@dataclass(frozen=True, slots=True)
class _Scan:
    """Kernel counts, and the sysfs numbers right after. The same number means the same device."""

    at_ns: int
    text: str
    registered: dict[str, int]

    def find_counts(self, name: str, number: int | None) -> _Counts:
        """Return the counts of a device, or nothing if its number differs.

        A new or re-registered device starts at 0.
        """
        if self.registered.get(name) != number:
            return _NOTHING
        for line in self.text.splitlines():
            fields = line.split()
            if len(fields) > _NAME and fields[_NAME].replace("!", "/") == name:
                return decode_stat(" ".join(fields[_NAME + 1 :]))
        return _NOTHING


@dataclass(frozen=True, slots=True)
class _Departed:
    """Counts of a departed disk already included in rows, with its sysfs number."""

    number: int | None
    counts: _Counts


class UnwatchedCounts:
    """Kernel counts of all disks and partitions before the last sysfs scan.

    For a disk that joined the watch later, these counts happened unwatched.
    """

    def __init__(self, file: Path = Path("/proc/diskstats")) -> None:
        self._file = file
        self._last = _Scan(time.monotonic_ns(), self._read_file(), {})
        self._next = self._last
        self._departed: dict[str, _Departed] = {}

    def begin_scan(self) -> None:
        """Read the counts before the sysfs scan."""
        self._next = _Scan(time.monotonic_ns(), self._read_file(), {})

    def end_scan(self, registered: dict[str, int]) -> None:
        """Keep the reading after all new disks are attached."""
        self._last = replace(self._next, registered=registered)

    def record_departure(self, device: BlockDevice, beside: SurplusBounds | None, last: Reading) -> None:
        """Store a departing disk's counts that are in rows, in case the disk returns.

        The kernel may count a completion after the next scan, and the kernel's counts lack that completion
        until then. `beside` is the surplus over all readings of the disk, as in its rows.
        """
        if last.before and beside:
            counts = (
                _add_traced_counts(last, beside.least, "requests", last.before.requests),
                _add_traced_counts(last, beside.least, "bytes", last.before.bytes),
            )
            self._departed[device.name] = _Departed(self._last.registered.get(device.name), counts)

    def describe_arrival(
        self, device: BlockDevice, registered: dict[str, int], first: Reading, anchor: Anchor
    ) -> Arrival:
        """Describe the arrival of a disk by its first reading."""
        since_ns, at_ns = self._last.at_ns, first.sample.end_ns
        at = anchor.to_wall_time(at_ns)
        if first.before is None:
            reason = first.no_witness or "the kernel's statistics could not be read"
            return Arrival(at, at_ns, since_ns, None, None, reason)
        number = registered.get(device.name)
        then = self._last.find_counts(device.name, number)
        departed = self._departed.pop(device.name, None)
        in_rows = departed.counts if departed and departed.number == number else _NOTHING
        unseen, unseen_bytes = (
            _compute_growth(*counts)
            for counts in zip(then, in_rows, (first.before.requests, first.before.bytes), strict=True)
        )
        halfway = _count_early_completions(first.sample)
        unseen = {group: max(0, count - halfway.get(group, 0)) for group, count in unseen.items()}
        arrival = Arrival(at, at_ns, since_ns, unseen, unseen_bytes)
        said = compute_bounds(first)
        return arrival.with_bounds(said, said) if said else arrival

    def _read_file(self) -> str:
        try:
            return self._file.read_text(errors="replace")
        except OSError:
            return ""


def _add_traced_counts(
    last: Reading, beside: Mapping[Key, int], unit: str, kernel: dict[str, int]
) -> dict[str, int]:
    """Return the kernel counts, including traced completions that the kernel had not counted yet."""
    place = 0 if unit == "requests" else 1
    return {
        group: max(count, last.count_groups()[group][place] + beside.get((group, unit), 0))
        for group, count in kernel.items()
    }


def _count_early_completions(sample: TargetSample) -> dict[str, int]:
    """Return the completions per group before the first reading that rows include nevertheless.

    Latencies are read before counters, and a request may complete in between. Negative for device mapper
    requests with completed data, which no row includes. Flushes are left out because they complete in more
    ways.
    """
    return {
        group: sum(_count_without_latency(sample.ops[name]) for name in names)
        for group, names in GROUPS.items()
        if group != "flush"
    }


def _count_without_latency(op: OpSample) -> int:
    return op.ends - op.completed - op.unmatched - op.never_issued - op.taken_back


def _compute_growth(
    then: Mapping[str, int], in_rows: Mapping[str, int], now: Mapping[str, int]
) -> dict[str, int]:
    """Return each group's growth beyond the rows. A lower count means that counting restarted."""

    def compute_group_growth(group: str, count: int) -> int:
        if count < then.get(group, 0):
            return count
        return max(0, count - max(then.get(group, 0), in_rows.get(group, 0)))

    return {group: compute_group_growth(group, count) for group, count in now.items()}
