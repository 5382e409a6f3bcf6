"""A drive's own latency counts, in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opwatch import SCHEMA, units
from opwatch.counters.decode.amazon import AmazonLog, DirectionTimes, SizedTimes, TimeSlot
from opwatch.counters.decode.monitor import DIRECTIONS, REFRESH_S, MonitorLog, SlowBucket, SlowCell
from opwatch.counters.latency.looked import DriveLatency
from opwatch.counters.latency.quantiles import QUANTILES, TimeRange, mean, quantile
from opwatch.sinks.counters import identity, title
from opwatch.sinks.folding import folded

_WIDTHS = (7, 11, 9, 14, 13, 13, 13)
_HEAD = ("OWN", "COMMANDS", "BYTES", "MEAN", "P50", "P99", "P99.9")


def span(value: TimeRange | None) -> str:
    """Return a time range as text; "or more" if it has no upper limit."""
    if value is None:
        return "-"
    low = units.duration(value.low)
    if value.high is None:
        return f"{low} or more"
    return f"{low}..{units.duration(value.high)}"


def cells(values: Sequence[str], widths: Sequence[int]) -> str:
    """Return a table row. A cell wider than its column shifts the rest to the right."""
    return " ".join(value.ljust(width - 1) for value, width in zip(values, widths, strict=True)).rstrip()


def _note(text: str) -> list[str]:
    return folded(text, indent=2)


def _row(name: str, times: DirectionTimes) -> str:
    shown = [span(quantile(times.slots, QUANTILES[part])) for part in ("p50", "p99", "p99_9")]
    words = (name, str(times.commands), units.capacity(times.bytes), span(mean(times)), *shown)
    return cells(words, _WIDTHS)


def _sized_rows(sized: SizedTimes) -> list[str]:
    most = "more" if sized.most_bytes is None else units.size(sized.most_bytes)
    rows = []
    for name, slots in (("read", sized.read), ("write", sized.write)):
        count = sum(slot.count for slot in slots)
        if count:
            shown = [span(quantile(slots, QUANTILES[part])) for part in ("p50", "p99", "p99_9")]
            rows.append(
                cells((f"  {name}", f"{units.size(sized.above_bytes)}-{most}", str(count), *shown), _SIZED)
            )
    return rows


_SIZED = (8, 13, 12, 14, 14, 14)


def _amazon_lines(log: AmazonLog) -> list[str]:
    where = "instance storage" if log.is_instance_storage else "EBS"
    shown = [cells(_HEAD, _WIDTHS), _row("read", log.read), _row("write", log.write)]
    rows = [row for sized in log.by_size for row in _sized_rows(sized)]
    if rows:
        shown += [cells(("  SIZE", "ABOVE-MOST", "COMMANDS", "P50", "P99", "P99.9"), _SIZED), *rows]
    limits = [
        (log.volume_iops_us, "the volume's IOPS"),
        (log.volume_bandwidth_us, "the volume's throughput"),
        (log.instance_iops_us, "the instance's IOPS"),
        (log.instance_bandwidth_us, "the instance's throughput"),
    ]
    asked = [f"{name} for {units.duration(us * 1000)}" for us, name in limits if us]
    shown += _note(f"more was asked than {', '.join(asked)} allow" if asked else "no limit was reached")
    source = f"from log D0h ({where}), since it was attached"
    return [*shown, *_note(f"in the queue at that moment: {log.queue_length}; {source}")]


def _cell(cell: SlowCell) -> str:
    if not cell.commands:
        return "0"
    count = f"{cell.commands}{' or more' if cell.saturated else ''}"
    if cell.measured_ms is None:
        return count
    which = "most" if cell.is_largest else "first"
    return f"{count} ({which} {cell.measured_ms} ms)"


_SLOW = (18, 20, 20, 20)


def _slow_rows(buckets: Sequence[SlowBucket]) -> list[str]:
    rows = []
    ends = [*(bucket.from_ms for bucket in buckets[1:]), None]
    for bucket, end in zip(buckets, ends, strict=True):
        label = f"  {bucket.from_ms} ms or more" if end is None else f"  {bucket.from_ms} to {end} ms"
        rows.append(cells((label, *(_cell(bucket.cells[name]) for name in DIRECTIONS)), _SLOW))
    return rows


def _monitor_lines(log: MonitorLog) -> list[str]:
    if not log.enabled:
        return _note("the latency monitor (log C3h) is switched off: what it shows counts for nothing")
    head = f"slower than {log.active[0].from_ms} ms, for {log.minutes} to {log.minutes + 5} min"
    whole = f" of {log.minutes_in_all}" if log.minutes_in_all else ""
    shown = _note(f"{head}{whole}, from log C3h, which may be {REFRESH_S // 60} minutes old")
    shown += [cells(("  SLOW", "READ", "WRITE", "TRIM"), _SLOW), *_slow_rows(log.active)]
    if any(cell.commands for bucket in log.static for cell in bucket.cells.values()):
        shown += [f"  the {log.minutes_in_all} min before:", *_slow_rows(log.static)]
    if log.debug_log_ms is not None:
        shown += _note(f"a debug log was made for a command of {log.debug_log_ms} ms")
    return shown


def lines(drive_latency: DriveLatency) -> list[str]:
    """Return the latencies reported by the drive, and the failed reads."""
    shown = title(drive_latency.drive)
    if drive_latency.amazon:
        shown += _amazon_lines(drive_latency.amazon)
    if drive_latency.monitor:
        shown += _monitor_lines(drive_latency.monitor)
    for failure in drive_latency.failures:
        shown += _note(f"failed: {failure}")
    return shown


def range_document(value: TimeRange | None) -> dict[str, Any] | None:
    return None if value is None else {"low_ns": value.low, "high_ns": value.high}


def _slots_document(slots: Sequence[TimeSlot]) -> list[dict[str, Any]]:
    return [{"low_us": slot.low_us, "high_us": slot.high_us, "count": slot.count} for slot in slots]


def _direction_document(times: DirectionTimes) -> dict[str, Any]:
    return {
        "commands": times.commands,
        "bytes": times.bytes,
        "time_us": times.time_us,
        "mean": range_document(mean(times)),
        "quantiles": {
            name: range_document(quantile(times.slots, ratio)) for name, ratio in QUANTILES.items()
        },
        "histogram": _slots_document(times.slots),
    }


def _amazon_document(log: AmazonLog) -> dict[str, Any]:
    return {
        "source": "log D0h",
        "is_instance_storage": log.is_instance_storage,
        "read": _direction_document(log.read),
        "write": _direction_document(log.write),
        "volume_iops_exceeded_us": log.volume_iops_us,
        "volume_throughput_exceeded_us": log.volume_bandwidth_us,
        "instance_iops_exceeded_us": log.instance_iops_us,
        "instance_throughput_exceeded_us": log.instance_bandwidth_us,
        "queue_length": log.queue_length,
        "by_size": [
            {
                "above_bytes": sized.above_bytes,
                "most_bytes": sized.most_bytes,
                "read": _slots_document(sized.read),
                "write": _slots_document(sized.write),
            }
            for sized in log.by_size
        ],
    }


def _cell_document(cell: SlowCell) -> dict[str, Any]:
    return {
        "commands": cell.commands,
        "saturated": cell.saturated,
        "measured_ms": cell.measured_ms,
        "measured_is_largest": cell.is_largest,
        "stamp_ms": cell.stamp_ms,
        "stamp_is_by_clock": cell.is_by_clock,
    }


def _buckets_document(buckets: Sequence[SlowBucket]) -> list[dict[str, Any]]:
    return [
        {"from_ms": bucket.from_ms, **{name: _cell_document(bucket.cells[name]) for name in DIRECTIONS}}
        for bucket in buckets
    ]


def _monitor_document(log: MonitorLog) -> dict[str, Any]:
    return {
        "source": "log C3h",
        "refresh_s": REFRESH_S,
        "enabled": log.enabled,
        "minutes": log.minutes,
        "minutes_in_all": log.minutes_in_all,
        "window_ms": log.window_ms,
        "active": _buckets_document(log.active),
        "static": _buckets_document(log.static),
        "debug_log_ms": log.debug_log_ms,
        "version": log.version,
    }


def document(drive_latency: DriveLatency) -> dict[str, Any]:
    """Return the drive's latencies as one JSON document."""
    return {
        "schema": SCHEMA,
        "type": "drive-latency",
        "device": identity(drive_latency.drive),
        "own": _amazon_document(drive_latency.amazon) if drive_latency.amazon else None,
        "monitor": _monitor_document(drive_latency.monitor) if drive_latency.monitor else None,
        "failures": list(drive_latency.failures),
    }
