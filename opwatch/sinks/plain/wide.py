"""Extra columns of a row on a terminal of 120 columns or more, and further ones at 132."""

from __future__ import annotations

from opwatch import units
from opwatch.trace.derive import OpInterval
from opwatch.trace.hist import Histogram
from opwatch.trace.kernel_times import KernelTimes

MIN_COLUMNS = 120
TIMES_COLUMNS = 132
_BARS = " ▁▂▃▄▅▆▇█"
# One character per octave: 1 us, 1 ms and 1 s are ten characters apart.
_LOWEST, _OCTAVES = 10, 24
HEADER = "  mean size  1u        1m        1s  "
LEGEND = "; bars: latency distribution"
TIMES_HEADER = "  await %util"


def draw_latency_shape(histogram: Histogram) -> str:
    """Return the latency distribution as one bar per octave.

    Latencies below a microsecond are in the first bar, latencies above ten seconds in the last. Heights are
    relative to the highest bar, and an octave with requests is never blank.
    """
    counts = [0] * _OCTAVES
    for low, _, count in histogram.list_octaves():
        counts[min(max(low.bit_length() - 1 - _LOWEST, 0), _OCTAVES - 1)] += count
    most = max(counts)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] if count else " " for count in counts)


def format_extra_columns(op: OpInterval) -> str:
    """Return the extra columns of a row."""
    mean = round(op.bytes / op.count) if op.count else None
    return f"  {units.format_size(mean):>9}  {draw_latency_shape(op.latency.histogram)}".rstrip()


def format_kernel_times(name: str, times: KernelTimes | None, *, is_first: bool) -> str:
    """Return iostat's await of an operation, and the disk's utilisation in its first row. Unknown values are
    a dash."""
    awaited = times.awaits.get(name) if times else None
    mean = units.format_ns(awaited.mean_ns if awaited else None)
    busy = f"{times.busy_ratio * 100:.0f}" if times else "-"
    return f" {mean:>6} {busy if is_first else '':>5}".rstrip()
