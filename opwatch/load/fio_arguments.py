"""Build fio's arguments for a workload: target, amount and seed. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.load.workload import LoadPattern

_UNIT = 4096
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999)
# linux/time.h: the clock of all of opwatch's samples.
_CLOCK_MONOTONIC = 1
_FILL_BYTES = 128 << 10
# Prefix of log names. The logs are in fio's working folder.
LOGS = "log"


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """The used range of a device. `path` leads to the device even after a change of the name."""

    path: str
    size_bytes: int
    offset_bytes: int = 0
    is_file: bool = False


def derive_seed(secret: str, *places: object) -> int:
    """Return the seed of one round of one level: different for each round, but reproducible.

    Without a seed, fio uses a default seed at each start and rewrites the same addresses.
    """
    digest = hashlib.sha256("\0".join([secret, *map(str, places)]).encode()).digest()
    # fio accepts 64 bits, and interprets 0 as "none".
    return int.from_bytes(digest[:7], "big") + 1


def build_round_arguments(
    pattern: LoadPattern, window: LoadWindow, write_bytes: int, seed: int, logs: str | None = None
) -> list[str]:
    """Return fio's arguments for a round of `write_bytes` written, rounded up to whole units per thread.

    Log names start with `logs`; None disables logs.
    """
    words = build_common_arguments(window, logs)
    threads = sum(job.thread_count for job in pattern.jobs)
    number = 0
    for job in pattern.jobs:
        # A job's io_size includes reads.
        whole = int(write_bytes / threads / job.write_share)
        share = max(-(-whole // _UNIT) * _UNIT, _UNIT)
        for _ in range(job.thread_count):
            words.append(f"--name=job{number}")
            words += [
                f"--{key}={keep_hot_addresses(value) if key == 'random_distribution' else value}"
                for key, value in job.options.items()
                if key != "numjobs"
            ]
            # Threads with the same seed would write the same addresses.
            words += [f"--randseed={seed + number}", f"--io_size={share}"]
            number += 1
    return words


def keep_hot_addresses(distribution: str) -> str:
    """Return a distribution with a fixed place for its hottest addresses.

    By default, fio moves the hot addresses of zipf and pareto with the seed, and each round has another seed.
    The hot data of one round would then be the cold data of the next.
    """
    kind, _, rest = distribution.partition(":")
    is_moving = kind in ("zipf", "pareto") and not set(":,") & set(rest)
    return f"{distribution}:0" if is_moving else distribution


def build_fill_arguments(
    window: LoadWindow, seed: int, logs: str | None = None, block_bytes: int = _FILL_BYTES
) -> list[str]:
    """Return fio's arguments for writing a window once, sequentially, and nothing beyond.

    fio's last request always has the full size, even beyond the window's end, so the remainder is a separate
    job.
    """
    whole = window.size_bytes // block_bytes * block_bytes
    parts = [
        (window.offset_bytes, whole, block_bytes),
        (window.offset_bytes + whole, window.size_bytes - whole, _UNIT),
    ]
    words = build_common_arguments(window, logs)
    for number, (offset, size, block) in enumerate(part for part in parts if part[1]):
        words += [f"--name=fill{number}", *(["--stonewall"] if number else [])]
        words += [f"--offset={offset}", f"--size={size}", f"--io_size={size}", f"--bs={block}"]
        words += ["--rw=write", "--ioengine=libaio", "--direct=1", "--iodepth=8"]
        words += ["--refill_buffers=1", f"--randseed={seed + number}"]
    return words


def build_sprandom_arguments(window: LoadWindow, spare_ratio: float, seed: int) -> list[str]:
    """Return arguments of fio 3.41 and later for writing a window once and leaving the state of long random
    writes.

    fio overwrites as many blocks along the way as a drive with `spare_ratio` has invalid. fio ends by itself.
    """
    return [
        *build_common_arguments(window, None),
        *("--name=fill0", "--rw=randwrite", f"--bs={_UNIT}", "--ioengine=libaio", "--direct=1"),
        *("--iodepth=32", "--refill_buffers=1", "--norandommap=1", "--random_generator=lfsr"),
        *("--sprandom=1", f"--spr_op={spare_ratio:g}", f"--randseed={seed}"),
    ]


def build_common_arguments(window: LoadWindow, logs: str | None) -> list[str]:
    """Return the arguments before the first job of any run: target and reporting."""
    return [
        f"--filename={window.path}",
        f"--offset={window.offset_bytes}",
        f"--size={window.size_bytes}",
        *("--thread", "--randrepeat=0", "--allow_mounted_write=0", "--exitall_on_error=1"),
        f"--percentile_list={':'.join(f'{share:g}' for share in PERCENTILES)}",
        # The file exists in the final size, so fio must not lay out another.
        *(("--allow_file_create=0", "--overwrite=1", "--fallocate=none") if window.is_file else ()),
        *(build_log_arguments(names=logs) if logs else ()),
    ]


def build_log_arguments(every_ms: int = 1000, *, names: str = LOGS, latencies: bool = False) -> Iterator[str]:
    """Yield the arguments for logging rates, and optionally latencies, by CLOCK_MONOTONIC.

    `names` is the prefix of log names.
    """
    yield f"--write_iops_log={names}"
    if latencies:
        yield f"--write_lat_log={names}"
    yield f"--log_avg_msec={every_ms}"
    yield "--log_alternate_epoch=1"
    yield f"--log_alternate_epoch_clock_id={_CLOCK_MONOTONIC}"
