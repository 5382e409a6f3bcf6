"""Run a load in one file with sysbench: build the arguments and parse the output. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opwatch.errors import BadInput, Unsupported
from opwatch.load.plain import PlainLoad

# The programs for a load in a file.
FIO, SYSBENCH = "fio", "sysbench"
LOADERS = (FIO, SYSBENCH)
_MODES = {(100, 100): "rndrd", (0, 100): "rndwr", (100, 0): "seqrd", (0, 0): "seqrewr"}
_WHOLE = 100
# sysbench prints rates with two decimals and times with four.
_NUMBER = r"\s*(\d{1,15}(?:\.\d{1,9})?)"
_FIGURES = {
    "reads_per_s": re.compile(rf"^\s*reads/s:{_NUMBER}\s*$", re.MULTILINE),
    "writes_per_s": re.compile(rf"^\s*writes/s:{_NUMBER}\s*$", re.MULTILINE),
    "seconds": re.compile(rf"^\s*total time:{_NUMBER}s\s*$", re.MULTILINE),
    "events": re.compile(r"^\s*total number of events:\s*(\d{1,15})\s*$", re.MULTILINE),
    "mean_ms": re.compile(rf"^\s*avg:{_NUMBER}\s*$", re.MULTILINE),
}


@dataclass(frozen=True, slots=True)
class SysbenchResult:
    """The result of a run. `mean_ns` is the mean I/O time by sysbench's clock, with a resolution of 10 us."""

    reads: int
    writes: int
    seconds: float
    mean_ns: float


def build_sysbench_arguments(
    load: PlainLoad,
    n_bytes: int,
    threads: int,
    seed: int,
    *,
    seconds: float | None = None,
    events: int = 0,
    most_per_s: int = 0,
    fsync_every: int = 0,
) -> list[str]:
    """Return sysbench's arguments for the load in the folder's only file.

    The load bypasses the page cache, or with `fsync_every` goes through it and is synced after that many
    requests, as sysbench does by default. The run is limited by `seconds` or by `events`, and to `most_per_s`
    I/Os per second (0 means no limit). Raises Unsupported for a load without a sysbench mode.
    """
    mode = _MODES.get((load.rdpct, load.seekpct))
    ratio: tuple[str, ...] = ()
    if mode is None and load.seekpct == _WHOLE:
        mode, ratio = "rndrw", (f"--file-rw-ratio={load.rdpct / (_WHOLE - load.rdpct):.6g}",)
    if mode is None:
        raise Unsupported(
            f"--load sysbench: {load.name}: sysbench has no mode with {load.rdpct} % reads and "
            f"{load.seekpct} % random accesses: use --workload rndwr, rndrd, rndrw, seqrewr or seqrd, or fio"
        )
    # By default sysbench is buffered, and flushes after every 100 requests and at the end.
    cache = (
        (f"--file-fsync-freq={fsync_every}", "--file-fsync-end=on")
        if fsync_every
        else ("--file-extra-flags=direct", "--file-fsync-freq=0", "--file-fsync-end=off")
    )
    return [
        *("fileio", "--file-num=1", f"--file-total-size={n_bytes}", f"--file-test-mode={mode}", *ratio),
        *(f"--file-block-size={load.xfersize}", "--file-io-mode=sync", *cache),
        *(f"--threads={threads}", f"--rand-seed={seed}"),
        *("--rand-type=uniform", f"--time={0 if seconds is None else max(round(seconds), 1)}"),
        *(f"--events={events}", f"--rate={most_per_s}", "run"),
    ]


def parse_sysbench(text: str, where: str) -> SysbenchResult:
    """Parse the output of sysbench 1.0. Raises BadInput if a figure is missing or appears twice."""
    figures = {}
    for name, pattern in _FIGURES.items():
        matches = pattern.findall(text)
        if len(matches) != 1:
            raise BadInput(f"{where}: sysbench printed {len(matches)} lines of {name} instead of one")
        figures[name] = float(matches[0])
    seconds, events = figures["seconds"], int(figures["events"])
    moved = figures["reads_per_s"] + figures["writes_per_s"]
    if not seconds or not moved or not events:
        raise BadInput(f"{where}: sysbench reported 0 requests or a duration of 0")
    # Rates are rounded to two decimals, whereas the number of events is exact.
    reads = round(events * figures["reads_per_s"] / moved)
    return SysbenchResult(reads, events - reads, seconds, figures["mean_ms"] * 1e6)
