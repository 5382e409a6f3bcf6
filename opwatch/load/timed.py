"""The words that make fio do requests of one kind for a time, and no more than so many bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from opwatch.frozen import frozen
from opwatch.load.words import LoadWindow, common_words, log_words

_UNIT = 4096


@frozen
class TimedLoad:
    """Requests of one kind for so many seconds, from `threads` with `depth` outstanding each."""

    read_percent: int
    block_bytes: int
    is_random: bool
    seconds: float
    depth: int
    threads: int

    @property
    def write_share(self) -> Fraction:
        return Fraction(100 - self.read_percent, 100)


def timed_words(
    load: TimedLoad, window: LoadWindow, most_bytes: int, seed: int, every_s: float | None = None
) -> Iterator[str]:
    """Arguments of fio. It ends when the time is over, or when about `most_bytes` were written; reads have no
    bound. With `every_s` it logs rates and latencies of stretches so long."""
    yield from common_words(window, None)
    if every_s:
        yield from log_words(round(every_s * 1000), latencies=True)
    for number in range(load.threads):
        yield f"--name=load{number}"
        yield f"--rw={_direction(load)}"
        if 0 < load.read_percent < 100:
            yield f"--rwmixread={load.read_percent}"
        yield from (f"--bs={load.block_bytes}", f"--iodepth={load.depth}", f"--randseed={seed + number}")
        yield from ("--ioengine=libaio", "--direct=1", "--refill_buffers=1")
        yield from ("--norandommap=1", "--random_generator=tausworthe64")
        yield f"--runtime={max(round(load.seconds * 1000), 1)}ms"
        if load.write_share:
            share = int(most_bytes / load.threads / load.write_share)
            yield f"--io_size={max(share // _UNIT, 1) * _UNIT}"
        else:
            yield "--time_based=1"


def _direction(load: TimedLoad) -> str:
    one_way = {100: "read", 0: "write"}.get(load.read_percent, "rw")
    return f"rand{one_way}" if load.is_random else one_way
