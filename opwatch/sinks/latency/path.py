"""Latencies of the host, the drive and the path between them, in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opwatch import SCHEMA
from opwatch.counters.latency.comparison import TransportTimes
from opwatch.counters.latency.quantiles import TimeRange
from opwatch.counters.reading import DriveFacts
from opwatch.sinks.counters import build_identity, format_identity
from opwatch.sinks.latency.drive_log import build_range_document, format_cells, format_range
from opwatch.sinks.wrapping import wrap_text

_WIDTHS = (6, 7, 9, 15, 15, 15, 13)
_SHOWN = ("mean", "p50", "p90", "p99")
_HEAD = ("", "WHERE", "COUNT", "MEAN", "P50", "P90", "P99")


def _format_row(name: str, where: str, count: str, times: Mapping[str, TimeRange]) -> str:
    return format_cells((name, where, count, *(format_range(times.get(key)) for key in _SHOWN)), _WIDTHS)


def _format_direction(name: str, times: TransportTimes) -> list[str]:
    shown = []
    if times.host:
        shown += [
            _format_row(name, "host", str(times.requests), times.host),
            _format_row(name, "drive", str(times.commands), times.drive),
        ]
    if times.reason:
        return [*shown, *wrap_text(f"{name}: unknown: {times.reason}", indent=2)]
    if not times.host:
        return [f"{name}: none"]
    return [*shown, _format_row(name, "path", "", times.way)]


def format_path_latency(drive: DriveFacts, seconds: float, ways: Mapping[str, TransportTimes]) -> list[str]:
    """Return rows for the host, for the drive by its own count, and for the difference."""
    shown = [*format_identity(drive), format_cells(_HEAD, _WIDTHS)]
    for name, times in ways.items():
        shown += _format_direction(name, times)
    return shown + wrap_text(
        f"over {seconds:.1f} s. host: from issue to completion in the kernel; drive: log D0h; path: host "
        "minus drive, for quantiles and means. The true values are within these ranges.",
        indent=2,
    )


def _build_ranges(times: Mapping[str, TimeRange]) -> dict[str, Any] | None:
    return {name: build_range_document(value) for name, value in times.items()} or None


def build_path_document(
    drive: DriveFacts, seconds: float, ways: Mapping[str, TransportTimes]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "type": "latency-way",
        "device": build_identity(drive),
        "seconds": seconds,
        **{
            name: {
                "requests": times.requests,
                "commands": times.commands,
                "reason": times.reason,
                "host": _build_ranges(times.host),
                "drive": _build_ranges(times.drive),
                "way": _build_ranges(times.way),
            }
            for name, times in ways.items()
        },
    }
