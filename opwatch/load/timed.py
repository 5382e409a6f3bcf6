"""Build fio's arguments for requests of one kind, limited by time and by bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from opwatch.load.fio_arguments import LoadWindow, build_common_arguments, build_log_arguments

_UNIT = 4096


@dataclass(frozen=True, slots=True)
class TimedLoad:
    """Requests of one kind for `seconds`, from `threads` threads with `depth` outstanding I/Os each."""

    read_percent: int
    block_bytes: int
    is_random: bool
    seconds: float
    depth: int
    threads: int

    @property
    def write_share(self) -> Fraction:
        return Fraction(100 - self.read_percent, 100)


def build_timed_arguments(
    load: TimedLoad, window: LoadWindow, most_bytes: int, seed: int, every_s: float | None = None
) -> Iterator[str]:
    """Yield fio's arguments.

    The run ends after `load.seconds` or about `most_bytes` written, whichever is first; reads are limited by
    time only. With `every_s`, fio logs rates and latencies at the given interval.
    """
    yield from build_common_arguments(window, None)
    if every_s:
        yield from build_log_arguments(round(every_s * 1000), latencies=True)
    for number in range(load.threads):
        yield f"--name=load{number}"
        yield f"--rw={_choose_direction(load)}"
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


def _choose_direction(load: TimedLoad) -> str:
    one_way = {100: "read", 0: "write"}.get(load.read_percent, "rw")
    return f"rand{one_way}" if load.is_random else one_way
