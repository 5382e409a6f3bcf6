"""The words that make fio do a workload: where, how much, and from which seed. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.load.workload import LoadPattern

_UNIT = 4096
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999)
# linux/time.h: the clock of everything here.
_CLOCK_MONOTONIC = 1
_FILL_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """What of a device is used. `path` leads to it whatever its name is by then."""

    path: str
    size_bytes: int
    offset_bytes: int = 0


def seed_of(secret: str, *places: object) -> int:
    """The seed of one round of one level: another for each, the same when it is done again. fio begins anew
    with the same seed at each start unless it is told otherwise, and writes the same places again."""
    digest = hashlib.sha256("\0".join([secret, *map(str, places)]).encode()).digest()
    # fio takes 64 bits, and 0 for "none".
    return int.from_bytes(digest[:7], "big") + 1


def round_words(
    pattern: LoadPattern, window: LoadWindow, write_bytes: int, seed: int, logs: str | None = None
) -> list[str]:
    """Arguments of fio for a round that writes so many bytes, to the next whole unit of each thread. The
    names of its logs begin with `logs`; None for none."""
    words = _common(window, logs)
    threads = sum(job.threads for job in pattern.jobs)
    number = 0
    for job in pattern.jobs:
        # Reads count as well.
        whole = int(write_bytes / threads / job.write_share)
        share = max(-(-whole // _UNIT) * _UNIT, _UNIT)
        for _ in range(job.threads):
            words.append(f"--name=job{number}")
            words += [f"--{key}={value}" for key, value in job.options.items() if key != "numjobs"]
            # Threads of one seed would write the same places.
            words += [f"--randseed={seed + number}", f"--io_size={share}"]
            number += 1
    return words


def fill_words(window: LoadWindow, seed: int, logs: str | None = None) -> list[str]:
    """Arguments of fio that write all of a window once, in order, and nothing behind it: fio's last request
    is a whole one, wherever the window ends, so that the rest is a job of its own."""
    whole = window.size_bytes // _FILL_BYTES * _FILL_BYTES
    parts = [
        (window.offset_bytes, whole, _FILL_BYTES),
        (window.offset_bytes + whole, window.size_bytes - whole, _UNIT),
    ]
    words = _common(window, logs)
    for number, (offset, size, block) in enumerate(part for part in parts if part[1]):
        words += [f"--name=fill{number}", *(["--stonewall"] if number else [])]
        words += [f"--offset={offset}", f"--size={size}", f"--io_size={size}", f"--bs={block}"]
        words += ["--rw=write", "--ioengine=libaio", "--direct=1", "--iodepth=8"]
        words += ["--refill_buffers=1", f"--randseed={seed + number}"]
    return words


def _common(window: LoadWindow, logs: str | None) -> list[str]:
    return [
        f"--filename={window.path}",
        f"--offset={window.offset_bytes}",
        f"--size={window.size_bytes}",
        *("--thread", "--randrepeat=0", "--allow_mounted_write=0", "--exitall_on_error=1"),
        f"--percentile_list={':'.join(f'{share:g}' for share in PERCENTILES)}",
        *(_logging(logs) if logs else ()),
    ]


def _logging(logs: str) -> Iterator[str]:
    yield f"--write_iops_log={logs}"
    yield "--log_avg_msec=1000"
    yield "--log_alternate_epoch=1"
    yield f"--log_alternate_epoch_clock_id={_CLOCK_MONOTONIC}"
