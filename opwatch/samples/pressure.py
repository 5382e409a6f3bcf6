"""The kernel's pressure totals, beside what separates waits for disks from waits before them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PressureTotals:
    """Numbers of the whole machine; None if the kernel does not report them.

    `io_some_us` is the time since boot in which at least one task waited for I/O (PSI), `io_full_us` that in
    which all did, and so for memory. `requests_ms` is the time of the completed requests of all disks, added
    up, `requests_in_flight` their number now. `dirty_pages` are modified or being written back now;
    `dirty_background_pages` and `dirty_limit_pages` are the kernel's limits for them.
    """

    io_some_us: int | None = None
    io_full_us: int | None = None
    memory_some_us: int | None = None
    memory_full_us: int | None = None
    requests_ms: int | None = None
    requests_in_flight: int | None = None
    dirty_pages: int | None = None
    dirty_background_pages: int | None = None
    dirty_limit_pages: int | None = None
