"""What a drive reported during a run, as one value per interval of a disk: NAND bytes, heat, polls. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.decode import amazon
from opwatch.counters.looks.sample import CommandKind, FirmwareSample
from opwatch.errors import OpwatchError
from opwatch.report.drive_timeline import build_drive_timeline
from opwatch.why.witnessed import NAN, WitnessedDisk

# Log page 02h: transitions to the light and the heavy thermal state, and the seconds in each.
_SMART_LID, _THERMAL_AT, _THERMAL_WORDS = 2, 216, 4
_LIGHT_WORDS, _HEAVY_WORDS = (0, 2), (1, 3)
_MIN_POINTS = 2


@dataclass(frozen=True, slots=True)
class DriveWitness:
    """A drive's reports per interval; NaN where unknown.

    `nand_per_s` is None if the drive does not count NAND bytes, with a `reason`; `host_per_s` are the bytes
    that the host wrote between the same polls, per second. `throttled` flags intervals
    in which the drive counted thermal throttling, None if it does not report it. `polled` flags the intervals
    with a poll by opwatch, and `polls_ns` are the times of the polls. `drive_shares` are the drive's own
    shares of the device time, per operation, if it reports its latency.
    """

    polled: tuple[bool, ...]
    polls_ns: tuple[tuple[int, int], ...] = ()
    nand_per_s: tuple[float, ...] | None = None
    host_per_s: tuple[float, ...] | None = None
    reason: str | None = None
    temperature: tuple[float, ...] | None = None
    throttled: tuple[bool, ...] | None = None
    drive_shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def witness_drive(
    disk: WitnessedDisk,
    looks: Sequence[FirmwareSample],
    polls_ns: Sequence[tuple[int, int]],
    catalogue: Callable[[], Catalogue],
) -> DriveWitness:
    """Return what the disk's drive reported in each interval."""
    polled = [False] * len(disk)
    for begin_ns, end_ns in polls_ns:
        for at in _find_places(disk, begin_ns, end_ns):
            polled[at] = True
    timeline = build_drive_timeline(disk.drive or disk.device, looks, catalogue)
    if timeline is None:
        return DriveWitness(tuple(polled), tuple(polls_ns), reason="the drive was not polled")
    growth = [one for one in timeline.growth if one[1] > one[0]]
    nand = spread_rates(disk, growth)
    spans = [(begin_ns, end_ns) for begin_ns, end_ns, _ in growth]
    host = spread_rates(disk, measure_host_bytes(disk, spans))
    heat = [(point.at_ns, float(point.temperature)) for point in timeline.health if point.temperature]
    return DriveWitness(
        polled=tuple(polled),
        polls_ns=tuple(polls_ns),
        nand_per_s=nand if len(growth) >= _MIN_POINTS else None,
        host_per_s=host if len(growth) >= _MIN_POINTS else None,
        reason=timeline.reason or (None if len(growth) >= _MIN_POINTS else "its counters rarely changed"),
        temperature=_spread_points(disk, heat) if len(heat) >= _MIN_POINTS else None,
        throttled=_flag_throttled(disk, looks),
        drive_shares=_find_drive_shares(disk, looks),
    )


def spread_rates(disk: WitnessedDisk, growth: Iterable[tuple[int, int, float]]) -> tuple[float, ...]:
    """Return per interval the rate per second of the span (begin, end, growth) that covers it, or NaN."""
    rates = [NAN] * len(disk)
    for begin_ns, end_ns, amount in growth:
        for at in _find_places(disk, begin_ns + 1, end_ns - 1):
            rates[at] = amount / ((end_ns - begin_ns) / 1e9)
    return tuple(rates)


def measure_host_bytes(
    disk: WitnessedDisk, spans: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int, float]]:
    """Yield (begin, end, bytes written by the host) for each span."""
    writes = disk.ops.get("write")
    totals = [0.0, *accumulate(writes.bytes if writes else [0.0] * len(disk))]
    for begin_ns, end_ns in spans:
        yield begin_ns, end_ns, _interpolate(disk, totals, end_ns) - _interpolate(disk, totals, begin_ns)


def _find_places(disk: WitnessedDisk, begin_ns: int, end_ns: int) -> range:
    """Return the intervals that overlap a time."""
    first = bisect_left(disk.ends_ns, begin_ns)
    return range(first, min(bisect_right(disk.begins_ns, end_ns), len(disk)))


def _spread_points(disk: WitnessedDisk, points: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """Return the newest value at the end of each interval, or the first value before it is known."""
    times = [at_ns for at_ns, _ in points]
    return tuple(points[max(bisect_right(times, end) - 1, 0)][1] for end in disk.ends_ns)


def _read_thermal_words(look: FirmwareSample) -> tuple[int, ...] | None:
    """Return the drive's counts of thermal throttling, or None if the poll does not have them."""
    for one in look.answers:
        command, raw = one.command, one.answer
        if command.kind is CommandKind.LOG and command.number == _SMART_LID and isinstance(raw, bytes):
            words = raw[_THERMAL_AT : _THERMAL_AT + 4 * _THERMAL_WORDS]
            if len(words) == 4 * _THERMAL_WORDS:
                return tuple(int.from_bytes(words[at : at + 4], "little") for at in range(0, len(words), 4))
    return None


def _flag_throttled(disk: WitnessedDisk, looks: Sequence[FirmwareSample]) -> tuple[bool, ...] | None:
    known = [(look.end_ns, words) for look in looks if (words := _read_thermal_words(look))]
    if len(known) < _MIN_POINTS:
        return None
    # The light state hardly delays requests, so the heavy one counts if the drive was in it at all.
    first, last = known[0][1], known[-1][1]
    chosen = _HEAVY_WORDS if any(last[at] > first[at] for at in _HEAVY_WORDS) else _LIGHT_WORDS
    flags = [False] * len(disk)
    for (begin_ns, before), (end_ns, after) in pairwise(known):
        if any(after[at] > before[at] for at in chosen):
            for at in _find_places(disk, begin_ns + 1, end_ns - 1):
                flags[at] = True
    return tuple(flags)


def _find_drive_shares(disk: WitnessedDisk, looks: Sequence[FirmwareSample]) -> dict[str, tuple[float, ...]]:
    """Return the drive's share of the device time between two polls, for each interval between them; empty if
    the drive does not report its own time, or not in all of the run."""
    known = [(look.end_ns, log) for look in looks if (log := _decode_times(look))]
    if len(known) < _MIN_POINTS:
        return {}
    shares = {}
    for op in ("read", "write"):
        if op not in disk.ops:
            continue
        totals = [0.0, *accumulate(disk.ops[op].device_ns)]
        found = [NAN] * len(disk)
        for (begin_ns, before), (end_ns, after) in pairwise(known):
            own_ns = 1000.0 * (getattr(after, op).time_us - getattr(before, op).time_us)
            host_ns = _interpolate(disk, totals, end_ns) - _interpolate(disk, totals, begin_ns)
            share = min(max(own_ns / host_ns, 0.0), 1.0) if host_ns > 0 else NAN
            for at in _find_places(disk, begin_ns + 1, end_ns - 1):
                # An interval with several polls keeps the last.
                found[at] = share
        shares[op] = tuple(_fill_gaps(found))
    return {op: values for op, values in shares.items() if values}


def _decode_times(look: FirmwareSample) -> amazon.AmazonLog | None:
    for one in look.answers:
        command, raw = one.command, one.answer
        if command.kind is CommandKind.LOG and command.number == amazon.LID and isinstance(raw, bytes):
            try:
                return amazon.decode_amazon(raw)
            except OpwatchError:
                return None
    return None


def _interpolate(disk: WitnessedDisk, totals: Sequence[float], at_ns: int) -> float:
    """Return a running total at a moment; within an interval it grows evenly."""
    at = bisect_left(disk.ends_ns, at_ns)
    if at >= len(disk):
        return totals[-1]
    length = disk.ends_ns[at] - disk.begins_ns[at]
    share = min(max((at_ns - disk.begins_ns[at]) / length, 0.0), 1.0)
    return totals[at] + share * (totals[at + 1] - totals[at])


def _fill_gaps(values: Sequence[float]) -> list[float]:
    """Return the values, the unknown ones as their neighbours; empty if too few are known."""
    known = [at for at, value in enumerate(values) if value == value]
    if len(known) < len(values) / 2:
        return []
    return [values[known[min(bisect_left(known, at), len(known) - 1)]] for at in range(len(values))]
