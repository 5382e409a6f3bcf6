"""iostat's figures from two readings of the kernel's statistics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.collectors.block.diskstats import decode_stat, decode_ticks
from opwatch.trace.kernel_times import derive_kernel_times
from opwatch.trace.stat import StatSample

JIFFY = 4_000_000
# Linux 6.12, an NVMe drive: reads, writes, in flight, busy, queued, discards, flushes.
THEN = "100 5 8000 250 40 3 320 60 0 200 330 7 0 700 20 2 0"
NOW = "1100 5 88000 3250 41 3 328 63 2 700 3347 7 0 700 20 9 14"


def make_stat(text: str, at_s: float) -> StatSample:
    requests, bytes_ = decode_stat(text)
    begin_ns = round(at_s * 1e9)
    return StatSample(
        begin_ns - 9,
        begin_ns,
        requests,
        bytes_,
        ticks=decode_ticks([int(word) for word in text.split()], JIFFY),
    )


def test_figures_match_iostat() -> None:
    times = derive_kernel_times(make_stat(THEN, 10), make_stat(NOW, 12))
    assert times
    # r_await = (3250 - 250) / (1100 - 100) ms, and so on; no discard completed.
    means = {group: awaited.mean_ns / 1e6 for group, awaited in times.awaits.items()}
    assert means == {"read": 3.0, "write": 3.0, "flush": 2.0}
    assert times.awaits["read"].error_ns == 1e6 / 1000
    assert times.awaits["write"].error_ns == 1e6
    assert times.busy_ratio == pytest.approx(0.25)
    assert times.busy_error == pytest.approx(JIFFY / 2e9)
    assert times.queue_size == pytest.approx(3017 / 2000)


def test_sums_wrap_at_32_bits() -> None:
    then = make_stat(THEN.replace(" 250 ", f" {2**32 - 1000} ").replace(" 200 ", f" {2**32 - 1} "), 10)
    times = derive_kernel_times(then, make_stat(NOW, 12))
    assert times
    assert times.awaits["read"].mean_ns == pytest.approx(4.25e6)
    assert times.busy_ratio == pytest.approx(701 / 2000)


def test_an_older_kernel_has_fewer_groups() -> None:
    then, now = (make_stat(" ".join(text.split()[:11]), at) for text, at in ((THEN, 10), (NOW, 12)))
    times = derive_kernel_times(then, now)
    assert times
    assert set(times.awaits) == {"read", "write"}


def test_figures_are_missing_without_times() -> None:
    then, now = make_stat(THEN, 10), make_stat(NOW, 12)
    assert derive_kernel_times(None, now) is derive_kernel_times(then, None) is None
    assert derive_kernel_times(replace(then, ticks=None), now) is None
    assert derive_kernel_times(then, replace(now, ticks=None)) is None
    assert derive_kernel_times(then, then) is None
    # A different disk with the same name.
    assert derive_kernel_times(now, replace(make_stat(THEN, 10), end_ns=now.end_ns + 1)) is None
