"""Parse fio's logs (write_bw_log and related options). Pure.

A row's time is in milliseconds, either since the job's start or on another clock given to fio. The log does
not say which.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.foreign import MAX_LINE_BYTES, decode_text, parse_all_unsigned

# Without log_avg_msec a log has a row for every request.
MAX_ROWS = 1 << 21
# Operations by fio's number in a row.
_OPERATIONS = ("read", "write", "discard", "flush")
# Columns: time, value, operation, block size; optionally an offset; since fio 3.18 a priority.
_MIN_COLUMNS, _MAX_COLUMNS = 4, 6
_MAX_DIGITS = 19
_NAME = re.compile(r"(?:.*_)?(bw|iops|lat|clat|slat|clat_hist)(?:\.([0-9]{1,6}))?\.log", re.ASCII | re.DOTALL)
# 29 groups of 64 bins, 19 before fio 3.3. Each step of log_hist_coarseness, up to six, halves the number.
_BINS, _MAX_COARSENESS = (29 * 64, 19 * 64), 6


class FioLogKind(StrEnum):
    """The quantity in a log and the unit."""

    BANDWIDTH = "bw"  # KiB/s
    RATE = "iops"  # 1/s
    LATENCY = "lat"  # ns
    COMPLETION = "clat"  # ns
    SUBMISSION = "slat"  # ns


class FioLogRow(NamedTuple):
    """A value of one operation.

    With log_avg_msec, the mean over the interval that ends at `time_ms`. `block_bytes` is 0 for a row of
    several requests.
    """

    time_ms: int
    value: int
    operation: str
    block_bytes: int


class FioLog:
    """The rows of one log, stored in columns because some logs have millions of rows."""

    def __init__(self, kind: FioLogKind, job: int | None) -> None:
        # The job's number, from 1, if fio writes one log per job.
        self.kind, self.job = kind, job
        self._times, self._values, self._blocks = array("Q"), array("Q"), array("Q")
        self._operations = bytearray()

    def __len__(self) -> int:
        return len(self._operations)

    def add_row(self, row: tuple[int, int, int, int]) -> None:
        self._times.append(row[0])
        self._values.append(row[1])
        self._operations.append(row[2])
        self._blocks.append(row[3])

    def iter_rows(self) -> Iterator[FioLogRow]:
        for time_ms, value, operation, block in zip(
            self._times, self._values, self._operations, self._blocks, strict=True
        ):
            yield FioLogRow(time_ms, value, _OPERATIONS[operation], block)


@dataclass(frozen=True, slots=True)
class FioHistogramRow:
    """Completion latencies of one operation between the previous row and `time_ms`.

    `bins` are the midpoints of the non-empty bins with their counts.
    """

    time_ms: int
    operation: str
    block_bytes: int
    bins: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FioHistogramLog:
    """A log written by write_hist_log."""

    job: int | None
    rows: tuple[FioHistogramRow, ...]


def is_log_name(name: str) -> bool:
    """Return whether a file name has the form of a fio log's."""
    return _NAME.fullmatch(name) is not None


def parse_log(raw: bytes, name: str) -> FioLog | FioHistogramLog:
    """Parse a log with a name of the form PREFIX_KIND.NUMBER.log.

    Raises BadInput, with the line, for other text.
    """
    parts = _NAME.fullmatch(name)
    if not parts:
        raise BadInput(
            f"{name} is not named like a fio log, such as PREFIX_bw.1.log; kinds: {_format_kinds()}"
        )
    job = int(parts[2]) if parts[2] else None
    if parts[1] == "clat_hist":
        return FioHistogramLog(job, tuple(_parse_histograms(raw, name)))
    log = FioLog(FioLogKind(parts[1]), job)
    for where, line in _split_lines(raw, name):
        row = _parse_numbers(line, where)
        if not _MIN_COLUMNS <= len(row) <= _MAX_COLUMNS:
            raise BadInput(f"{where}: {len(row)} values, not {_MIN_COLUMNS} to {_MAX_COLUMNS}")
        _find_operation(row[2], where)
        log.add_row((row[0], row[1], row[2], row[3]))
    return log


def _format_kinds() -> str:
    return ", ".join([*FioLogKind, "clat_hist"])


def _split_lines(raw: bytes, name: str) -> Iterator[tuple[str, str]]:
    """Yield (position, line) for each non-empty line."""
    for number, line in enumerate(io.BytesIO(raw), 1):
        if number > MAX_ROWS:
            raise BadInput(f"{name} has more than {MAX_ROWS} rows: log with log_avg_msec")
        if len(line) > MAX_LINE_BYTES:
            raise BadInput(f"{name}, line {number}: {len(line)} bytes are too long for a row")
        if text := decode_text(line).strip():
            yield f"{name}, line {number}", text


def _parse_numbers(line: str, where: str) -> list[int]:
    # A priority has the form 0x0004.
    words = [word.strip() for word in line.split(",")]
    head, last = words[:-1], words[-1]
    if last.startswith("0x") and len(words) > _MIN_COLUMNS:
        words = head
    row = parse_all_unsigned(words, _MAX_DIGITS)
    if row is None:
        raise BadInput(f"{where}: {line:.60} is not a row of whole numbers")
    return row


def _find_operation(number: int, where: str) -> str:
    if number >= len(_OPERATIONS):
        raise BadInput(f"{where}: {number} is not an operation (0 to {len(_OPERATIONS) - 1})")
    return _OPERATIONS[number]


def _parse_histograms(raw: bytes, name: str) -> Iterator[FioHistogramRow]:
    for where, line in _split_lines(raw, name):
        row = _parse_numbers(line, where)
        counts = row[3:]
        coarse = [
            level for level in range(_MAX_COARSENESS + 1) if len(counts) in [bins >> level for bins in _BINS]
        ]
        if not coarse:
            raise BadInput(f"{where}: {len(counts)} bins; fio writes {_BINS[0]}, or that halved repeatedly")
        bins = tuple(
            (compute_bin_middle_ns(at, coarse[0]), count) for at, count in enumerate(counts) if count
        )
        yield FioHistogramRow(row[0], _find_operation(row[1], where), row[2], bins)


def compute_bin_middle_ns(place: int, coarseness: int = 0) -> int:
    """Return the midpoint of one of fio's histogram bins.

    Bins are exact below 128 ns, then there are 64 per octave. Coarser bins merge two, four or more bins.
    """
    low, _ = _compute_bin_edges(place << coarseness)
    _, high = _compute_bin_edges(((place + 1) << coarseness) - 1)
    return (low + high + 1) // 2


def _compute_bin_edges(place: int) -> tuple[int, int]:
    if place < 128:
        return place, place
    shift = (place >> 6) - 1
    low = (64 + (place & 63)) << shift
    return low, low + (1 << shift) - 1
