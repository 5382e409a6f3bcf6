"""Decode log page C3h of OCP specification 2.7, the latency monitor: commands slower than four thresholds."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.decode.pages import BadPage, read_unsigned, require_page

LID, LENGTH = 0xC3, 512
# GUID 85D45E58-D4E6-4370-9C6C-84D08CC07A92 in wire order.
GUID = bytes.fromhex("927ac08cd0846c9c7043e6d4585ed485")
# By the specification, drives may refresh the page only every ten minutes.
REFRESH_S = 600
BUCKETS = 4
DIRECTIONS = ("read", "write", "trim")
_MINUTES, _MILLISECONDS, _WINDOW_MS = 5, 5, 100
_ACTIVE_AT, _STATIC_AT = 32, 240
_SATURATED = 0xFFFFFFFF
_NO_STAMP = (1 << 64) - 1
_STAMP_BITS = 48


@dataclass(frozen=True, slots=True)
class SlowCell:
    """Commands of one direction in one bucket.

    `measured_ms` is the latency of the first or the slowest command, and `stamp_ms` its timestamp, since
    power-on or by the clock that the host has set. None: not reported.
    """

    commands: int
    saturated: bool = False
    measured_ms: int | None = None
    stamp_ms: int | None = None
    is_by_clock: bool = False
    is_largest: bool = False


@dataclass(frozen=True, slots=True)
class SlowBucket:
    """Commands that took at least `from_ms` and less than the next bucket."""

    from_ms: int
    cells: dict[str, SlowCell]


@dataclass(frozen=True, slots=True)
class MonitorLog:
    """Log page C3h. `active` is the running window, at least `minutes` long; `static` is the last complete
    window."""

    enabled: bool
    minutes: int
    minutes_in_all: int | None
    window_ms: int | None
    active: tuple[SlowBucket, ...]
    static: tuple[SlowBucket, ...]
    debug_log_ms: int | None
    version: int


def _decode_timestamp(raw: int) -> int | None:
    """Return the milliseconds of an NVMe timestamp. The upper bits hold the origin."""
    return None if raw == _NO_STAMP else raw & ((1 << _STAMP_BITS) - 1)


def _decode_cell(page: bytes, at: int, units_at: int, place: tuple[int, int]) -> SlowCell:
    """Decode one cell. Counts are stored first bucket first, trims first; stamps and latencies last bucket
    first."""
    bucket, direction = place
    count = read_unsigned(page, at + 16 * bucket + 4 * (3 - direction), 4)
    index = 3 * (BUCKETS - 1 - bucket) + 2 - direction
    bit = 3 * bucket + direction
    measured = read_unsigned(page, at + 160 + 2 * index, 2)
    return SlowCell(
        commands=count,
        saturated=count == _SATURATED,
        measured_ms=measured or None,
        stamp_ms=_decode_timestamp(read_unsigned(page, at + 64 + 8 * index, 8)) if measured else None,
        is_by_clock=bool(read_unsigned(page, units_at, 2) >> bit & 1),
        is_largest=bool(read_unsigned(page, 10, 2) >> bit & 1),
    )


def _decode_buckets(page: bytes, at: int, units_at: int) -> tuple[SlowBucket, ...]:
    return tuple(
        SlowBucket(
            (page[6 + bucket] + 1) * _MILLISECONDS,
            {
                name: _decode_cell(page, at, units_at, (bucket, direction))
                for direction, name in enumerate(DIRECTIONS)
            },
        )
        for bucket in range(BUCKETS)
    )


def decode_monitor(raw: bytes) -> MonitorLog:
    """Decode log page C3h, or raise BadPage if its GUID is not the OCP specification's."""
    page = require_page(raw, LENGTH, "log page C3h")
    if page[496:512] != GUID:
        raise BadPage("log page C3h does not have the GUID of the OCP specification: it is a different page")
    enabled = bool(page[0] & 1)
    thresholds = list(page[6:10])
    if enabled and thresholds != sorted(set(thresholds)):
        raise BadPage("log page C3h has thresholds that do not increase")
    threshold = read_unsigned(page, 4, 2)
    debug_stamp = read_unsigned(page, 452, 8)
    return MonitorLog(
        enabled=enabled,
        minutes=read_unsigned(page, 2, 2) * _MINUTES,
        minutes_in_all=threshold * _MINUTES or None,
        window_ms=page[12] * _WINDOW_MS or None,
        active=_decode_buckets(page, _ACTIVE_AT, 216),
        static=_decode_buckets(page, _STATIC_AT, 424),
        debug_log_ms=None if debug_stamp == _NO_STAMP else read_unsigned(page, 450, 2),
        version=read_unsigned(page, 494, 2),
    )
