"""Latencies of the host, the drive and the path between them, in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opwatch import SCHEMA
from opwatch.counters.latency.between import WayTimes
from opwatch.counters.latency.quantiles import TimeRange
from opwatch.counters.reading import DriveFacts
from opwatch.sinks.counters import identity, title
from opwatch.sinks.folding import folded
from opwatch.sinks.latency.own import cells, range_document, span

_WIDTHS = (6, 7, 9, 15, 15, 15, 13)
_SHOWN = ("mean", "p50", "p90", "p99")
_HEAD = ("", "WHERE", "COUNT", "MEAN", "P50", "P90", "P99")


def _row(name: str, where: str, count: str, times: Mapping[str, TimeRange]) -> str:
    return cells((name, where, count, *(span(times.get(key)) for key in _SHOWN)), _WIDTHS)


def _direction(name: str, times: WayTimes) -> list[str]:
    shown = []
    if times.host:
        shown += [
            _row(name, "host", str(times.requests), times.host),
            _row(name, "drive", str(times.commands), times.drive),
        ]
    if times.reason:
        return [*shown, *folded(f"{name}: cannot be told: {times.reason}", indent=2)]
    if not times.host:
        return [f"{name}: none"]
    return [*shown, _row(name, "way", "", times.way)]


def way_lines(drive: DriveFacts, seconds: float, ways: Mapping[str, WayTimes]) -> list[str]:
    """Return rows for the host, for the drive by its own count, and for the difference."""
    shown = [*title(drive), cells(_HEAD, _WIDTHS)]
    for name, times in ways.items():
        shown += _direction(name, times)
    return shown + folded(
        f"for {seconds:.1f} s. host: from issue to end as the kernel sees it; drive: log D0h; way: host "
        "minus drive, of a quantile as of a mean. The true values lie in the ranges.",
        indent=2,
    )


def _ranges(times: Mapping[str, TimeRange]) -> dict[str, Any] | None:
    return {name: range_document(value) for name, value in times.items()} or None


def way_document(drive: DriveFacts, seconds: float, ways: Mapping[str, WayTimes]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "type": "latency-way",
        "device": identity(drive),
        "seconds": seconds,
        **{
            name: {
                "requests": times.requests,
                "commands": times.commands,
                "reason": times.reason,
                "host": _ranges(times.host),
                "drive": _ranges(times.drive),
                "way": _ranges(times.way),
            }
            for name, times in ways.items()
        },
    }
