"""Known delays of null_blk's timer and dm-delay: our percentiles match.

An emulated CPU is late: timers fire late, and the clock advances while the CPU is not scheduled. dm-delay
counts in ticks, and late ticks can also make it early. The error is not assumed but measured: bpftrace
times the same requests in the same run, and bpftrace's deviation from the known delay is the machine's.
A slot is 1/32 of its value wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from opwatch.trace.derive import QUANTILES, Latency
from tests.kernel.support.watching import Watched
from tests.vm.guest.support import stacked
from tests.vm.guest.support.backend_tracers import attach_backends
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.workload import Fio, run_fio
from tests.vm.requirements import need_module, need_tool

TIMEOUT_S = 1800

SLOT_WIDTH = 1 / 32
# test_backends compares the programs: fewer than this share are more than a slot apart.
INTERRUPTED_SHARE = 0.005
JOB = Fio("randread", 997, iodepth=1, engine="psync")
BACKENDS = ("libbpf", "bpftrace")


@contextmanager
def attach_loop(below: str) -> Iterator[str]:
    """Yield a loop device directly on a device. It turns bios into requests, which show dm's delay."""
    need_module("loop")
    device = run_command("losetup", "--find", "--show", "--direct-io=on", f"/dev/{below}").strip()
    try:
        yield device.removeprefix("/dev/")
    finally:
        run_command("losetup", "--detach", device)


def find_lowest_slot(latency: Latency) -> tuple[int, int]:
    """Return the bounds of the lowest slot with a count."""
    histogram = latency.histogram
    slot = next(slot for slot, count in enumerate(histogram.slot_counts) if count)
    return histogram.scale.low_edge(slot), histogram.scale.high_edge(slot)


def bound_quantile(witness: Latency, ratio: float) -> tuple[int, int]:
    """Return the bounds of the quantile, assuming that the CPU stopped between the two programs of an event
    for a share INTERRUPTED of the requests."""
    low = witness.histogram.find_quantile(max(ratio - INTERRUPTED_SHARE, 0))
    high = witness.histogram.find_quantile(min(ratio + INTERRUPTED_SHARE, 1))
    assert low
    assert high
    return low.low, high.high


def assert_latency_in_bounds(delay_ns: int, ours: Latency, witness: Latency) -> None:
    """Check that our values lie between the delay and bpftrace's values, give or take one slot."""
    print(f"lowest: {find_lowest_slot(ours)} ns for {delay_ns}; bpftrace {find_lowest_slot(witness)}")
    assert find_lowest_slot(ours)[1] >= min(delay_ns, find_lowest_slot(witness)[0])
    for name in ("p50", "p90", "p99"):
        value = ours.quantiles[name]
        low, high = bound_quantile(witness, QUANTILES[name])
        print(f"{name}: {value} ns for {delay_ns}; bpftrace {low} to {high}")
        assert value is not None
        assert min(delay_ns, low) * (1 - SLOT_WIDTH) <= value <= max(delay_ns, high) * (1 + SLOT_WIDTH)


def observe_backends(disks: list[str], job_on: str) -> dict[str, dict[str, Watched]]:
    need_tool("bpftrace")
    with attach_backends(disks, BACKENDS) as tracers:
        return tracers.run_workload(lambda: run_fio(job_on, JOB))


@pytest.mark.parametrize("delay_ns", [1_000_000, 10_000_000])
def test_percentiles_match_the_null_blk_timer(delay_ns: int) -> None:
    with create_null_blk(NullBlk(irqmode=Irq.TIMER, completion_nsec=delay_ns)) as disk:
        watched = observe_backends([disk], disk)
    ours, witness = (watched[backend][disk].interval.ops["read"] for backend in BACKENDS)
    assert ours.count == witness.count == JOB.count
    assert_latency_in_bounds(delay_ns, ours.latency, witness.latency)


def test_dm_delay_shows_above_the_target_but_not_below() -> None:
    delay_ms = 20
    fast = NullBlk(size=96, memory_backed=1)
    with (
        create_null_blk(fast) as below,
        stacked.create_delay(below, delay_ms) as middle,
        attach_loop(middle.name) as top,
    ):
        watched = observe_backends([top, below], top)
    ours, witness = (watched[backend][top].interval.ops["read"] for backend in BACKENDS)
    assert ours.count == witness.count == JOB.count
    assert_latency_in_bounds(delay_ms * 1_000_000, ours.latency, witness.latency)
    beneath = watched["libbpf"][below].interval.ops["read"]
    assert beneath.count == JOB.count
    assert beneath.latency.quantiles["p99"] is not None
    assert beneath.latency.quantiles["p99"] < delay_ms * 1_000_000 / 2
