"""A drive's own latency counts, in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opwatch import SCHEMA, units
from opwatch.counters.decode.amazon import AmazonLog, DirectionTimes, SizedTimes, TimeSlot
from opwatch.counters.decode.monitor import DIRECTIONS, REFRESH_S, MonitorLog, SlowBucket, SlowCell
from opwatch.counters.latency.drive_latency import DriveLatency
from opwatch.counters.latency.quantiles import QUANTILES, TimeRange, bound_mean, bound_quantile
from opwatch.sinks.counters import build_identity, format_identity
from opwatch.sinks.wrapping import wrap_text

_WIDTHS = (7, 11, 9, 14, 13, 13, 13)
_HEAD = ("DRIVE", "COMMANDS", "BYTES", "MEAN", "P50", "P99", "P99.9")


def format_range(value: TimeRange | None) -> str:
    """Return a time range as text; "or more" if it has no upper limit."""
    if value is None:
        return "-"
    low = units.format_ns(value.low)
    if value.high is None:
        return f"{low} or more"
    return f"{low}..{units.format_ns(value.high)}"


def format_cells(values: Sequence[str], widths: Sequence[int]) -> str:
    """Return a table row. A cell wider than its column shifts the rest to the right."""
    return " ".join(value.ljust(width - 1) for value, width in zip(values, widths, strict=True)).rstrip()


def _wrap_note(text: str) -> list[str]:
    return wrap_text(text, indent=2)


def _format_row(name: str, times: DirectionTimes) -> str:
    shown = [format_range(bound_quantile(times.slots, QUANTILES[part])) for part in ("p50", "p99", "p99_9")]
    words = (
        name,
        str(times.commands),
        units.format_capacity(times.bytes),
        format_range(bound_mean(times)),
        *shown,
    )
    return format_cells(words, _WIDTHS)


def _format_sized_rows(sized: SizedTimes) -> list[str]:
    most = "more" if sized.most_bytes is None else units.format_size(sized.most_bytes)
    rows = []
    for name, slots in (("read", sized.read), ("write", sized.write)):
        count = sum(slot.count for slot in slots)
        if count:
            shown = [format_range(bound_quantile(slots, QUANTILES[part])) for part in ("p50", "p99", "p99_9")]
            rows.append(
                format_cells(
                    (f"  {name}", f"{units.format_size(sized.above_bytes)}-{most}", str(count), *shown),
                    _SIZED,
                )
            )
    return rows


_SIZED = (8, 13, 12, 14, 14, 14)


def _format_amazon(log: AmazonLog) -> list[str]:
    where = "instance storage" if log.is_instance_storage else "EBS"
    shown = [format_cells(_HEAD, _WIDTHS), _format_row("read", log.read), _format_row("write", log.write)]
    rows = [row for sized in log.by_size for row in _format_sized_rows(sized)]
    if rows:
        shown += [format_cells(("  SIZE", "ABOVE-TO", "COMMANDS", "P50", "P99", "P99.9"), _SIZED), *rows]
    limits = [
        (log.volume_iops_us, "the volume's IOPS"),
        (log.volume_bandwidth_us, "the volume's throughput"),
        (log.instance_iops_us, "the instance's IOPS"),
        (log.instance_bandwidth_us, "the instance's throughput"),
    ]
    asked = [f"{name} for {units.format_ns(us * 1000)}" for us, name in limits if us]
    shown += _wrap_note(f"limits exceeded: {', '.join(asked)}" if asked else "no limit was exceeded")
    source = f"from log D0h ({where}), since it was attached"
    return [*shown, *_wrap_note(f"queue length at that moment: {log.queue_length}; {source}")]


def _format_slow_cell(cell: SlowCell) -> str:
    if not cell.commands:
        return "0"
    count = f"{cell.commands}{' or more' if cell.saturated else ''}"
    if cell.measured_ms is None:
        return count
    which = "max" if cell.is_largest else "first"
    return f"{count} ({which} {cell.measured_ms} ms)"


_SLOW = (18, 20, 20, 20)


def _format_slow_rows(buckets: Sequence[SlowBucket]) -> list[str]:
    rows = []
    ends = [*(bucket.from_ms for bucket in buckets[1:]), None]
    for bucket, end in zip(buckets, ends, strict=True):
        label = f"  {bucket.from_ms} ms or more" if end is None else f"  {bucket.from_ms} to {end} ms"
        rows.append(
            format_cells((label, *(_format_slow_cell(bucket.cells[name]) for name in DIRECTIONS)), _SLOW)
        )
    return rows


def _format_monitor(log: MonitorLog) -> list[str]:
    if not log.enabled:
        return _wrap_note("the latency monitor (log C3h) is switched off: its contents are meaningless")
    head = f"slower than {log.active[0].from_ms} ms, over {log.minutes} to {log.minutes + 5} min"
    whole = f" of {log.minutes_in_all}" if log.minutes_in_all else ""
    shown = _wrap_note(f"{head}{whole}, from log C3h, which may be {REFRESH_S // 60} minutes old")
    shown += [format_cells(("  SLOW", "READ", "WRITE", "TRIM"), _SLOW), *_format_slow_rows(log.active)]
    if any(cell.commands for bucket in log.static for cell in bucket.cells.values()):
        shown += [f"  the {log.minutes_in_all} min before:", *_format_slow_rows(log.static)]
    if log.debug_log_ms is not None:
        shown += _wrap_note(f"the drive wrote a debug log for a command of {log.debug_log_ms} ms")
    return shown


def format_drive_latency(drive_latency: DriveLatency) -> list[str]:
    """Return the latencies reported by the drive, and the failed reads."""
    shown = format_identity(drive_latency.drive)
    if drive_latency.amazon:
        shown += _format_amazon(drive_latency.amazon)
    if drive_latency.monitor:
        shown += _format_monitor(drive_latency.monitor)
    for failure in drive_latency.failures:
        shown += _wrap_note(f"failed: {failure}")
    return shown


def build_range_document(value: TimeRange | None) -> dict[str, Any] | None:
    return None if value is None else {"low_ns": value.low, "high_ns": value.high}


def _build_slots(slots: Sequence[TimeSlot]) -> list[dict[str, Any]]:
    return [{"low_us": slot.low_us, "high_us": slot.high_us, "count": slot.count} for slot in slots]


def _build_direction(times: DirectionTimes) -> dict[str, Any]:
    return {
        "commands": times.commands,
        "bytes": times.bytes,
        "time_us": times.time_us,
        "mean": build_range_document(bound_mean(times)),
        "quantiles": {
            name: build_range_document(bound_quantile(times.slots, ratio))
            for name, ratio in QUANTILES.items()
        },
        "histogram": _build_slots(times.slots),
    }


def _build_amazon(log: AmazonLog) -> dict[str, Any]:
    return {
        "source": "log D0h",
        "is_instance_storage": log.is_instance_storage,
        "read": _build_direction(log.read),
        "write": _build_direction(log.write),
        "volume_iops_exceeded_us": log.volume_iops_us,
        "volume_throughput_exceeded_us": log.volume_bandwidth_us,
        "instance_iops_exceeded_us": log.instance_iops_us,
        "instance_throughput_exceeded_us": log.instance_bandwidth_us,
        "queue_length": log.queue_length,
        "by_size": [
            {
                "above_bytes": sized.above_bytes,
                "most_bytes": sized.most_bytes,
                "read": _build_slots(sized.read),
                "write": _build_slots(sized.write),
            }
            for sized in log.by_size
        ],
    }


def _build_cell(cell: SlowCell) -> dict[str, Any]:
    return {
        "commands": cell.commands,
        "saturated": cell.saturated,
        "measured_ms": cell.measured_ms,
        "measured_is_largest": cell.is_largest,
        "stamp_ms": cell.stamp_ms,
        "stamp_is_by_clock": cell.is_by_clock,
    }


def _build_buckets(buckets: Sequence[SlowBucket]) -> list[dict[str, Any]]:
    return [
        {"from_ms": bucket.from_ms, **{name: _build_cell(bucket.cells[name]) for name in DIRECTIONS}}
        for bucket in buckets
    ]


def _build_monitor(log: MonitorLog) -> dict[str, Any]:
    return {
        "source": "log C3h",
        "refresh_s": REFRESH_S,
        "enabled": log.enabled,
        "minutes": log.minutes,
        "minutes_in_all": log.minutes_in_all,
        "window_ms": log.window_ms,
        "active": _build_buckets(log.active),
        "static": _build_buckets(log.static),
        "debug_log_ms": log.debug_log_ms,
        "version": log.version,
    }


def build_latency_document(drive_latency: DriveLatency) -> dict[str, Any]:
    """Return the drive's latencies as one JSON document."""
    return {
        "schema": SCHEMA,
        "type": "drive-latency",
        "device": build_identity(drive_latency.drive),
        "own": _build_amazon(drive_latency.amazon) if drive_latency.amazon else None,
        "monitor": _build_monitor(drive_latency.monitor) if drive_latency.monitor else None,
        "failures": list(drive_latency.failures),
    }
