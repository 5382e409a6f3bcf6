"""The words that make fio do a workload: where, how much, and from which seed. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from opwatch.frozen import frozen
from opwatch.load.workload import LoadPattern

_UNIT = 4096
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999)
# linux/time.h: the clock of everything here.
_CLOCK_MONOTONIC = 1
_FILL_BYTES = 128 << 10
# Where the names of logs begin: they lie in the folder that fio runs in.
LOGS = "log"


@frozen
class LoadWindow:
    """What of a device is used. `path` leads to it whatever its name is by then."""

    path: str
    size_bytes: int
    offset_bytes: int = 0
    is_file: bool = False


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
    words = common_words(window, logs)
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


def fill_words(
    window: LoadWindow, seed: int, logs: str | None = None, block_bytes: int = _FILL_BYTES
) -> list[str]:
    """Arguments of fio that write all of a window once, in order, and nothing behind it: fio's last request
    is a whole one, wherever the window ends, so that the rest is a job of its own."""
    whole = window.size_bytes // block_bytes * block_bytes
    parts = [
        (window.offset_bytes, whole, block_bytes),
        (window.offset_bytes + whole, window.size_bytes - whole, _UNIT),
    ]
    words = common_words(window, logs)
    for number, (offset, size, block) in enumerate(part for part in parts if part[1]):
        words += [f"--name=fill{number}", *(["--stonewall"] if number else [])]
        words += [f"--offset={offset}", f"--size={size}", f"--io_size={size}", f"--bs={block}"]
        words += ["--rw=write", "--ioengine=libaio", "--direct=1", "--iodepth=8"]
        words += ["--refill_buffers=1", f"--randseed={seed + number}"]
    return words


def sprandom_words(window: LoadWindow, spare_ratio: float, seed: int) -> list[str]:
    """Arguments of fio 3.41 and later that write a window once, with as many places written anew meanwhile
    as a drive with that spare area has after random writes for long. fio itself knows when it is done."""
    return [
        *common_words(window, None),
        *("--name=fill0", "--rw=randwrite", f"--bs={_UNIT}", "--ioengine=libaio", "--direct=1"),
        *("--iodepth=32", "--refill_buffers=1", "--norandommap=1", "--random_generator=lfsr"),
        *("--sprandom=1", f"--spr_op={spare_ratio:g}", f"--randseed={seed}"),
    ]


def common_words(window: LoadWindow, logs: str | None) -> list[str]:
    """What stands before the first job, whatever is done: where, and how it is reported."""
    return [
        f"--filename={window.path}",
        f"--offset={window.offset_bytes}",
        f"--size={window.size_bytes}",
        *("--thread", "--randrepeat=0", "--allow_mounted_write=0", "--exitall_on_error=1"),
        f"--percentile_list={':'.join(f'{share:g}' for share in PERCENTILES)}",
        # A file is there, and as long as it is to be: fio lays out none of its own.
        *(("--allow_file_create=0", "--overwrite=1", "--fallocate=none") if window.is_file else ()),
        *(log_words(names=logs) if logs else ()),
    ]


def log_words(every_ms: int = 1000, *, names: str = LOGS, latencies: bool = False) -> Iterator[str]:
    """Have fio log rates, and latencies if they are wanted, by our clock. `names` is what logs begin with."""
    yield f"--write_iops_log={names}"
    if latencies:
        yield f"--write_lat_log={names}"
    yield f"--log_avg_msec={every_ms}"
    yield "--log_alternate_epoch=1"
    yield f"--log_alternate_epoch_clock_id={_CLOCK_MONOTONIC}"
