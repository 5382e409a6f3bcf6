"""The fio options allowed in a workload. Pure.

fio can run programs, write files anywhere and load libraries, so unknown options are refused.
"""

from __future__ import annotations

import re

from opwatch.errors import BadInput

# Options for the shape of requests only.
REQUEST_OPTIONS = frozenset(
    (
        *("rw", "readwrite", "rwmixread", "rwmixwrite", "percentage_random", "bs", "blocksize", "bssplit"),
        *("bsrange", "blocksize_range", "bs_unaligned", "bs_is_seq_rand", "blockalign", "ba"),
        *("iodepth", "iodepth_batch", "iodepth_batch_submit", "iodepth_batch_complete_min"),
        *("iodepth_batch_complete_max", "iodepth_low", "io_submit_mode", "ioengine", "numjobs", "direct"),
        *("random_distribution", "random_generator", "norandommap", "softrandommap", "refill_buffers"),
        *("scramble_buffers", "buffer_compress_percentage", "dedupe_percentage", "zero_buffers"),
        *("rate", "rate_iops", "rate_min", "rate_process", "thinktime", "thinktime_blocks", "thinktime_spin"),
        *(
            "fsync",
            "fdatasync",
            "sync",
            "hipri",
            "fixedbufs",
            "registerfiles",
            "sqthread_poll",
            "nonvectored",
        ),
        *("mem", "iomem", "cpus_allowed", "cpus_allowed_policy", "prio", "prioclass", "nice"),
    )
)
# Options decided by a sweep: target, amount, duration, seed, and logs.
SWEEP_OPTIONS = frozenset(
    (
        *("name", "description", "filename", "filesize", "size", "io_size", "offset", "offset_increment"),
        *("runtime", "time_based", "loops", "number_ios", "ramp_time", "startdelay", "start_delay"),
        *("randrepeat", "randseed", "allrandrepeat", "thread", "group_reporting", "new_group", "stonewall"),
        *("wait_for_previous", "write_bw_log", "write_lat_log", "write_iops_log", "log_avg_msec"),
        *("per_job_logs", "percentile_list", "clat_percentiles", "lat_percentiles", "disable_lat"),
        *("disable_clat", "disable_slat", "gtod_reduce", "bwavgtime", "iopsavgtime", "eta", "eta-newline"),
    )
)
# Engines whose I/O goes from memory to the device through the kernel. Others load libraries or open sockets.
_ENGINES = ("libaio", "io_uring", "psync", "sync", "vsync", "pvsync", "pvsync2", "posixaio")
# fio's own kinds of memory. Other kinds can name a file or a disk for fio's buffers, which fio would then
# overwrite.
_MEMORY = ("malloc", "shm", "shmhuge", "mmap")
_PATTERNS = ("write", "randwrite", "rw", "readwrite", "randrw")
_VALUE = re.compile(r"[A-Za-z0-9_.,:/%+-]{0,400}", re.ASCII)
# An option without a value is enabled.
_FLAG = "1"


def check_option(key: str, value: str, where: str) -> tuple[str, str] | None:
    """Return a workload option as fio takes it, or None for an option decided by the sweep.

    Raises BadInput for any other option.
    """
    name = {"readwrite": "rw", "blocksize": "bs"}.get(key, key)
    if name in SWEEP_OPTIONS:
        return None
    if name not in REQUEST_OPTIONS:
        raise BadInput(
            f"{where}: option {key!r:.60} is not supported: opwatch accepts options that shape requests"
        )
    if not _VALUE.fullmatch(value):
        raise BadInput(f"{where}: {key}={value!r:.60} is not a plain value")
    if name == "ioengine" and value not in _ENGINES:
        raise BadInput(f"{where}: ioengine={value}: use one of {', '.join(_ENGINES)}")
    if name == "rw" and value.partition(":")[0] not in _PATTERNS:
        raise BadInput(f"{where}: rw={value}: a sweep needs writes: use one of {', '.join(_PATTERNS)}")
    if name in ("mem", "iomem") and value not in _MEMORY:
        raise BadInput(f"{where}: {key}={value!r:.60}: use one of {', '.join(_MEMORY)}, without a file")
    if name == "direct" and value not in ("", _FLAG):
        raise BadInput(f"{where}: direct={value}: the page cache would hide the drive; use direct=1")
    if name in ("numjobs", "rwmixread", "rwmixwrite") and not _is_count(value):
        raise BadInput(f"{where}: {key}={value!r:.60} is not a whole number")
    return name, value or _FLAG


def _is_count(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= 4
