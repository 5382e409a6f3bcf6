"""How many I/Os were done each second of a level's rounds, by the block trace."""

from __future__ import annotations

import time
from collections.abc import Callable

from opwatch.sweep.outcome import LevelSecond
from opwatch.trace.derive import Interval, derive
from opwatch.trace.trust import Reading

_SECOND_NS = 10**9
# A journal and its readers take no more rows: neighbours are added up then.
_MOST_ROWS = 1 << 15


class LevelSeconds:
    """The seconds of a level, as its rounds go on. What lies between two rounds, while one fio goes and the
    next one comes, is time of nobody: a second begins when a round has begun to write, and the last, begun
    one is left out."""

    def __init__(self, read: Callable[[], Reading | None]) -> None:
        self._read = read
        self._idle: Reading | None = None
        self._then: Reading | None = None
        # What all rounds before came to, and this one until now.
        self._written = self._round_bytes = 0
        self._passed = self._round_s = 0.0
        self._seconds: list[LevelSecond] = []

    @property
    def seconds(self) -> tuple[LevelSecond, ...]:
        return tuple(self._seconds)

    def begin_round(self) -> None:
        self._then, self._idle = None, self._read()
        self._round_bytes, self._round_s = 0, 0.0

    def tick(self) -> None:
        """Take a second, where it is one by now. Called more often than each second."""
        if self._idle is None:
            return
        if self._then and time.monotonic_ns() - self._then.sample.end_ns < _SECOND_NS:
            return
        now = self._read()
        if now is None:
            return
        if self._then is None:
            begun = derive(self._idle.sample, now.sample)
            if _counted(begun)[0]:
                self._then, self._round_bytes = now, _counted(begun)[1]
            return
        interval = derive(self._then.sample, now.sample)
        if interval.end_ns - interval.begin_ns >= _SECOND_NS:
            self._take(interval)
            self._then = now

    def _take(self, interval: Interval) -> None:
        ios, n_bytes = _counted(interval)
        begin_bytes = self._written + self._round_bytes
        begin_s = self._passed + self._round_s
        self._seconds.append(LevelSecond(begin_s, begin_bytes, interval.seconds, ios, n_bytes))
        self._round_bytes += n_bytes
        self._round_s += interval.seconds
        if len(self._seconds) >= _MOST_ROWS:
            self._seconds = [
                _both(*pair) for pair in zip(self._seconds[::2], self._seconds[1::2], strict=True)
            ]

    def end_round(self, written_bytes: int, seconds: float) -> None:
        """What a round came to in all says where the next one begins."""
        self._written += written_bytes
        self._passed += seconds
        self._idle = self._then = None


def _counted(interval: Interval) -> tuple[int, int]:
    ops = [interval.ops[name] for name in ("read", "write") if name in interval.ops]
    return sum(op.count for op in ops), sum(op.bytes for op in ops)


def _both(one: LevelSecond, other: LevelSecond) -> LevelSecond:
    return one._replace(
        seconds=one.seconds + other.seconds, ios=one.ios + other.ios, n_bytes=one.n_bytes + other.n_bytes
    )
