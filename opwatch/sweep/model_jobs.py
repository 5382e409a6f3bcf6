"""Convert the fio options of a workload into jobs of the simulated host, or refuse an option by name. Pure.

Distributions are fio's own, hash included. A model with fewer blocks than the drive draws ranks of the
drive's blocks and merges ranks that share a block there (opwatch/ftl/fio_hash.py), and then neighbouring
ones, so that shares of space and of writes are the drive's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from opwatch.errors import UsageError
from opwatch.ftl.host_load import AddressKind, HostJob, HostShape
from opwatch.load.fio_arguments import keep_hot_addresses
from opwatch.load.workload import LoadJob, LoadPattern
from opwatch.quantities import parse_size

_SECTOR, _MOST_BYTES, _MOST_SIZES = 512, 1 << 30, 4096
_WRITE, _READ = 1, 0
_MOST_DEPTH = 65536
# fio waits between requests with these, so that the relative pace of jobs would count.
_PACED = ("rate", "rate_iops", "rate_min", "rate_process", "thinktime", "thinktime_blocks", "thinktime_spin")
_REFUSED = {
    **dict.fromkeys(_PACED, "it paces requests, but a model in virtual time works without pauses"),
    "bs_unaligned": "a drive has sectors of 512 bytes",
    "bs_is_seq_rand": "give the sizes with bssplit or in two jobs",
    "softrandommap": "a model has no map of written blocks: use norandommap=1",
}
# Options that change how many requests are outstanding.
_UNTIMED = (
    *("iodepth_batch", "iodepth_batch_submit", "iodepth_batch_complete_min", "iodepth_batch_complete_max"),
    *("iodepth_low", "io_submit_mode"),
)
_SYNC_ENGINES = ("psync", "sync", "vsync", "pvsync", "pvsync2")
_OFF = ("", "0", "none")
_HASHED = {"zipf": AddressKind.ZIPF, "pareto": AddressKind.PARETO, "normal": AddressKind.NORMAL}


@dataclass(frozen=True, slots=True)
class UsedBytes:
    """The bytes in use on the real drive, and on the model that stands for it."""

    real: int
    model: int


def find_queue_depth(pattern: LoadPattern) -> int:
    """Return the requests that all threads keep outstanding."""
    return min(sum(_find_depth(job) * job.thread_count for job in pattern.jobs), _MOST_DEPTH)


def _find_depth(job: LoadJob) -> int:
    if job.options.get("ioengine") in _SYNC_ENGINES:
        return 1
    return _parse_number(job.options.get("iodepth", "1"), "iodepth")


def find_timing_reason(pattern: LoadPattern) -> str | None:
    """Return why a model has no IOPS and latencies of this workload, or None if it has."""
    if len({tuple(sorted(job.options.items())) for job in pattern.jobs}) > 1:
        return "the jobs differ, and the model gives each thread the same bytes instead of its own pace"
    for job in pattern.jobs:
        given = [key for key in _UNTIMED if job.options.get(key, "") not in ("", "0", "1", "inline")]
        if given:
            return f"the model does not submit in batches: {given[0]}={job.options[given[0]]}"
    return None


def make_host_jobs(pattern: LoadPattern, used: UsedBytes) -> tuple[HostJob, ...]:
    """Return the jobs of a workload on the bytes in use. Raise UsageError for an option that a model lacks.

    Each thread writes the same number of bytes, as in a round of a sweep on a drive. Threads that write in
    order start at equal distances.
    """
    jobs: list[HostJob] = []
    for job in pattern.jobs:
        try:
            jobs += _make_threads(job, used)
        except UsageError as error:
            raise UsageError(f"{pattern.name}: {error}") from None
    return tuple(jobs)


def _make_threads(job: LoadJob, used: UsedBytes) -> list[HostJob]:
    options = job.options
    for key, reason in _REFUSED.items():
        if options.get(key, "0") not in _OFF:
            raise UsageError(f"{key}={options[key]}: {reason}")
    if options.get("random_generator") == "lfsr":
        raise UsageError("random_generator=lfsr: a model draws blocks independently: use tausworthe64")
    _require_no_map(options)
    _find_depth(job)
    write, read = (_make_shape(options, direction, used) for direction in (_WRITE, _READ))
    # To the whole percent, as fio takes it.
    read_percent = round(100 * (1 - job.write_share))
    one = HostJob(
        write=write,
        read=read,
        weight=1 / (write.mean_bytes * (1 - read_percent / 100)),
        read_ppm=10_000 * read_percent,
        flush_every=_find_flush_interval(options),
    )
    if write.random_percent == 100 and read.random_percent == 100:
        return [replace(one, weight=one.weight * job.thread_count)]
    return [_place_thread(one, at, job.thread_count, used.model) for at in range(job.thread_count)]


def _require_no_map(options: Mapping[str, str]) -> None:
    """Raise UsageError for random writes that cover every block once before any block twice."""
    is_mapped = options.get("norandommap", "1") in ("0", "")
    kind = options.get("random_distribution", "random").partition(":")[0]
    if is_mapped and options["rw"].startswith("rand") and kind not in _HASHED:
        raise UsageError("norandommap=0: a model draws blocks independently: use norandommap=1")


def _place_thread(job: HostJob, number: int, threads: int, used_bytes: int) -> HostJob:
    def place(shape: HostShape) -> HostShape:
        start = used_bytes * number // threads
        return replace(shape, position=start - start % shape.align_bytes)

    return replace(job, write=place(job.write), read=place(job.read))


def _find_flush_interval(options: Mapping[str, str]) -> int:
    """Return the number of writes after which the host flushes, or 0 if never."""
    if options.get("sync", "0") not in _OFF:
        return 1
    intervals = [_parse_number(options[key], key) for key in ("fsync", "fdatasync") if key in options]
    return min((interval for interval in intervals if interval), default=0)


def _make_shape(options: Mapping[str, str], direction: int, used: UsedBytes) -> HostShape:
    kind, colon, modifier = options["rw"].partition(":")
    if colon:
        raise UsageError(f"rw={kind}:{modifier}: a model has no such steps: use rw={kind}")
    sizes = _find_sizes(options, direction)
    least = min(size for size, _ in sizes)
    align = _find_alignment(options, direction, least)
    is_random = kind.startswith("rand")
    percent = _parse_number(_select(options.get("percentage_random", "100"), direction), "percentage_random")
    if percent > 100:
        raise UsageError(f"percentage_random={percent}: it must be a percentage")
    blocks, ranks = (max((size - max(least - align, 0)) // align, 1) for size in (used.model, used.real))
    shape = HostShape(align, blocks, max(ranks, blocks), sizes, random_percent=percent if is_random else 0)
    return _add_distribution(shape, options, direction, used) if is_random else shape


def _find_alignment(options: Mapping[str, str], direction: int, least: int) -> int:
    text = options.get("blockalign", options.get("ba"))
    align = _parse_bytes(_select(text, direction), "blockalign") if text else least
    if align % _SECTOR:
        raise UsageError(f"blockalign={text}: not a multiple of {_SECTOR} bytes")
    return align


def _find_sizes(options: Mapping[str, str], direction: int) -> tuple[tuple[int, int], ...]:
    """Return the sizes of requests with their weights."""
    if "bssplit" in options:
        sizes = _parse_split(_select(options["bssplit"], direction))
    elif ranged := options.get("bsrange", options.get("blocksize_range")):
        sizes = _spread_range(_select(ranged, direction))
    else:
        sizes = ((_parse_bytes(_select(options["bs"], direction), "bs"), 1),)
    for size, _ in sizes:
        if not _SECTOR <= size <= _MOST_BYTES or size % _SECTOR:
            raise UsageError(f"requests of {size} bytes: use whole sectors of {_SECTOR} bytes, up to 1G")
    return sizes


def _parse_split(text: str) -> tuple[tuple[int, int], ...]:
    rows = [part.partition("/") for part in text.split(":")]
    given = [_parse_number(share, "bssplit") if share else None for _, _, share in rows]
    known = sum(share for share in given if share is not None)
    blanks = given.count(None)
    if known > 100 or (known < 100 and not blanks):
        raise UsageError(f"bssplit={text:.60}: its percentages add up to {known}, not to 100")
    rest = (100 - known) // blanks if blanks else 0
    sizes = [
        (_parse_bytes(size, "bssplit"), rest if share is None else share)
        for (size, _, _), share in zip(rows, given, strict=True)
    ]
    return tuple((size, share) for size, share in sizes if share)


def _spread_range(text: str) -> tuple[tuple[int, int], ...]:
    """Return the sizes of fio's bsrange: the lowest plus a random share of the highest, rounded down."""
    low, _, high = text.partition("-")
    least, most = _parse_bytes(low, "bsrange"), _parse_bytes(high or low, "bsrange")
    if not 0 < least <= most or most // least > _MOST_SIZES:
        raise UsageError(
            f"bsrange={text:.60}: give the lowest and the highest size, at most 4096 times larger"
        )
    weights: dict[int, int] = {}
    for at in range(least, least + most, least):
        size = min(at, most - most % least)
        weights[size] = weights.get(size, 0) + min(least, least + most - at)
    return tuple(weights.items())


def _add_distribution(
    shape: HostShape, options: Mapping[str, str], direction: int, used: UsedBytes
) -> HostShape:
    text = options.get("random_distribution", "random")
    kind, _, rest = keep_hot_addresses(text).partition(":")
    if kind == "random":
        return shape
    try:
        if kind in _HASHED:
            return _add_hashed(shape, kind, rest)
        if kind in ("zoned", "zoned_abs"):
            return _add_zones(shape, _select(rest, direction), used, is_absolute=kind == "zoned_abs")
    except ValueError:
        raise UsageError(f"random_distribution={text:.60}: not a distribution that fio accepts") from None
    raise UsageError(f"random_distribution={text:.60}: use random, zipf, pareto, normal, zoned or zoned_abs")


def _add_hashed(shape: HostShape, kind: str, text: str) -> HostShape:
    first, _, center_text = text.partition(":")
    power, center = float(first), float(center_text) if center_text else None
    if shape.align_bytes != min(size for size, _ in shape.sizes):
        raise UsageError(f"blockalign with {kind}: its blocks have the smallest size of a request")
    if center is not None and not 0 <= center <= 1:
        raise ValueError(center_text)
    shape = replace(shape, kind=_HASHED[kind], center=center or 0.0)
    if kind == "zipf" and 0 < power <= 100 and power != 1:
        return replace(shape, power=power)
    if kind == "pareto" and 0 < power < 1:
        return replace(shape, power=math.log(power) / math.log(1 - power))
    if kind == "normal" and 0 <= power <= 100:
        width = min(math.ceil(shape.ranks * power / 100), shape.ranks // 2)
        # fio moves a normal distribution by its center less a half.
        return replace(shape, normal_width=width, center=0.0 if center is None else (center - 0.5) % 1)
    raise ValueError(first)


def _add_zones(shape: HostShape, text: str, used: UsedBytes, *, is_absolute: bool) -> HostShape:
    """Return the shape with fio's zones, whose edges are rounded down to blocks."""
    zones: list[tuple[int, int, int]] = []
    begin = total = 0
    for zone in text.split(":"):
        access, _, size = zone.partition("/")
        share = _parse_number(access, "zoned")
        if is_absolute:
            end = begin + _parse_bytes(size, "zoned_abs")
            first, last = (edge * used.model // used.real // shape.align_bytes for edge in (begin, end))
        else:
            end = begin + _parse_number(size, "zoned")
            first, last = begin * shape.blocks // 100, end * shape.blocks // 100
        total += share
        if last > shape.blocks:
            raise UsageError(f"random_distribution: its zones are larger than the {used.real} bytes in use")
        if share:
            zones.append((first, max(last - first, 1), share))
        begin = end
    if total != 100:
        raise UsageError(f"random_distribution: accesses add up to {total} %, not to 100")
    return replace(shape, zones=tuple(zones))


def _select(text: str, direction: int) -> str:
    """Return the part of an option for reads or writes: fio separates them by commas."""
    parts = text.split(",")
    return parts[direction] if len(parts) > direction and parts[direction] else parts[0]


def _parse_bytes(text: str, key: str) -> int:
    try:
        # fio's units are powers of 1024, in either case.
        return parse_size(text.lower().removesuffix("ib").removesuffix("b") if text else text)
    except UsageError:
        raise UsageError(f"{key}: {text!r:.60} is not a size such as 8k") from None


def _parse_number(text: str, key: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UsageError(f"{key}={text!r:.60} is not a whole number")
    return int(text)
