"""Count the I/Os in each second of a level's rounds, from the block trace."""

from __future__ import annotations

import time
from collections.abc import Callable

from opwatch.sweep.outcome import LevelSecond
from opwatch.trace.derive import Interval, derive_interval
from opwatch.trace.trust import Reading

_SECOND_NS = 10**9
# Maximum number of rows in the journal. Above, neighbouring rows are merged.
_MAX_ROWS = 1 << 15


class LevelSeconds:
    """Seconds of a level while its rounds run.

    The time between two rounds, when fio restarts, is not counted. The first second starts with the first
    write of a round, and an incomplete last second is dropped.
    """

    def __init__(self, read: Callable[[], Reading | None]) -> None:
        self._read = read
        self._idle: Reading | None = None
        self._then: Reading | None = None
        # Totals of all previous rounds, and of the current one.
        self._written = self._round_bytes = 0
        self._passed = self._round_s = 0.0
        self._seconds: list[LevelSecond] = []

    @property
    def seconds(self) -> tuple[LevelSecond, ...]:
        return tuple(self._seconds)

    def begin_round(self) -> None:
        self._then, self._idle = None, self._read()
        self._round_bytes, self._round_s = 0, 0.0

    def record_second(self) -> None:
        """Record a second if it is complete. Called more than once per second."""
        if self._idle is None:
            return
        if self._then and time.monotonic_ns() - self._then.sample.end_ns < _SECOND_NS:
            return
        now = self._read()
        if now is None:
            return
        if self._then is None:
            begun = derive_interval(self._idle.sample, now.sample)
            if _sum_counts(begun)[0]:
                self._then, self._round_bytes = now, _sum_counts(begun)[1]
            return
        interval = derive_interval(self._then.sample, now.sample)
        if interval.end_ns - interval.begin_ns >= _SECOND_NS:
            self._add_second(interval)
            self._then = now

    def _add_second(self, interval: Interval) -> None:
        ios, n_bytes = _sum_counts(interval)
        begin_bytes = self._written + self._round_bytes
        begin_s = self._passed + self._round_s
        self._seconds.append(LevelSecond(begin_s, begin_bytes, interval.seconds, ios, n_bytes))
        self._round_bytes += n_bytes
        self._round_s += interval.seconds
        if len(self._seconds) >= _MAX_ROWS:
            self._seconds = [
                _merge_seconds(*pair) for pair in zip(self._seconds[::2], self._seconds[1::2], strict=True)
            ]

    def end_round(self, written_bytes: int, seconds: float) -> None:
        """Add the round's totals, where the next round starts."""
        self._written += written_bytes
        self._passed += seconds
        self._idle = self._then = None


def _sum_counts(interval: Interval) -> tuple[int, int]:
    ops = [interval.ops[name] for name in ("read", "write") if name in interval.ops]
    return sum(op.count for op in ops), sum(op.bytes for op in ops)


def _merge_seconds(one: LevelSecond, other: LevelSecond) -> LevelSecond:
    return one._replace(
        seconds=one.seconds + other.seconds, ios=one.ios + other.ios, n_bytes=one.n_bytes + other.n_bytes
    )
